"""PPO (Schulman et al. 2017, arXiv:1707.06347) on CartPole, in PyTorch: the clipped objective of
equation 7, with one-step advantages.

python -m tandem.examples.pytorch.PPO
"""

from __future__ import annotations

from typing import Any

import gymnasium
import torch
from torch import nn

from tandem.agents.rl import RL_pytorch, assign_param
from tandem.exploration import SoftmaxPolicy


class PPO(RL_pytorch):
    def __init__(
        self, state_dim: int, hidden_dim: int, action_dim: int, clip_eps: float, alpha: float
    ) -> None:
        """alpha: how much the entropy counts."""
        super().__init__()
        self.actor, self.old_actor = (
            nn.Sequential(
                nn.Linear(state_dim, hidden_dim),
                nn.ReLU(),
                nn.Linear(hidden_dim, action_dim),
                nn.Softmax(1),
            )
            for _ in range(2)
        )
        self.critic = nn.Sequential(
            nn.Linear(state_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, 1)
        )
        self.update_param()
        self.param = [self.actor.parameters(), self.critic.parameters()]
        self.env = gymnasium.make("CartPole-v1")
        self.clip_eps, self.alpha, self.gamma = clip_eps, alpha, 0.98

    def action(self, s: Any) -> Any:
        return self.old_actor(s)

    def losses(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> tuple[Any, Any, Any]:
        """Returns (the actor's loss, the critic's error, ratios of probabilities), each [B]."""
        target = (r + self.gamma * (1 - d) * self.critic(next_s)[:, 0]).detach()
        TD = target - self.critic(s)[:, 0]
        advantage, prob = TD.detach(), self.actor(s)
        ratio = (prob / self.old_actor(s)).gather(1, a[:, None])[:, 0]
        clipped = ratio.clamp(1 - self.clip_eps, 1 + self.clip_eps)
        entropy = -(prob * (prob + 1e-8).log()).sum(1)
        actor_loss = -torch.minimum(ratio * advantage, clipped * advantage) - self.alpha * entropy
        return actor_loss, TD, ratio

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        actor_loss, TD, _ = self.losses(s, a, next_s, r, d)
        return [actor_loss.mean(), (TD**2).mean()]

    def update_param(self) -> None:
        assign_param(self.old_actor.parameters(), self.actor.parameters())


def main(seed: int = 0, episodes: int = 1000) -> PPO:
    torch.manual_seed(seed)
    model = PPO(4, 128, 2, 0.2, 0.01)
    train(model, seed, episodes)
    return model


def train(
    model: PPO, seed: int, episodes: int, processes: int | None = None, **settings: Any
) -> None:
    """Trains this agent, or one that is based on it, until the mean return of ten episodes is
    475."""
    model.seed = seed
    model.set(
        policy=SoftmaxPolicy(),
        pool_size=10000,
        batch=64,
        update_steps=1000,
        trial_count=10,
        criterion=475,
        PPO=True,
        **settings,
    )
    optimizers = [torch.optim.Adam(model.param[0], 1e-3), torch.optim.Adam(model.param[1], 5e-3)]
    model.train(optimizers, episodes, processes=processes)


if __name__ == "__main__":
    main()
