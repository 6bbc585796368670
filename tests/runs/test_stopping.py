"""Ending a run before its end: signals, limits, and what an evaluation does meanwhile."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import tandem
from tandem.cli import _terminable
from tandem.errors import SettingError
from tandem.learning import events
from tandem.learning.events import BatchEnd, EvaluationEnd
from tandem.runs.callbacks import Callback, LambdaCallback, TimeLimit
from tandem.runs.folder import Run
from tandem.runs.signals import Signals
from tandem.testing import environments as known
from tandem.trainer import complete
from tests.runs.shared import QUICK, child, finished, rows

SMALL = QUICK | {"steps": 600, "rollout": 50, "envs": 2, "epochs": 1, "batch_size": 50}
SMALL |= {"eval_every": 200, "eval_episodes": 3, "final_episodes": 2}


def endless() -> known.InfiniteHorizon:
    return known.InfiniteHorizon(length=10**9)


class Asks(known.InfiniteHorizon):
    """Calls `wish` at the thousandth step of an episode, which no training here has."""

    def __init__(self, wish) -> None:
        super().__init__(length=10**9)
        self.wish = wish

    def step(self, action):
        if self.t == 1000:
            self.wish()
        return super().step(action)


class Ends(Callback):
    """Ends the run within the evaluation under way, from `steps` environment steps on."""

    reason = "in an evaluation"

    def __init__(self, steps: int, asked: int = 5) -> None:
        self.steps, self.asked, self.now = steps, asked, 0

    def on_batch_end(self, event: BatchEnd) -> None:
        self.now = event.env_steps

    def expired(self) -> bool:
        self.asked -= self.now >= self.steps
        return self.asked < 0


def train(**more) -> tandem.Result:
    return tandem.train("ppo", endless, **SMALL | {"eval_max_steps": 40} | more)


def test_the_budget_of_a_run_is_said_and_is_a_column(tmp_path: Path) -> None:
    heard = []
    told = LambdaCallback(on_evaluation=lambda e: heard.append(str(e.evaluation)))
    result = train(out=tmp_path / "run", callbacks=[told])
    assert heard == ["40.0 ± 0.0 over 3 episodes, all of them cut at 40 steps"] * 3
    cut = Run(tmp_path / "run").column("eval_cut")
    assert list(cut[~np.isnan(cut)]) == [3, 3, 3]
    assert result.evaluation.cut == 2 == result.summary["eval_cut"]
    agent = tandem.load(tmp_path / "run")
    assert tandem.evaluate(agent, endless, 2, max_steps=7).lengths == [7, 7]
    with pytest.raises(SettingError, match="max_steps"):
        tandem.evaluate(agent, endless, 2, max_steps=-1)


@pytest.mark.parametrize("steps", [200, 600], ids=["within", "at the end"])
def test_stopped_within_an_evaluation_and_resumed_it_is_the_same_run(steps, tmp_path) -> None:
    whole, parts, scored = tmp_path / "whole", tmp_path / "parts", list[int]()
    train(out=whole)
    told = LambdaCallback(on_evaluation=lambda e: scored.append(e.env_steps))
    first = train(out=parts, callbacks=[Ends(steps), told])
    assert first.reason in ("in an evaluation", "steps")
    assert steps not in scored
    before = len(scored)
    tandem.train(resume=parts, env=endless, callbacks=[told])
    assert scored[before] == steps
    a, b = Run(whole).table, Run(parts).table
    assert a.keys() == b.keys()
    assert all(a[name] == b[name] for name in a if name != "seconds")


def test_a_time_limit_ends_an_evaluation_and_stop_the_final_scores() -> None:
    given = SMALL | {"eval_max_steps": 10**9, "callbacks": [TimeLimit(0.3)]}
    heard = list(tandem.session("ppo", endless, **given))
    assert heard[-1].reason == "time limit"
    assert not any(isinstance(event, EvaluationEnd) for event in heard)
    with pytest.raises(SettingError, match="seconds=0"):
        TimeLimit(0)
    given = SMALL | {"eval_max_steps": 10**9, "eval_episodes": 0}
    run = tandem.session("ppo", lambda: Asks(lambda: run.stop()), **given)
    result = complete(run)
    assert result.reason == "steps" and result.summary == {} and result.evaluation.returns == []


def sends(number: signal.Signals) -> Callback:
    """Raises the signal after the first block."""
    left = [number]
    return LambdaCallback(on_batch_end=lambda event: left and signal.raise_signal(left.pop()))


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_handlers_are_restored_in_whatever_order_sessions_end(order: tuple[int, ...]) -> None:
    numbers = (signal.SIGINT, signal.SIGTERM)
    before, caught = [signal.getsignal(n) for n in numbers], list[str]()
    sessions = [Signals(caught.append).__enter__() for _ in range(3)]
    for i in order:
        assert [signal.getsignal(n) for n in numbers] != before
        sessions[i].__exit__()
    assert [signal.getsignal(n) for n in numbers] == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_forked_within_a_run_ends_by_sigterm_not_by_sigint() -> None:
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)  # Ray may have set its own
    with Signals(lambda name: None):
        process.start()
        os.kill(process.pid, signal.SIGINT)
        process.join(0.2)
        assert process.is_alive()
        process.terminate()
        process.join(10)
    signal.signal(signal.SIGTERM, before)
    code = process.exitcode
    process.kill()
    assert code == -signal.SIGTERM


def test_sigint_is_a_keyboard_interrupt_with_what_there_is(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as caught:
        train(callbacks=[sends(signal.SIGINT)], out=tmp_path / "run")
    result = caught.value.result
    assert result.reason == "SIGINT" and result.folder == tmp_path / "run"
    assert result.evaluation.returns == [] and np.isnan(result.evaluation.mean)
    assert result.agent.act(np.ones(1, np.float32)) in (0, 1)
    assert (tmp_path / "run" / "checkpoints" / "last.zip").is_file()
    assert signal.getsignal(signal.SIGINT) is before
    assert tandem.train(resume=tmp_path / "run", env=endless).reason == "steps"


@pytest.mark.parametrize("where", ["evaluation", "final scores"])
def test_a_signal_is_heard_where_no_block_ends(where) -> None:
    long = {"eval_max_steps": 10**9, "eval_episodes": 1 if where == "evaluation" else 0}
    env = partial(Asks, lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt) as caught:
        tandem.train("ppo", env, **SMALL | long)
    assert caught.value.result.reason == "SIGINT" and caught.value.result.summary == {}


@pytest.mark.parametrize("how", ["handler", "ignored", "session", "left alone"])
def test_sigterm_goes_to_the_handler_that_was_there(how: str) -> None:
    heard: list[int] = []
    former = signal.SIG_IGN if how == "ignored" else (lambda number, frame: heard.append(number))
    before = signal.signal(signal.SIGTERM, former)
    try:
        given = SMALL | {"callbacks": [sends(signal.SIGTERM)]}
        if how == "session":
            assert list(tandem.session("ppo", endless, **given))[-1].reason == "SIGTERM"
        elif how == "left alone":
            assert train(**given, catch_signals=False).reason == "steps"
        else:
            assert train(**given).reason == "SIGTERM"
        assert signal.getsignal(signal.SIGTERM) is former
        assert heard == ([] if how == "ignored" else [signal.SIGTERM])
    finally:
        signal.signal(signal.SIGTERM, before)


def test_in_another_thread_nothing_is_caught() -> None:
    found: list[object] = []
    before = signal.getsignal(signal.SIGINT)
    told = LambdaCallback(on_batch_end=lambda e: found.append(signal.getsignal(signal.SIGINT)))
    with ThreadPoolExecutor() as pool:
        assert pool.submit(train, callbacks=[told]).result(60).reason == "steps"
    assert set(found) == {before}


SCRIPT = """
import sys, tandem
from tandem.runs.callbacks import LambdaCallback
from tandem.testing.environments import InfiniteHorizon
if __name__ == "__main__":
    for seed in range(3):
        begun = LambdaCallback(on_batch_end=lambda e: print("block", flush=True))
        tandem.train("ppo", lambda: InfiniteHorizon(10**9), seed=seed, callbacks=[begun],
                     out=f"{sys.argv[1]}/s{seed}", framework="torch", eval_episodes=0, plots=False,
                     steps=10**8, compile="no", workers=int(sys.argv[2]))
        print("went on", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number, workers", [(signal.SIGTERM, 1), (signal.SIGINT, 0)])
def test_a_loop_over_seeds_ends_with_the_signal(number, workers, tmp_path: Path) -> None:
    script = tmp_path / "loop.py"
    script.write_text(SCRIPT)
    process = child(str(script), str(tmp_path), str(workers))
    assert process.stdout is not None and process.stdout.readline() == "block\n"
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert "went on" not in out
    assert (tmp_path / "s0" / "checkpoints" / "last.zip").is_file()
    assert not (tmp_path / "s1").exists()
    if number == signal.SIGTERM:
        assert process.returncode == -signal.SIGTERM, err
    else:
        assert process.returncode != 0 and "KeyboardInterrupt" in err


def test_a_signal_is_heard_though_its_exit_was_swallowed() -> None:
    """As by an import of a library that a signal interrupts."""
    heard: list[str] = []
    with _terminable():
        with suppress(SystemExit):
            signal.raise_signal(signal.SIGTERM)
        with Signals(heard.append):
            assert heard == ["SIGTERM"]
    with Signals(heard.append):  # of the next command
        assert heard == ["SIGTERM"]


# A loop over events that is left: the run continues as if it had not been

LEFT = QUICK | {"steps": 320, "envs": 2, "vectorization": "plain", "log_every": 40}
LEFT |= {"eval_every": 80, "eval_episodes": 2}
PPO = {"rollout": 16, "batch_size": 16, "epochs": 1}
DQN = {"learning_starts": 40, "train_every": 8, "batch_size": 8, "buffer_size": 300}
A3C = {"learners": 2, "envs": 1, "rollout": 8, "staleness": 1}
KINDS = (events.BatchBegin, events.BatchEnd, events.EpisodeEnd, events.EvaluationEnd)
PAST = 130  # steps after which a run is left


class Display(Callback):
    def __init__(self) -> None:
        self.seen: list[events.Event] = []
        self.closed = False

    def on_batch_end(self, event: events.BatchEnd) -> None:
        self.seen.append(event)

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True


def untimed(folder: Path) -> list[list[str]]:
    timed = ("second", "time", "share")
    return [[x for n, x in row.items() if not any(t in n for t in timed)] for row in rows(folder)]


@pytest.mark.parametrize(
    "algorithm, given, kinds",
    [
        ("ppo", PPO, (events.TrainBegin, events.CheckpointSaved, *KINDS)),
        ("dqn", DQN, (events.EpisodeEnd, events.BatchBegin)),
        pytest.param(
            "dqn", DQN | {"workers": 1, "ahead": 1}, [events.EpisodeEnd], marks=pytest.mark.slow
        ),
        pytest.param("a3c", A3C, [events.BatchBegin], marks=pytest.mark.slow),
    ],
)
def test_a_run_that_is_left_continues_as_if_it_were_not(algorithm, given, kinds, tmp_path) -> None:
    session = partial(tandem.session, algorithm, "CartPole-v1", **LEFT | given)
    whole = finished(session(out=tmp_path / "whole"))
    for kind in kinds:
        folder, display = tmp_path / kind.__name__, Display()
        left = session(out=folder, callbacks=[display])
        for event in left:
            if isinstance(event, kind) and (kind is events.TrainBegin or event.env_steps > PAST):
                break
        assert display.closed
        assert not display.seen or display.seen[-1].env_steps <= event.env_steps
        at = left.loop.env_steps
        assert at == event.env_steps or kind in (events.EpisodeEnd, events.BatchBegin)
        resumed = tandem.session(resume=folder)
        first, *_, last = resumed
        assert first.env_steps == at and isinstance(last, events.TrainEnd)
        assert resumed.fingerprint() == whole.fingerprint()
        assert untimed(folder) == untimed(tmp_path / "whole")
        assert resumed.evaluations.best == whole.evaluations.best


def test_a_generator_that_is_kept_saves_when_it_is_closed(tmp_path: Path) -> None:
    run = tandem.session("ppo", "CartPole-v1", out=tmp_path / "run", **LEFT, **PPO)
    source = iter(run)
    while not isinstance(event := next(source), events.BatchEnd) or event.env_steps < PAST:
        pass
    assert next(iter(tandem.session(resume=tmp_path / "run"))).env_steps == 0
    source.close()
    assert next(iter(tandem.session(resume=tmp_path / "run"))).env_steps == event.env_steps
