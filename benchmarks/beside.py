"""`python -m benchmarks.beside`: the agent door's `parallel_store_and_training` beside the same two
processes in turn, where an environment sleeps 1 ms a step and learning takes about as long as
collecting. Into benchmarks/results/beside.json and beside.md."""

from __future__ import annotations

import json
import sys
import time
from statistics import median
from typing import Any

from benchmarks import tables
from benchmarks.measure import ROOT

PROCESSES, EPISODES, LENGTH, REPEATS = 2, 24, 100, 5
SLEEP = 1e-3  # seconds of a step


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


def agent(seed: int, updates: int) -> tuple[Any, Any]:
    """The example DQN in two such environments, with as many updates a step."""
    import torch

    from tandem.examples.pytorch.DQN import DQN
    from tandem.exploration import EpsGreedyQPolicy

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    model = DQN(4, 128, 2)
    model.seed, model.env = seed, [Sleeps() for _ in range(PROCESSES)]
    model.set(
        policy=EpsGreedyQPolicy(0.1), pool_size=10_000, batch=64, update_steps=10,
        num_updates=updates,
    )  # fmt: skip
    return model, torch.optim.Adam(model.param)


def seconds(seed: int, updates: int, beside: bool, episodes: int = EPISODES) -> float:
    """Of a training, after a short one that starts the processes."""
    model, optimizer = agent(seed, updates)
    train = {"processes": PROCESSES, "parallel_store_and_training": beside, "p": 0}
    model.train(optimizer, 2, **train)
    began = time.perf_counter()
    model.train(optimizer, episodes, **train)
    took = time.perf_counter() - began
    model._assembly.environments.close()
    return took


def main() -> int:
    """Measures, in turn and beside alternating."""
    from tandem.runs.config_file import commit

    found: dict[str, list[float]] = {"in turn": [], "beside": []}
    for seed in range(REPEATS):
        for name, times in found.items():
            times.append(seconds(seed, 1, name == "beside"))
            print(f"  {name}: {times[-1]:.2f} s", flush=True)
    steps = EPISODES * LENGTH
    ratio = median(found["beside"]) / median(found["in turn"])
    data = {
        "seconds": found, "ratio": ratio, "episodes": EPISODES, "steps": steps, "commit": commit(),
        "date": tables.now(), "machine": tables.machine(), "versions": tables.versions(),
    }  # fmt: skip
    where = f"{tables.machine()['processor']}, {tables.machine()['cores']} cores"
    text = [
        "# Collecting beside learning",
        "",
        f"The example DQN (PyTorch), an update of 64 for each step, in {PROCESSES} environments "
        "that sleep 1 ms a step, on 2 processes; made by `python -m benchmarks.beside`.",
        "",
        "| | seconds (median) | each |",
        "|---|--:|---|",
        *[f"| {n} | {median(t):.2f} | {', '.join(f'{x:.2f}' for x in t)} |" for n, t in
          found.items()],
        "",
        f"{ratio:.2f} of the time. {tables.now()}, commit {commit()}, {where}.",
        "",
    ]  # fmt: skip
    out = ROOT / "benchmarks" / "results"
    tables.write(out / "beside.json", json.dumps(data, indent=1) + "\n")
    tables.write(out / "beside.md", "\n".join(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
