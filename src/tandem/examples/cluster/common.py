"""What the examples of the cluster door share: their flags, their last line, and several
environments side by side."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

from tandem.types import tree_map

LAST = 20  # episodes that scores are the mean of


def parser(about: str | None, *, env: str, steps: int, envs: int = 0) -> argparse.ArgumentParser:
    """The flags of all examples; an example adds its own. envs: where runners step several at
    once."""
    found = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument(
        "--runners", type=int, default=2, help="processes with environments (default: 2)"
    )
    found.add_argument(
        "--local", action="store_true", help="one runner and its agent in this process, without Ray"
    )
    found.add_argument(
        "--sync",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="whether acting waits for learning",
    )
    found.add_argument(
        "--act",
        choices=("local", "remote"),
        default="local",
        help="who acts: the runner or the agent",
    )
    found.add_argument("--env", default=env, help=f"the environment (default: {env})")
    if envs:
        found.add_argument(
            "--envs",
            type=int,
            default=envs,
            help=f"environments of all runners together (default: {envs})",
        )
    found.add_argument(
        "--steps",
        type=int,
        default=steps,
        help=f"steps of all environments together (default: {steps:,})",
    )
    found.add_argument("--seed", type=int, default=0)
    found.add_argument(
        "--framework",
        help="torch, jax, tensorflow or keras-torch (default: the quickest that is installed)",
    )
    return found


def main(cluster: Any, runner_class: Any, args: argparse.Namespace) -> list[float]:
    """Runs the runners, and says how each did: the mean returns of their last episodes."""
    if args.local:
        args.runners = 1
        found = [runner_class(args).run()]
    else:
        found = cluster.start_all_runners(
            cluster.make_runner("runner", runner_class, args, num=args.runners)
        )
    scores = [float(np.mean(returns[-LAST:])) if returns else float("nan") for returns in found]
    for rank, score in enumerate(scores):
        print(
            f"runner {rank}: mean return of the last {LAST} of {len(found[rank])} episodes: "
            f"{score:.1f}"
        )
    return scores


def report(rank: int, returns: list[float]) -> None:
    """Says now and then how a runner's last episodes went."""
    if len(returns) % (5 * LAST) == 0:
        score = float(np.mean(returns[-LAST:]))
        print(
            f"runner {rank}, episode {len(returns)}: mean return of the last {LAST}: {score:.1f}",
            flush=True,
        )


class SideBySide:
    """A runner's share of the environments, stepped one after the other: `states` [n, ...] is where
    they are. One whose episode is over begins anew by itself. `returns` are those of the episodes
    that ended, in the order of their ends."""

    def __init__(self, make: Callable[[], Any], args: argparse.Namespace, rank: int) -> None:
        self.envs, self.rank = [make() for _ in range(max(1, args.envs // args.runners))], rank
        self.n = len(self.envs)
        self.steps = max(1, args.steps // (self.n * args.runners))  # of each of them
        self.returns: list[float] = []
        self._totals = [0.0] * self.n
        seeds = range(args.seed + self.n * rank, args.seed + self.n * (rank + 1))
        self._now = [env.reset(seed=seed)[0] for env, seed in zip(self.envs, seeds, strict=True)]

    @property
    def states(self) -> Any:
        return tree_map(lambda *xs: np.stack(xs), *self._now)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any]:
        """What each action led to, before any beginning anew: (states, rewards, whether the episode
        is over, whether a limit ended it). Rewards are those of each agent, [n, A], where there is
        a team."""
        outcomes = [env.step(action) for env, action in zip(self.envs, actions, strict=True)]
        states, rewards, terminated, truncated, infos = zip(*outcomes, strict=True)
        done = np.array(terminated) | np.array(truncated)
        self._now = list(states)
        for i in range(self.n):
            self._totals[i] += float(rewards[i])
            if done[i]:
                self.returns.append(self._totals[i])
                report(self.rank, self.returns)
                self._totals[i], self._now[i] = 0.0, self.envs[i].reset()[0]
        each = [info.get("rewards", reward) for info, reward in zip(infos, rewards, strict=True)]
        return (
            tree_map(lambda *xs: np.stack(xs), *states),
            np.array(each, np.float32),
            done,
            np.array(truncated),
        )
