"""DQN (Mnih et al. 2015, doi:10.1038/nature14236) on CartPole, with double targets (van Hasselt et
al. 2016, arXiv:1509.06461).

Each runner acts epsilon-greedily, and brings its steps to one agent, which learns from all that it
remembers.

python -m tandem.examples.cluster.dqn [--runners 4 | --local]
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium

from tandem.cluster import AlgorithmAgent, Cluster, Runner
from tandem.examples.cluster.common import main, parser, report

cluster = Cluster()


class GymRunner(Runner):
    def __init__(self, args: argparse.Namespace, local_rank: int = 0) -> None:
        super().__init__(args, local_rank)
        self.env = gymnasium.make(args.env)
        self.env.reset(seed=args.seed + self.rank)
        if self.rank == 0:
            cluster.make_agent(
                "dqn_agent",
                AlgorithmAgent,
                sync=args.sync,
                algorithm="dqn",
                observation_space=self.env.observation_space,
                action_space=self.env.action_space,
                framework=args.framework,
                seed=args.seed,
                # rl-baselines3-zoo 2.9, hyperparams/dqn.yml, CartPole-v1; smaller steps, and
                # updates more often
                steps=args.steps,
                learning_rate="1e-3:1e-4",
                batch_size=64,
                buffer_size=100_000,
                learning_starts=1_000,
                gamma=0.99,
                target_every=10,
                train_every=64,
                updates_per_call=32,
                epsilon="1:0.04:0.16",
                hidden=(256, 256),
            )
        self.agent = cluster.get_agent("dqn_agent", act=args.act)

    def run(self) -> list[float]:
        returns: list[float] = []
        taken = 0
        while taken < self.args.steps // self.args.runners:
            state, _ = self.env.reset()
            total, done = 0.0, False
            while not done:
                action = self.agent.choose_action(state)
                next_state, reward, terminated, truncated, _ = self.env.step(action)
                done = terminated or truncated
                self.agent.update(state, action, reward, next_state, done, truncated)
                state, total, taken = next_state, total + float(reward), taken + 1
            returns.append(total)
            report(self.rank, returns)
        return returns


def settings(*given: str) -> Any:
    return parser(__doc__, env="CartPole-v1", steps=50_000).parse_args(given or None)


if __name__ == "__main__":
    main(cluster, GymRunner, settings())
