"""PPO (Schulman et al. 2017, arXiv:1707.06347) on Pendulum, with a Beta policy (Chou et al. 2017,
PMLR 70), whose actions keep to their bounds.

Runners step four environments between them, and wait while the agent learns from what all of them
brought.

python -m tandem.examples.cluster.ppo_continuous [--runners 4 | --local]
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
                "ppo_continuous_agent",
                AlgorithmAgent,
                sync=args.sync,
                algorithm="ppo",
                observation_space=self.env.envs[0].observation_space,
                action_space=self.env.envs[0].action_space,
                framework=args.framework,
                seed=args.seed,
                # rl-baselines3-zoo 2.9, hyperparams/ppo.yml, Pendulum-v1 (whose policy is another)
                steps=args.steps,
                envs=self.env.n * args.runners,
                policy="beta",
                rollout=1024,
                gae_lambda=0.95,
                gamma=0.9,
                epochs=10,
                learning_rate=1e-3,
            )
        self.agent = cluster.get_agent("ppo_continuous_agent", act=args.act)

    def run(self) -> list[float]:
        for _ in range(self.env.steps):
            states = self.env.states
            actions = self.agent.choose_action(states)
            next_states, rewards, done, truncated = self.env.step(actions)
            self.agent.update(states, actions, rewards, next_states, done, truncated)
        return self.env.returns


def settings(*given: str) -> Any:
    return parser(__doc__, env="Pendulum-v1", steps=100_000, envs=4).parse_args(given or None)


if __name__ == "__main__":
    main(cluster, GymRunner, settings())
