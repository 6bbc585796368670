"""TRPO (Schulman et al. 2015, arXiv:1502.05477) on CartPole.

Runners step two environments between them, and wait while the agent moves its policy, within a
trust region, by what all of them brought.

python -m tandem.examples.cluster.trpo [--runners 4 | --local]
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium

from tandem.cluster import AlgorithmAgent, Cluster, Runner
from tandem.examples.cluster.common import SideBySide, main, parser

cluster = Cluster()


class GymRunner(Runner):
    def __init__(self, args: argparse.Namespace, local_rank: int = 0) -> None:
        super().__init__(args, local_rank)
        self.env = SideBySide(lambda: gymnasium.make(args.env), args, self.rank)
        if self.rank == 0:
            cluster.make_agent(
                "trpo_agent",
                AlgorithmAgent,
                sync=args.sync,
                algorithm="trpo",
                observation_space=self.env.envs[0].observation_space,
                action_space=self.env.envs[0].action_space,
                framework=args.framework,
                seed=args.seed,
                # rl-baselines3-zoo 2.9, hyperparams/trpo.yml, CartPole-v1; the radius shrinks
                steps=args.steps,
                envs=self.env.n * args.runners,
                rollout=512,
                epochs=20,
                radius="0.01:0.001",
            )
        self.agent = cluster.get_agent("trpo_agent", act=args.act)

    def run(self) -> list[float]:
        for _ in range(self.env.steps):
            states = self.env.states
            actions = self.agent.choose_action(states)
            next_states, rewards, done, truncated = self.env.step(actions)
            self.agent.update(states, actions, rewards, next_states, done, truncated)
        return self.env.returns


def settings(*given: str) -> Any:
    return parser(__doc__, env="CartPole-v1", steps=100_000, envs=2).parse_args(given or None)


if __name__ == "__main__":
    main(cluster, GymRunner, settings())
