"""The advice of the room agents, followed: members that are missing, files, and the engine."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tandem  # noqa: E402
from tandem.agents import contract  # noqa: E402
from tandem.agents.rl import LambdaCallback, assign_param  # noqa: E402
from tandem.exploration import GreedyQPolicy  # noqa: E402
from tests.advice.net import excepted, follows  # noqa: E402
from tests.advice.upper import ran  # noqa: E402
from tests.agents.agents import Probe, trained  # noqa: E402
from tests.agents.test_contract import Walk, without  # noqa: E402
from tests.agents.test_phases import Line, Two  # noqa: E402
from tests.helpers import run_python  # noqa: E402


def begun(agent: Any, **choices: Any) -> Any:
    """The agent after an episode, with an optimizer of its network whatever its param is."""
    agent.set(**{"policy": GreedyQPolicy(), "pool_size": 100, "batch": 4, **choices})
    agent.train(torch.optim.SGD(agent.net.parameters(), 1e-4), 1, p=0)
    return agent


@pytest.mark.parametrize("name", ["env", "param", "action", "__call__", "update_param"])
def test_the_example_for_a_member_that_is_missing_works(name: str) -> None:
    agent = without(name)
    agent.q = agent.net
    with follows("agents/contract.py:check_members") as advice:
        begun(agent)
    obey(agent, advice.fix)
    if name == "env":  # of another width
        agent.net, agent.target = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)
        agent.param = agent.net.parameters()
    assert begun(agent).total_episode == 1


def obey(agent: Any, fix: str) -> None:
    """Runs the example in a fix: a statement about self, or a method of its class."""
    names = {"self": agent, "gymnasium": gymnasium, "np": np, "assign_param": assign_param}
    exec(fix.removeprefix("for example: "), names)
    for name, member in names.items():
        if name in {**contract.MEMBERS, "reward_done_func": 0, "reward_done_func_ma": 0}:
            setattr(type(agent), name, member)


class Both(Two):
    """Both agents end at once."""

    def step(self, actions: Any) -> Any:
        obs, rewards, done, info = super().step(actions)
        return obs, rewards, [any(done)] * 2, info


class Joint(Probe):
    """Two agents."""

    def action(self, s: Any, i: int) -> Any:  # type: ignore[override]
        return self.net(s)

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        return (self.net(s).sum((1, 2)) - r).pow(2).mean()


class Aimless(Probe):
    """Hindsight that nobody helps."""

    def __init__(self) -> None:
        super().__init__(Line(), 2, 1)


def test_the_examples_for_several_agents_and_for_goals_work() -> None:
    for agent, given in (
        (Joint(Both()), {"MARL": True}),
        (Aimless(), {"HER": True, "policy": None}),
    ):
        with follows("agents/contract.py:check_members") as advice:
            begun(agent, **given)
        obey(agent, advice.fix)
        assert begun(agent, **given).total_episode == 1


def test_attributes_of_another_kind() -> None:
    agent = Probe()
    agent.q = agent.net
    for wrong in (agent.net.named_parameters(), [3]):
        agent.param = wrong
        with follows("agents/contract.py:param_variables") as advice:
            begun(agent)
    obey(agent, advice.fix)
    agent.callbacks = print
    with follows("agents/contract.py:check_members 2") as advice:
        begun(agent)
    callback = LambdaCallback()
    exec(advice.fix.removesuffix("."), {"agent": agent, "callback": callback})
    assert begun(agent).callbacks == [callback]


class Pair(Probe):
    """Two networks that are trained."""

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        return super().__call__(s, a, next_s, r, d) + self.target(s).mean()

    def update_param(self) -> None:
        self.copies.append(self.losses)


def test_several_optimizers() -> None:
    agent = Pair()
    agent.set(policy=GreedyQPolicy(), pool_size=100, batch=4)
    actor, critic = (list(net.parameters()) for net in (agent.net, agent.target))
    optimizers = [torch.optim.SGD(weights, 0.1) for weights in (actor, critic)]
    with follows("agents/contract.py:param_groups") as advice:
        agent.train(optimizers, 1, p=0)
    words = advice.fix.replace("'s variables", "").removesuffix(".")
    exec(words, {"self": agent, "actor": actor, "critic": critic})
    agent.train(optimizers, 1, p=0)
    assert agent.total_episode == 1


def test_files(tmp_path: Path) -> None:
    def fresh(**choices: Any) -> Any:
        agent = Probe()
        agent.set(policy=GreedyQPolicy(), pool_size=100, batch=4, **choices)
        return agent

    agent = trained(fresh(), 2)
    with follows("agents/agent_checkpoint.py:as_path") as advice:
        agent.save("")
    name = advice.fix.split('"')[1]
    agent.save(tmp_path / name)
    agent.save_param(tmp_path / "param")
    with follows("agents/agent_checkpoint.py:read 2") as advice:
        fresh().restore(tmp_path / "param")
    assert "use agent.restore_param for parameters" in advice.fix
    fresh().restore_param(tmp_path / "param")
    run = ran("a2c", out=tmp_path / "run")
    with follows("agents/agent_checkpoint.py:read 2") as advice:
        fresh().restore(tmp_path / "run" / "checkpoints" / "last.zip")
    assert "tandem.load for the folder of a run" in advice.fix
    assert tandem.load(run.folder).action.kind == "discrete"
    with follows("agents/agent_checkpoint.py:load_param") as advice:
        Probe(actions=3).restore_param(tmp_path / "param")
    assert "made with the same arguments" in advice.fix
    (tmp_path / "pickle").write_bytes(pickle.dumps([p.detach().numpy() for p in agent.param]))
    with follows("agents/agent_checkpoint.py:read") as advice:
        fresh().restore_param(tmp_path / "pickle")
    assert "one by one" in advice.fix
    other = fresh()
    for variable, array in zip(
        other.param, pickle.loads((tmp_path / "pickle").read_bytes()), strict=True
    ):
        variable.data = torch.as_tensor(array)


class Chosen(Probe):
    """Acts without a policy, and writes nothing down."""

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        return self.net(s).pow(2).mean()

    def action(self, s: Any) -> Any:
        return self.net(s).argmax(-1)


def test_training_that_goes_on_from_a_file(tmp_path: Path) -> None:
    def restored(env: Any = None, **choices: Any) -> Any:
        agent = Chosen(env or Walk())
        agent.set(pool_size=100, batch=4, **choices)
        agent.restore(tmp_path / "agent")
        return agent

    def go_on(agent: Any, optimizer: Any = torch.optim.SGD) -> int:
        agent.train(optimizer(agent.param, 0.01), 1, p=0)
        return int(agent.total_episode)

    trained(Chosen(Walk()), 2, policy=None).save(tmp_path / "agent")
    with follows("agents/agent_checkpoint.py:load_training 2") as advice:
        go_on(restored(policy=GreedyQPolicy()))
    assert "call set as it was called before, then restore, then train" in advice.fix
    with follows("agents/agent_checkpoint.py:load_training") as advice:
        go_on(restored([Walk(), Walk()]))
    assert "with the same environments; or make the agent anew, and rest" in advice.fix
    agent = restored()
    with follows("agents/agent_checkpoint.py:_load_optimizer_settings") as advice:
        go_on(agent, torch.optim.Adam)
    assert "give train such ones" in advice.fix and "by restore_param" in advice.fix
    assert go_on(agent) == 3
    for env, optimizer in ((Walk(), torch.optim.Adam), ([Walk(), Walk()], torch.optim.SGD)):
        anew = Chosen(env)
        anew.restore_param(tmp_path / "agent")
        anew.set(pool_size=100, batch=4)
        assert go_on(anew, optimizer) >= 1


excepted(
    "agents/assembly.py:engine",
    because="tests/advice/test_upper_agent_members.py::test_keras_on_torch, in a child",
)
KERAS = """
import json
import gymnasium
import keras
import torch
import tandem
from tandem.exploration import GreedyQPolicy
from tests.advice.net import follows
from tests.agents.agents import Probe, trained


class Agent(tandem.RL):
    def __init__(self):
        self.q = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        self.param, self.env = self.q.weights, gymnasium.make("CartPole-v1")

    def action(self, s):
        return self.q(s)

    def __call__(self, s, a, next_s, r, d):
        return ((r - self.q(s)[:, 0]) ** 2).mean()

    def update_param(self):
        pass

agent = Agent()
agent.set(policy=GreedyQPolicy(), pool_size=100, batch=4)
if keras.backend.backend() == "torch":
    with follows("agents/assembly.py:engine") as advice:
        agent.train(None, keras.optimizers.SGD(0.01), 1, p=0)
    assert "KERAS_BACKEND=jax" in advice.fix and "subclass RL_pytorch" in advice.fix
    print(trained(Probe(), 1).total_episode)
else:
    agent.train(None, keras.optimizers.SGD(0.01), 1, p=0)
    print(agent.total_episode)
"""


@pytest.mark.slow
def test_keras_on_torch() -> None:
    assert run_python(KERAS, engine="keras-torch") == run_python(KERAS, engine="jax") == [1]
