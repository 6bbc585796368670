"""TD3 (Fujimoto et al. 2018, arXiv:1802.09477), DDPG with two critics, whose policy lags behind
them, on Pendulum.

Each runner adds noise to the actions of the policy, and brings its steps to one agent, which learns
from all that it remembers.

python -m tandem.examples.cluster.td3 [--runners 4 | --local]
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
                "td3_agent",
                AlgorithmAgent,
                sync=args.sync,
                algorithm="td3",
                observation_space=self.env.observation_space,
                action_space=self.env.action_space,
                framework=args.framework,
                seed=args.seed,
                # rl-baselines3-zoo 2.9, hyperparams/td3.yml, with smaller networks and batches
                steps=args.steps,
                learning_rate=1e-3,
                gamma=0.98,
                tau=0.01,
                hidden=(64, 64),
                batch_size=128,
                learning_starts=1_000,
            )
        self.agent = cluster.get_agent("td3_agent", act=args.act)

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
    return parser(__doc__, env="Pendulum-v1", steps=20_000).parse_args(given or None)


if __name__ == "__main__":
    main(cluster, GymRunner, settings())
