"""MADDPG (Lowe et al. 2017, arXiv:1706.02275): each agent has an actor of its own state, and a
critic of all states and actions, in PyTorch.

python -m tandem.examples.pytorch.MADDPG
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from tandem.agents.rl import RL_pytorch, assign_param
from tandem.examples.worlds import Relay
from tandem.exploration import SoftmaxPolicy


class DDPG(RL_pytorch):
    """Expectations over actions are sums over the four joint ones: nothing has to be sampled or
    relaxed in a loss.

    alone: critics see the state and the action of their own agent only, which makes this
      independent DDPG.
    """

    def __init__(
        self, hidden_dim: int, sigma: float, gamma: float, tau: float, alone: bool = False
    ) -> None:
        super().__init__()
        self.env = Relay()
        # probabilities explore, so sigma is not used
        self.sigma = sigma
        self.gamma = gamma
        self.tau = tau
        self.alone = alone
        self.joint = F.one_hot(
            torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]]), 2
        ).float()  # [4 joint actions, 2 agents, 2]
        seen = 4 + 2 if alone else 2 * (4 + 2)
        self.actors, self.target_actors = (
            nn.ModuleList(
                nn.Sequential(
                    nn.Linear(4, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, 2), nn.Softmax(1)
                )
                for _ in range(2)
            )
            for _ in range(2)
        )
        self.critics, self.target_critics = (
            nn.ModuleList(
                nn.Sequential(nn.Linear(seen, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, 1))
                for _ in range(2)
            )
            for _ in range(2)
        )
        self.param = [self.actors.parameters(), self.critics.parameters()]
        self.target_param = [*self.target_actors.parameters(), *self.target_critics.parameters()]
        assign_param(self.target_param, self.param)

    def reward_done_func_ma(self, r: Any, d: Any) -> Any:
        return np.mean(r), all(d)

    def action(self, s: Any, i: int) -> Any:
        return self.actors[i](s)

    def value(self, critics: Any, i: int, s: Any, a: Any) -> Any:
        """What agent i expects, [B], of states [B, 2, 4] and actions [B, 2, 2]."""
        both = torch.cat([s, a], 2)
        return critics[i](both[:, i] if self.alone else both.flatten(1))[:, 0]

    def values(self, critics: Any, i: int, s: Any) -> Any:
        """That of each joint action, [B, 4]."""
        return self.value(
            critics, i, s.repeat_interleave(4, 0), self.joint.repeat(len(s), 1, 1)
        ).reshape(-1, 4)

    def likely(self, actors: Any, s: Any, learns: int | None = None) -> Any:
        """The probability of each joint action, [B, 4]; gradients go to the actor of one agent
        only."""
        p = [
            actor(s[:, i]) if i == learns else actor(s[:, i]).detach()
            for i, actor in enumerate(actors)
        ]
        return (p[0][:, :, None] * p[1][:, None, :]).flatten(1)

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        actor_loss, critic_loss, a = 0.0, 0.0, F.one_hot(a, 2).float()
        for i in range(2):
            actor_loss -= (
                (self.likely(self.actors, s, i) * self.values(self.critics, i, s)).sum(1).mean()
            )
            with torch.no_grad():
                next_q = (
                    self.likely(self.target_actors, next_s)
                    * self.values(self.target_critics, i, next_s)
                ).sum(1)
                target = r + self.gamma * (1 - d) * next_q
            critic_loss += ((self.value(self.critics, i, s, a) - target) ** 2).mean()
        return [actor_loss, critic_loss]

    def update_param(self) -> None:
        assign_param(self.target_param, self.param, self.tau)


def main(seed: int = 0, alone: bool = False) -> DDPG:
    torch.manual_seed(seed)
    model = DDPG(128, 0.1, 0.98, 0.005, alone)
    train(model, seed)
    return model


def train(model: DDPG, seed: int, processes: int | None = None) -> None:
    model.seed = seed
    model.set(policy=SoftmaxPolicy(), pool_size=3000, batch=32, trial_count=10, MARL=True)
    optimizers = [torch.optim.Adam(model.param[0]), torch.optim.Adam(model.param[1])]
    model.train(optimizers, 100, processes=processes)


if __name__ == "__main__":
    main()
