"""TD3 (Fujimoto et al. 2018, arXiv:1802.09477), DDPG with two critics, whose policy lags behind
them, on Pendulum.

Each runner adds noise to the actions of the policy, and brings its steps to one agent, which learns
from all that it remembers.

python -m tandem.examples.cluster.td3 [--runners 4 | --local]
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
            "td3_agent",
            algorithm="td3",
            # rl-baselines3-zoo 2.9, hyperparams/td3.yml, with smaller networks and batches
            learning_rate=1e-3,
            gamma=0.98,
            tau=0.01,
            hidden=(64, 64),
            batch_size=128,
            learning_starts=1_000,
        )


def settings(*argv: str) -> Any:
    return parser(__doc__, env="Pendulum-v1", steps=20_000).parse_args(argv or None)


if __name__ == "__main__":
    main(cluster, GymRunner, settings())
