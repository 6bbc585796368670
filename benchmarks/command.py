"""`python -m benchmarks.command`: whole commands at the zoo's length, from outside, beside the same
training by Stable-Baselines3; into benchmarks/results/command.json and command.md.

Everyone in turn, on one core and one thread, without evaluation and pictures; the medians of
several rounds. torch's compiled row begins with the graphs of an earlier run on disk.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks import tables
from benchmarks.measure import KERAS, ONE_THREAD, ROOT

RESULTS = ROOT / "benchmarks" / "results"
ALGORITHM, ENV = "ppo", "CartPole-v1"
CONTESTANTS: dict[str, tuple[str, ...]] = {
    "torch, default": ("--framework", "torch"),
    "torch, --compile yes, graphs on disk": ("--framework", "torch", "--compile", "yes"),
    "jax, default": ("--framework", "jax"),
    "tensorflow, default": ("--framework", "tensorflow"),
    "Stable-Baselines3": (),
}


def main(arguments: list[str] | None = None) -> int:
    """Measures, and writes down."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.command", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--core", type=int, default=0, help="the core that everyone is kept to")
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.peer:
        _peer()
        return 0
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in CONTESTANTS}
    with tempfile.TemporaryDirectory() as folder:
        _run("torch, --compile yes, graphs on disk", Path(folder) / "first", folder, args.core)
        for number in range(args.rounds):
            for name in CONTESTANTS:
                out = Path(folder) / f"{number}-{name[:5]}-{len(name)}"
                found[name].append(_run(name, out, folder, args.core))
                print(f"{name}: {found[name][-1][0]:.1f} s", flush=True)
    _write(found)
    return 0


def _run(name: str, out: Path, cache: str, core: int) -> tuple[float, float]:
    """Seconds of a command by the clock, and of the processor."""
    flags = CONTESTANTS[name]
    env = os.environ | ONE_THREAD | {"TORCHINDUCTOR_CACHE_DIR": f"{cache}/graphs"}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    if flags:
        env["KERAS_BACKEND"] = KERAS.get(flags[1], "torch")
        command = ["-m", "tandem", "train", ALGORITHM, ENV, *flags, "--out", str(out)]
        command += ["--eval-episodes", "0", "--no-plots"]
    else:
        command = ["-m", "benchmarks.command", "--peer"]
    before, began = os.times(), time.monotonic()
    subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=env,
        check=True,
        capture_output=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )
    after, seconds = os.times(), time.monotonic() - began
    used = after.children_user + after.children_system
    return seconds, used - before.children_user - before.children_system


def _peer() -> None:
    from benchmarks import peers

    peers.hide_tensorflow()
    from tandem.trainer import resolve

    settings = resolve(ALGORITHM, ENV, {})[0]
    envs = peers.environments(ENV, settings.envs, 0)
    model = peers.agent("sb3", ALGORITHM, peers.translate("sb3", ALGORITHM, settings), envs, 0)
    model.learn(settings.steps, log_interval=None)


def _write(found: dict[str, list[tuple[float, float]]]) -> None:
    peer = {i: median(run[i] for run in found["Stable-Baselines3"]) for i in (0, 1)}
    about = tables.about()
    lines = [
        "# Whole commands",
        "",
        f"{ALGORITHM.upper()} on {ENV} for the zoo's number of steps, on one core with one thread "
        "(`python -m benchmarks.command`). Times include imports and compilation, but no "
        f"evaluations or figures, and are medians of {len(found['Stable-Baselines3'])}. × SB3 is "
        "the speed relative to Stable-Baselines3.",
        "",
        "| | seconds | × SB3 | CPU seconds | × SB3 |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, runs in found.items():
        clock, used = (median(run[i] for run in runs) for i in (0, 1))
        lines.append(
            f"| {name} | {clock:.1f} | {peer[0] / clock:.2f} | {used:.1f} | {peer[1] / used:.2f} |"
        )
    lines += ["", f"Seed 0. {tables.origin(about)}"]
    tables.save(RESULTS, "command", {**about, "seconds": found}, lines)


if __name__ == "__main__":
    sys.exit(main())
