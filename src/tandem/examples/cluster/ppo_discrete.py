"""PPO (Schulman et al. 2017, arXiv:1707.06347) on CartPole, whose actions are two.

Runners step eight environments between them, and wait while the agent learns from what all of them
brought.

python -m tandem.examples.cluster.ppo_discrete [--runners 4 | --local]
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
                "ppo_discrete_agent",
                AlgorithmAgent,
                sync=args.sync,
                algorithm="ppo",
                observation_space=self.env.envs[0].observation_space,
                action_space=self.env.envs[0].action_space,
                framework=args.framework,
                seed=args.seed,
                # rl-baselines3-zoo 2.9, hyperparams/ppo.yml, CartPole-v1
                steps=args.steps,
                envs=self.env.n * args.runners,
                rollout=32,
                batch_size=256,
                gae_lambda=0.8,
                gamma=0.98,
                epochs=20,
                entropy=0.0,
                learning_rate="1e-3:0",
                clip="0.2:0",
            )
        self.agent = cluster.get_agent("ppo_discrete_agent", act=args.act)

    def run(self) -> list[float]:
        for _ in range(self.env.steps):
            states = self.env.states
            actions = self.agent.choose_action(states)
            next_states, rewards, done, truncated = self.env.step(actions)
            self.agent.update(states, actions, rewards, next_states, done, truncated)
        return self.env.returns


def settings(*given: str) -> Any:
    return parser(__doc__, env="CartPole-v1", steps=100_000, envs=8).parse_args(given or None)


if __name__ == "__main__":
    main(cluster, GymRunner, settings())
