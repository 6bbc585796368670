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


def network(inputs: int, hidden_dim: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, outputs))


class DDPG(RL_pytorch):
    """sigma: of the noise that explores, in units of torque."""

    state_dim, action_dim, bound = 3, 1, 2.0

    def __init__(self, hidden_dim: int, sigma: float, gamma: float, tau: float) -> None:
        super().__init__()
        self.sigma, self.gamma, self.tau = sigma, gamma, tau
        self.env = self.make_env()
        self.actor, self.target_actor = (
            network(self.state_dim, hidden_dim, self.action_dim) for _ in range(2)
        )
        self.critic, self.target_critic = (
            network(self.state_dim + self.action_dim, hidden_dim, 1) for _ in range(2)
        )
        self.param = [self.actor.parameters(), self.critic.parameters()]
        self.target_param = [*self.target_actor.parameters(), *self.target_critic.parameters()]
        assign_param(self.target_param, self.param)

    def make_env(self) -> Any:
        return gymnasium.make("Pendulum-v1")

    def action(self, s: Any) -> Any:
        return self.bound * torch.tanh(self.actor(s))

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        actor_loss = -self.critic(torch.cat([s, self.action(s)], 1)).mean()
        with torch.no_grad():
            next_a = self.bound * torch.tanh(self.target_actor(next_s))
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
    train(model, seed)
    return model


def train(model: DDPG, seed: int, processes: int | None = None) -> None:
    model.seed = seed
    noise = GaussianWhiteNoiseProcess(sigma=model.sigma)
    model.set(noise=noise, pool_size=10000, batch=64, criterion=-170, trial_count=30)
    optimizers = [torch.optim.Adam(model.param[0], 3e-4), torch.optim.Adam(model.param[1], 3e-3)]
    model.train(optimizers, 150, processes=processes)
    returns = [model.run_agent(200, i)[1] for i in range(10)]
    print(f"mean return of ten episodes: {np.mean(returns):.0f}")


if __name__ == "__main__":
    main()
