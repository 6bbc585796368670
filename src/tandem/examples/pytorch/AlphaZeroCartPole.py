"""AlphaZero (Silver et al. 2018, doi:10.1126/science.aar6404) on CartPole, in PyTorch: a search led
by a policy and a value, which learn what it found.

python -m tandem.examples.pytorch.AlphaZeroCartPole

The value of a state is -gamma ** (steps until the pole falls): 0 where it never does, -1 where it
does at once. It is learned from what ten steps show.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from tandem.agents.rl import RL_pytorch
from tandem.planning.mcts import BaseNode, run_mcts_search, visit_shares


class AlphaZero(RL_pytorch):
    def __init__(
        self,
        state_dim: int,
        hidden_dim: int,
        action_dim: int,
        num_simulations: int = 400,
        c_puct: float = 2.0,
    ) -> None:
        super().__init__()
        body = [
            nn.Linear(state_dim, hidden_dim),
            nn.ReLU(),
            nn.Linear(hidden_dim, hidden_dim),
            nn.ReLU(),
        ]
        self.net = nn.Sequential(*body, nn.Linear(hidden_dim, action_dim + 1))
        self.param = self.net.parameters()
        self.env, self.simulator = (
            gymnasium.make("CartPole-v1"),
            gymnasium.make("CartPole-v1").unwrapped,
        )
        self.num_simulations, self.c_puct, self.gamma, self.weight_decay = (
            num_simulations,
            c_puct,
            0.99,
            1e-4,
        )
        self.rng = np.random.default_rng(self.seed)

    def forward(self, s: Any) -> tuple[Any, Any]:
        out = self.net(s)
        return out[:, :-1], torch.tanh(out[:, -1])

    @torch.no_grad()
    def evaluate(self, state: Any) -> tuple[list[tuple[int, float]], float]:
        logits, value = self.forward(torch.as_tensor(state[None], dtype=torch.float32))
        return list(enumerate(torch.softmax(logits[0], 0).tolist())), float(value)

    def action(self, s: Any) -> tuple[Any, Any]:
        shares = np.array([self.search(state) for state in np.asarray(s, np.float64)], np.float32)
        return shares, shares.argmax(1)

    def search(self, state: Any) -> list[float]:
        how: dict[str, Any] = {"num_simulations": self.num_simulations, "c_puct": self.c_puct}
        root = run_mcts_search(
            BaseNode(), state, self, self.evaluate, dirichlet=(0.5, 0.25), rng=self.rng, **how
        )
        return list(visit_shares(root).values())

    def simulate(self, state: Any, action: Any) -> tuple[Any, bool]:
        self.simulator.reset()
        self.simulator.state = np.array(state)
        _, _, terminated, *_ = self.simulator.step(action)
        return np.array(self.simulator.state), bool(terminated)

    def get_env_result(self, state: Any) -> float:
        return -1.0

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        shares, _ = a
        logits, value = self.forward(s)
        with torch.no_grad():
            target = (1 - self.gamma) * r - 1 + (1 - d) * self.gamma * (self.forward(next_s)[1] + 1)
        l2 = sum((p**2).sum() for p in self.param)
        return (
            -(shares * F.log_softmax(logits, 1)).sum(1).mean()
            + (value - target).pow(2).mean()
            + self.weight_decay * l2
        )

    def update_param(self) -> None:
        """There is one network, which acts as it is."""


def main(seed: int = 0) -> AlphaZero:
    """Trains until the mean return of five episodes is 475."""
    torch.manual_seed(seed)
    model = AlphaZero(4, 64, 2, num_simulations=25, c_puct=0.03)
    model.seed = seed
    model.set(
        pool_size=10000,
        batch=64,
        num_updates=2,
        num_steps=10,
        IRL=True,
        trial_count=5,
        criterion=475,
    )
    model.train(torch.optim.Adam(model.param, 1e-3), 40)
    return model


if __name__ == "__main__":
    main()
