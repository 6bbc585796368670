"""DDPG (Lillicrap et al. 2016, arXiv:1509.02971) on Pendulum, in PyTorch.

python -m tandem.examples.pytorch.DDPG
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

from tandem.agents.rl import RL_pytorch, assign_param
from tandem.exploration import GaussianWhiteNoiseProcess


class DDPG(RL_pytorch):
    """sigma: of the noise that explores, in units of torque."""

    def __init__(self, hidden_dim: int, sigma: float, gamma: float, tau: float) -> None:
        super().__init__()
        self.env = gymnasium.make("Pendulum-v1")
        self.sigma, self.gamma, self.tau, self.bound = sigma, gamma, tau, 2.0
        self.actor, self.target_actor = (
            nn.Sequential(nn.Linear(3, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, 1), nn.Tanh())
            for _ in range(2)
        )
        self.critic, self.target_critic = (
            nn.Sequential(nn.Linear(3 + 1, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, 1))
            for _ in range(2)
        )
        self.param = [self.actor.parameters(), self.critic.parameters()]
        self.target_param = [*self.target_actor.parameters(), *self.target_critic.parameters()]
        assign_param(self.target_param, self.param)

    def action(self, s: Any) -> Any:
        return self.bound * self.actor(s)

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        actor_loss = -self.critic(torch.cat([s, self.action(s)], 1)).mean()
        with torch.no_grad():
            next_a = self.bound * self.target_actor(next_s)
            target = (
                r + self.gamma * (1 - d) * self.target_critic(torch.cat([next_s, next_a], 1))[:, 0]
            )
        critic_loss = ((self.critic(torch.cat([s, a], 1))[:, 0] - target) ** 2).mean()
        return [actor_loss, critic_loss]

    def update_param(self) -> None:
        assign_param(self.target_param, self.param, self.tau)


def main(seed: int = 0) -> DDPG:
    torch.manual_seed(seed)
    model = DDPG(128, 0.2, 0.98, 0.005)
    model.seed = seed
    noise = GaussianWhiteNoiseProcess(sigma=model.sigma)
    model.set(noise=noise, pool_size=10000, batch=64, criterion=-170, trial_count=30)
    model.train(
        [torch.optim.Adam(model.param[0], 3e-4), torch.optim.Adam(model.param[1], 3e-3)], 150
    )
    print(
        "mean return of ten episodes: "
        f"{np.mean([model.run_agent(200, i)[1] for i in range(10)]):.0f}"
    )
    return model


if __name__ == "__main__":
    main()
