"""SAC (Haarnoja et al. 2018, arXiv:1812.05905), which learns how random to be, on Pendulum.

Each runner draws its actions from the policy, and brings its steps to one agent, which learns from
all that it remembers.

python -m tandem.examples.cluster.sac [--runners 4 | --local]
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
            "sac_agent",
            algorithm="sac",
            # rl-baselines3-zoo 2.9, hyperparams/sac.yml, with smaller networks and batches
            learning_rate=1e-3,
            hidden=(64, 64),
            batch_size=128,
            learning_starts=1_000,
        )


def settings(*argv: str) -> Any:
    return parser(__doc__, env="Pendulum-v1", steps=20_000).parse_args(argv or None)


if __name__ == "__main__":
    main(cluster, GymRunner, settings())
