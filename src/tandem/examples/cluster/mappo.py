"""MAPPO (Yu et al. 2022, arXiv:2103.01955) on simple_spread: three agents that are to cover three
landmarks without running into one another.

Each agent acts by what it sees; the critic sees everything. Runners wait while the agent learns
from what all of them brought.

python -m tandem.examples.cluster.mappo [--runners 4 | --local]
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
                "mappo_agent",
                AlgorithmAgent,
                sync=args.sync,
                algorithm="mappo",
                observation_space=self.env.envs[0].observation_space,
                action_space=self.env.envs[0].action_space,
                rewards_space=self.env.envs[0].rewards_space,
                framework=args.framework,
                seed=args.seed,
                # tandem.zoo.mappo, with half as many environments
                steps=args.steps,
                envs=self.env.n * args.runners,
                rollout=25,
                gamma=0.9,
                epochs=15,
                learning_rate="2e-3:2e-4",
                activation="relu",
                entropy=0.0,
                rewards="team",
            )
        self.agent = cluster.get_agent("mappo_agent", act=args.act)

    def run(self) -> list[float]:
        for _ in range(self.env.steps):
            states = self.env.states
            actions = self.agent.choose_action(states)
            next_states, rewards, done, truncated = self.env.step(actions)
            self.agent.update(states, actions, rewards, next_states, done, truncated)
        return self.env.returns


def settings(*given: str) -> Any:
    return parser(__doc__, env="mpe/simple_spread_v3", steps=200_000, envs=32).parse_args(
        given or None
    )


if __name__ == "__main__":
    main(cluster, GymRunner, settings())
