"""What the examples of the cluster API share: flags, runners with their loop, and the summary.

An example says what its agent is made of; `own_agent` and docs/advanced/cluster.md show whole
programs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from tandem.cluster import AlgorithmAgent, Cluster, Runner
from tandem.envs.team import team
from tandem.learning.figures import figures
from tandem.types import Array, Tree, tree_map

WINDOW = 20  # episodes that a score is the mean return of


def parser(about: str | None, *, env: str, steps: int, envs: int = 0) -> argparse.ArgumentParser:
    """The flags of all examples; an example adds its own. envs: where runners step several at
    once."""
    flags = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flags.add_argument(
        "--runners", type=int, default=2, help="processes with environments (default: 2)"
    )
    flags.add_argument(
        "--local", action="store_true", help="one runner and its agent in this process, without Ray"
    )
    flags.add_argument(
        "--sync",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="whether acting waits for learning",
    )
    flags.add_argument(
        "--act",
        choices=("local", "remote"),
        default="local",
        help="where actions are selected: in the runner or in the agent",
    )
    flags.add_argument("--env", default=env, help=f"environment (default: {env})")
    if envs:
        flags.add_argument(
            "--envs",
            type=int,
            default=envs,
            help=f"total environments of all runners (default: {envs})",
        )
    flags.add_argument(
        "--steps",
        type=int,
        default=steps,
        help=f"total steps of all environments (default: {steps:,})",
    )
    flags.add_argument("--seed", type=int, default=0)
    flags.add_argument(
        "--framework",
        help="torch, jax, tensorflow or keras-torch (default: fastest installed)",
    )
    return flags


def main(cluster: Cluster, runner_class: type[Runner], args: argparse.Namespace) -> list[float]:
    """Runs the runners, and prints the score of each. Returns the scores."""
    if args.local:
        args.runners = 1
        returns = [runner_class(args).run()]
    else:
        returns = cluster.start_all_runners(
            cluster.make_runner("runner", runner_class, args, num=args.runners)
        )
    scores = [float(np.mean(each[-WINDOW:])) if each else float("nan") for each in returns]
    for rank, score in enumerate(scores):
        print(
            f"runner {rank}: mean return of the last {WINDOW} of {len(returns[rank])} episodes: "
            f"{figures(score)}"
        )
    return scores


def report(rank: int, returns: list[float]) -> None:
    """Prints, after every hundredth episode, how a runner's last ones went."""
    if len(returns) % (5 * WINDOW) == 0:
        score = float(np.mean(returns[-WINDOW:]))
        print(
            f"runner {rank}, episode {len(returns)}: mean return of the last {WINDOW}: "
            f"{figures(score)}",
            flush=True,
        )


class ExampleRunner(Runner):
    """A runner whose agent is an algorithm of the library. An example defines `make_agent`."""

    one_env: Any  # an environment with the spaces that the agent is made for

    def make_env(self) -> Any:
        return gymnasium.make(self.args.env)

    def make_agent(self) -> Any:
        raise NotImplementedError

    def algorithm_agent(
        self, cluster: Cluster, name: str, *, algorithm: str, **settings: Any
    ) -> Any:
        """The first runner makes the agent of that name; each gets a proxy of it."""
        if self.rank == 0:
            cluster.make_agent(
                name,
                AlgorithmAgent,
                sync=self.args.sync,
                algorithm=algorithm,
                observation_space=self.one_env.observation_space,
                action_space=self.one_env.action_space,
                rewards_space=getattr(self.one_env, "rewards_space", None),  # of a team
                framework=self.args.framework,
                seed=self.args.seed,
                steps=self.args.steps,
                **settings,
            )
        return cluster.get_agent(name, act=self.args.act)


class EpisodeRunner(ExampleRunner):
    """Plays one environment, an episode after another."""

    def __init__(self, args: argparse.Namespace, local_rank: int = 0) -> None:
        super().__init__(args, local_rank)
        self.env = self.one_env = self.make_env()
        self.env.reset(seed=args.seed + self.rank)
        self.agent = self.make_agent()

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


class VectorRunner(ExampleRunner):
    """Steps several environments at once. `total_envs` is their number in all runners together."""

    def __init__(self, args: argparse.Namespace, local_rank: int = 0) -> None:
        super().__init__(args, local_rank)
        self.env = VectorEnv(self.make_env, args, self.rank)
        self.one_env, self.total_envs = self.env.envs[0], self.env.n * args.runners
        self.agent = self.make_agent()

    def run(self) -> list[float]:
        for _ in range(self.env.steps):
            states = self.env.states
            actions = self.agent.choose_action(states)
            next_states, rewards, done, truncated = self.env.step(actions)
            self.agent.update(states, actions, rewards, next_states, done, truncated)
        return self.env.returns


class TeamRunner(VectorRunner):
    """Steps several environments of a team of agents."""

    def make_env(self) -> Any:
        return team(self.args.env)


class VectorEnv:
    """A runner's share of the environments, stepped one after the other. `states` [n, ...] are
    their observations; one whose episode is over is reset at once. `returns` are those of the
    episodes that ended, in the order of their ends."""

    def __init__(self, make: Callable[[], Any], args: argparse.Namespace, rank: int) -> None:
        self.envs, self.rank = [make() for _ in range(max(1, args.envs // args.runners))], rank
        self.n = len(self.envs)
        self.steps = max(1, args.steps // (self.n * args.runners))  # of each of them
        self.returns: list[float] = []
        self._totals = [0.0] * self.n
        seeds = range(args.seed + self.n * rank, args.seed + self.n * (rank + 1))
        self._states = [env.reset(seed=seed)[0] for env, seed in zip(self.envs, seeds, strict=True)]

    @property
    def states(self) -> Tree:
        return _stacked(self._states)

    def step(self, actions: Any) -> tuple[Tree, Array, Array, Array]:
        """Returns (states, rewards, done, truncated) of each step, the states from before any
        reset. Rewards are those of each agent, [n, A], where there is a team."""
        outcomes = [env.step(action) for env, action in zip(self.envs, actions, strict=True)]
        states, rewards, terminated, truncated, infos = zip(*outcomes, strict=True)
        done = np.array(terminated) | np.array(truncated)
        self._states = list(states)
        for i in range(self.n):
            self._totals[i] += float(rewards[i])
            if done[i]:
                self.returns.append(self._totals[i])
                report(self.rank, self.returns)
                self._totals[i], self._states[i] = 0.0, self.envs[i].reset()[0]
        each = [info.get("rewards", reward) for info, reward in zip(infos, rewards, strict=True)]
        return _stacked(states), np.array(each, np.float32), done, np.array(truncated)


def _stacked(observations: Any) -> Tree:
    return tree_map(lambda *xs: np.stack(xs), *observations)
