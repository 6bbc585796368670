"""PPO (Schulman et al. 2017, arXiv:1707.06347) on Pendulum, with a Beta policy (Chou et al. 2017,
PMLR 70), whose actions keep to their bounds.

Runners step four environments between them, and wait while the agent learns from what all of them
brought.

python -m tandem.examples.cluster.ppo_continuous [--runners 4 | --local]
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
            "ppo_continuous_agent",
            algorithm="ppo",
            # rl-baselines3-zoo 2.9, hyperparams/ppo.yml, Pendulum-v1 (whose policy is another)
            envs=self.total_envs,
            policy="beta",
            rollout=1024,
            gae_lambda=0.95,
            gamma=0.9,
            epochs=10,
            learning_rate=1e-3,
        )


def settings(*argv: str) -> Any:
    return parser(__doc__, env="Pendulum-v1", steps=100_000, envs=4).parse_args(argv or None)


if __name__ == "__main__":
    main(cluster, GymRunner, settings())
