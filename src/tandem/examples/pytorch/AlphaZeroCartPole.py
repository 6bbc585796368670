"""AlphaZero (Silver et al. 2018, doi:10.1126/science.aar6404) on CartPole, in PyTorch: a search led
by a policy and a value, which learn what it found.

python -m tandem.examples.pytorch.AlphaZeroCartPole

The value of a state is -gamma ** (steps until the pole falls): 0 where it never does, -1 where it
does at once. It is learned from what ten steps show.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from tandem.agents.rl import RL_pytorch
from tandem.examples.cartpole_search import CartPoleSearch


class AlphaZero(CartPoleSearch, RL_pytorch):
    def __init__(
        self,
        state_dim: int,
        hidden_dim: int,
        action_dim: int,
        num_simulations: int = 400,
        c_puct: float = 2.0,
    ) -> None:
        super().__init__(num_simulations, c_puct)
        body = [
            nn.Linear(state_dim, hidden_dim),
            nn.ReLU(),
            nn.Linear(hidden_dim, hidden_dim),
            nn.ReLU(),
        ]
        self.net = nn.Sequential(*body, nn.Linear(hidden_dim, action_dim + 1))
        self.param = self.net.parameters()

    def forward(self, s: Any) -> tuple[Any, Any]:
        out = self.net(s)
        return out[:, :-1], torch.tanh(out[:, -1])

    @torch.no_grad()
    def evaluate(self, state: Any) -> tuple[list[tuple[int, float]], float]:
        logits, value = self.forward(torch.as_tensor(state[None], dtype=torch.float32))
        return list(enumerate(torch.softmax(logits[0], 0).tolist())), float(value)

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
