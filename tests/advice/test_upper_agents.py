"""The advice of the room agents, followed: what a user's agent is told before it is trained, or by
its first steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

torch = pytest.importorskip("torch")

from tandem.exploration import GreedyQPolicy, OrnsteinUhlenbeckProcess  # noqa: E402
from tests.advice.net import case, follows  # noqa: E402
from tests.agents.agents import Clock, Probe, trained  # noqa: E402


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
CHOICES = probe(silent, action=lambda self, s: self.net(s).argmax(-1))
SAID = probe(lambda: silent(2), action=lambda self, s: self.net(s).argmax(-1))
CLOCK = Clock()
TWICE, BOTH = probe(lambda: CLOCK, lambda: CLOCK), probe(Clock, Clock)
SQUARE = loss(lambda q, r: ((q[:, :1] - r) ** 2).mean())
SQUEEZED = loss(lambda q, r: ((q[:, :1].squeeze(1) - r) ** 2).mean())


@pytest.mark.slow
@pytest.mark.parametrize(
    "each",
    [
        # arguments of set and train
        case(
            "agents/contract.py:SetArguments._check_together 5",
            learn,
            {"TRL": True, "PR": True},
            "leave the other",
            {"PR": False},
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
        # what the loss gives
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
