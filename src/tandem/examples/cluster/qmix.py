"""QMIX (Rashid et al. 2018, arXiv:1803.11485) on simple_spread: three agents that are to cover
three landmarks without running into one another.

Each agent acts by what it sees; the value of all is a mixture of theirs that rises with each of
them.

python -m tandem.examples.cluster.qmix [--runners 4 | --local]
"""

from __future__ import annotations

import argparse
from typing import Any

from tandem.cluster import AlgorithmAgent, Cluster, Runner
from tandem.envs.team import team
from tandem.examples.cluster.common import SideBySide, main, parser

cluster = Cluster()


class GymRunner(Runner):
    def __init__(self, args: argparse.Namespace, local_rank: int = 0) -> None:
        super().__init__(args, local_rank)
        self.env = SideBySide(lambda: team(args.env), args, self.rank)
        if self.rank == 0:
            cluster.make_agent(
                "qmix_agent",
                AlgorithmAgent,
                sync=args.sync,
                algorithm="qmix",
                observation_space=self.env.envs[0].observation_space,
                action_space=self.env.envs[0].action_space,
                rewards_space=self.env.envs[0].rewards_space,
                framework=args.framework,
                seed=args.seed,
                # tandem.zoo.qmix, with half as many environments
                steps=args.steps,
                envs=self.env.n * args.runners,
                train_every=self.env.n * args.runners,
                gamma=0.9,
                learning_rate="1e-3:1e-4",
                target_every=16,
                tau=0.01,
                epsilon="1:0.05:0.3",
            )
        self.agent = cluster.get_agent("qmix_agent", act=args.act)

    def run(self) -> list[float]:
        for _ in range(self.env.steps):
            states = self.env.states
            actions = self.agent.choose_action(states)
            next_states, rewards, done, truncated = self.env.step(actions)
            self.agent.update(states, actions, rewards, next_states, done, truncated)
        return self.env.returns


def settings(*given: str) -> Any:
    return parser(__doc__, env="mpe/simple_spread_v3", steps=100_000, envs=8).parse_args(
        given or None
    )


if __name__ == "__main__":
    main(cluster, GymRunner, settings())
