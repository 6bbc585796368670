"""Runs with several actor-learners: in turns, within a bound on staleness, whatever is lost."""

import json
import os
import select
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tandem
from tandem.errors import NetworkError, NonFiniteError, ResumeError, WorkerError
from tandem.learning.events import BatchEnd
from tandem.learning.parallel import transport
from tandem.learning.parallel import worker_group as crews
from tandem.runs.folder import Run
from tandem.runs.verification import verify
from tandem.testing import environments as games
from tandem.workers.shared_memory import Handle
from tests.helpers import run_python, runs
from tests.parallel.same_runs import faulty
from tests.runs.shared import finished

pytest.importorskip("torch")
pytestmark = pytest.mark.slow
QUIET = dict(eval_episodes=0, final_episodes=1, plots=False, tensorboard=False, framework="torch")
SMALL: dict[str, Any] = dict(steps=480, envs=2, rollout=6, hidden=(8,), seed=3, **QUIET)
SMALL["checkpoint_seconds"] = 3600.0
REPLAY = {"replay": "uniform", "replay_starts": 4, "replay_size": 30, "replay_ratio": 1.0}
thorough = pytest.mark.thorough
TURNS = {"learners": 2, "staleness": 1}
FAULTS = {"killed": "was killed", "raises": "ZeroDivisionError", "stands still": "respond for 3 s"}


def duplicated(argument: Any) -> Any:
    """An argument of a process, with file descriptors of its own for shared memory."""
    if isinstance(argument, Handle):
        return argument._replace(fd=os.dup(argument.fd))
    if type(argument) is tuple:
        return tuple(map(duplicated, argument))
    if isinstance(argument, dict):
        return {key: duplicated(x) for key, x in argument.items()}
    return argument


class Here:
    """Stands where a worker's process does, in this one: answers wait in a pipe."""

    def __init__(self, inherits: Any, make: Any, *given: Any) -> None:
        self.served = make(*map(duplicated, given))
        self.answers, (self.read, self.write) = [None], os.pipe()

    def ask(self, name: str, *arguments: Any) -> None:
        self.answers.append(getattr(self.served, name)(*arguments))

    def send_bytes(self, given: bytes) -> None:
        self.answers.append(self.served.on_bytes(given))
        os.write(self.write, b".")

    def answer(self, patience: Any, since: float | None = None) -> Any:
        if since is not None:
            os.read(self.read, 1)
        return self.answers.pop(0)

    def ready(self, others: Any, seconds: float) -> list[int]:
        found = select.select([one.read for one in others], [], [], seconds)[0]
        return [i for i, one in enumerate(others) if one.read in found]


@pytest.mark.parametrize("algorithm", ["acer", "nstep_q"])
def test_in_turns_a_run_is_that_of_one_process(algorithm: str, monkeypatch: Any) -> None:
    given = {**SMALL, **TURNS, **REPLAY, "recurrent": 4}
    apart = finished(tandem.session(algorithm, "CartPole-v1", **given))
    monkeypatch.setattr(transport, "Process", Here)
    monkeypatch.setattr(crews, "end", lambda *_: None)
    here = finished(tandem.session(algorithm, "CartPole-v1", **given))
    begun = tandem.session(algorithm, "CartPole-v1", **SMALL)
    assert apart.fingerprint() == here.fingerprint() != begun.fingerprint()
    assert apart.loop.learner.updates == here.loop.learner.updates > 60
    assert apart.averages.state() == here.averages.state()


def sittings(folder: str, engine: str, algorithm: str) -> list[bool]:
    given = {**SMALL, **TURNS, **REPLAY, "framework": engine}
    whole = finished(tandem.session(algorithm, "CartPole-v1", **given))
    finished(tandem.session(algorithm, "CartPole-v1", out=folder, **given), 150)
    finished(tandem.session(resume=folder), 300)
    parts = finished(tandem.session(resume=folder))
    same = whole.fingerprint() == parts.fingerprint()
    updates = whole.loop.learner.updates == parts.loop.learner.updates > 60
    return [same, updates, whole.loop.env_steps == parts.loop.env_steps == 480]


@pytest.mark.parametrize(
    "engine, algorithm",
    [
        ("torch", "acer"),
        *(pytest.param(e, "nstep_q", marks=thorough) for e in ("jax", "tensorflow")),
    ],
)
def test_in_turns_resuming_is_exact(engine: Any, algorithm: str, tmp_path: Path) -> None:
    code = """
    import json, sys
    from tests.learning.test_asynchronous import sittings

    print(json.dumps(sittings(*sys.argv[1:])))
    """
    given = (str(tmp_path / "run"), engine, algorithm)
    if engine == "torch":
        found = sittings(*given)
    else:
        (found,) = run_python(code, *given, engine=engine, timeout=280)
    assert found == [True] * 3


class Late(games.Chain):
    """The first to be made in a worker is much slower than the others."""

    def __init__(self, folder: Path, parent: int) -> None:
        super().__init__()
        self.late = 0.0
        if os.getpid() != parent and not (folder / "late").exists():
            (folder / "late").touch()
            self.late = 0.01

    def play(self, action: Any) -> tuple[float, bool]:
        time.sleep(self.late)
        return super().play(action)


def test_a_gradient_is_never_staler_than_the_bound(tmp_path: Path) -> None:
    bound, lags = 5, []
    given = {**SMALL, "envs": 1, "steps": 600, "learners": 3, "staleness": bound}
    run = tandem.session("a3c", partial(Late, tmp_path, os.getpid()), **given)
    for event in run:
        if isinstance(event, BatchEnd):
            lags.append(event.metrics["lag"])
    assert run.loop.learner.updates == len(lags) == 100
    assert 2 <= max(lags) <= bound


def test_what_they_learn_is_right() -> None:
    given = {**SMALL, **TURNS, "steps": 6000, "learning_rate": 1e-2, "gamma": 0.5}
    found = tandem.train("a3c", games.Identity, **given)
    assert found.evaluation.mean == 10.0


@pytest.mark.parametrize(
    "fault", ["killed", *(pytest.param(f, marks=thorough) for f in ("raises", "stands still"))]
)
def test_one_that_is_lost_begins_anew(fault: str, tmp_path: Path) -> None:
    given = dict(
        SMALL, learners=2, steps=1200, worker_patience=3.0 if fault == "stands still" else 60.0
    )
    run = tandem.session("a3c", faulty(tmp_path, fault), **given)
    with pytest.warns(UserWarning, match=FAULTS[fault]) as caught:
        pids = [w.process.pid for w in finished(run).loop.collector.group.workers]
    assert run.loop.env_steps >= 1200 and len(caught) == 1 and not any(map(runs, pids))
    assert run.loop.learner.updates == run.loop.env_steps // 12


@pytest.mark.parametrize("replay", ["prioritized", "uniform"])
def test_what_a_lost_one_kept_to_replay_stays(replay: str, tmp_path: Path) -> None:
    more = {**REPLAY, "replay": replay, "replay_size": 500, "steps": 1800}
    run = tandem.session("acer", faulty(tmp_path, "killed", at=301), **{**SMALL, **TURNS, **more})
    with pytest.warns(UserWarning, match="was killed"):
        finished(run)
    learners = run.loop.collector
    lives = [w.generation for w in learners.group.workers]
    kept = [x["left"]["count"] for x in learners.replay.learned]
    assert sorted(lives) == [0, 1]
    assert sum(kept) == pytest.approx(1800 / 6, abs=4) and min(kept) > 100
    (buffer,) = [b for b, life in zip(learners.replay.buffers, lives, strict=True) if life]
    rewards = buffer.arrays["column/reward"][:-1, : kept[lives.index(1)]]
    assert (rewards.sum(0) > 0).mean() > 0.9  # it holds what was played


def test_above_the_budget_it_ends_with_an_error_and_a_checkpoint(tmp_path: Path) -> None:
    env = faulty(tmp_path, "raises", times=2)
    given = {**SMALL, **TURNS, "steps": 1200, "worker_restarts": 1, "out": tmp_path / "run"}
    raises = pytest.raises(WorkerError, match="the simulator diverged")
    with warnings.catch_warnings(record=True) as said, raises:
        warnings.simplefilter("always")
        tandem.train("a3c", env, **given)
    assert len(said) == 1
    assert tandem.train(env=env, resume=tmp_path / "run").summary["env_steps"] >= 1200


class Diverges(games.Chain):
    def step(self, action: Any) -> Any:
        obs, _, *rest = super().step(action)
        return obs, 1e30, *rest


def test_a_loss_that_is_not_finite_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(NonFiniteError, match="'net' was not finite"):
        tandem.train("a3c", Diverges, out=tmp_path / "run", **{**SMALL, **TURNS})
    net = tandem.load(tmp_path / "run", which="last").networks["net"]
    assert np.isfinite(net(np.ones((1, 4), np.float32))).all()


def body(layer: str, *given: Any) -> Any:
    from torch import nn

    return lambda space: nn.Sequential(nn.Linear(4, 8), getattr(nn, layer)(*given), nn.Tanh())


def test_networks_that_move_by_themselves_are_refused() -> None:
    network = body("BatchNorm1d", 8)
    with pytest.raises(NetworkError, match="'net' updates weights in the forward pass"):
        tandem.train("a3c", "CartPole-v1", network=network, **{**SMALL, **TURNS})


@thorough
def test_a_network_of_ones_own_travels() -> None:
    given = {**SMALL, **TURNS, "network": body("Dropout", 0.2)}
    both = [finished(tandem.session("a3c", "CartPole-v1", **given)) for _ in range(2)]
    assert both[0].loop.learner.updates == 40


def test_another_number_of_them_is_refused() -> None:
    run = tandem.session("a3c", "CartPole-v1", **SMALL, **TURNS)
    data, arrays = run.loop.collector.state()
    run.loop.collector.close()
    with pytest.raises(ResumeError, match="saved with 1 learners, not 2"):
        run.loop.collector.load_state({**data, "lives": [0]}, arrays)


def test_the_table_says_how_stale_gradients_were(tmp_path: Path) -> None:
    tandem.train("a3c", "CartPole-v1", out=tmp_path / "run", **SMALL, **TURNS)
    lags = [float(lag) for lag in Run(tmp_path / "run").table["lag"]]
    assert lags == [0.0] + [1.0] * 39
    assert verify(tmp_path / "run", 240).difference is None
    tandem.train("a3c", "CartPole-v1", out=tmp_path / "free", **{**SMALL, "learners": 2})
    with pytest.raises(ResumeError, match="in order of arrival"):
        verify(tmp_path / "free")
    config = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))
    assert config["options"]["learners"] == 2
