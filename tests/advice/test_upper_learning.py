"""The advice of the room learning, followed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gymnasium.vector import SyncVectorEnv

import tandem
from tandem import algorithms, trainer
from tandem.learning import asynchronous, selfplay
from tandem.learning.config import Options
from tandem.learning.events import BatchBegin, BatchEnd
from tandem.testing import contracts
from tandem.testing import environments as games
from tandem.testing.goal_games import BitFlip
from tests.advice.net import case, follows
from tests.advice.upper import SHORT, made, ran

torch = pytest.importorskip("torch")


def bit_flips(num_envs: int) -> Any:
    return SyncVectorEnv([BitFlip] * num_envs)


def door(algorithm: str = "a3c", env: Any = "CartPole-v1", **options: Any) -> None:
    """What a session asks of its options before it begins processes."""
    o, needs = replace(Options(), **options), algorithms.get(algorithm).needs
    asynchronous.refuse(algorithm, needs, env, o)
    selfplay.refuse(algorithm, needs, env, o)


def replayed(**settings: Any) -> None:
    """A learner without an environment of its own."""
    contracts.begin(algorithms.get("dqn"), games.Chain, "torch", steps=100, **settings)


@pytest.mark.slow
@pytest.mark.parametrize(
    "each",
    [
        case("learning/asynchronous.py:refuse 4", door, {"learners": 2, "devices": 2}),
        case(
            "learning/asynchronous.py:refuse 4",
            door,
            {"learners": 2, "devices": 2},
            "leave devices out",
            {"devices": 1},
        ),
        case(
            "learning/asynchronous.py:refuse_statistics",
            ran,
            {"algorithm": "a3c", "learners": 2, "normalize_rewards": True},
            "give learners=1",
            {"learners": 1},
        ),
        case(
            "learning/asynchronous.py:refuse_statistics",
            ran,
            {"algorithm": "a3c", "learners": 2, "normalize_observations": True},
            "leave normalize_observations out",
            {"normalize_observations": False},
        ),
        case(
            "learning/asynchronous.py:refuse_statistics",
            made,
            {"algorithm": "acer", "env": "LunarLander-v3", "learners": 2},
            "normalize_rewards=False where the zoo's entry has it",
            {"normalize_rewards": False},
        ),
        case(
            "learning/fits.py:transitions 4",
            ran,
            {"algorithm": "dqn", "recurrent": 8, "burn_in": 8, "buffer_size": 20},
        ),
        case(
            "learning/learners.py:ReplayLearner._relabelling",
            replayed,
            {"hindsight": "future"},
            "give hindsight='no'",
            {"hindsight": "no"},
        ),
        case(
            "learning/goals.py:goals_of",
            ran,
            {"algorithm": "dqn", "hindsight": "final", "env": bit_flips},
            "give the environment itself",
            {"env": BitFlip},
        ),
    ],
)
def test_followed(each: Any) -> None:
    each.follow()


def test_a_session_that_was_left_within_a_block(tmp_path: Path) -> None:
    def left(at: type) -> trainer.Session:
        run = trainer.session("a2c", "CartPole-v1", **SHORT, out=tmp_path / at.__name__)
        run.saves_when_left = False  # as of a trial that is pruned
        next(event for event in run if isinstance(event, at))
        return run

    run = left(BatchBegin)
    with follows("learning/loop.py:Loop.events") as advice:
        list(run)
    assert "resume from the run's folder" in advice.fix and "the next BatchEnd" in advice.fix
    assert tandem.train(resume=tmp_path / "BatchBegin").summary["env_steps"] >= 32
    assert list(left(BatchEnd))
