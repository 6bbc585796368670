"""MAPPO (Yu et al. 2022, arXiv:2103.01955) on simple_spread: three agents that are to cover three
landmarks without running into one another.

Each agent acts by what it sees; the critic sees everything. Runners wait while the agent learns
from what all of them brought.

python -m tandem.examples.cluster.mappo [--runners 4 | --local]
"""

from __future__ import annotations

from typing import Any

from tandem.cluster import Cluster
from tandem.examples.cluster.common import TeamRunner, main, parser

cluster = Cluster()


class GymRunner(TeamRunner):
    def make_agent(self) -> Any:
        return self.algorithm_agent(
            cluster,
            "mappo_agent",
            algorithm="mappo",
            # src/tandem/zoo/mappo.toml, with half as many environments
            envs=self.total_envs,
            rollout=25,
            gamma=0.9,
            epochs=15,
            learning_rate="2e-3:2e-4",
            activation="relu",
            entropy=0.0,
            rewards="team",
        )


def settings(*argv: str) -> Any:
    return parser(__doc__, env="mpe/simple_spread_v3", steps=200_000, envs=32).parse_args(
        argv or None
    )


if __name__ == "__main__":
    main(cluster, GymRunner, settings())
