"""DDPG (Lillicrap et al. 2016, arXiv:1509.02971) on Pendulum.

Each runner adds noise to the actions of the policy, and brings its steps to one agent, which learns
from all that it remembers.

python -m tandem.examples.cluster.ddpg [--runners 4 | --local]
"""

from __future__ import annotations

from typing import Any

from tandem.cluster import Cluster
from tandem.examples.cluster.common import EpisodeRunner, main, parser

cluster = Cluster()


class GymRunner(EpisodeRunner):
    def make_agent(self) -> Any:
        return self.algorithm_agent(
            cluster,
            "ddpg_agent",
            algorithm="ddpg",
            # rl-baselines3-zoo 2.9, hyperparams/ddpg.yml, with smaller networks and batches
            learning_rate=1e-3,
            actor_learning_rate=1e-3,
            gamma=0.98,
            tau=0.005,
            hidden=(64, 64),
            batch_size=128,
            learning_starts=1_000,
        )


def settings(*argv: str) -> Any:
    return parser(__doc__, env="Pendulum-v1", steps=20_000).parse_args(argv or None)


if __name__ == "__main__":
    main(cluster, GymRunner, settings())
