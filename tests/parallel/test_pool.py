"""Runs with workers: the run of one process, whatever happens to them."""

import json
import os
import signal
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tandem
from tandem.envs.factory import vectorize
from tandem.errors import EnvironmentFault, ResumeError, SettingError, WorkerError
from tandem.learning.events import BatchEnd
from tandem.learning.parallel import choice, worker_group
from tandem.learning.parallel.env_factory import EnvFactory, divide
from tandem.platforms import POSIX, VARIABLE
from tandem.testing import environments as games
from tests.parallel import same_runs
from tests.parallel.faulty import Faulty
from tests.parallel.processes import gone, program
from tests.parallel.same_runs import ALIKE, FAST, SETTINGS, faulty, sampled, trained

AHEAD = [(name, ahead) for name in ("acer", "dqn", "sac") for ahead in (1, 3)]
EACH = ("ppo", "ppo with statistics", "a2c with a memory", "acer", "dqn", "mappo")
EACH = [*((name, 0) for name in EACH), ("dqn", 3), ("sac", 1), ("acer", 1)]


@pytest.mark.parametrize("name, ahead", sampled([*((n, 0) for n in ALIKE), *AHEAD], EACH))
def test_a_run_with_workers_is_that_of_one_process(name: str, ahead: int, tmp_path: Path) -> None:
    few, many = 1 if ahead else 0, 2  # ahead, a run without any is another
    one, other = (trained(tmp_path / str(n), name, workers=n, ahead=ahead) for n in (few, many))
    same_runs.assert_alike(one, other)


def test_workers_are_ahead_by_as_much_as_they_may_and_it_is_told() -> None:
    settings = dict(envs=4, train_every=16, updates_per_call=4, learning_starts=100, hidden=(8,))
    run = tandem.session("dqn", "CartPole-v1", steps=512, workers=1, ahead=3, **settings, **FAST)
    found = []
    for event in run:
        if isinstance(event, BatchEnd) and event.metrics:
            found.append((event.env_steps, event.updates, event.metrics["lag"]))
    # The block of steps 113 to 128 was asked for when 64 steps were there: with weights that had
    # seen no update.
    assert found[0] == (112, 4, 0) and [lag for *_, lag in found][1:4] == [4, 8, 12]
    assert {lag for *_, lag in found[3:]} == {12} and found[-1][:2] == (512, 4 * 26)
    assert run.loop.collector.begun_steps == 512 + 3 * 16


def test_environments_are_shared_out_evenly_and_begin_as_they_do_among_all() -> None:
    assert divide(8, 3) == [(0, 2), (2, 3), (5, 3)] and divide(2, 2) == [(0, 1), (1, 1)]
    assert divide(5, 1) == [(0, 5)]
    factory = EnvFactory.of("CartPole-v1", 5, 9, "plain", None)
    whole, part = factory.make(0, 5), factory.make(2, 3).reset()
    assert np.array_equal(whole.reset()[2:], part)
    assert not np.array_equal(part, factory.make(2, 3, generation=1).reset())
    vectors = [vectorize("CartPole-v1", 4, 5, "native", first=first) for first in (0, 4)]
    assert not np.array_equal(*(x.reset() for x in vectors))


def test_what_cannot_be_shared_out_is_refused() -> None:
    for env, more, what in (
        ("CartPole-v1", {"workers": 1, "ahead": 1}, "an on-policy algorithm"),
        ("CartPole-v1", {"workers": 4, "envs": 4}, "at least one environment"),
        ("CartPole-v1", {"workers": -1, "envs": 4}, "at least 0"),
        (games.Chain(), {"workers": 1, "envs": 2}, "object"),
    ):
        with pytest.raises(SettingError, match=what):
            tandem.train("ppo", env, steps=64, **more, **FAST)


def test_an_environment_that_cannot_be_made_is_told_at_once() -> None:
    parent = os.getpid()

    def make() -> Any:
        if os.getpid() != parent:
            raise RuntimeError("no display here")
        return games.Chain()

    with pytest.raises(WorkerError, match="no display here"):
        tandem.train("ppo", make, steps=64, envs=4, workers=1, **FAST)


class Odd(torch.nn.Linear):
    def forward(self, x: Any) -> Any:
        return super().forward(x * 2).abs()


@pytest.mark.slow
def test_layers_of_ones_own_and_pictures_are_acted_on_by_the_framework() -> None:
    for env, network in (("CartPole-v1", lambda space: Odd(4, 8)), (games.IdentityImage, None)):
        given = FAST | dict(steps=256, envs=4, rollout=8, batch_size=16, network=network, seed=1)
        given["vectorization"] = "plain"
        runs = [tandem.session("ppo", env, workers=workers, **given) for workers in (0, 1)]
        for run in runs:
            list(run)
        alone, shared = (run.backend.state() for run in runs)
        for name, x in alone.items():
            if x.dtype == np.float32:
                np.testing.assert_allclose(shared[name], x, rtol=1e-3, atol=1e-4, err_msg=name)
        assert runs[1].loop.learner.updates == runs[0].loop.learner.updates > 0


RESUMED = [("ppo", 0), ("acer", 1), ("dqn", 1), ("sac", 1)]
MORE = [("a2c with a memory", 0), ("dqn", 0), ("dqn", 3)]


@pytest.mark.parametrize("name, ahead", sampled(RESUMED + MORE, RESUMED))
def test_it_is_resumed_exactly(name: str, ahead: int, tmp_path: Path) -> None:
    same_runs.assert_resumed_exactly(tmp_path, name, workers=2, ahead=ahead)


STILL, DIVERGED = "did not respond for 2 s", "ZeroDivisionError: the simulator diverged"
FAULTS = {"killed": "was killed", "exits": "exit code 3", "raises": DIVERGED}
FAULTS |= {"stands still": STILL, "stands still in C": STILL}


@pytest.mark.parametrize("fault", sampled(FAULTS, ("killed", "raises", "stands still in C")))
def test_a_lost_worker_is_named_and_costs_no_steps(fault: str, tmp_path: Path) -> None:
    given = {**SETTINGS, "worker_patience": 2.0}
    with pytest.warns(UserWarning, match=FAULTS[fault]) as caught:
        run = tandem.train("a2c", faulty(tmp_path, fault), workers=1, out=tmp_path / "run", **given)
    said = str(caught[0].message)
    assert "worker 1 (environments 2 to 3 of" in said and "1 of 3" in said
    assert fault != "raises" or "in _go_wrong" in said
    assert run.summary["env_steps"] == 1600 and len(caught) == 1


LOST = [("killed", 0), ("killed", 2), ("stands still", 2)]


@pytest.mark.parametrize("fault, ahead", sampled([*LOST, ("raises", 2)], LOST))
def test_replay_knows_that_episodes_broke_off(fault: str, ahead: int, tmp_path: Path) -> None:
    more = dict(train_every=8, updates_per_call=2, learning_starts=100, buffer_size=2000)
    more |= {"worker_patience": 2.0, "ahead": ahead, "workers": 2 if ahead else 1}
    given = {k: v for k, v in SETTINGS.items() if k != "rollout"} | more
    env = faulty(tmp_path, fault, at=101)
    run = tandem.session("dqn", env, n_step=1 if ahead else 3, **given)
    with pytest.warns(UserWarning, match=FAULTS[fault]) as caught:
        list(run)
    ring = run.loop.learner.ring
    ids = np.arange(ring.oldest, ring.newest + 1)
    ends = [np.flatnonzero(ring.last.take(ring.position(ids[ids % 4 == e]))) for e in range(4)]
    lengths = [np.diff(x, prepend=-1).tolist() for x in ends]
    broken = [e for e in range(4) if set(lengths[e]) != {13}]  # Faulty's episodes have 13 steps
    assert broken in ([0, 1] if ahead else [2, 3], [2, 3]) and len(caught) == 1
    # 96 done: one of 13 ended at 91, 5 + 8 - 4
    assert all(min(lengths[e]) == 9 and set(lengths[e]) == {9, 13} for e in broken), lengths
    assert ring.newest // 4 == 399


def test_above_the_budget_it_ends_with_an_error_and_a_checkpoint(tmp_path: Path) -> None:
    env = faulty(tmp_path, "raises", times=2)
    raises = pytest.raises(WorkerError, match="the simulator diverged")
    with warnings.catch_warnings(record=True) as said, raises as caught:
        warnings.simplefilter("always")
        tandem.train("a2c", env, workers=1, out=tmp_path / "run", worker_restarts=1, **SETTINGS)
    assert len(said) == 1 and "in _go_wrong" in str(caught.value)
    assert "1 had been restarted" in str(caught.value)
    assert (tmp_path / "run" / "checkpoints" / "last.zip").is_file()
    resumed = tandem.train(env=env, resume=tmp_path / "run")
    assert resumed.summary["env_steps"] == 1600


STUCK = """
import functools, json, os, sys
import tandem
from tests.parallel import same_runs
from tests.parallel.faulty import Faulty

env = functools.partial(Faulty, sys.argv[1], "stands still in C", os.getpid(), at=60, times=9)
given = {"envs": 6, "rollout": 8, "workers": 2, "framework": "torch", "compile": "no"}
given |= {"checkpoint_seconds": 3600.0, "eval_episodes": 0, "plots": False, "tensorboard": False}
run = tandem.session("a2c", env, steps=10**6, out=sys.argv[2], **given)
print(json.dumps([w.process.pid for w in run.loop.collector.group.workers]), flush=True)
for event in run:
    if type(event).__name__ == "TrainEnd":
        print(json.dumps(event.reason), flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_sigterm_ends_a_run_soon_though_every_worker_is_stuck(tmp_path: Path) -> None:
    with program(STUCK, tmp_path, tmp_path / "run") as run:
        assert run.stdout is not None
        pids = json.loads(run.stdout.readline())
        limit = time.monotonic() + 60
        while len(list(tmp_path.glob("fault-*"))) < 2:
            assert time.monotonic() < limit
            time.sleep(0.02)
        run.terminate()
        assert gone(pids)
        assert json.loads(run.stdout.readline()) == "SIGTERM"
        assert run.wait(30) == -signal.SIGTERM  # raised again when all was saved
    assert (tmp_path / "run" / "checkpoints" / "last.zip").is_file()


def test_another_number_of_workers_is_refused(tmp_path: Path) -> None:
    from tandem.runs import checkpoint

    tandem.train("a2c", "CartPole-v1", workers=2, out=tmp_path / "run", stop_at=320, **SETTINGS)
    saved = checkpoint.read(tmp_path / "run" / "checkpoints" / "last.zip")
    run = tandem.session("a2c", "CartPole-v1", workers=1, **SETTINGS)
    groups = {g: saved.group(g) for g in ("engine", "collector", "learner")}
    with pytest.raises(ResumeError, match="2 workers and 0 blocks ahead; this run has 1"):
        run.loop.load_state(saved.data, groups)
    run.loop.collector.close()


PPO8, DQN1 = {"envs": 8, "rollout": 32}, {"envs": 1, "train_every": 4, "updates_per_call": 1}


@pytest.mark.parametrize(
    ("algorithm", "settings", "step", "cpus", "workers", "why"),
    [
        ("ppo", PPO8, 1e-3, 2, 1, "256.0 ms here and 128.4 ms in 2 processes"),
        ("ppo", PPO8, 1e-3, 4, 3, "256.0 ms here and 64.4 ms in 4 processes"),
        ("ppo", PPO8, 1e-3, 1, 0, "for 8 environments on 1 core"),
        ("ppo", PPO8, 5e-6, 2, 0, "1.3 ms here and 1.0 ms in 2 processes"),
        ("ppo", {**PPO8, "envs": 1, "batch_size": 32}, 1e-3, 2, 0, "for 1 environment on 2 cores"),
        ("dqn", DQN1, 1e-3, 2, 1, "collecting a block takes 4.0 ms"),
        ("dqn", DQN1, 5e-6, 2, 0, "collecting a block takes 0.0 ms"),
    ],
)
def test_auto_says_its_choice(algorithm, settings, step, cpus, workers, why, monkeypatch) -> None:
    monkeypatch.setattr(choice, "cores", lambda: cpus)
    monkeypatch.setattr(choice, "seconds", lambda env_factory, n: n * step)
    run = tandem.session(algorithm, "CartPole-v1", steps=64, workers="auto", **settings, **FAST)
    run.loop.collector.close()
    assert run.config.options.workers == workers
    assert f"workers: {workers}" in run.config.source and why in run.config.source


class Slow(Faulty):
    def step(self, action: Any) -> Any:
        time.sleep(0.002)
        return super().step(action)


def test_a_trial_measures_a_step(tmp_path: Path) -> None:
    factory = EnvFactory.of(partial(Slow, str(tmp_path), "none", os.getpid()), 2, 0, "auto", None)
    assert 0.004 < choice.seconds(factory, 2) < 0.4


class Here(Faulty):
    """It goes wrong in the test's own process, as the signal comes that its simulator heard too."""

    seeds: list[Any] = []  # of that process

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if os.getpid() == self.parent:
            self.seeds.append(seed)
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        elsewhere = os.getpid() != self.parent or self.fault == "raises"
        if not elsewhere and self.generation == 100 and self._first():
            if self.fault == "a signal":
                os.kill(os.getpid(), signal.SIGINT)
            raise ZeroDivisionError("the simulator diverged")
        return super().step(action)


def here(folder: Path, fault: str, at: int = 10**9) -> Any:
    folder, parent = str(folder), os.getpid()
    Here.seeds.clear()
    return lambda: Here(folder, fault, parent, at)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "at", "error"), [("a signal", 10**9, KeyboardInterrupt), ("raises", 101, WorkerError)]
)
def test_a_run_goes_on_with_other_episodes(fault: str, at: int, error: Any, tmp_path) -> None:
    env = here(tmp_path, fault, at)
    with pytest.raises(error):
        tandem.train("a2c", env, workers=1, out=tmp_path / "run", worker_restarts=0, **SETTINGS)
    before = set(Here.seeds)
    Here.seeds.clear()
    assert tandem.train(env=env, resume=tmp_path / "run").summary["env_steps"] == 1600
    seeds = Here.seeds[1:5]  # after a look at the first one
    assert len(seeds) == 4 and not before & set(seeds)


@pytest.mark.slow
def test_whoever_goes_on_after_a_fault_has_new_workers(tmp_path: Path) -> None:
    session = tandem.session("a2c", here(tmp_path, "raises here"), workers=1, **SETTINGS)
    with pytest.raises(EnvironmentFault, match="the simulator diverged"):
        list(session.events())
    pool = session.loop.collector
    assert not pool.state()[0]["begun"]
    told = list(session.loop.events())
    assert session.loop.env_steps == 1600 and pool.group.workers[0].generation == 1
    assert pool.state()[0]["begun"] and len(told) > 10
    session.loop.collector.close()


class Clock:
    """A worker that is at each request for as long as it is told to be."""

    def __init__(self) -> None:
        self.now, self.done, self.takes, self.limits = 0.0, 0.0, 0.0, list[float]()

    def ask(self, name: str) -> None:
        self.done = max(self.now, self.done) + self.takes

    def answer(self, patience: Any, since: float | None = None) -> None:
        self.limits.append(patience())
        self.now = max(self.now, self.done)


@pytest.mark.parametrize("learning", [0.0, 2.0])  # seconds between a request and its answer
def test_a_stop_waits_as_long_as_blocks_take(learning: float, monkeypatch) -> None:
    def told(*blocks: float) -> float:
        clock = Clock()
        monkeypatch.setattr(worker_group.time, "monotonic", lambda: clock.now)
        clock.takes = 30.0  # to begin, which says nothing of blocks
        group = worker_group.WorkerGroup("walk", [(0, 2)], 60.0, 0, lambda worker: clock)
        for clock.takes in blocks:
            group.workers[0].ask("respond")
            clock.now += learning
            group.answer(0)
        group.workers[0].ask("respond")
        group.request_stop()
        group.answer(0)
        monkeypatch.undo()
        return clock.limits[-1]

    least = max(1.0, 2 * learning)
    assert told() == 10.0 and told(0.125) == least and told(45.0) == 60.0
    assert told(0.125, 4.0, 0.25) == 8.0 and told(45.0, *[3.0] * 20) == 6.0


# On any POSIX system; parts are in test_process.py

LOCK_STEP = dict(envs=4, rollout=8, batch_size=16, steps=128, log_every=64, workers=2)
AHEAD_OF_IT = dict(envs=2, steps=96, log_every=48, learning_starts=16, workers=2)
SHARED_REPLAY = dict(envs=1, rollout=8, steps=256, log_every=64, learners=2, staleness=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm, env, settings",
    [
        ("ppo", games.IdentityDict, LOCK_STEP),
        ("dqn", games.Chain, AHEAD_OF_IT),
        ("acer", games.Chain, SHARED_REPLAY),
    ],
)
def test_a_run_is_that_of_the_first_ways(algorithm, env, settings, monkeypatch, tmp_path) -> None:
    for system in ("", POSIX):
        monkeypatch.setenv(VARIABLE, system)
        tandem.train(algorithm, env, out=tmp_path / f"on{system}", hidden=(8,), **FAST, **settings)
    assert same_runs.rows(tmp_path / "on") == same_runs.rows(tmp_path / f"on{POSIX}")
