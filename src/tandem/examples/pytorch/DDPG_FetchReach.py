"""DDPG with hindsight on FetchReach: an arm learns to put its hand where it is told, in PyTorch.

pip install 'tandem-rl[robotics]' python -m tandem.examples.pytorch.DDPG_FetchReach

Observations are Gymnasium-Robotics' Dicts, and the environment itself says by compute_reward what
another goal had been worth.
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
    """Networks see the observation and the desired goal side by side: 10 and 3 numbers. sigma: of
    the noise, in units of the widest action."""

    def __init__(self, hidden_dim: int, sigma: float, gamma: float, tau: float) -> None:
        super().__init__()
        self.env = fetch_reach()
        self.sigma, self.gamma, self.tau = sigma, gamma, tau
        self.actor, self.target_actor = (
            nn.Sequential(nn.Linear(13, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, 4))
            for _ in range(2)
        )
        self.critic, self.target_critic = (
            nn.Sequential(nn.Linear(13 + 4, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, 1))
            for _ in range(2)
        )
        self.param = [self.actor.parameters(), self.critic.parameters()]
        self.target_param = [*self.target_actor.parameters(), *self.target_critic.parameters()]
        assign_param(self.target_param, self.param)

    def action(self, s: Any) -> Any:
        return torch.tanh(self.actor(near(s)))

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        s, next_s = near(s), near(next_s)
        z = self.actor(s)
        actor_loss = -self.critic(torch.cat([s, torch.tanh(z)], 1)).mean() + 0.01 * (z**2).mean()
        with torch.no_grad():
            next_q = self.target_critic(
                torch.cat([next_s, torch.tanh(self.target_actor(next_s))], 1)
            )[:, 0]
            target = r + self.gamma * (1 - d) * next_q
        critic_loss = ((self.critic(torch.cat([s, a], 1))[:, 0] - target) ** 2).mean()
        return [actor_loss, critic_loss]

    def update_param(self) -> None:
        assign_param(self.target_param, self.param, self.tau)


def near(s: Any) -> Any:
    """The goal as seen from the hand, in units of 0.1 m: goals are within 0.15 m of where the hand
    begins."""
    return torch.cat([s[:, :10], (s[:, 10:] - s[:, :3]) * 10], 1)


def fetch_reach() -> Any:
    import gymnasium_robotics

    gymnasium.register_envs(gymnasium_robotics)
    return gymnasium.make("FetchReach-v4")


def success(model: Any, episodes: int = 20) -> float:
    """The share of episodes at whose end the hand is where it should be."""
    ends = []
    for seed in range(episodes):
        last = model.run_agent(50, seed)[0][-1]
        ends.append(np.linalg.norm(last["achieved_goal"] - last["desired_goal"]) < 0.05)
    return float(np.mean(ends))


def main(seed: int = 0) -> DDPG:
    torch.manual_seed(seed)
    model = DDPG(128, 0.2, 0.98, 0.005)
    model.seed = seed
    model.set(
        noise=GaussianWhiteNoiseProcess(sigma=model.sigma),
        pool_size=20000,
        batch=256,
        trial_count=10,
        HER=True,
    )
    model.train([torch.optim.Adam(model.param[0]), torch.optim.Adam(model.param[1])], 100)
    print(f"success in twenty episodes: {success(model):.2f}")
    return model


if __name__ == "__main__":
    main()
