"""The advice of `networks`, and of PyTorch's backend."""

from __future__ import annotations

import importlib.util
import pickle
import sys
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import tandem
from tandem import algorithms, backends, trainer
from tandem.agents.rl import assign_param
from tandem.envs.team import Team
from tandem.networks.plan import Cast, Conv, Dense, Flatten, width
from tandem.networks.torch_sequences import LastStep
from tandem.onnx_export import to_numpy, to_onnx
from tandem.testing.action_games import Parts
from tandem.testing.team_games import TwoStep
from tests.advice.conftest import body
from tests.advice.installs import installs
from tests.advice.net import case, follows
from tests.advice.test_runs import rewritten
from tests.agents.agents import Probe
from tests.networks.chains import Numbers, box
from tests.test_onnx_export import BODIES, BOX, CHOICE, Strange, built
from tests.test_trainer import SMALL, TINY_DQN, small

IMAGES = (Conv(3, 4, 3, 1),)
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


class OfAgents(nn.Module):
    """Takes what an agent sees, or that and the state."""

    def __init__(self, space: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(spaces.flatdim(space), 8)

    def forward(self, x: Any) -> Any:
        return self.layer(torch.cat(list(x.values()), -1) if isinstance(x, dict) else x)


class Needy(torch.optim.SGD):
    def __init__(self, params: Any, more: int) -> None:
        super().__init__(params, lr=1e-3)


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


def assign(target: Any, source: Any) -> None:
    assign_param(target, source)


@pytest.mark.parametrize(
    "case",
    [
        case("networks/defaults.py:mlp", session, {"activation": "xyzzy"}),
        case(
            "networks/defaults.py:Given.features",
            session,
            {"network": lambda space: nn.Linear(3, 8)},
            "build it for the observation space that it is called with",
            {"network": lambda space: nn.Linear(space.shape[0], 8)},
        ),
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
            "networks/defaults.py:sources",
            session,
            {"network": {"actor": nn.Linear(4, 2)}},
            "give network={'actor': ..., 'critic': ...}",
            {"network": whole()},
        ),
        case(
            "networks/defaults.py:sources",
            session,
            {"network": {"actor": nn.Linear(4, 2)}},
            "or a function that returns the body for all",
            {"network": mlp},
        ),
        case("networks/defaults.py:sources 2", team, {"share": False, "network": OfAgents}),
        case(
            "networks/defaults.py:sources 2",
            team,
            {"share": False, "network": OfAgents},
            "or leave network out",
            {"network": None},
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
            "networks/defaults.py:sources 4",
            session,
            {"network": nn.Linear(4, 8)},
            "write network=lambda space: my_body(space)",
            {"network": lambda space: mlp(space)},
        ),
        case(
            "networks/defaults.py:sources 4",
            session,
            {"network": nn.Linear(4, 8)},
            "or network={'actor': ..., 'critic': ...}",
            {"network": whole()},
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
        case(
            "networks/users.py:called",
            session,
            {"network": lambda: nn.Linear(4, 8)},
            "network=lambda space: my_body(space); it may leave the space unused",
            {"network": lambda space: nn.Linear(4, 8)},
        ),
        case(
            "networks/torch_bodies.py:_looked_at",
            session,
            {"network": lambda space: [1]},
            "return a module",
            {"network": mlp},
        ),
        case(
            "networks/plan.py:width",
            width,
            {"plan": (Flatten(),)},
            "end it with a Dense layer",
            {"plan": (Flatten(), Dense(4, 2))},
        ),
        case(
            "networks/value_scale.py:follow",
            partial(small, steps=32),
            {"network": body(), "value_norm": "popart"},
        ),
        case(
            "networks/value_scale.py:follow",
            partial(small, steps=32),
            {"network": body(), "value_norm": "popart"},
            "or leave network= out",
            {"network": None},
        ),
        case(
            "backends/__init__.py:of_network",
            session,
            {"network": lambda space: [1], "framework": None},
            "return one from the function",
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
        case(
            "backends/torch_optimizers.py:_copied",
            session,
            {"optimizer": object()},
            "give torch.optim.AdamW([torch.zeros(1)], lr=3e-4), say",
            {"optimizer": torch.optim.AdamW([torch.zeros(1)], lr=1e-3)},
        ),
        case(
            "backends/torch_optimizers.py:_copied 2",
            session,
            {"optimizer": Needy([torch.zeros(1)], more=1)},
            "give torch.optim.AdamW([torch.zeros(1)], lr=3e-4), say",
            {"optimizer": torch.optim.AdamW([torch.zeros(1)], lr=1e-3)},
        ),
        case(
            "networks/users.py:refuse_precision",
            session,
            {"network": lambda space: mlp(space).double()},
            "call .float() on the network",
            {"network": lambda space: mlp(space).double().float()},
        ),
        case(
            "backends/torch_own.py:Own.__init__",
            train,
            {"optimizer": lambda agent: "adam"},
            "give torch.optim.Adam(agent.param)",
            {"optimizer": lambda agent: torch.optim.Adam(agent.param)},
        ),
        case(
            "backends/torch_own.py:Own.__init__ 2",
            train,
            {"optimizer": lambda agent: torch.optim.Adam([torch.zeros(1, requires_grad=True)])},
            "make it from them: torch.optim.Adam(agent.param)",
            {"optimizer": lambda agent: torch.optim.Adam(agent.param)},
        ),
        case(
            "backends/variables.py:assign_param",
            assign,
            {"target": [np.zeros((8, 4))], "source": [LAYER.weight]},
            "give net.parameters() of PyTorch's, net.weights of Keras's first, then the arrays",
            {"target": [LAYER.weight], "source": [np.zeros((8, 4))]},
        ),
        case(
            "backends/variables.py:assign_param 2",
            assign,
            {"target": [LAYER], "source": [LAYER]},
            "give net.parameters() of PyTorch's",
            {"target": LAYER.parameters(), "source": nn.Linear(4, 8).parameters()},
        ),
        case(
            "backends/variables.py:assign_param 3",
            assign,
            {"target": [LAYER.weight, LAYER.bias], "source": [LAYER.bias, LAYER.weight]},
            "of two networks that were made alike",
            {"source": list(nn.Linear(4, 8).parameters())},
        ),
    ],
)
def test_advice_on_networks(case) -> None:
    case.follow()


def test_mistyped_names() -> None:
    for key, name, wrong in (
        ("networks/defaults.py:mlp", "activation", "tahn"),
        ("backends/__init__.py:choose 2", "framework", "torhc"),
        ("backends/__init__.py:make", "device", "cpuu"),
    ):
        with follows(key) as advice:
            session(**{name: wrong})
        session(**{name: advice.quoted()})


def test_layers_that_onnx_has_not(tmp_path) -> None:
    strange = built(algorithms.get("dqn"), (Cast(3), Strange(), Dense(3, 3)), BOX, CHOICE)
    parts = trainer.session("ppo", Parts, framework="torch", **SMALL).agent()
    for key, made in (
        ("networks/onnx.py:Graph.plan", strange),
        ("networks/onnx.py:deterministic", parts),
    ):
        with follows(key) as advice:
            to_onnx(made, tmp_path / "a.onnx")
        assert advice.fix == "export it to numpy instead."
        to_numpy(made, tmp_path / "a.npz")


def test_a_plan_of_a_later_version(tmp_path) -> None:
    """The layer is not known here; the module that the user gives is."""
    small(steps=32, network=mlp, out=tmp_path / "run")
    file = tmp_path / "run" / "checkpoints" / "last.zip"
    before = tandem.load(file).act(np.eye(4))

    def later(data: Any) -> None:
        for plan in data["plans"].values():
            plan[0]["layer"] = "Sparse"

    rewritten(file, later)
    with follows("networks/serial.py:from_json") as advice:
        tandem.load(file)
    assert "or give network=" in advice.fix
    assert tandem.load(file, network=mlp).act(np.eye(4)).tolist() == before.tolist()


def test_an_operation_that_onnx_has_not(tmp_path, monkeypatch) -> None:
    (tmp_path / "bodies_of_advice.py").write_text(
        BODIES.replace("nn.Linear(3, 8)", "nn.Linear(4, 8)")
    )
    monkeypatch.syspath_prepend(tmp_path)
    bodies = __import__("bodies_of_advice")
    odd = small(steps=32, network=bodies.odd, out=tmp_path / "run").agent
    with follows("backends/torch_networks.py:FrozenModule.onnx") as advice:
        to_onnx(odd, tmp_path / "a.onnx")
    assert "replace the operation that it names, or use tandem.load" in advice.fix
    assert "i0e" in advice.error.happened
    assert tandem.load(tmp_path / "run", network=bodies.odd).act(np.zeros(4)) in (0, 1)
    to_onnx(small(steps=32, network=bodies.body).agent, tmp_path / "a.onnx")


def test_a_module_that_cannot_travel(tmp_path) -> None:
    class Local(nn.Module):
        def __init__(self, locked: bool = False) -> None:
            super().__init__()
            if locked:
                self.lock = Lock()

        def forward(self, x: Any) -> Any:
            return torch.sin(x)

    def local(space: Any) -> Any:
        return nn.Sequential(nn.Linear(4, 8), Local())

    made = small(steps=32, network=local, out=tmp_path / "run").agent
    made.networks["actor"].network.module = Local(locked=True)
    with follows("backends/__init__.py:not_picklable") as advice:
        pickle.dumps(made)
    code = advice.fix[advice.fix.index("tandem.load") :].partition(" there")[0]
    names = {"tandem": tandem, "folder": tmp_path / "run", "local": local}
    assert eval(code.replace("...", "local"), names).name == made.name
    assert "leave that attribute out of the network" in advice.fix
    pickle.dumps(small(steps=32, network=local).agent)


@pytest.mark.parametrize(
    "key, framework, missing, needs",
    [
        ("backends/__init__.py:choose", None, {"torch", "jax", "tensorflow"}, {"jax"}),
        ("backends/__init__.py:choose 3", "jax", {"jax"}, {"jax"}),
        ("backends/__init__.py:choose 3", "keras-torch", {"keras", "torch"}, {"keras", "torch"}),
    ],
)
def test_engines_that_are_not_installed(key, framework, missing, needs, monkeypatch) -> None:
    find = importlib.util.find_spec
    # a test before may have imported it, on another engine
    monkeypatch.delitem(sys.modules, "keras", raising=False)
    with monkeypatch.context() as without:
        without.setattr(importlib.util, "find_spec", lambda m: None if m in missing else find(m))
        with follows(key) as advice:
            backends.choose(framework)
    assert needs <= installs(advice.fix)
    backends.choose(framework)
