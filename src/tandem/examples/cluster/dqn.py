"""DQN (Mnih et al. 2015, doi:10.1038/nature14236) on CartPole, with double targets (van Hasselt et
al. 2016, arXiv:1509.06461).

Each runner acts epsilon-greedily, and brings its steps to one agent, which learns from all that it
remembers.

python -m tandem.examples.cluster.dqn [--runners 4 | --local]
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
            "dqn_agent",
            algorithm="dqn",
            # rl-baselines3-zoo 2.9, hyperparams/dqn.yml, CartPole-v1; larger batches, smaller
            # steps that fall to 0, and updates more often
            learning_rate="1e-3:0",
            batch_size=256,
            buffer_size=100_000,
            learning_starts=1_000,
            gamma=0.99,
            target_every=10,
            train_every=64,
            updates_per_call=32,
            epsilon="1:0.04:0.16",
            hidden=(256, 256),
        )


def settings(*argv: str) -> Any:
    return parser(__doc__, env="CartPole-v1", steps=50_000).parse_args(argv or None)


if __name__ == "__main__":
    main(cluster, GymRunner, settings())
