"""PPO (Schulman et al. 2017, arXiv:1707.06347) on CartPole, whose actions are two.

Runners step eight environments between them, and wait while the agent learns from what all of them
brought.

python -m tandem.examples.cluster.ppo_discrete [--runners 4 | --local]
"""

from __future__ import annotations

from typing import Any

from tandem.cluster import Cluster
from tandem.examples.cluster.common import VectorRunner, main, parser

cluster = Cluster()


class GymRunner(VectorRunner):
    def make_agent(self) -> Any:
        return self.algorithm_agent(
            cluster,
            "ppo_discrete_agent",
            algorithm="ppo",
            # rl-baselines3-zoo 2.9, hyperparams/ppo.yml, CartPole-v1
            envs=self.total_envs,
            rollout=32,
            batch_size=256,
            gae_lambda=0.8,
            gamma=0.98,
            epochs=20,
            entropy=0.0,
            learning_rate="1e-3:0",
            clip="0.2:0",
        )


def settings(*argv: str) -> Any:
    return parser(__doc__, env="CartPole-v1", steps=100_000, envs=8).parse_args(argv or None)


if __name__ == "__main__":
    main(cluster, GymRunner, settings())
