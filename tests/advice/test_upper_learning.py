"""The advice of the room learning, followed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import wrappers
from gymnasium.vector import SyncVectorEnv

import tandem
from tandem import algorithms, trainer
from tandem.errors import NetworkError
from tandem.learning import asynchronous, selfplay
from tandem.learning.config import Options
from tandem.learning.events import BatchBegin, BatchEnd
from tandem.testing import contracts
from tandem.testing import environments as games
from tandem.testing.goal_games import BitFlip
from tandem.testing.turn_games import tictactoe
from tests.advice.net import case, excepted, follows
from tests.advice.test_upper_algorithms import body
from tests.advice.upper import SHORT, made, ran, toy
from tests.learning.test_asynchronous import batch_norm

torch = pytest.importorskip("torch")


class OneReward(BitFlip):
    """One that judges a goal at a time."""

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return -float(np.any(achieved != desired))


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


class Curved(torch.nn.Module):
    """A body of a layer that plans do not have."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 8)

    def forward(self, x: Any) -> Any:
        return torch.sin(self.inner(x))


LEARNERS = {"learners": 2, "workers": 1}
IMPALA = {"algorithm": "impala", "replay": "uniform"}
RECURRENT = {"recurrent": 8, "rollout": 64, "envs": 2, "sequence": 7, "batch_size": 32}
OWN = {"env": toy(), "network": body, "normalize_observations": True}
BOTH = {"normalize_rewards": True, "standardize_rewards": True}
QMIX = {"algorithm": "qmix", "env": toy(team=True), "recurrent": 8, "sequence": 7, "batch_size": 32}
REPLAY = {"online": False, "replay": "none"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "each",
    [
        case(
            "learning/asynchronous.py:refuse",
            door,
            {"algorithm": "ppo", "learners": 2},
            "choose one of those",
            {"algorithm": "a3c"},
        ),
        case(
            "learning/asynchronous.py:refuse",
            door,
            {"algorithm": "ppo", "learners": 2},
            "workers=2",
            {"learners": 1, "workers": 2},
        ),
        case(
            "learning/asynchronous.py:refuse 2", door, LEARNERS, "leave workers out", {"workers": 0}
        ),
        case("learning/asynchronous.py:refuse 3", door, {"learners": 4, "staleness": 1}),
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
            "learning/config.py:check_kept",
            made,
            {"algorithm": "dqn", "memmap": True},
            "leave memmap out",
            {"memmap": False},
        ),
        case(
            "learning/fits.py:rollouts",
            ran,
            {"rollout": 64, "envs": 2, "batch_size": 100},
        ),
        case("learning/fits.py:rollouts 2", ran, RECURRENT),
        case(
            "learning/fits.py:rollouts 3",
            ran,
            BOTH,
            "leave one out",
            {"normalize_rewards": False},
        ),
        case(
            "learning/normalization.py:NetworkStatistics._places",
            ran,
            OWN,
            "or leave network out",
            {"network": None},
        ),
        case(
            "learning/normalization.py:NetworkStatistics._places",
            ran,
            OWN,
            "TransformObservation",
            {
                "env": lambda: wrappers.TransformObservation(toy()(), lambda x: x / 2, None),
                "normalize_observations": False,
            },
        ),
        case(
            "learning/fits.py:transitions",
            ran,
            {"algorithm": "dqn", "envs": 3, "train_every": 1},
        ),
        case("learning/fits.py:transitions 2", ran, QMIX),
        case(
            "learning/fits.py:transitions 3",
            ran,
            {"algorithm": "dqn", "updates_per_step": 2.0, "updates_per_call": 4},
            "leave updates_per_call out",
            {"updates_per_call": 1},
        ),
        case(
            "learning/fits.py:transitions 4",
            ran,
            {"algorithm": "dqn", "recurrent": 8, "burn_in": 8, "buffer_size": 20},
        ),
        case(
            "learning/fits.py:transitions 5",
            ran,
            {"algorithm": "dqn", "buffer_size": 20, "batch_size": 32},
        ),
        case(
            "algorithms/unused.py:refuse_given",
            ran,
            {"algorithm": "dqn", "env": BitFlip, "relabel": 2},
            "give hindsight='future' too",
            {"hindsight": "future"},
        ),
        case(
            "learning/learners.py:ReplayLearner._relabelling",
            replayed,
            {"hindsight": "future"},
            "give hindsight='no'",
            {"hindsight": "no"},
        ),
        case(
            "learning/fits.py:_relabelling",
            ran,
            {"algorithm": "dqn", "env": BitFlip, "hindsight": "final", "n_step": 2},
            "give n_step=1",
            {"n_step": 1},
        ),
        case(
            "learning/goals.py:goals_of",
            ran,
            {"algorithm": "dqn", "hindsight": "final", "env": bit_flips},
            "give the environment itself",
            {"env": BitFlip},
        ),
        case(
            "learning/goals.py:_goals_of",
            ran,
            {"algorithm": "dqn", "hindsight": "final"},
            "give hindsight='no'",
            {"hindsight": "no"},
        ),
        case(
            "learning/goals.py:_no_batches",
            ran,
            {"algorithm": "dqn", "env": OneReward, "hindsight": "final"},
            "or give hindsight='no'",
            {"hindsight": "no"},
        ),
        case(
            "learning/resets.py:Reset.__init__",
            ran,
            {"algorithm": "dqn", "reset_every": 9, "network": lambda space: Curved()},
            "leave network out",
            {"network": None},
        ),
        case(
            "learning/resets.py:Reset.__init__",
            ran,
            {"algorithm": "dqn", "reset_every": 9, "network": lambda space: Curved()},
            "or give reset_every=0",
            {"reset_every": 0},
        ),
        case(
            "learning/selfplay.py:refuse",
            door,
            {"algorithm": "dqn", "env": tictactoe, "opponents": 2},
            "choose",
            {"algorithm": "ppo"},
        ),
        case(
            "learning/selfplay.py:refuse",
            door,
            {"algorithm": "dqn", "env": tictactoe, "opponents": 2},
            "leave opponents out",
            {"opponents": 0},
        ),
        case(
            "learning/selfplay.py:refuse 2",
            ran,
            {"env": tictactoe, "opponents": 2, **LEARNERS},
            "leave workers and learners out",
            {"workers": 0, "learners": 1},
        ),
        case("learning/fits.py:sequences", ran, {**IMPALA, **REPLAY}),
        case(
            "learning/fits.py:sequences",
            ran,
            {**IMPALA, "online": False, "replay_ratio": 0},
        ),
        case(
            "learning/fits.py:sequences 2",
            ran,
            {**IMPALA, "replay_size": 100, "replay_starts": 200},
        ),
    ],
)
def test_followed(each: Any) -> None:
    each.follow()


def test_a_folder_for_what_is_kept(tmp_path: Path) -> None:
    with follows("learning/config.py:check_kept") as advice:
        made("dqn", memmap=True)
    assert "give out=" in advice.fix
    ran("dqn", memmap=True, buffer_size=300, out=tmp_path / "run")


class Diverges(games.Chain):
    """Its rewards are finite, and their square is not."""

    def step(self, action: Any) -> Any:
        obs, _, *rest = super().step(action)
        return obs, 1e30, *rest


def test_a_run_whose_loss_is_not_finite(tmp_path: Path) -> None:
    with follows("learning/learners.py:checked") as advice:
        ran("a2c", Diverges, out=tmp_path / "run")
    for word in ("gymnasium.wrappers.TransformReward", "last checkpoint has the weights"):
        assert word in advice.fix
    ran("a2c", lambda: wrappers.TransformReward(Diverges(), lambda r: 1e-30 * r))
    agent = tandem.load(tmp_path / "run", which="last", env=games.Chain)
    agent.act(games.Chain().reset(seed=0)[0])
    given = {"envs": 2, "rollout": 8, "max_grad_norm": 1e30, "steps": 320}
    with follows("learning/learners.py:checked") as advice:
        ran("a2c", learning_rate=1e6, optimizer="sgd", value_weight=1e6, **given)
    assert "lower learning rate" in advice.fix
    ran("a2c", learning_rate=1e-4, optimizer="sgd", value_weight=1.0, **given)


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


def layer_norm(space: Any) -> Any:
    return torch.nn.Sequential(body(space), torch.nn.LayerNorm(8))


excepted(
    "replay/hindsight.py:Info.__missing__",
    because="tests/learning/test_hindsight.py, where runs without and with copy_info=True are made",
)
excepted(
    "envs/stepped.py:Stepped._entry",
    because="tests/learning/test_hindsight.py::test_info_that_cannot_be_stored_is_named",
)
excepted(
    "runs/make_loop.py:_loop",
    because="tests/learning/test_hindsight.py, where copy_info reads plain environments",
)
excepted(
    "learning/actor_learner.py:ActorLearner._hand_over",
    because="tests/advice/test_upper_learning.py::test_runs_of_several_learners; another process "
    "makes it",
)


@pytest.mark.slow
def test_runs_of_several_learners() -> None:
    given = {"algorithm": "a3c", "env": "CartPole-v1", **SHORT, "envs": 2, "learners": 2}
    with pytest.raises(NetworkError, match="moves weights of its own") as caught:
        list(trainer.session(**given, network=batch_norm))
    assert "layer normalisation" in caught.value.fix and "learners=1" in caught.value.fix
    assert list(trainer.session(**{**given, "learners": 1}, network=batch_norm))
    two = trainer.session(**given, network=layer_norm)
    saved = two.loop.collector.state()
    three = trainer.session(**{**given, "learners": 3})
    with follows("learning/asynchronous.py:ActorLearners.load_state") as advice:
        three.loop.collector.load_state(*saved)
    three.loop.collector.close()
    assert advice.assigned() == [{"learners": 2}]
    two.loop.collector.load_state(*saved)
    assert list(two)
