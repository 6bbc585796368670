"""The advice of `networks`, and of PyTorch's backend."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

import tandem
from tandem import trainer
from tandem.envs.team import Team
from tandem.networks.torch_sequences import LastStep
from tandem.testing.team_games import TwoStep
from tests.advice.net import case
from tests.agents.agents import Probe
from tests.networks.chains import Numbers, box
from tests.test_trainer import SMALL, TINY_DQN

LAYER, SHARED = nn.Linear(4, 8), nn.Linear(3, 1)
LSTM, DEEP = nn.LSTM(3, 5, batch_first=True), nn.Sequential(nn.Flatten(), nn.Linear(18, 1))


def session(network: Any = None, env: Any = "CartPole-v1", **given: Any) -> Any:
    more = {"framework": "torch", **SMALL, **given}
    return trainer.session("ppo", env, network=network, **more)


def q_learner(**given: Any) -> Any:
    return trainer.session("dqn", "CartPole-v1", framework="torch", **{**TINY_DQN, **given})


def actor_critic(**given: Any) -> Any:
    more = {"framework": "torch", "rollout": 8, "envs": 2, "recurrent": 4, **given}
    return trainer.session("impala", "CartPole-v1", **more)


def team(**given: Any) -> None:
    few = {"hidden": (4,), "steps": 20, "eval_episodes": 0}
    trainer.session("mappo", lambda: Team(TwoStep()), framework="torch", **few, **given)


def mlp(space: Any, units: int = 8) -> Any:
    return nn.Sequential(nn.Linear(space.shape[0], units), nn.Tanh())


def whole(actor: int = 2) -> dict[str, Any]:
    return {"actor": nn.Linear(4, actor), "critic": nn.Linear(4, 1)}


class WithAction(nn.Module):
    """[B] observations and actions -> [B, 1], by one layer on the observations."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Any) -> Any:
        return self.layer(x["obs"]) + x["action"]


class Deep(nn.Module):
    """[B, 4] -> [B, 4, 2]."""

    def forward(self, x: Any) -> Any:
        return torch.stack([x, x], -1)


class Both(nn.Module):
    """[B, 6, 3] -> [B, 18], and the same again."""

    def forward(self, x: Any) -> Any:
        return x.flatten(1), x.flatten(1)


def sequences() -> Numbers:
    """Observations [6, 3]."""
    return Numbers(box(6, 3))


def lstm(space: Any) -> nn.Module:
    return nn.LSTM(space.shape[1], 5, batch_first=True)


def train(optimizer: Any, made: Any = None) -> None:
    probe = Probe() if made is None else made
    probe.set(policy=tandem.exploration.GreedyQPolicy(), pool_size=100, batch=4)
    probe.train(optimizer(probe), 1, p=0)


@pytest.mark.parametrize(
    "case",
    [
        case(
            "networks/defaults.py:Given.features 2",
            session,
            {"network": lambda space: Deep()},
            "end it with a Flatten layer",
            {"network": lambda space: nn.Sequential(Deep(), nn.Flatten())},
        ),
        case(
            "networks/defaults.py:Given.features 2",
            session,
            {"network": lambda space: lstm(space), "env": sequences},
            "put tandem.networks.torch_sequences.LastStep() behind it.",
            {"network": lambda space: nn.Sequential(lstm(space), LastStep())},
        ),
        case(
            "networks/defaults.py:Given.features 2",
            session,
            {"network": lambda space: Both(), "env": sequences},
            "return one of them",
            {"network": lambda space: nn.Flatten()},
        ),
        case(
            "networks/defaults.py:Given.features 2",
            session,
            {
                "network": {"actor": nn.LSTM(3, 2, batch_first=True), "critic": DEEP},
                "env": sequences,
            },
            "put tandem.networks.torch_sequences.LastStep() behind it, and end it with a "
            "linear layer of 2 units",
            {
                "network": {
                    "actor": nn.Sequential(LSTM, LastStep(), nn.Linear(5, 2)),
                    "critic": DEEP,
                }
            },
        ),
        case(
            "networks/defaults.py:Given.features 2",
            session,
            {"network": whole(3)},
            "end it with a linear layer of 2 units",
            {"network": whole(2)},
        ),
        case(
            "networks/defaults.py:sources 3",
            session,
            {"network": whole(), "recurrent": 8, "sequence": 8},
            "give the body alone",
            {"network": mlp},
        ),
        case(
            "networks/defaults.py:sources 3",
            session,
            {"network": whole(), "recurrent": 8, "rollout": 16},
            "or leave recurrent out",
            {"recurrent": 0},
        ),
        case(
            "networks/defaults.py:sources 3",
            q_learner,
            {"network": {"q": nn.Linear(4, 2)}, "values": "implicit"},
            "give the body alone",
            {"network": mlp},
        ),
        case(
            "networks/defaults.py:sources 3",
            q_learner,
            {"network": {"q": nn.Linear(4, 2)}, "values": "implicit"},
            "or leave values out",
            {"values": "scalar"},
        ),
        case(
            "networks/users.py:body_of.make",
            session,
            {"network": lambda space: (mlp(space),) * 3},
            "return a body, or two of them in a tuple",
            {"network": lambda space: (mlp(space), mlp(space))},
        ),
        case(
            "networks/users.py:body_of.make 2",
            actor_critic,
            {"network": lambda space: (mlp(space), mlp(space))},
            "return one body",
            {"network": mlp},
        ),
        case(
            "networks/users.py:body_of.make 2",
            actor_critic,
            {"network": lambda space: (mlp(space), mlp(space))},
            "or give recurrent=0",
            {"recurrent": 0},
        ),
        case(
            "networks/users.py:body_of.make 3",
            q_learner,
            {"network": lambda space: (mlp(space), mlp(space))},
            "return one body",
            {"network": mlp},
        ),
        case("backends/__init__.py:no_gpu", session, {"device": "cuda"}),
        case(
            "backends/backend.py:keep_apart",
            partial(trainer.session, "dqn", "CartPole-v1", framework="torch", buffer_size=1000),
            {"network": lambda space: LAYER},
            "make the layers within the function",
            {"network": lambda space: nn.Linear(4, 8)},
        ),
        case(
            "backends/torch.py:TorchBackend.optimizer",
            partial(trainer.session, "ddpg", "Pendulum-v1", framework="torch", buffer_size=1000),
            {"network": {"actor": nn.Sequential(SHARED), "q": WithAction(SHARED)}},
            "give networks that share no layers",
            {"network": {"actor": nn.Linear(3, 1), "q": WithAction(nn.Linear(3, 1))}},
        ),
        case(
            "backends/backend.py:Backend.refuse_decay",
            session,
            {"optimizer": torch.optim.SGD([torch.zeros(1)], lr=1e-3), "weight_decay": 0.1},
            "leave weight_decay out",
            {"weight_decay": 0.0},
        ),
    ],
)
def test_advice_on_networks(case) -> None:
    case.follow()
