"""`python -m benchmarks.devices`: what a second device gains and costs an update, on processors:
PPO with the Nature CNN on pictures and with small networks, on one core and on two. Into
benchmarks/results/devices.json and devices.md. On two cores, with nothing else running."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks import tables
from benchmarks.measure import ROOT, last_line

ENGINES = ("torch", "jax", "tensorflow")
ROWS: dict[str, dict[str, Any]] = {
    "images 84x84x4, the Nature CNN, minibatches of 256": {
        "envs": 8,
        "rollout": 128,
        "batch_size": 256,
        "epochs": 4,
    },
    "4 numbers, layers of 64-64, minibatches of 64": {
        "envs": 8,
        "rollout": 64,
        "batch_size": 64,
        "epochs": 4,
        "hidden": (64, 64),
    },
}
Found = dict[str, float]


def pictures() -> Any:
    """An environment of pictures, which it has ready: its steps cost next to nothing."""
    import gymnasium
    import numpy as np

    class Pictures(gymnasium.Env):  # type: ignore[misc,type-arg]
        observation_space = gymnasium.spaces.Box(0, 255, (84, 84, 4), np.uint8)
        action_space = gymnasium.spaces.Discrete(6)
        shown = np.random.default_rng(0).integers(256, size=(16, 84, 84, 4)).astype(np.uint8)
        t = 0

        def reset(self, **_: Any) -> Any:
            self.t = 0
            return self.shown[0], {}

        def step(self, action: Any) -> Any:
            self.t += 1
            shown = self.shown[self.t % len(self.shown)]
            return shown, float(action == self.t % 6), False, self.t >= 100, {}

    return Pictures()


class Stopwatch:
    """Counts the calls of functions, and the seconds that they take."""

    def __init__(self) -> None:
        self.seconds, self.calls, self.bytes = 0.0, 0, 0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **named: Any) -> Any:
            began = perf_counter()
            try:
                return function(*args, **named)
            finally:
                self.seconds += perf_counter() - began
                self.calls += 1
                self.bytes += int(getattr(args[0], "nbytes", 0))

        return timed


def one(row: str, engine: str, devices: int, blocks: int) -> Found:
    """Learns from so many blocks of steps after a first one: updates a second of the learner's
    calls, environment steps a second of all; of torch's processes, the share of those calls'
    seconds that sums take, and the bytes that an update sends to the other."""
    import tandem
    from tandem.learning.events import BatchEnd

    cores = sorted(os.sched_getaffinity(0))[-2:]
    os.sched_setaffinity(0, cores[:1] if devices == 1 or engine == "torch" else cores)
    settings, small = ROWS[row], "hidden" in ROWS[row]
    each = settings["envs"] * settings["rollout"]
    run = tandem.session(
        "ppo",
        "CartPole-v1" if small else pictures,
        framework=engine,
        device="cpu",
        devices=devices,
        steps=(1 + blocks) * each,
        eval_episodes=0,
        **settings,
    )
    learner, layout = run.loop.learner, getattr(run.backend, "layout", None)
    calls, sums, messages = Stopwatch(), Stopwatch(), Stopwatch()
    if layout is not None:
        for process in layout.group.followers.processes:
            os.sched_setaffinity(process.pid, cores[1:])
        layout.group.sum = sums.around(layout.group.sum)
        layout.group._broadcast = messages.around(layout.group._broadcast)
    learner._run = calls.around(learner._run)
    before, began = 0, 0.0
    for event in run:
        if isinstance(event, BatchEnd) and not began:  # the first one compiles
            before, began = event.updates, perf_counter()
            for watch in (calls, sums, messages):
                watch.__init__()  # type: ignore[misc]
    took, updates = perf_counter() - began, learner.updates - before
    return {
        "updates": updates / calls.seconds,
        "steps": blocks * each / took,
        "sums": sums.seconds / calls.seconds,
        "bytes": (sums.bytes + messages.bytes) / updates,
    }


def main(arguments: list[str] | None = None) -> int:
    """Measures all; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.devices", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="of which the median counts")
    parser.add_argument("--blocks", type=int, default=3, help="that are learned from in each")
    parser.add_argument("--row", action="append", choices=list(ROWS))
    parser.add_argument("--engine", action="append", choices=ENGINES)
    parser.add_argument("--out", help="folder for the results")
    parser.add_argument("--one", nargs=3, metavar="WHAT", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.one:
        row, engine, devices = args.one
        print(json.dumps(one(row, engine, int(devices), args.blocks)))
        return 0
    found: dict[str, dict[str, dict[str, list[Found]]]] = {}
    for row in args.row or ROWS:
        for engine in args.engine or ENGINES:
            runs: dict[str, list[Found]] = {"1": [], "2": []}
            for repeat in range(args.repeats):
                for devices in ("1", "2") if repeat % 2 == 0 else ("2", "1"):
                    runs[devices].append(_spawned(row, engine, devices, args.blocks))
                    speed = runs[devices][-1]["updates"]
                    print(f"  {repeat + 1} {row}: {engine}, {devices}: {speed:,.1f}", flush=True)
            found.setdefault(row, {})[engine] = runs
    write(found, Path(args.out) if args.out else ROOT / "benchmarks" / "results", args.repeats)
    return 0


def _spawned(row: str, engine: str, devices: str, blocks: int) -> Found:
    command = ("benchmarks.devices", "--one", row, engine, devices, "--blocks", blocks)
    # one would be the pool of threads for all devices
    env = {"PJRT_NPROC": devices, "TF_NUM_INTEROP_THREADS": devices}
    found: Found = json.loads(last_line(*command, contestant=engine, **env))
    return found


def write(found: dict[str, Any], out: Path, repeats: int) -> None:
    """The medians as JSON and as tables."""
    lines = [
        "# Several devices",
        "",
        "Speed of PPO on one and two devices: updates per second, and environment steps per second "
        "of whole runs (`python -m benchmarks.devices`). PyTorch uses two processes. JAX and "
        "TensorFlow use two CPU devices. All-reduce is the share of the update time that a PyTorch "
        "process spends on summing gradients and on waiting for the other process.",
    ]
    for row, engines in found.items():
        lines += ["", f"## {row}", ""]
        lines += ["| | one | two | × | all-reduce | sent per update | steps/s, one | two |"]
        lines += ["|---|--:|--:|--:|--:|--:|--:|--:|"]
        for engine, runs in engines.items():
            of = {
                (d, what): median(r[what] for r in runs[d])
                for d in ("1", "2")
                for what in runs[d][0]
            }
            ratio = of["2", "updates"] / of["1", "updates"]
            sums, sent = f"{of['2', 'sums']:.1%}", f"{of['2', 'bytes'] / 1e6:.2f} MB"
            if engine != "torch":
                sums = sent = "–"
            lines += [
                f"| {engine} | {of['1', 'updates']:,.1f} | {of['2', 'updates']:,.1f} | {ratio:.2f} "
                f"| {sums} | {sent} | {of['1', 'steps']:,.0f} | {of['2', 'steps']:,.0f} |"
            ]
    about = tables.about()
    lines += ["", f"Medians of {repeats}. {tables.origin(about)}"]
    tables.save(out, "devices", about | {"found": found}, lines)


if __name__ == "__main__":
    sys.exit(main())
