"""TRPO (Schulman et al. 2015, arXiv:1502.05477) on CartPole.

Runners step two environments between them, and wait while the agent moves its policy, within a
trust region, by what all of them brought.

python -m tandem.examples.cluster.trpo [--runners 4 | --local]
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
            "trpo_agent",
            algorithm="trpo",
            # rl-baselines3-zoo 2.9, hyperparams/trpo.yml, CartPole-v1; the radius shrinks
            envs=self.total_envs,
            rollout=512,
            batch_size=0,
            epochs=20,
            radius="0.01:0.001",
        )


def settings(*argv: str) -> Any:
    return parser(__doc__, env="CartPole-v1", steps=100_000, envs=2).parse_args(argv or None)


if __name__ == "__main__":
    main(cluster, GymRunner, settings())
