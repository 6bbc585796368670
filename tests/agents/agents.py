"""Small agents and environments whose every number can be said beforehand."""

import copy
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tandem.agents.rl import RL_pytorch, assign_param
from tandem.backends.variables import flat
from tandem.exploration import EpsGreedyQPolicy, GreedyQPolicy
from tests.agents.clocks import Clock
from tests.agents.clocks import Walk as Walk


class Probe(RL_pytorch):
    """Learns nothing of interest, and writes down what it is told."""

    def __init__(self, env: Any = None, width: int = 2, actions: int = 2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net, self.target = nn.Linear(width, actions), nn.Linear(width, actions)
        self.param = self.net.parameters()
        self.env = Clock() if env is None else env
        self.seen: list[Any] = []
        self.losses = 0
        self.copies: list[int] = []
        self.rehearsed = False

    def action(self, s: Any) -> Any:
        return self.net(s)

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        self.losses += 1
        self.seen.append((s, a, next_s, r, d))
        TD = self.net(s)[..., 0] - r
        self.prioritized_replay.update(TD)
        return (TD**2).mean()

    def update_param(self) -> None:
        self.copies.append(self.losses - 1)  # one more was made to look at the loss
        assign_param(self.target.parameters(), self.param)


class Ratio(Probe):
    """Reports ratios too, as PPO with priorities needs them."""

    gamma = 0.9

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        loss = super().__call__(s, a, next_s, r, d)
        if self._arguments is not None and self._arguments.PPO:
            self.prioritized_replay.update(self.net(s)[:, 0] - r, 1.0 + 0.1 * s[:, 0])
        return loss


class Layers(Probe):
    """With a network of two layers, the first one a batch norm by default, and a target."""

    def __init__(self, env: Any = None, first: Any = None) -> None:
        super().__init__(env)
        self.net = nn.Sequential(first or nn.BatchNorm1d(2), nn.Linear(2, 2))
        self.target = copy.deepcopy(self.net)
        self.param = self.net.parameters()


def own(base: Any = Probe, **members: Any) -> Any:
    """A class of agents with other members."""
    return type("Own", (base,), members)


def trained(agent, episodes: int | None = 4, *, lr: float = 0.01, train=None, **choices) -> Any:
    """The agent after these episodes, a minibatch a step by default, and what `train` gave."""
    one = {} if choices.get("PPO") else {"num_updates": 1}
    agent.set(**{"policy": GreedyQPolicy(), "pool_size": 100, "batch": 4, **one, **choices})
    agent.given = agent.train(torch.optim.SGD(agent.param, lr), episodes, p=0, **(train or {}))
    return agent


def ready(env: Any = 3, kind: Any = Ratio, **choices: Any) -> Any:
    """An agent, set, that acts at random in 3 of 10 steps. env: or a number of `Walk`s."""
    if isinstance(env, int):
        env = [Walk() for _ in range(env)] if env > 1 else Walk()
    agent, small = kind(env), {"pool_size": 60, "batch": 6}
    agent.set(**{"policy": EpsGreedyQPolicy(0.3), **small, **choices})
    return agent


def fit(agent: Any, episodes: int | None, **train: Any) -> Any:
    """The agent after so many more episodes, by Adam where it has no optimizer yet."""
    optimizer = torch.optim.Adam(agent.param) if agent.optimizer is None else None
    agent.train(optimizer, episodes, p=0, **train)
    return agent


def weights(agent: Any) -> list[Any]:
    return [p.detach().clone() for p in flat(agent.param)]


def same(a: Any, b: Any) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def alike(one: Any, other: Any) -> bool:
    """Whether two agents have come to the same weights by the same losses and returns."""
    records = (one.loss_list, one.reward_list) == (other.loss_list, other.reward_list)
    return records and same(weights(one), weights(other))


def resumed(made, file: Path, first: int, episodes: int, again=None, **train) -> Any:
    """Two of `made()`: one after all episodes, one restored after the first (and told `again`)."""
    (whole, optimizer), (half, of_half), (other, of_other) = made(), made(), made()
    whole.train(optimizer, episodes, p=0, **train)
    half.train(of_half, first, p=0, **train)
    half.save(file)
    other.restore(file)
    left = len(whole.reward_list) - len(half.reward_list)
    other.train(of_other, left, p=0, **(train if again is None else again))
    return whole, other
