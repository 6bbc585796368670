"""MADDPG (Lowe et al. 2017, arXiv:1706.02275) on simple_spread: three agents that are to cover
three landmarks without running into one another.

Each agent acts by what it sees; their critics see everything, and all actions.

python -m tandem.examples.cluster.maddpg [--runners 4 | --local]
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
            "maddpg_agent",
            algorithm="maddpg",
            # src/tandem/zoo/maddpg.toml, with half as many environments
            envs=self.total_envs,
            train_every=self.total_envs,
            batch_size=256,
            learning_starts=2_000,
            learning_rate="1e-3:1e-4",
            actor_learning_rate="1e-3:1e-4",
            share=True,
        )


def settings(*argv: str) -> Any:
    return parser(__doc__, env="mpe/simple_spread_v3", steps=60_000, envs=8).parse_args(
        argv or None
    )


if __name__ == "__main__":
    main(cluster, GymRunner, settings())
