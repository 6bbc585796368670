"""Runs that are to be the same, wherever their environments are stepped."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tandem
from tandem.testing import environments as games
from tandem.testing import team_games
from tandem.testing.memory_games import Recall
from tests.parallel.faulty import Faulty
from tests.runs import shared

PPO, TEAM = {"rollout": 16, "batch_size": 16}, {"rollout": 8, "batch_size": 16}
STATISTICS = {"normalize_observations": True, "normalize_rewards": True}
SEQUENCES = dict(rollout=8, replay_starts=8, replay_size=40, recurrent=4)
STEPS = dict(train_every=16, updates_per_call=4, learning_starts=64)
TEAM_STEPS = dict(batch_size=32, train_every=16, learning_starts=64)
ALIKE: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "ppo": ("ppo", "CartPole-v1", dict(envs=6, rollout=16, batch_size=24, vectorization="plain")),
    "ppo of a dict": ("ppo", games.IdentityDict, PPO),
    "ppo with masks": ("ppo", games.Forbidden, PPO),
    "ppo with statistics": ("ppo", games.IdentityBox, PPO | STATISTICS),
    "a2c with a memory": ("a2c", Recall, dict(rollout=8, recurrent=8, memory="lstm", sequence=4)),
    "a2c with noise": ("a2c", games.Chain, dict(rollout=8, noisy="independent", entropy=0.0)),
    "acer": ("acer", games.TerminatedTruncatedPair, SEQUENCES),
    "dqn": ("dqn", "CartPole-v1", STEPS | {"learning_starts": 100, "n_step": 3}),
    "mappo": ("mappo", team_games.Leaving, TEAM | {"recurrent": 4, "sequence": 4}),
    "mat": ("mat", team_games.Leaving, TEAM | {"embedding": 8}),
    "qmix": ("qmix", team_games.TwoStep, TEAM_STEPS | {"recurrent": 4}),
    "maddpg": ("maddpg", team_games.Landmarks, TEAM_STEPS),
    "sac": ("sac", "Pendulum-v1", STEPS),
}
FAST: dict[str, Any] = dict(eval_episodes=0, final_episodes=1, plots=False, tensorboard=False)
FAST |= {"framework": "torch"}
SETTINGS = {"steps": 1600, "envs": 4, "rollout": 8, "seed": 1, "hidden": (8,), **FAST}


def rows(folder: Path, *without: str) -> list[list[str]]:
    """progress.csv without its times, and without the columns named."""
    left_out = ("seconds", *without)
    return [[x for n, x in row.items() if n not in left_out] for row in shared.rows(folder)]


def trained(folder: Path, name: str, **more: Any) -> Path:
    algorithm, env, settings = ALIKE[name]
    given = dict(envs=4, steps=512, seed=3, hidden=(8,), **FAST) | settings
    tandem.train(algorithm, env, out=folder, **given, **more)
    return folder


def assert_alike(one: Path, other: Path) -> None:
    """Alike but for the rounding of products over fewer rows."""
    tables = [rows(folder, "fingerprint") for folder in (one, other)]
    first, second = ([[float(x or "nan") for x in row] for row in table] for table in tables)
    assert len(first) > 4
    assert second == [pytest.approx(row, 1e-3, 1e-6, nan_ok=True) for row in first]


def assert_resumed_exactly(folder: Path, name: str, again: Any = (), **more: Any) -> None:
    """In three sittings; again: what is given when it is resumed."""
    whole = trained(folder / "whole", name, **more)
    parts, env = trained(folder / "parts", name, stop_at=200, **more), ALIKE[name][1]
    for stop_at in (330, None):
        env = None if isinstance(env, str) else env
        tandem.train(env=env, resume=parts, stop_at=stop_at, **dict(again))
    assert rows(parts) == rows(whole)


def sampled(names: Any, each: Any) -> list[Any]:
    """All but `each`, which goes a way of its own, are thorough."""
    marks = {True: [pytest.mark.slow], False: [pytest.mark.slow, pytest.mark.thorough]}
    values = [n if isinstance(n, tuple) else (n,) for n in names]
    return [pytest.param(*x, marks=marks[n in each]) for n, x in zip(names, values, strict=True)]


def faulty(folder: Path, fault: str, **more: Any) -> Any:
    return partial(Faulty, str(folder), fault, os.getpid(), **more)
