"""`python -m benchmarks.beside`: the agent door's `parallel_store_and_training` beside the same two
processes in turn, where environments sleep 1 ms a step and learning takes about as long as
collecting. Into benchmarks/results/beside.json and beside.md."""

from __future__ import annotations

import argparse
import json
import sys
import time
from statistics import median
from typing import Any

from benchmarks import tables
from benchmarks.measure import ROOT, last_line

ENGINES = ("jax", "torch")
PROCESSES, ENVS, EPISODES, LENGTH, REPEATS = 2, 8, 48, 100, 5
SLEEP = 1e-3  # seconds of a step
MOST = 16  # updates a transition


class Sleeps:
    """An environment that sleeps at each step."""

    def __init__(self) -> None:
        import gymnasium

        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self) -> Any:
        import numpy as np

        self.t = 0
        return np.zeros(4, np.float32)

    def step(self, action: Any) -> Any:
        import numpy as np

        time.sleep(SLEEP)
        self.t += 1
        return np.full(4, self.t / LENGTH, np.float32), 1.0, self.t == LENGTH, {}


def seconds(engine: str, seed: int, updates: int, beside: bool) -> float:
    """Of a training, after a short one that compiles and starts the processes."""
    from benchmarks.door import program

    model, optimizer = program(engine, seed, num_updates=updates)
    model.env = [Sleeps() for _ in range(ENVS)]
    train = {"processes": PROCESSES, "parallel_store_and_training": beside, "p": 0}
    given = (optimizer,) if engine == "torch" else (None, optimizer)
    model.train(*given, ENVS, **train)
    began = time.perf_counter()
    model.train(*given, EPISODES, **train)
    took = time.perf_counter() - began
    model._assembly.environments.close()
    return took


def balanced(engine: str) -> int:
    """How many updates a transition take about as long as collecting it."""
    one, five = (median(seconds(engine, k, n, False) for k in range(3)) for n in (1, 5))
    each = (five - one) / 4
    return max(1, min(MOST, round((one - each) / each)))


def measured(engine: str) -> dict[str, Any]:
    """In turn and beside, alternating, in this process."""
    updates = balanced(engine)
    found: dict[str, Any] = {"in turn": [], "beside": []}
    for seed in range(REPEATS):
        for name in ("in turn", "beside"):
            found[name].append(seconds(engine, seed, updates, name == "beside"))
    ratio = median(found["beside"]) / median(found["in turn"])
    return found | {"updates": updates, "ratio": ratio}


def main() -> int:
    """Measures each engine in a process of its own."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside", description=__doc__)
    parser.add_argument("--one", choices=ENGINES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measured(args.one)))
        return 0
    rows: dict[str, dict[str, Any]] = {}
    for engine in ENGINES:
        told = last_line("benchmarks.beside", "--one", engine, contestant=engine)
        rows[engine] = json.loads(told)
        print(f"  {engine}: {rows[engine]}", flush=True)
    data = {
        "rows": rows, "envs": ENVS, "processes": PROCESSES, "episodes": EPISODES,
        "steps": EPISODES * LENGTH, **(about := tables.about()),
    }  # fmt: skip
    text = [
        "# Asynchronous collection",
        "",
        f"The agent API's example DQN program in {ENVS} environments that sleep 1 ms per step, "
        f"with {PROCESSES} processes. The number of updates per transition is such that training "
        "and collection take about equally long (`python -m benchmarks.beside`).",
        "",
        "| | updates per transition | alternating: seconds (median) | asynchronous | ratio "
        "| runs |",
        "|---|--:|--:|--:|--:|---|",
        *[
            f"| {engine} | {row['updates']} | {median(row['in turn']):.2f} "
            f"| {median(row['beside']):.2f} | {row['ratio']:.2f} "
            f"| {_each(row['in turn'])}; {_each(row['beside'])} |"
            for engine, row in rows.items()
        ],
        "",
        tables.origin(about),
    ]
    tables.save(ROOT / "benchmarks" / "results", "beside", data, text)
    return 0


def _each(times: list[float]) -> str:
    return ", ".join(f"{x:.2f}" for x in times)


if __name__ == "__main__":
    sys.exit(main())
