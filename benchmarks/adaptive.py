"""`python -m benchmarks.adaptive`: what adapting is worth. PPO_pr's example with and without
adjust_window_size, and DQN's with and without adabatch, in PyTorch, five seeds each, a process for
each run, until the example's criterion or its episodes end. Into benchmarks/results/adaptive.json,
adaptive.md and curves/adaptive.png; runs that are in the file already are not made again, so it can
be stopped and started."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.measure import ROOT, last_line

RESULTS = ROOT / "benchmarks" / "results"
SEEDS = 5
EPISODES = 1000
CRITERION = 475.0  # the mean of ten episodes, as in the examples
EVERY, SAMPLES, NOISE = 50, 8, 0.1  # adabatch: minibatches between calls; of a measurement; target
BOUNDS = {"min": 16, "max": 256}
Data = dict[str, Any]


def ppo(window: bool) -> tuple[Any, Callable[..., None], Data]:
    """The agent, the function that trains it, and what that is to be told."""
    from tandem.examples.pytorch import PPO as basic
    from tandem.examples.pytorch import PPO_pr

    kind: Any = PPO_pr.PPO
    if not window:
        kind = type("PPO", (basic.PPO,), {"__call__": PPO_pr.PPO.__call__})
    return kind(4, 128, 2, 0.2, 0.01), basic.train, {"PR": True}


def dqn(adapts: bool) -> tuple[Any, Callable[..., None], Data]:
    """The same of DQN."""
    from tandem.examples.pytorch import DQN

    class Adaptive(DQN.DQN):
        calls = 0

        def adjust_func(self) -> None:
            self.calls += 1
            if self.calls % EVERY == 0:
                self.adabatch(SAMPLES, NOISE, batch_params=BOUNDS)

        def initialize_adjusting(self) -> None:
            """The size goes on from one episode to the next."""

    kind: Any = Adaptive if adapts else DQN.DQN
    return kind(4, 128, 2), DQN.train, {"update_steps": 100, "num_updates": 1}


VARIANTS: dict[str, Callable[[], tuple[Any, Callable[..., None], Data]]] = {
    "PPO_pr, adjust_window_size": lambda: ppo(True),
    "PPO_pr, all is kept": lambda: ppo(False),
    "DQN, adabatch": lambda: dqn(True),
    "DQN, 64 a minibatch": lambda: dqn(False),
}


def one(name: str, seed: int, episodes: int) -> Data:
    """One run: its returns, and the environment steps, updates and seconds when each ended."""
    import torch

    from tandem.errors import NonFiniteError

    torch.manual_seed(seed)
    agent, train, choices = VARIANTS[name]()
    curve: list[list[float]] = []
    began = perf_counter()

    class Hear:
        def on_episode_end(self, i: int, logs: Data) -> None:
            learner, steps = agent._assembly.learner, agent._assembly.loop.env_steps
            took, pool = perf_counter() - began, len(learner.ring)
            size = learner.schedule.batch_size
            curve.append([logs["reward"], steps, learner.updates, took, size, pool])

    agent.callbacks.append(Hear())
    diverged = False
    try:
        train(agent, seed, episodes, 1, **choices)
    except NonFiniteError:  # a result among the others
        diverged = True
    last = [row[0] for row in curve[-10:]]
    return {
        "name": name,
        "seed": seed,
        "episodes": len(curve),
        "reached": not diverged and len(last) == 10 and sum(last) / 10 >= CRITERION,
        "diverged": diverged,
        "curve": curve,
    }


def main(arguments: list[str] | None = None) -> int:
    """Makes the runs that are not there yet, and writes what there is; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.adaptive", description=__doc__)
    parser.add_argument("--episodes", type=int, default=EPISODES, help="at most, of a run")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--variant", action="append", choices=list(VARIANTS))
    parser.add_argument("--out", help="folder for the results")
    parser.add_argument("--one", nargs=2, metavar=("VARIANT", "SEED"), help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.one:
        print(json.dumps(one(args.one[0], int(args.one[1]), args.episodes)))
        return 0
    out = Path(args.out) if args.out else RESULTS
    path = out / "adaptive.json"
    runs: list[Data] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    done = {(run["name"], run["seed"]) for run in runs}
    for seed in range(args.seeds):
        for name in args.variant or VARIANTS:
            if (name, seed) in done:
                continue
            runs.append(_spawned(name, seed, args.episodes))
            out.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(runs) + "\n", encoding="utf-8")
            last = runs[-1]["curve"][-1]
            print(f"  {name}, seed {seed}: {last[1]:,} steps, {last[3]:.1f} s", flush=True)
    (out / "adaptive.md").write_text(table(runs), encoding="utf-8")
    draw(runs, out / "curves" / "adaptive.png")
    return 0


def _spawned(name: str, seed: int, episodes: int) -> Data:
    from tandem.runs.config_file import commit

    command = ("benchmarks.adaptive", "--one", name, seed, "--episodes", episodes)
    found: Data = json.loads(last_line(*command))
    return found | {"commit": commit()[:10]}


def table(runs: list[Data]) -> str:
    """The results as a page."""
    lines = [
        "# Adaptive training",
        "",
        "Agents train in CartPole-v1, with PyTorch on one CPU core, until the mean return of ten "
        f"episodes is {CRITERION:g} (`python -m benchmarks.adaptive`).",
        "",
        "| | solved | environment steps (median) | each seed | updates (median) "
        "| seconds (median) | final minibatch size | final pool size |",
        "|---|--:|--:|---|--:|--:|---|---|",
    ]
    for name in VARIANTS:
        own = [run for run in runs if run["name"] == name]
        if not own:
            continue
        ends = [run["curve"][-1] for run in own]
        steps, updates, seconds = ([end[i] for end in ends] for i in (1, 2, 3))
        each = ", ".join(
            f"{x:,}" + " (loss not finite)" * run.get("diverged", False)
            for x, run in zip(steps, own, strict=True)
        )
        sizes, pools = (", ".join(f"{end[i]:,}" for end in ends) for i in (4, 5))
        lines.append(
            f"| {name} | {sum(run['reached'] for run in own)} of {len(own)} | {median(steps):,.0f} "
            f"| {each} | {median(updates):,.0f} | {median(seconds):.1f} | {sizes} | {pools} |"
        )
    commits = ", ".join(dict.fromkeys(run["commit"] for run in runs))
    lines += [
        "",
        f"adabatch runs every {EVERY} minibatches with {SAMPLES} gradients, "
        f"target_noise={NOISE:g} and batch sizes from {BOUNDS['min']} to {BOUNDS['max']}. Learning "
        "curves: [adaptive.png](curves/adaptive.png). Written "
        f"{datetime.now(UTC):%Y-%m-%d}, commit {commits}.",
        "",
    ]
    return "\n".join(lines)


def draw(runs: list[Data], path: Path) -> None:
    """Returns by environment steps, means over ten episodes, a line for each seed."""
    import matplotlib as mpl

    mpl.use("Agg")
    import numpy as np
    from matplotlib import pyplot as plt

    names = list(VARIANTS)
    figure, axes = plt.subplots(1, 2, figsize=(11, 4), sharey=True, layout="constrained")
    for k, name in enumerate(names):
        own = [run for run in runs if run["name"] == name]
        for i, run in enumerate(own):
            curve = np.array(run["curve"], float)
            width = min(10, len(curve))
            smooth = np.convolve(curve[:, 0], np.ones(width) / width, "valid")
            label = name if not i else None
            axes[k // 2].plot(curve[width - 1 :, 1], smooth, f"C{k % 2}", alpha=0.7, label=label)
    for ax in axes:
        ax.set(xlabel="environment steps", ylabel="return, mean of ten episodes")
        if ax.lines:
            ax.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    plt.close(figure)


if __name__ == "__main__":
    sys.exit(main())
