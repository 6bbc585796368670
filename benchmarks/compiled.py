"""`python -m benchmarks.compiled`: runs in functional environments that are one compiled function,
beside our own in Gymnasium's, Stable-Baselines3, and a single-file program for JAX. Into
benchmarks/results/compiled.json and compiled.md. On a machine with nothing else running; each is
kept to one core, but for the seeds side by side.

Needs what `make bench` installs."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import tables
from benchmarks.measure import ROOT, last_core, last_line

ZOO = {"envs": 8, "rollout": 32, "batch_size": 256, "epochs": 20}
ROWS: dict[str, dict[str, Any]] = {
    "PPO CartPole, the zoo's settings": {
        "who": ("compiled", "stepped", "single file", "Stable-Baselines3"),
        "algorithm": "ppo",
        "settings": ZOO,
        "steps": 100_000,
    },
    "PPO CartPole, 64 x 32, 4 epochs of 512": {
        "who": ("compiled", "single file"),
        "algorithm": "ppo",
        "settings": {"envs": 64, "rollout": 32, "batch_size": 512, "epochs": 4},
        "steps": 1_000_000,
    },
    "PPO CartPole, 2048 x 16, 4 epochs of 8192": {
        "who": ("compiled", "single file"),
        "algorithm": "ppo",
        "settings": {"envs": 2048, "rollout": 16, "batch_size": 8192, "epochs": 4},
        "steps": 3_000_000,
    },
    "SAC Pendulum, 64-64, 4 environments": {
        "who": ("compiled", "stepped"),
        "algorithm": "sac",
        "settings": {
            "envs": 4,
            "train_every": 4,
            "updates_per_call": 4,
            "hidden": (64, 64),
            "batch_size": 64,
        },
        "steps": 20_000,
    },
    "DQN CartPole, the zoo's settings": {
        "who": ("compiled", "stepped"),
        "algorithm": "dqn",
        "settings": {},
        "steps": 20_000,
    },
}
SHARED = {  # of PPO's rows
    "gamma": 0.98,
    "gae_lambda": 0.8,
    "learning_rate": "1e-3:0",
    "clip": 0.2,
    "entropy": 0.0,
    "hidden": (64, 64),
}
PENDULUM = {"sac": "Pendulum-v1"}
REACH, SEEDS = "from the command to 475, seconds", "8 seeds of PPO CartPole, seconds"


def speed(name: str, who: str, steps: int) -> float:
    """Environment steps a second of a run of so many, compiling apart."""
    row = ROWS[name]
    algorithm, given = row["algorithm"], dict(row["settings"])
    if algorithm == "ppo":
        given |= SHARED
    if who == "single file":
        return _single_file(given, steps)
    if who == "Stable-Baselines3":
        return _peer(given, steps)
    return _ours(algorithm, given, who == "compiled", steps)


def _ours(algorithm: str, given: dict[str, Any], compiled: bool, steps: int) -> float:
    from tandem import trainer
    from tandem.learning.events import BatchEnd

    env = PENDULUM.get(algorithm, "CartPole-v1")
    if algorithm == "dqn":
        entry = trainer.resolve("dqn", "tandem/CartPole-v1", {})[0]
        given = {n: getattr(entry, n) for n in entry.__dataclass_fields__} | given
    given |= {"vectorization": "compiled" if compiled else "auto", "steps": steps}
    if algorithm == "ppo" and not compiled:
        given["vectorization"] = "native"
    world = f"tandem/{env}" if compiled else env
    run = trainer.session(algorithm, world, framework="jax", eval_episodes=0, **given)
    # what compiles, and the first calls of a compiled run, which are short
    mark, began = 0, 0.0
    for event in run:
        if (
            isinstance(event, BatchEnd)
            and not mark
            and event.updates
            and event.env_steps > steps / 5
        ):
            mark, began = event.env_steps, time.perf_counter()
    return (run.loop.env_steps - mark) / (time.perf_counter() - began)


def _single_file(given: dict[str, Any], steps: int) -> float:
    import jax

    from benchmarks.compiled_peer import program

    names = ("envs", "rollout", "batch_size", "epochs")
    begin, run = program(
        *(given[n] for n in names), steps, 1e-3, given["gamma"], given["gae_lambda"], given["clip"]
    )
    rows = given["envs"] * given["rollout"]
    count = max(1, steps // rows // 5)
    carry, _ = jax.block_until_ready(run(begin(0), count))
    began = time.perf_counter()
    for _ in range(4):
        carry, _ = jax.block_until_ready(run(carry, count))
    return 4 * count * rows / (time.perf_counter() - began)


def _peer(given: dict[str, Any], steps: int) -> float:
    from benchmarks import peers
    from tandem.trainer import resolve

    peers.hide_tensorflow()
    settings = resolve("ppo", "CartPole-v1", given | {"steps": steps})[0]
    envs = peers.environments("CartPole-v1", settings.envs, 0)
    model = peers.agent("sb3", "ppo", peers.translate("sb3", "ppo", settings), envs, 0)
    began = time.perf_counter()
    model.learn(settings.steps, log_interval=None)
    return settings.steps / (time.perf_counter() - began)


def reach(compiled: bool) -> None:
    """A run to an evaluation of 475, with its folder."""
    from tandem import trainer
    from tandem.runs.callbacks import EarlyStop

    with tempfile.TemporaryDirectory() as folder:
        entry = trainer.resolve("ppo", "CartPole-v1", {})[0]
        given = {n: getattr(entry, n) for n in entry.__dataclass_fields__}
        given |= {"vectorization": "compiled" if compiled else "auto", "eval_every": 2_500}
        env = "tandem/CartPole-v1" if compiled else "CartPole-v1"
        callbacks = [EarlyStop(475.0)]
        run = trainer.session(
            "ppo", env, framework="jax", out=f"{folder}/run", callbacks=callbacks, **given
        )
        list(run)
        assert run.train_loop.reason == "criterion", run.train_loop.reason


def in_turn(count: int) -> None:
    """Runs of several seeds, one after the other in one process."""
    import tandem

    with tempfile.TemporaryDirectory() as folder:
        for seed in range(count):
            out = f"{folder}/s{seed}"
            tandem.train("ppo", "CartPole-v1", framework="jax", seed=seed, out=out, plots=False)


def _spawned(*words: str, core: int | None, cache: str = "") -> tuple[str, float]:
    """What a command printed last, and its seconds."""
    began, env = time.monotonic(), {"XDG_CACHE_HOME": cache} if cache else {}
    told = last_line(*words, core=core, contestant="jax", **env)
    return told, time.monotonic() - began


def main(arguments: list[str] | None = None) -> int:
    """Measures all; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compiled", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="of which the median counts")
    parser.add_argument("--row", action="append", choices=[*ROWS, REACH, SEEDS])
    parser.add_argument("--out", help="folder for the results")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--reach", choices=("compiled", "stepped"), help=argparse.SUPPRESS)
    parser.add_argument("--in-turn", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.one:
        name, who, steps = args.one
        print(speed(name, who, int(steps)))
        return 0
    if args.reach:
        reach(args.reach == "compiled")
        return 0
    if args.in_turn:
        in_turn(args.in_turn)
        return 0
    core, found = last_core(), dict[str, dict[str, list[float]]]()
    out = Path(args.out) if args.out else ROOT / "benchmarks" / "results"
    asked = args.row or [*ROWS, REACH, SEEDS]
    with tempfile.TemporaryDirectory() as cache:
        for name in asked:
            who = ROWS[name]["who"] if name in ROWS else ("compiled", "stepped")
            who = ("side by side", "in turn") if name == SEEDS else who
            runs: dict[str, list[float]] = {one: [] for one in who}
            if name == REACH:  # so that its cache is warm
                _spawned("benchmarks.compiled", "--reach", "compiled", core=core, cache=cache)
            repeats = min(3, args.repeats) if name == SEEDS else args.repeats
            for repeat in range(repeats):
                for one in who if repeat % 2 == 0 else reversed(who):
                    runs[one].append(_measured(name, one, core, cache))
                    print(f"  {repeat + 1} {name}: {one}, {runs[one][-1]:,.2f}", flush=True)
            found[name] = runs
    _write(found, out)
    return 0


def _measured(name: str, who: str, core: int | None, cache: str) -> float:
    us = "benchmarks.compiled"
    if name == REACH:
        return _spawned(us, "--reach", who, core=core, cache=cache)[1]
    if name == SEEDS and who == "in turn":
        return _spawned(us, "--in-turn", "8", core=core)[1]
    if name == SEEDS:
        with tempfile.TemporaryDirectory() as folder:
            words = [
                "train",
                "ppo",
                "CartPole-v1",
                "--framework",
                "jax",
                "--seeds",
                "8",
                "--no-plots",
                "--quiet",
            ]
            return _spawned("tandem", *words, "--out", f"{folder}/all", core=None)[1]
    steps = str(ROWS[name]["steps"])
    return float(_spawned(us, "--one", name, who, steps, core=core)[0])


def _write(found: dict[str, Any], out: Path) -> None:
    """The medians as JSON and as a table; rows of other calls stay."""
    kept: dict[str, Any] = {}
    if (out / "compiled.json").exists():
        kept = json.loads((out / "compiled.json").read_text(encoding="utf-8"))["found"]
    kept |= found
    lines = [
        "# Compiled runs",
        "",
        "Environment steps per second on one CPU core, excluding compilation time (`python -m "
        "benchmarks.compiled`). A stepped run is the same run on JAX, but Python steps the "
        "environments. The single file is `benchmarks/compiled_peer.py`.",
        "",
        "| workload | compiled | compared with | steps/s | × |",
        "|---|--:|---|--:|--:|",
    ]
    for name in ROWS:
        runs = kept.get(name, {})
        for who in list(runs)[1:]:
            ours, other = median(runs["compiled"]), median(runs[who])
            lines.append(f"| {name} | {ours:,.0f} | {who} | {other:,.0f} | {ours / other:.2f} |")
    for name in (REACH, SEEDS):
        if runs := kept.get(name):
            (one, ours), (other, theirs) = ((who, median(x)) for who, x in runs.items())
            lines += ["", f"{name[0].upper()}{name[1:]}: {ours:.1f} {one}, {theirs:.1f} {other}."]
    about = tables.about()
    lines += ["", f"Medians. {tables.origin(about)}"]
    tables.save(out, "compiled", about | {"seed": 0, "found": kept}, lines)


if __name__ == "__main__":
    sys.exit(main())
