"""`python -m benchmarks.two_commits OLD NEW`: seconds of a processor per environment step of two
checkouts of tandem, in alternating rounds on one core, into benchmarks/results/two_commits.json.
Training only: what a process does before its first steps, and evaluations, do not count."""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.measure import ONE_THREAD, ROOT, alternating, last_core

TORCH = {"framework": "torch", "compile": "no"}
SAC = {"learning_starts": 200, "envs": 1}
TRAINED: dict[str, tuple[str, str, int, int, dict[str, Any]]] = {  # steps, and those before
    "ppo": ("ppo", "CartPole-v1", 45_000, 5_000, TORCH),
    "ppo-jax": ("ppo", "CartPole-v1", 100_000, 5_000, {"framework": "jax"}),
    "dqn": ("dqn", "CartPole-v1", 14_000, 3_000, TORCH),
    "sac": ("sac", "Pendulum-v1", 1_900, 700, TORCH | SAC),
    "pong": ("ppo", "ALE/Pong-v5", 3_100, 1_030, TORCH),
    "cheetah": ("ppo", "HalfCheetah-v5", 16_400, 2_100, TORCH),
}
AGENTS = {"agent-torch": ("torch", 3_000), "agent-jax": ("jax", 6_000)}
T_95 = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}


def per_step(name: str) -> float:
    """Seconds of this process per environment step of a row."""
    import tandem
    from tandem.learning.events import BatchEnd

    marks: list[tuple[float, int]] = []
    if name in TRAINED:
        algorithm, env, steps, first, given = TRAINED[name]
        for event in tandem.session(algorithm, env, steps=steps, eval_episodes=0, **given):
            if isinstance(event, BatchEnd) and event.env_steps >= first:
                marks = [*marks[:1], (time.process_time(), event.env_steps)]
    else:
        from benchmarks import door

        engine, steps = AGENTS[name]
        model, optimizer = door.program(engine, 0)

        class Marks:
            def on_episode_end(self, episode: int, logs: Any) -> None:
                if (at := model._assembly.loop.env_steps) >= 500:
                    marks[1:] = [(time.process_time(), at)]

        model.callbacks.append(Marks())
        door.run(model, optimizer, engine, steps, True, lambda: None)
    (began, first), (ended, last) = marks[0], marks[-1]
    return (ended - began) / (last - first)


def interval(ratios: list[float]) -> list[float]:
    """The geometric mean of ratios, with both ends of its 95 % interval."""
    logs = [math.log(x) for x in ratios]
    half = T_95[len(logs)] * statistics.stdev(logs) / math.sqrt(len(logs))
    mean = statistics.mean(logs)
    return [round(math.exp(x), 3) for x in (mean, mean - half, mean + half)]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.two_commits", description=__doc__)
    parser.add_argument("checkouts", nargs="*", type=Path, metavar="OLD NEW")
    parser.add_argument("--row", action="append", choices=[*TRAINED, *AGENTS], help="one of these")
    parser.add_argument("--repeats", type=int, default=5, choices=sorted(T_95), help="rounds [5]")
    parser.add_argument("--here", metavar="ROW", help="measure in this process")
    args = parser.parse_args(arguments)
    if args.here:
        print(per_step(args.here))
        return 0
    old, new = (x.resolve() for x in args.checkouts)
    if (core := last_core()) is not None:
        os.sched_setaffinity(0, {core})
    rows = {}
    for row in args.row or [*TRAINED, *AGENTS]:
        took: dict[str, list[float]] = {"old": [], "new": []}
        for _, which in alternating(["old", "new"], args.repeats):
            place = old if which == "old" else new
            paths = os.pathsep.join(map(str, (place / "src", place, ROOT)))
            env = {**os.environ, **ONE_THREAD, "PYTHONPATH": paths}
            env |= {"KERAS_BACKEND": "jax"} if row.endswith("jax") else {}
            command = [sys.executable, str(Path(__file__)), "--here", row]
            said = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
            took[which].append(float(said.stdout.splitlines()[-1]))
        speeds = interval([a / b for a, b in zip(*took.values(), strict=True)])
        rows[row] = {"speed of new over old, with its interval": speeds, "seconds": took}
        print(row, speeds, flush=True)
    found = {**tables.about(), "rows": rows}
    out = ROOT / "benchmarks" / "results" / "two_commits.json"
    out.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
