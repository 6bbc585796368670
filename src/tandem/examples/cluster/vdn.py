"""VDN (Sunehag et al. 2018, arXiv:1706.05296) on simple_spread: three agents that are to cover
three landmarks without running into one another.

Each agent acts by what it sees; the value of all is the sum of theirs.

python -m tandem.examples.cluster.vdn [--runners 4 | --local]
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
            "vdn_agent",
            algorithm="vdn",
            # src/tandem/zoo/vdn.toml, with half as many environments
            envs=self.total_envs,
            train_every=self.total_envs,
            gamma=0.9,
            learning_rate="1e-3:1e-4",
            target_every=16,
            tau=0.01,
            epsilon="1:0.05:0.3",
        )


def settings(*argv: str) -> Any:
    return parser(__doc__, env="mpe/simple_spread_v3", steps=100_000, envs=8).parse_args(
        argv or None
    )


if __name__ == "__main__":
    main(cluster, GymRunner, settings())
