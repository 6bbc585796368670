"""`python -m benchmarks.door`: the agent door's documented DQN program beside the trainer door's
DQN, doing the same work: one update of 64 after each step, one hidden layer of 128, a pool of
10,000, the target every 10 steps. Into benchmarks/results/door.json and door.md."""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import measure, tables
from benchmarks.measure import ROOT, Pair, Run, alternating

ENGINES = ("torch", "jax", "tensorflow")
SETTINGS = {  # of the trainer door
    "double": False,
    "dueling": False,
    "prioritized": False,
    "hidden": [128],
    "activation": "relu",
    "batch_size": 64,
    "buffer_size": 10_000,
    "learning_starts": 64,
    "train_every": 1,
    "updates_per_call": 1,
    "target_every": 10,
    "learning_rate": 1e-3,
    "gamma": 0.98,
    "epsilon": "0.01",
    "vectorization": "plain",
}
# the documented criterion: a mean over ten episodes; steps tried
CRITERION = 200.0
TRIALS = 10
SEEDS = 5
MOST = 100_000


def program(engine: str, seed: int, **more: Any) -> tuple[Any, Any]:
    """The documented agent, set with `more`, and its optimizer."""
    from tandem.exploration import EpsGreedyQPolicy

    if engine == "torch":
        import torch

        from tandem.examples.pytorch.DQN import DQN

        torch.manual_seed(seed)
        model: Any = DQN(4, 128, 2)
        optimizer: Any = torch.optim.Adam(model.param)
    else:
        import keras

        from tandem.examples.keras.DQN import DQN as KerasDQN

        keras.utils.set_random_seed(seed)
        model = KerasDQN(4, 128, 2)
        optimizer = keras.optimizers.Adam()
    model.seed = seed
    model.set(policy=EpsGreedyQPolicy(0.01), pool_size=10000, batch=64, update_steps=10, **more)
    return model, optimizer


def run(
    model: Any, optimizer: Any, engine: str, steps: int, jit: bool, updated: Callable[[], None]
) -> None:
    """Trains until the episode ends in which `steps` steps are done."""

    class Stop:
        def on_episode_end(self, i: int, logs: Any) -> None:
            if model._assembly.learner.updates:
                updated()
            model.stop_training = model.stop_training or model._assembly.loop.env_steps >= steps

    model.callbacks.append(Stop())
    if engine == "torch":
        model.train(optimizer, None, p=0)
    else:
        model.train(None, optimizer, None, jit_compile=jit, p=0)


def main() -> int:
    """Measures all engines, and without a compiler; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.door", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="of which the median counts")
    parser.add_argument(
        "--steps",
        type=int,
        default=6_000,
        help="of the short runs; the long ones have three times as many",
    )
    parser.add_argument(
        "--core", type=int, help="number of the core to measure on (default: the last)"
    )
    parser.add_argument("--out", help="folder for door.json and door.md")
    args = parser.parse_args()
    out = Path(args.out) if args.out else ROOT / "benchmarks" / "results"
    core = measure.last_core() if args.core is None else args.core
    # torch's users write no flag: their losses run as they are
    plain = {"torch": "trainer, not compiled"}
    kinds = [
        (e, k) for e in ENGINES for k in ("trainer", "agent", plain.get(e, "agent, not compiled"))
    ]
    pairs: dict[str, list[Pair]] = defaultdict(list)
    for repeat, name in alternating([f"{e} {k}" for e, k in kinds], args.repeats):
        engine, kind = name.split(" ", 1)
        steps = (
            args.steps // 30 if engine == "jax" and kind == "agent, not compiled" else args.steps
        )
        pairs[name].append(Pair(*(one(engine, kind, n, repeat, core) for n in (steps, 3 * steps))))
        print(
            f"  {repeat + 1} {name}: {pairs[name][-1].steps_per_second():,.0f} steps/s", flush=True
        )
    reached: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for seed, engine in alternating(list(ENGINES), SEEDS):
        job = {"kind": "agent-reach", "contestant": engine, "seed": seed, "steps": MOST}
        reached[engine].append(measure.spawn(job, core))
        print(f"  {engine}, seed {seed}: {reached[engine][-1]}", flush=True)
    write(out, pairs, reached, args)
    return 0


def one(engine: str, kind: str, steps: int, seed: int, core: int | None) -> Run:
    """One run in a process of its own."""
    job: dict[str, Any] = {
        "kind": "agent",
        "contestant": engine,
        "steps": steps,
        "seed": seed,
        "jit": kind == "agent",
    }
    if kind.startswith("trainer"):
        compiled = {"compile": "yes" if kind == "trainer" else "no"} if engine == "torch" else {}
        job |= {
            "kind": "ours",
            "algorithm": "dqn",
            "env": "CartPole-v1",
            "settings": {**SETTINGS, **compiled},
        }
    report = measure.spawn(job, core)
    return Run(**{n: report[n] for n in ("startup", "first", "loop", "cpu", "steps", "updates")})


def write(
    out: Path, pairs: dict[str, list[Pair]], reached: dict[str, list[dict[str, Any]]], args: Any
) -> None:
    """The medians as JSON and as a table."""
    speed = {name: median(p.steps_per_second() for p in rounds) for name, rounds in pairs.items()}
    rows = [
        f"| {name} | {speed[name]:,.0f} | "
        f"{speed[name] / speed[name.split(' ')[0] + ' trainer']:.2f} |"
        for name in pairs
    ]
    head = ["| | steps/s | × trainer API |", "|---|--:|--:|"]
    about = tables.about()
    method = (
        f"Medians of {args.repeats} on one core. Speed is the slope between {args.steps:,} and "
        f"{3 * args.steps:,} environment steps (a thirtieth of these for JAX without compilation). "
        f"{tables.origin(about)}"
    )
    text = [
        "# Agent API and trainer API",
        "",
        "The agent API's example DQN program and the trainer API's DQN do the same work (`python "
        "-m benchmarks.door`): one update of 64 transitions after each step and a target update "
        "every 10 steps, with one hidden layer of 128 units and a replay buffer of 10,000 "
        "transitions.",
        "",
        *head,
        *rows,
        "",
        "On PyTorch, the trainer API by default compiles gradients only in runs of at least 20,000 "
        "updates. Row `trainer` is compiled. `trainer, not compiled` is the default for a run as "
        "short as that of the example.",
        "",
        f"Seconds from the command to a mean return of {CRITERION:g} over {TRIALS} episodes, "
        f"including imports and compilation, for {SEEDS} seeds:",
        "",
        "| | seconds (median) | each seed | environment steps |",
        "|---|--:|---|---|",
        *[_line(engine, rounds) for engine, rounds in reached.items()],
        "",
        method,
    ]
    runs = {name: [p.to_json() for p in rounds] for name, rounds in pairs.items()}
    tables.save(out, "door", {**about, "pairs": runs, "reached": reached}, text)


def _line(engine: str, runs: list[dict[str, Any]]) -> str:
    """How long each seed took; one that did not get there counts as never."""
    seconds = [f["seconds"] if f["seconds"] is not None else inf for f in runs]
    each = ", ".join(f"{s:.1f}" for s in seconds)
    steps = ", ".join("never" if f["steps"] is None else f"{f['steps']:,}" for f in runs)
    return f"| {engine} | {median(seconds):.1f} | {each} | {steps} |"


if __name__ == "__main__":
    sys.exit(main())
