"""`python -m benchmarks.collect`: what collecting costs beside the environments and the policy. PPO
collects in vectors that a user brings; each row is a process, kept to one core. Inside of the loop
as it is, the calls of the vector's `step` and of the algorithm's `act` are timed; what is left of
the block is the library's own: converting actions, reading and checking what came, counting
episodes, writing the trajectory. Into benchmarks/results/collect.json and collect.md."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.measure import ONE_THREAD, ROOT, last_core

RESULTS = ROOT / "benchmarks" / "results"
STEPS = 128  # of the vector in each block
SECONDS = 20.0  # of measured blocks, at least
BLOCKS = 30  # and so many of them
SHARE, MICROSECONDS = 0.10, 25.0  # the bars
Data = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """What is collected in. needs: the package. bar: the most that the library may take beside, as
    a share of `step` and `act`, or in microseconds a step of the vector."""

    title: str
    make: Callable[[], Any]  # what `tandem.session` takes
    needs: str
    bar: float = SHARE
    given: Any = None  # arguments of the session beside


def gymnasium_vector(env: str, n: int) -> Any:
    import gymnasium

    return gymnasium.make_vec(env, n)


def games(n: int) -> Any:
    """ale_py's own vector, as a user would bring it."""
    from ale_py.vector_env import AtariVectorEnv
    from gymnasium.vector import AutoresetMode

    from tandem.envs import atari

    atari.quiet()
    return AtariVectorEnv(
        "pong", n, num_threads=1, reward_clipping=False, autoreset_mode=AutoresetMode.SAME_STEP
    )


def pool(env: str, n: int) -> Data:
    return {"envs": n, "env_kwargs": {"num_threads": 1}}


ROWS = {
    "cartpole": Row(
        "CartPole-v1 × 64, gymnasium.make_vec",
        lambda: partial(gymnasium_vector, "CartPole-v1", 64),
        "gymnasium",
        MICROSECONDS,
    ),
    "halfcheetah": Row(
        "HalfCheetah-v4 × 64, EnvPool",
        lambda: "envpool/HalfCheetah-v4",
        "envpool",
        given=pool("HalfCheetah-v4", 64),
    ),
    "halfcheetah-gymnasium": Row(
        "HalfCheetah-v5 × 8, gymnasium.make_vec",
        lambda: partial(gymnasium_vector, "HalfCheetah-v5", 8),
        "mujoco",
    ),
    "pong-8": Row(
        "Pong × 8, EnvPool", lambda: "envpool/Pong-v5", "envpool", given=pool("Pong-v5", 8)
    ),
    "pong-64": Row(
        "Pong × 64, EnvPool", lambda: "envpool/Pong-v5", "envpool", given=pool("Pong-v5", 64)
    ),
    "pong-ale-8": Row("Pong × 8, ale_py's vector", lambda: partial(games, 8), "ale_py"),
    "pong-ale-64": Row("Pong × 64, ale_py's vector", lambda: partial(games, 64), "ale_py"),
}


class Timed:
    """Stands where an object does, and times one of its methods."""

    def __init__(self, inner: Any, method: str) -> None:
        self._inner, self.seconds = inner, 0.0
        call = getattr(inner, method)

        def timed(*args: Any) -> Any:
            began = perf_counter()
            result = call(*args)
            self.seconds += perf_counter() - began
            return result

        setattr(self, method, timed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def one(name: str, steps: int, seconds: float, blocks: int) -> Data:
    """Microseconds a step of the vector in each block: of `step`, of `act`, and of the rest."""
    import tandem

    row = ROWS[name]
    given = {"framework": "torch", "rollout": steps, "batch_size": 8} | (row.given or {})
    session = tandem.session("ppo", row.make(), eval_episodes=0, **given)
    loop, envs = session.loop, session.environments
    vector = envs._envs = Timed(envs._envs, "step")  # type: ignore[attr-defined]
    envs.resumable = False  # its state would be that of what times it
    actor, noise = loop._noise(0)
    actor = Timed(actor, "act")
    loop.collector.collect(steps, actor, noise)  # compiles, warms up
    found: list[list[float]] = []
    began = perf_counter()
    while len(found) < blocks or perf_counter() - began < seconds:
        vector.seconds = actor.seconds = 0.0
        start = perf_counter()
        loop.collector.collect(steps, actor, noise)
        total = perf_counter() - start
        parts = (vector.seconds, actor.seconds, total - vector.seconds - actor.seconds)
        found.append([round(x / steps * 1e6, 2) for x in parts])
    loop.collector.close()
    return {"row": name, "envs": envs.n, "blocks": found}


def main(arguments: list[str] | None = None) -> int:
    """Measures the rows, and writes what there is; the exit code is 1 where a row is over its
    bar."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.collect", description=__doc__)
    parser.add_argument("--row", action="append", choices=list(ROWS))
    parser.add_argument("--quick", action="store_true", help="two short blocks: does it run?")
    parser.add_argument("--out", help="folder for the results")
    parser.add_argument("--one", metavar="ROW", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.one:
        size = (8, 0.0, 2) if args.quick else (STEPS, SECONDS, BLOCKS)
        print(json.dumps(one(args.one, *size)))
        return 0
    out = Path(args.out) if args.out else RESULTS
    path = out / "collect.json"
    found: Data = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for name in args.row or ROWS:
        if importlib.util.find_spec(ROWS[name].needs) is None:
            print(f"  {name}: left out, {ROWS[name].needs} is not installed")
            continue
        found[name] = spawned(name, args.quick)
        out.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found) + "\n", encoding="utf-8")
        print(f"  {line(name, found[name])}", flush=True)
    (out / "collect.md").write_text(table(found), encoding="utf-8")
    return 0 if all(within(name, found[name]) for name in args.row or found if name in found) else 1


def spawned(name: str, quick: bool) -> Data:
    """A row, measured in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.collect", "--one", name]
    command += ["--quick"] if quick else []
    places = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(filter(None, places))}
    core = last_core()
    kept = (lambda: os.sched_setaffinity(0, {core})) if core is not None else None
    text = subprocess.check_output(
        command, cwd=ROOT, env=environment, text=True, preexec_fn=kept, stderr=subprocess.DEVNULL
    )
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True)
    result: Data = json.loads(text.splitlines()[-1])
    return result | {"commit": commit.strip()[:10]}


def parts(data: Data) -> tuple[float, float, float]:
    """Medians over the blocks of a row: `step`, `act`, and the rest."""
    step, act, rest = (median(block[i] for block in data["blocks"]) for i in range(3))
    return step, act, rest


def within(name: str, data: Data) -> bool:
    """Whether a row keeps to its bar."""
    step, act, rest = parts(data)
    bar = ROWS[name].bar
    return bool(rest <= (bar if bar >= 1 else bar * (step + act)))


def line(name: str, data: Data) -> str:
    """A row of the table."""
    step, act, rest = parts(data)
    share = rest / (step + act)
    return f"| {ROWS[name].title} | {step:,.0f} | {act:,.0f} | {rest:,.1f} | {share:.1%} |"


def table(found: Data) -> str:
    """The results as a page."""
    lines = [
        "# Overhead of data collection",
        "",
        "Median times of PPO on PyTorch and one CPU core, in microseconds per step of the whole "
        "vector environment, which the user provides (`python -m benchmarks.collect`). Overhead is "
        "everything except the environment's step and the policy.",
        "",
        "| vector | step | policy | overhead | overhead / (step + policy) |",
        "|---|--:|--:|--:|--:|",
        *(line(name, found[name]) for name in ROWS if name in found),
        "",
    ]
    if missing := [ROWS[name].title for name in ROWS if name not in found]:
        lines += [f"Not measured: {'; '.join(missing)}.", ""]
    commits = ", ".join(dict.fromkeys(data["commit"] for data in found.values()))
    lines += [f"Written {datetime.now(UTC):%Y-%m-%d}, commit {commits}.", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
