"""The advice about custom networks and optimizers of PyTorch, and about exported agents."""

from functools import partial
from typing import Any

import torch
from onnx import helper
from torch import nn

import tandem
from tandem import trainer
from tandem.envs.team import Team
from tandem.networks import onnx
from tandem.networks.torch_sequences import LastStep
from tandem.reports.onnx_export import to_onnx
from tandem.testing.team_games import TwoStep
from tests.advice.conftest import body
from tests.advice.net import advised, follow, rows
from tests.networks.chains import Numbers, box
from tests.test_trainer import SMALL, TINY_DQN, small

LAYER, SHARED = nn.Linear(4, 8), nn.Linear(3, 1)
Q = {"q": nn.Linear(4, 2)}


class WithAction(nn.Module):
    """[B] observations and actions -> [B, 1], by one layer on the observations."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Any) -> Any:
        return self.layer(x["obs"]) + x["action"]


class Deep(nn.Module):  # [B, 4] -> [B, 4, 2]
    forward = staticmethod(lambda x: torch.stack([x, x], -1))


class Both(nn.Module):  # [B, 6, 3] -> [B, 18], and the same again
    forward = staticmethod(lambda x: (x.flatten(1), x.flatten(1)))


def lstm(space: Any, units: int = 5) -> nn.Module:
    return nn.LSTM(space.shape[1], units, batch_first=True)


def roles(actor: Any) -> dict[str, Any]:
    return {"actor": actor, "critic": nn.Sequential(nn.Flatten(), nn.Linear(18, 1))}


def last(*more: Any) -> Any:
    return lambda space: nn.Sequential(lstm(space), LastStep(), *more)


def mlp(space: Any) -> Any:
    return nn.Sequential(nn.Linear(space.shape[0], 8), nn.Tanh())


def bodies(count: int) -> Any:
    return lambda space: (mlp(space),) * count


def whole(actor: int = 2) -> dict[str, Any]:
    return {"actor": nn.Linear(4, actor), "critic": nn.Linear(4, 1)}


ppo, dqn, impala = (
    partial(trainer.session, name, env="CartPole-v1", framework="torch", **of)
    for name, of in (
        ("ppo", SMALL),
        ("dqn", TINY_DQN),
        ("impala", {"rollout": 8, "envs": 2, "recurrent": 4}),
    )
)
ddpg = partial(trainer.session, "ddpg", "Pendulum-v1", framework="torch", buffer_size=1000)
sequences = partial(ppo, env=lambda: Numbers(box(6, 3)))  # observations [6, 3]


LAST = "add tandem.networks.torch_sequences.LastStep() after it"
FLAT = {"network": lambda space: nn.Sequential(Deep(), nn.Flatten())}
BOTH, FLATTEN = {"network": lambda space: Both()}, lambda space: nn.Flatten()
UNITS = {"network": roles(nn.LSTM(3, 2, batch_first=True))}
RIGHT = {"network": roles(last(nn.Linear(5, 2))(box(6, 3)))}
IMPLICIT, WHOLE = {"network": Q, "values": "implicit"}, {"network": whole(), "recurrent": 8}
ONE, TWO, THREE = {"network": mlp}, {"network": bodies(2)}, {"network": bodies(3)}
SAME = {"network": lambda space: LAYER}
OWN = {"network": lambda space: nn.Linear(4, 8)}
TOGETHER = {"network": {"actor": nn.Sequential(SHARED), "q": WithAction(SHARED)}}
APART = {"network": {"actor": nn.Linear(3, 1), "q": WithAction(nn.Linear(3, 1))}}
FEATURES = "CustomNetwork.features 2"
DECAY = {"optimizer": torch.optim.SGD([torch.zeros(1)], lr=1e-3), "weight_decay": 0.1}


@rows(
    (FEATURES, ppo, {"network": lambda space: Deep()}, "end it with a Flatten la", FLAT),
    (FEATURES, sequences, {"network": lstm}, f"{LAST}.", {"network": last()}),
    (FEATURES, sequences, BOTH, "return one of them", {"network": FLATTEN}),
    (FEATURES, sequences, UNITS, f"{LAST}, and end it with a linear layer of 2", RIGHT),
    (FEATURES, ppo, {"network": whole(3)}, "layer of 2 units", {"network": whole(2)}),
    ("sources 3", ppo, WHOLE | {"sequence": 8}, "only the feature extractor", ONE),
    ("sources 3", ppo, WHOLE, "recurrent out", {"recurrent": 0}),
    ("sources 3", dqn, IMPLICIT, "only the feature extractor", ONE),
    ("sources 3", dqn, IMPLICIT, "values out", {"values": "scalar"}),
    ("body_of.make", ppo, THREE, "two of them", TWO),
    ("body_of.make 2", impala, TWO, "return one feature extractor", ONE),
    ("body_of.make 2", impala, TWO, {"recurrent": 0}),
    ("body_of.make 3", dqn, TWO, "return one feature extractor", ONE),
    ("__init__.py:no_gpu", ppo, {"device": "cuda"}),
    ("keep_apart", dqn, SAME, "create the layers inside the function", OWN),
    ("TorchBackend.optimizer", ddpg, TOGETHER, "give networks that share no layers", APART),
    ("Backend.refuse_decay", ppo, DECAY, "leave weight_decay out", {"weight_decay": 0.0}),
)
def test_networks(row: Any) -> None:
    follow(*row)


def test_agents_that_no_file_can_hold(tmp_path: Any) -> None:
    little = {"steps": 40, "hidden": (4,), "framework": "torch", "eval_episodes": 0, "plots": False}
    team = tandem.train("vdn", lambda: Team(TwoStep()), final_episodes=1, **little)
    memory = small(steps=32, recurrent=4, sequence=16, batch_size=32, network=body())
    for key, agent in (("_network", team.agent), ("_network 2", memory.agent)):
        advice = advised(f"onnx_export.py:{key}", to_onnx, agent, tmp_path / "a.onnx")
        assert "use tandem.load for deployment" in advice.fix
    later = {"opset_imports": [helper.make_opsetid("", 18)]}
    newer = helper.make_model(helper.make_graph([], "later", [], []), **later)
    advice = advised("Graph.merge", onnx.Graph().merge, newer.SerializeToString(), {})
    assert advice.fix == "use tandem.load for deployment."
