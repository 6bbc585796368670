"""Masks where networks have a memory: what is forbidden is never taken. The games raise where it
is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tandem
from tandem.envs.team import Team
from tandem.testing.environments import Forbidden, ForbiddenMultiDiscrete
from tandem.testing.team_games import Barred

pytest.importorskip("torch")


def barred() -> Team:
    return Team(Barred())


FEW: dict[str, Any] = {"framework": "torch", "hidden": (8,), "recurrent": 4, "steps": 288}
FEW |= {"eval_every": 96, "eval_episodes": 2, "final_episodes": 2}
FEW |= {"plots": False, "tensorboard": False}
CUT = {"rollout": 8, "sequence": 4}  # rollouts within which episodes end, and sequences too
SEQUENCES = {"rollout": 8, "replay": "uniform", "replay_starts": 3, "replay_size": 20}
TEAM = {"sequence": 4, "batch_size": 16, "learning_starts": 32, "train_every": 9, "epsilon": 0.5}
CASES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "ppo": ("ppo", Forbidden, {**CUT, "batch_size": 12, "memory": "lstm"}),
    "ppo of several": ("ppo", ForbiddenMultiDiscrete, {**CUT, "batch_size": 12}),
    "a2c": ("a2c", Forbidden, CUT),
    "trpo": ("trpo", ForbiddenMultiDiscrete, {**CUT, "memory": "lstm"}),
    "pqn": ("pqn", Forbidden, {**CUT, "batch_size": 12, "memory": "lstm"}),
    "pqn of the mean": ("pqn", Forbidden, {**CUT, "batch_size": 12, "bootstrap": "expected"}),
    "impala": ("impala", ForbiddenMultiDiscrete, {**SEQUENCES, "memory": "lstm"}),
    "acer": ("acer", Forbidden, SEQUENCES),
    "a3c": ("a3c", Forbidden, {"rollout": 8}),
    "nstep_q": ("nstep_q", Forbidden, {**SEQUENCES, "dueling": True, "memory": "lstm"}),
    "qmix": ("qmix", barred, {**TEAM, "memory": "lstm"}),
    "vdn": ("vdn", barred, {**TEAM, "share": False}),
    "mappo": ("mappo", barred, {**CUT, "batch_size": 12, "memory": "lstm"}),
    "mappo of a team": ("mappo", barred, {**CUT, "batch_size": 12, "rewards": "team"}),
}
FAST = ("ppo", "impala", "qmix")
thorough = pytest.mark.thorough


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=thorough)])
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in FAST else thorough) for n in CASES]
)
def test_what_is_forbidden_is_never_taken(name: str, workers: int, tmp_path: Path) -> None:
    """In training, in evaluations, after a resume, by the trained agent, of several environments,
    with workers."""
    algorithm, env, settings = CASES[name]
    given = {**FEW, **settings, "envs": 3, "workers": workers, "out": tmp_path / "run"}
    given |= {"worker_patience": 300.0} if workers else {}
    tandem.train(algorithm, env, stop_at=120, **given)
    done = tandem.train(env=env, resume=tmp_path / "run")
    assert done.summary["env_steps"] >= 288
    agent = tandem.load(tmp_path / "run")
    assert tandem.evaluate(agent, env, episodes=3, deterministic=False).mean >= 0
