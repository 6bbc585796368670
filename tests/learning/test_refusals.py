"""Settings that do not go together are refused by name, before a folder exists. (More of them are
in tests/advice, where the advice is taken.)"""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tandem import trainer
from tandem.envs.team import Team
from tandem.envs.versus import Versus
from tandem.errors import NetworkError, SettingError, SpaceError
from tandem.testing import environments as games
from tandem.testing.goal_games import BitFlip
from tandem.testing.team_games import TwoStep
from tandem.testing.turn_games import Nim, TicTacToe

POLE, PENDULUM = "CartPole-v1", "Pendulum-v1"
PAIR = {"opponents": 2}
MEMORY = {"recurrent": 6, "envs": 3, "rollout": 12, "batch_size": 12, "sequence": 4}
REWARDS = {"normalize_rewards": True, "standardize_rewards": True}
TRPO = {"envs": 1, "rollout": 64, "batch_size": 48}
BEGINNING = {"replay": "uniform", "replay_starts": 30, "replay_size": 20}
UNREAD = {"online": False, "replay": "uniform", "replay_ratio": 0.0}
NOT_DIVIDED = "sequences of 5 steps, rollouts of 12 steps and batches of 12 rows"


class Own(nn.Linear):
    def forward(self, x):
        return torch.sin(super().forward(x.float()[:, None]))


def team():
    return Team(TwoStep())


def joint(name: str, said: str, error: Any = SettingError, **given: Any) -> Any:
    return name, team, given, said, error


def own_network(space):
    return Own(1, 8)


REFUSED: list[Any] = [
    # learners, and copies to play against
    ("ppo", POLE, {"learners": 2}, "learners=2 is not supported with ppo"),
    ("a3c", POLE, {"learners": 2, "workers": 1}, "learners=2 and workers=1"),
    ("a3c", POLE, {"learners": 4, "staleness": 2}, "staleness=2 with 4 learners"),
    ("a3c", POLE, {"learners": 0}, "learners=0"),
    ("a3c", games.Chain(), {"learners": 2}, "an object of this process"),
    ("dqn", TicTacToe, PAIR, "opponents=2 is not supported with dqn"),
    ("ppo", TicTacToe, PAIR | {"workers": "auto"}, "one process"),
    ("acer", TicTacToe, PAIR | {"learners": 2}, "replays games"),
    ("ppo", POLE, PAIR, "there is no other player"),
    ("ppo", Versus(Nim()), PAIR, "an object of this process"),
    ("ppo", TicTacToe, {"opponents": -1}, "at least 0"),
    # replay
    ("dqn", partial(BitFlip, 8), {"hindsight": "future", "n_step": 3}, "'future' and n_step=3"),
    ("dqn", games.Chain, {"updates_per_step": 2.0, "updates_per_call": 4}, "=2 and updates_per_c"),
    ("dqn", games.Chain, {"reset_every": 10, "network": own_network}, r"a custom network \(q\)"),
    ("impala", games.Chain, {"online": False, "replay": "none"}, "a source of training data"),
    ("impala", games.Chain, UNREAD, "a source of training data"),
    ("impala", games.Chain, BEGINNING, "room for the first replay_starts"),
    # noise, normalization, batches
    ("dqn", games.Chain, {"noisy": "loud"}, "setting noisy='loud'"),
    ("ppo", PENDULUM, REWARDS, "normalize_rewards=True and standardize_rewards=True"),
    ("trpo", POLE, TRPO, r"64 rows, but batches have 48(.|\n)*batch_size=32"),
    # recurrent networks
    ("ppo", "tandem/Recall-v0", MEMORY | {"sequence": 5}, rf"{NOT_DIVIDED}(.|\n)*sequence=4"),
    ("ppo", "tandem/Recall-v0", MEMORY | {"batch_size": 6}, "sequence=3"),
    ("ppo", "tandem/Recall-v0", MEMORY | {"recurrent": -1}, "recurrent=-1"),
    # teams
    joint("mappo", "shared", shared=True),
    joint("mappo", "normalize_observations", normalize_observations=True),
    joint("mappo", "value_huber", value_huber=-0.5),
    joint("qmix", "embedding", embedding=0),
    joint("qmix", "hyper", hyper=-1),
    joint("vdn", "share=False", NetworkError, share=False, network=lambda space: None),
    joint("vdn", "of 5 steps, and batches of 16", recurrent=4, sequence=5, batch_size=16),
    *(
        (name, POLE, {}, "requires a multi-agent environment", SpaceError)
        for name in ("mappo", "mat", "maddpg", "qmix", "vdn")
    ),
    # actions
    ("ppo", POLE, {"action_noise": "gsde"}, "cannot act in a Discrete action space", SpaceError),
    ("a2c", games.IdentityMultiDiscrete, {"action_noise": "gsde"}, "MultiDiscrete", SpaceError),
    ("ppo", games.Identity, {"policy": "beta"}, "policy='beta' cannot act in a Disc", SpaceError),
    ("ppo", games.IdentityMultiDiscrete, {"policy": "beta"}, "cannot act in a Multi", SpaceError),
]


@pytest.mark.parametrize(
    "name, env, given, said, error",
    [(*row, SettingError)[:5] for row in REFUSED],
    ids=[f"{row[0]}: {row[3]}" for row in REFUSED],
)
def test_it_is_refused(name, env, given, said, error, tmp_path: Path) -> None:
    with pytest.raises(error, match=said):
        trainer.session(name, env, framework="torch", out=tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()
