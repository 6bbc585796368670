"""Runs with workers: the run of one process, whatever happens to them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tandem
from tandem.envs.factory import vectorize
from tandem.errors import EnvironmentFault, ResumeError, SettingError, WorkerError
from tandem.learning.events import BatchEnd
from tandem.parallel import choice, worker_group
from tandem.parallel.env_factory import EnvFactory, divide
from tandem.testing import environments as games
from tandem.testing import team_games
from tandem.testing.memory_games import Recall
from tests.helpers import ROOT, runs
from tests.parallel.faulty import Faulty

pytest.importorskip("torch")
ALIKE: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "ppo": (
        "ppo",
        "CartPole-v1",
        {"envs": 6, "rollout": 16, "batch_size": 24, "vectorization": "plain"},
    ),
    "ppo of a dict": ("ppo", games.IdentityDict, {"envs": 4, "rollout": 16, "batch_size": 16}),
    "ppo with masks": ("ppo", games.Forbidden, {"envs": 4, "rollout": 16, "batch_size": 16}),
    "ppo with statistics": (
        "ppo",
        games.IdentityBox,
        dict(
            envs=4, rollout=16, batch_size=16, normalize_observations=True, normalize_rewards=True
        ),
    ),
    "a2c with a memory": (
        "a2c",
        Recall,
        {"envs": 4, "rollout": 8, "recurrent": 8, "memory": "lstm", "sequence": 4},
    ),
    "a2c with noise on weights": (
        "a2c",
        games.Chain,
        {"envs": 4, "rollout": 8, "noisy": "independent", "entropy": 0.0},
    ),
    "acer": (
        "acer",
        games.TerminatedTruncatedPair,
        {"envs": 4, "rollout": 8, "replay_starts": 8, "replay_size": 40, "recurrent": 4},
    ),
    "dqn": (
        "dqn",
        "CartPole-v1",
        {"envs": 4, "train_every": 16, "updates_per_call": 4, "learning_starts": 100, "n_step": 3},
    ),
    "mappo": (
        "mappo",
        team_games.Leaving,
        {"envs": 4, "rollout": 8, "batch_size": 16, "recurrent": 4, "sequence": 4},
    ),
    "mat": (
        "mat",
        team_games.Leaving,
        {"envs": 4, "rollout": 8, "batch_size": 16, "embedding": 8},
    ),
    "qmix": (
        "qmix",
        team_games.TwoStep,
        {"envs": 4, "batch_size": 32, "train_every": 16, "learning_starts": 64, "recurrent": 4},
    ),
    "maddpg": (
        "maddpg",
        team_games.Landmarks,
        {"envs": 4, "batch_size": 32, "train_every": 16, "learning_starts": 64},
    ),
    "sac": (
        "sac",
        "Pendulum-v1",
        {"envs": 4, "train_every": 16, "updates_per_call": 4, "learning_starts": 64},
    ),
}
FAST = dict(eval_episodes=0, final_episodes=1, plots=False, tensorboard=False, framework="torch")


def rows(folder: Path, *without: str) -> list[list[str]]:
    """progress.csv without its times, and without the columns named."""
    lines = [
        line.split(",")
        for line in (folder / "progress.csv").read_text(encoding="utf-8").splitlines()
    ]
    return [
        [x for x, name in zip(line, lines[0], strict=True) if name not in ("seconds", *without)]
        for line in lines[1:]
    ]


def sampled(names: Any, each: tuple[Any, ...]) -> list[Any]:
    """All but `each`, which goes a way of its own, are thorough."""
    return [
        pytest.param(
            *(n if isinstance(n, tuple) else (n,)),
            marks=[] if n in each else [pytest.mark.thorough],
        )
        for n in names
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    sampled(ALIKE, ("ppo", "ppo with statistics", "a2c with a memory", "acer", "dqn", "mappo")),
)
def test_a_run_with_workers_is_the_run_of_one_process(name: str, tmp_path: Path) -> None:
    algorithm, env, settings = ALIKE[name]
    for workers in (0, 2):
        out = tmp_path / str(workers)
        tandem.train(
            algorithm,
            env,
            steps=512,
            seed=3,
            workers=workers,
            ahead=0,
            out=out,
            hidden=(8,),
            **settings,
            **FAST,
        )
    alone, together = (rows(tmp_path / workers, "fingerprint") for workers in ("0", "2"))
    assert len(together) == len(alone) > 4
    # alike but for the rounding of products over fewer rows
    for one, other in zip(alone, together, strict=True):
        assert [float(x or "nan") for x in other] == pytest.approx(
            [float(x or "nan") for x in one], 1e-3, 1e-6, nan_ok=True
        )


@pytest.mark.parametrize(
    ("name", "ahead"),
    sampled(
        [(n, a) for n in ("acer", "dqn", "sac") for a in (1, 3)],
        (("dqn", 3), ("sac", 1), ("acer", 1)),
    ),
)
def test_workers_ahead_make_the_same_run_however_many(
    name: str, ahead: int, tmp_path: Path
) -> None:
    algorithm, env, settings = ALIKE[name]
    for workers in (1, 2):
        out = tmp_path / str(workers)
        tandem.train(
            algorithm,
            env,
            steps=512,
            seed=3,
            workers=workers,
            ahead=ahead,
            out=out,
            hidden=(8,),
            **settings,
            **FAST,
        )
    one, two = (rows(tmp_path / workers, "fingerprint") for workers in ("1", "2"))
    assert [[float(x or "nan") for x in row] for row in two] == [
        pytest.approx([float(x or "nan") for x in row], 1e-3, 1e-6, nan_ok=True) for row in one
    ]


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


def test_on_policy_algorithms_do_not_learn_from_old_weights() -> None:
    with pytest.raises(SettingError, match="its newest policy's steps only"):
        tandem.train("ppo", "CartPole-v1", workers=1, ahead=1, **FAST)


def test_environments_are_shared_out_evenly() -> None:
    assert (
        divide(8, 3) == [(0, 2), (2, 3), (5, 3)]
        and divide(2, 2) == [(0, 1), (1, 1)]
        and divide(5, 1) == [(0, 5)]
    )


def test_a_part_begins_as_it_does_among_all() -> None:
    whole, part = (
        EnvFactory.of("CartPole-v1", 5, 9, "plain", None).make(*p) for p in ((0, 5), (2, 3))
    )
    assert np.array_equal(whole.reset()[2:], part.reset())
    assert not np.array_equal(
        part.reset(),
        EnvFactory.of("CartPole-v1", 5, 9, "plain", None).make(2, 3, generation=1).reset(),
    )


@pytest.mark.parametrize(
    ("env", "workers", "what"),
    [
        ("CartPole-v1", 4, "one environment at least"),
        ("CartPole-v1", -1, "at least 0"),
        (games.Chain(), 1, "object"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(env: Any, workers: int, what: str) -> None:
    with pytest.raises(SettingError, match=what):
        tandem.train(
            "ppo", env, steps=64, envs=4 if isinstance(env, str) else 2, workers=workers, **FAST
        )


def odd(space: Any) -> Any:
    from torch import nn

    class Odd(nn.Module):
        """Nobody knows it, and it can be run by torch alone."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Linear(4, 8)

        def forward(self, x: Any) -> Any:
            return self.weight(x * 2).abs()

    return Odd()


@pytest.mark.slow
def test_layers_of_ones_own_and_pictures_are_acted_on_by_the_framework() -> None:
    for env, network in (("CartPole-v1", odd), (games.IdentityImage, None)):
        given = {
            "steps": 256,
            "envs": 4,
            "rollout": 8,
            "batch_size": 16,
            "network": network,
            "seed": 1,
            **FAST,
        }
        runs = [
            tandem.session("ppo", env, workers=workers, vectorization="plain", **given)
            for workers in (0, 1)
        ]
        for run in runs:
            for _ in run:
                pass
        alone, shared = (run.backend.state() for run in runs)
        for name, x in alone.items():
            if x.dtype == np.float32:
                np.testing.assert_allclose(shared[name], x, rtol=1e-3, atol=1e-4, err_msg=name)
        assert runs[1].loop.learner.updates == runs[0].loop.learner.updates > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "ahead"),
    sampled(
        [
            ("ppo", 0),
            ("a2c with a memory", 0),
            ("dqn", 0),
            ("acer", 1),
            ("dqn", 1),
            ("dqn", 3),
            ("sac", 1),
        ],
        (("ppo", 0), ("acer", 1), ("dqn", 1), ("sac", 1)),
    ),
)
def test_it_is_resumed_exactly(name: str, ahead: int, tmp_path: Path) -> None:
    algorithm, env, settings = ALIKE[name]
    given = {
        "steps": 512,
        "seed": 3,
        "workers": 2,
        "ahead": ahead,
        "hidden": (8,),
        **settings,
        **FAST,
    }
    tandem.train(algorithm, env, out=tmp_path / "whole", **given)
    tandem.train(algorithm, env, out=tmp_path / "parts", stop_at=200, **given)
    for stop_at in (330, None):
        tandem.train(
            env=None if isinstance(env, str) else env, resume=tmp_path / "parts", stop_at=stop_at
        )
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole")


def faulty(folder: Path, fault: str, **more: Any) -> Any:
    return partial(Faulty, str(folder), fault, os.getpid(), **more)


SETTINGS = {"steps": 1600, "envs": 4, "rollout": 8, "seed": 1, "hidden": (8,), **FAST}
FAULTS = {
    "killed": "was killed",
    "exits": "exit code 3",
    "raises": "ZeroDivisionError: the simulator diverged",
    "stands still": "stood still for 2 s",
    "stands still in C": "stood still for 2 s",
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", sampled(FAULTS, ("killed", "raises", "stands still in C")))
def test_a_lost_worker_is_named_and_costs_its_unfinished_episodes(
    fault: str, tmp_path: Path
) -> None:
    given = {**SETTINGS, "worker_patience": 2.0}
    with pytest.warns(UserWarning, match=FAULTS[fault]) as caught:
        run = tandem.train("a2c", faulty(tmp_path, fault), workers=1, out=tmp_path / "run", **given)
    said = str(caught[0].message)
    assert "worker 1 (environments 2 to 3 of" in said and "1 of 3" in said
    assert fault != "raises" or "in _go_wrong" in said
    assert run.summary["env_steps"] == 1600 and len(caught) == 1


def test_replay_knows_that_the_episodes_broke_off(tmp_path: Path) -> None:
    more = dict(train_every=8, updates_per_call=2, learning_starts=100, n_step=3, buffer_size=2000)
    given = {k: v for k, v in SETTINGS.items() if k != "rollout"} | more
    run = tandem.session("dqn", faulty(tmp_path, "killed", at=101), workers=1, ahead=0, **given)
    with pytest.warns(UserWarning, match="was killed"):
        for _ in run:
            pass
    ring = run.loop.learner.ring
    ids = np.arange(ring.oldest, ring.newest + 1)
    t, env = ids // ring.envs, ids % ring.envs
    length = {
        e: np.diff(np.flatnonzero(ring.last.take(ring.position(ids[env == e]))), prepend=-1)
        for e in range(4)
    }
    assert all(set(length[e].tolist()) == {13} for e in (0, 1))  # Faulty's episodes have 13 steps
    # 96 done: one of 13 ended at 91, 5 + 8 - 4
    assert all(sorted(set(length[e].tolist())) == [9, 13] for e in (2, 3)), length
    assert t[-1] == 399


@pytest.mark.parametrize(
    "fault", sampled(["killed", "raises", "stands still"], ("killed", "stands still"))
)
def test_workers_ahead_may_be_lost_too(fault: str, tmp_path: Path) -> None:
    more = {
        "train_every": 8,
        "updates_per_call": 2,
        "learning_starts": 100,
        "buffer_size": 2000,
        "worker_patience": 2.0,
    }
    given = {k: v for k, v in SETTINGS.items() if k != "rollout"} | more
    run = tandem.session("dqn", faulty(tmp_path, fault, at=101), workers=2, ahead=2, **given)
    with pytest.warns(UserWarning, match=FAULTS[fault]) as caught:
        for _ in run:
            pass
    ring = run.loop.learner.ring
    ids = np.arange(ring.oldest, ring.newest + 1)
    ends = [np.flatnonzero(ring.last.take(ring.position(ids[ids % 4 == e]))) for e in range(4)]
    lengths = [np.diff(x, prepend=-1).tolist() for x in ends]
    broken = [e for e in range(4) if set(lengths[e]) != {13}]
    assert broken in ([0, 1], [2, 3]) and len(caught) == 1
    # 96 rows came: 7 * 13, and 5 broken
    assert all(sorted(lengths[e])[0] == 9 and set(lengths[e]) == {9, 13} for e in broken)


def test_above_the_budget_it_ends_with_an_error_and_a_checkpoint(tmp_path: Path) -> None:
    env = faulty(tmp_path, "raises", times=2)
    with (
        warnings.catch_warnings(record=True) as said,
        pytest.raises(WorkerError, match="the simulator diverged") as caught,
    ):
        warnings.simplefilter("always")
        tandem.train("a2c", env, workers=1, out=tmp_path / "run", worker_restarts=1, **SETTINGS)
    assert (
        len(said) == 1
        and "in _go_wrong" in str(caught.value)
        and "1 had been started anew" in str(caught.value)
    )
    assert (tmp_path / "run" / "checkpoints" / "last.zip").is_file()
    resumed = tandem.train(env=env, resume=tmp_path / "run")
    assert resumed.summary["env_steps"] == 1600


def test_an_environment_that_cannot_be_made_is_told_at_once() -> None:
    parent = os.getpid()

    def make() -> Any:
        if os.getpid() != parent:
            raise RuntimeError("no display here")
        return games.Chain()

    with pytest.raises(WorkerError, match="no display here"):
        tandem.train("ppo", make, steps=64, envs=4, workers=1, **FAST)


STUCK = """
import functools, json, sys
import tandem
from tests.parallel.faulty import Faulty

env = functools.partial(
    Faulty, sys.argv[1], "stands still in C", __import__("os").getpid(), at=60, times=9
)
run = tandem.session(
    "a2c",
    env,
    steps=10**6,
    envs=6,
    rollout=8,
    workers=2,
    framework="torch",
    out=sys.argv[2],
    checkpoint_seconds=3600.0,
    eval_episodes=0,
    plots=False,
    tensorboard=False,
)
print(json.dumps([w.process.pid for w in run.loop.collector.group.workers]), flush=True)
for event in run:
    if type(event).__name__ == "TrainEnd":
        print(json.dumps(event.reason), flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_sigterm_ends_a_run_soon_though_every_worker_is_stuck(tmp_path: Path) -> None:
    """No worker is left after five seconds; the run itself may take as long as its checkpoint does
    on a busy disk."""
    script = tmp_path / "stuck.py"
    script.write_text(STUCK)
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, str(script), str(tmp_path), str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env, text=True) as run:
        assert run.stdout is not None
        pids = json.loads(run.stdout.readline())
        limit = time.monotonic() + 60
        while len(list(tmp_path.glob("fault-*"))) < 2:
            assert time.monotonic() < limit
            time.sleep(0.02)
        run.terminate()
        began = time.monotonic()
        while any(map(runs, pids)):
            assert time.monotonic() - began < 5
            time.sleep(0.02)
        assert json.loads(run.stdout.readline()) == "SIGTERM"
        assert run.wait(30) == -signal.SIGTERM  # raised again when all was saved
    assert not any(map(runs, pids)) and (tmp_path / "run" / "checkpoints" / "last.zip").is_file()


def test_another_number_of_workers_is_refused(tmp_path: Path) -> None:
    from tandem.runs import checkpoint

    tandem.train("a2c", "CartPole-v1", workers=2, out=tmp_path / "run", stop_at=320, **SETTINGS)
    saved = checkpoint.read(tmp_path / "run" / "checkpoints" / "last.zip")
    run = tandem.session("a2c", "CartPole-v1", workers=1, **SETTINGS)
    groups = {g: saved.group(g) for g in ("engine", "collector", "learner")}
    with pytest.raises(ResumeError, match="saved with 2 workers and 0 blocks ahead; here are 1"):
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
def test_auto_tries_and_says_what_it_chose(
    algorithm: str,
    settings: Any,
    step: float,
    cpus: int,
    workers: int,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choice, "cores", lambda: cpus)
    monkeypatch.setattr(choice, "seconds", lambda env_factory, n: n * step)
    run = tandem.session(algorithm, "CartPole-v1", steps=64, workers="auto", **settings, **FAST)
    run.loop.collector.close()
    assert run.config.options.workers == workers
    assert f"workers: {workers}" in run.config.source and why in run.config.source


def test_a_trial_measures_a_step(tmp_path: Path) -> None:
    factory = EnvFactory.of(partial(Slow, str(tmp_path), "none", os.getpid()), 2, 0, "auto", None)
    assert 0.004 < choice.seconds(factory, 2) < 0.4


class Slow(Faulty):
    def step(self, action: Any) -> Any:
        time.sleep(0.002)
        return super().step(action)


def test_no_worker_is_left_when_a_run_ends() -> None:
    run = tandem.session("a2c", "CartPole-v1", workers=2, **SETTINGS)
    processes = [w.process for w in run.loop.collector.group.workers]
    events = iter(run)
    for _ in range(20):
        next(events)
    assert all(p.runs for p in processes)
    events.close()
    assert not any(p.runs for p in processes)


def test_vectors_of_their_own_are_seeded_apart() -> None:
    parts = [vectorize("CartPole-v1", 4, 5, "native", first=first) for first in (0, 4)]
    assert not np.array_equal(*(p.reset() for p in parts))


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


def here(folder: Path, fault: str, at: int) -> Any:
    folder, parent = str(folder), os.getpid()
    return lambda: Here(folder, fault, parent, at)


def others(before: set[Any]) -> bool:
    """Whether other episodes began than there were, after a look at the first one."""
    begun = Here.seeds[1:5]
    return len(begun) == 4 and not before & set(begun)


@pytest.mark.slow
def test_a_signal_that_an_environment_hears_too_leaves_a_run_to_go_on_with(tmp_path: Path) -> None:
    env = here(tmp_path, "a signal", 10**9)
    Here.seeds.clear()
    with pytest.raises(KeyboardInterrupt):
        tandem.train("a2c", env, workers=1, out=tmp_path / "run", **SETTINGS)
    before = set(Here.seeds)
    Here.seeds.clear()
    resumed = tandem.train(env=env, resume=tmp_path / "run")
    assert resumed.summary["env_steps"] == 1600
    assert others(before)


@pytest.mark.slow
def test_whoever_goes_on_after_a_fault_has_new_workers(tmp_path: Path) -> None:
    session = tandem.session("a2c", here(tmp_path, "raises here", 10**9), workers=1, **SETTINGS)
    with pytest.raises(EnvironmentFault, match="the simulator diverged"):
        for _ in session.events():
            pass
    pool = session.loop.collector
    assert not pool.state()[0]["begun"]
    told = list(session.loop.events())
    assert session.loop.env_steps == 1600 and pool.group.workers[0].generation == 1
    assert pool.state()[0]["begun"] and len(told) > 10
    session.loop.collector.close()


@pytest.mark.slow
def test_a_lost_worker_leaves_this_process_other_episodes(tmp_path: Path) -> None:
    env = here(tmp_path, "raises", 101)
    Here.seeds.clear()
    with pytest.raises(WorkerError):
        tandem.train("a2c", env, workers=1, out=tmp_path / "run", worker_restarts=0, **SETTINGS)
    before = set(Here.seeds)
    Here.seeds.clear()
    tandem.train(env=env, resume=tmp_path / "run")
    assert others(before)


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
def test_a_stop_waits_as_long_as_blocks_take(
    learning: float, monkeypatch: pytest.MonkeyPatch
) -> None:
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
