"""The advice of the room agents, followed: what a user's agent is told before it is trained, or by
its first steps."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

torch = pytest.importorskip("torch")

from tandem.exploration import GreedyQPolicy, OrnsteinUhlenbeckProcess  # noqa: E402
from tests.advice.net import case, follows  # noqa: E402
from tests.agents.agents import Clock, Probe, trained  # noqa: E402
from tests.agents.test_phases import Goal  # noqa: E402
from tests.parallel.faulty import Faulty  # noqa: E402


def probe(*envs: Any, **members: Any) -> Any:
    """Makes a Probe with other members, for one or several environments."""
    return lambda: type("Own", (Probe,), members)([make() for make in envs] or None)


def learn(make: Any = Probe, **choices: Any) -> Any:
    return trained(make(), 1, **choices)


def train(optimizer: Any = torch.optim.SGD, attributes: Any = None, **given: Any) -> Any:
    agent = Probe()
    agent.set(policy=GreedyQPolicy(), pool_size=100, batch=4)
    vars(agent).update(attributes or {})
    agent.train(optimizer(agent.param, 0.01), **{"episodes": 1, "p": 0, **given})


def loss(function: Any) -> Any:
    """A Probe whose loss is a function of its output for each sample [B, 2], and rewards [B]."""
    return probe(__call__=lambda self, s, a, next_s, r, d: function(self.net(s), r))


def reporting(report: Any) -> Any:
    """A Probe that reports a function of its errors [B] to prioritized_replay."""

    def call(self: Any, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        TD = self.net(s)[:, 0] - r
        if report is not None:
            self.prioritized_replay.update(report(TD))
        return TD**2

    return probe(__call__=call)


class Boxed(Clock):
    """Takes two numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Box(-1, 1, (2,), np.float32)


def silent(number: int = 0) -> Any:
    """A clock that does not say its actions, or how many there are."""
    clock = Clock()
    del clock.action_space
    if number:
        clock.action_space = spaces.Discrete(number)
    return clock


class Rooted(Clock):
    """Goes to other processes, and cannot be copied within one."""

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("I hold a window")


NOISE = OrnsteinUhlenbeckProcess(0.1)
NUMBERS = probe(Boxed, action=lambda self, s: self.net(s))
LONG = probe(Boxed, action=lambda self, s: self.net(s)[:, None])
CHOICES = probe(silent, action=lambda self, s: self.net(s).argmax(-1))
SAID = probe(lambda: silent(2), action=lambda self, s: self.net(s).argmax(-1))
CLOCK = Clock()
TWICE, BOTH = probe(lambda: CLOCK, lambda: CLOCK), probe(Clock, Clock)
GOAL = {"make": Goal, "policy": None, "HER": True}
LISTED = {"policy": [GreedyQPolicy(), GreedyQPolicy()]}
LATER = {"num_steps": 2}
DISCOUNTED = probe(gamma=0.99)
SQUARE = loss(lambda q, r: ((q[:, :1] - r) ** 2).mean())
SQUEEZED = loss(lambda q, r: ((q[:, :1].squeeze(1) - r) ** 2).mean())
BOTH_OUT = probe(action=lambda self, s: (s, self.net(s)))


def test_another_number_of_copies_of_a_single_environment() -> None:
    for first, then in ({"processes": 2}, {"processes": 3}), ({"processes": 2}, {}):
        agent = probe(Clock)()
        chosen = {"policy": GreedyQPolicy(), "pool_size": 60, "batch": 4}
        agent.set(**chosen)
        agent.train(torch.optim.SGD(agent.param, 0.1), 1, p=0, **first)
        with follows("agents/assembly.py:Assembly.check_copies") as advice:
            agent.train(None, 1, p=0, pool_network=bool(then), **then)
        (told,) = (each for each in advice.assigned() if "processes" in each)
        assert "leave pool_network out" in advice.fix and told == first
        agent.train(None, 1, p=0, **told)
        assert agent._assembly.processes == 2 and len(agent._assembly.learner.ring) > 10
        assert "or call set again" in advice.fix and "A list of environments" in advice.fix
        agent.set(**chosen)
        agent.train(None, 1, p=0, **then)
        assert agent._assembly.processes == then.get("processes", 1)
        agent.set(**chosen)
        agent.env = [Clock(), Clock()]
        for processes in (1, 2):
            agent.train(None, 1, p=0, processes=processes)


def test_an_agents_worker_that_is_lost_once_too_often(tmp_path: Path) -> None:
    agent = Probe([Faulty(str(tmp_path), "raises", os.getpid(), at=5, times=4) for _ in range(2)])
    agent.set(policy=GreedyQPolicy(), pool_size=200, batch=4)
    with warnings.catch_warnings(), follows("parallel/worker_group.py:WorkerGroup.answer") as lost:
        warnings.simplefilter("ignore")  # each that is started anew
        agent.train(torch.optim.SGD(agent.param, 0.1), 100, processes=2, p=0)
    assert "mend the environment" in lost.fix and "call train again" in lost.fix
    assert not lost.assigned()  # `train` takes neither patience nor restarts
    before, pool = len(agent.reward_list), len(agent._assembly.learner.ring)
    agent.train(None, 3, processes=2, p=0)
    assert len(agent.reward_list) >= before + 3 and len(agent._assembly.learner.ring) > pool > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "each",
    [
        # arguments of set and train
        case(
            "agents/contract.py:check_count",
            learn,
            {"batch": 0},
            "leave batch out",
            {"batch": None},
        ),
        case(
            "agents/contract.py:check_count",
            train,
            {"episodes": 2.5},
            "such a number",
            {"episodes": 1},
        ),
        case(
            "agents/contract.py:_check_number",
            learn,
            {"PR": True, "alpha": -1},
            "a number",
            {"alpha": 0.5},
        ),
        case("agents/contract.py:_check_number", learn, {"k": "all"}, "leave k out", {"k": 4.0}),
        case(
            "agents/contract.py:_check_explorers",
            learn,
            {"policy": GreedyQPolicy},
            "make one",
            {"policy": GreedyQPolicy()},
        ),
        case(
            "agents/contract.py:_check_explorers",
            learn,
            {"make": NUMBERS, "policy": None, "noise": "ou"},
            "give it as noise",
            {"noise": NOISE},
        ),
        case(
            "agents/contract.py:SetArguments.__post_init__",
            learn,
            {"PR": "yes"},
            "give True",
            {"PR": True},
        ),
        case("agents/contract.py:SetArguments.__post_init__ 2", learn, {"strategy": "last"}),
        case(
            "agents/contract.py:SetArguments._check_together",
            learn,
            {"noise": NOISE},
            "leave one of them out",
            {"noise": None},
        ),
        case("agents/contract.py:SetArguments._check_together 2", learn, {"criterion": 1.0}),
        case(
            "agents/contract.py:SetArguments._check_together 3",
            learn,
            {"PPO": True, "pool_size": 2000},
        ),
        case(
            "agents/contract.py:SetArguments._check_together 4",
            learn,
            {**GOAL, "PPO": True, "update_steps": 8},
            "leave one",
            {"PPO": False},
        ),
        case(
            "agents/contract.py:SetArguments._check_together 5",
            learn,
            {"TRL": True, "PR": True},
            "leave the other",
            {"PR": False},
        ),
        case(
            "agents/contract.py:SetArguments._check_together 6",
            learn,
            {**GOAL, **LATER},
            "leave num_steps out",
            {"num_steps": None},
        ),
        case(
            "agents/contract.py:SetArguments._check_together 7",
            learn,
            {"batch": 200},
            "raise pool_size",
            {"pool_size": 200},
        ),
        case("agents/assembly.py:_gamma", learn, LATER, "self.gamma = 0.99", {"make": DISCOUNTED}),
        case(
            "agents/rl.py:BaseAgent._train",
            train,
            {"optimizer": lambda *_: None},
            "give one to train",
            {"optimizer": torch.optim.SGD},
        ),
        # environments
        case(
            "agents/assembly.py:Assembly._environments",
            learn,
            {"make": TWICE},
            "one by one",
            {"make": BOTH},
        ),
        case(
            "agents/assembly.py:Assembly._action_space",
            learn,
            {"make": CHOICES, "policy": None},
            "env.action_space = gymnasium.spaces.Discrete(n)",
            {"make": SAID},
        ),
        case("agents/collection.py:make_explorers", learn, LISTED, "as many", {"make": BOTH}),
        case(
            "agents/collection.py:make_explorers",
            learn,
            LISTED,
            "as many",
            {"policy": [GreedyQPolicy()]},
        ),
        case(
            "agents/collection.py:copied",
            learn,
            {"make": probe(Rooted), "train": {"processes": 2}},
            "a list of them",
            {"make": probe(Rooted, Rooted)},
        ),
        case(
            "agents/collection.py:copied",
            learn,
            {"make": probe(Rooted), "train": {"processes": 2}},
            "processes=1 to train",
            {"train": {"processes": 1}},
        ),
        # what action gives
        case(
            "agents/assembly.py:Assembly._extra",
            learn,
            {"IRL": True},
            "both as a tuple",
            {
                "make": probe(
                    action=lambda self, s: (s, self.net(s)),
                    __call__=lambda self, s, a, n, r, d: self.net(s).mean(),
                )
            },
        ),
        case(
            "agents/collection.py:AgentActor._act_one",
            learn,
            {"make": probe(action=lambda self, s: self.net(s)[0])},
            "as it is",
            {"make": Probe},
        ),
        case(
            "agents/collection.py:AgentActor._check",
            learn,
            {"policy": None},
            "return the action itself",
            {"make": SAID},
        ),
        case(
            "agents/collection.py:AgentActor._check",
            learn,
            {"policy": None},
            "give a policy",
            {"policy": GreedyQPolicy()},
        ),
        case(
            "agents/collection.py:AgentActor._check",
            learn,
            {"make": NUMBERS},
            "noise instead of a policy",
            {"policy": None, "noise": NOISE},
        ),
        case(
            "agents/collection.py:PolicyExplorer.__call__",
            learn,
            {"make": LONG},
            "noise instead of a policy",
            {"make": NUMBERS, "policy": None, "noise": NOISE},
        ),
        case(
            "agents/collection.py:PolicyExplorer.__call__",
            learn,
            {"make": probe(action=lambda self, s: self.net(s)[:, :1])},
            "return action values",
            {"make": Probe},
        ),
        # what the loss gives
        case(
            "backends/broadcast_check.py:check_losses",
            learn,
            {"make": SQUARE},
            "squeeze the axis",
            {"make": SQUEEZED},
        ),
        case(
            "agents/user_functions.py:AgentAlgorithm._check",
            learn,
            {"make": loss(lambda q, r: [q.mean(), q.mean()])},
            "as many optimizers",
            {"make": loss(lambda q, r: [q.mean()])},
        ),
        case(
            "agents/user_functions.py:AgentAlgorithm._check 2",
            learn,
            {"make": loss(lambda q, r: 0.5)},
            "the mean of the losses",
            {"make": loss(lambda q, r: q.mean())},
        ),
        case(
            "agents/user_functions.py:AgentAlgorithm._check 2",
            learn,
            {"make": loss(lambda q, r: None)},
            "or one of each",
            {"make": loss(lambda q, r: q[:, 0])},
        ),
        case(
            "agents/user_functions.py:AgentAlgorithm._check 3",
            learn,
            {"make": loss(lambda q, r: q)},
            "take the mean",
            {"make": loss(lambda q, r: q.mean())},
        ),
        case(
            "agents/user_functions.py:AgentAlgorithm._check 3",
            learn,
            {"make": loss(lambda q, r: q[:, :1])},
            "squeeze",
            {"make": loss(lambda q, r: q[:, :1].squeeze(1))},
        ),
        case(
            "agents/user_functions.py:PrioritizedReplay.reported",
            learn,
            {"make": reporting(None), "PR": True},
            "update(TD) in __call__",
            {"make": Probe},
        ),
        case(
            "agents/user_functions.py:PrioritizedReplay.reported 2",
            learn,
            {"make": reporting(torch.mean), "PR": True},
            "before the mean",
            {"make": Probe},
        ),
    ],
)
def test_followed(each: Any) -> None:
    each.follow()


def test_noise_of_another_size() -> None:
    noise = OrnsteinUhlenbeckProcess(0.1, size=(3,))
    with follows("agents/collection.py:NoiseExplorer.__call__") as advice:
        learn(NUMBERS, policy=None, noise=noise)
    assert advice.assigned() == [{"size": (2,)}]
    noise = OrnsteinUhlenbeckProcess(0.1, **advice.assigned()[0])
    learn(NUMBERS, policy=None, noise=noise)


def test_what_is_asked_before_its_time() -> None:
    agent = Probe()
    with follows("agents/agent_checkpoint.py:SavedAgent._set_arguments") as advice:
        agent.train(torch.optim.SGD(agent.param, 0.1), 1, p=0)
    assert advice.fix == "call set first."
    trained(agent, 1)
    with follows("agents/user_functions.py:PrioritizedReplay._scored") as advice:
        agent.prioritized_replay.TD  # noqa: B018
    assert advice.fix == "call set(PR=True, ...) first."
    assert len(trained(agent, 1, PR=True).prioritized_replay.TD)
