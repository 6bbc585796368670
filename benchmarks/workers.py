"""`python -m benchmarks.workers`: what worker processes gain and cost, beside one process and other
libraries' vectors. Into benchmarks/results/workers.json and workers.md. On two cores, with nothing
else running."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from multiprocessing import Manager, get_context
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import tables
from benchmarks.measure import ROOT

CHEETAH: dict[str, Any] = {
    "hidden": (256, 256),
    "rollout": 64,
    "batch_size": 64,
    "envs": 8,
    "vectorization": "plain",
}
CARTPOLE: dict[str, Any] = {"rollout": 32, "batch_size": 64, "envs": 8, "vectorization": "plain"}
PONG: dict[str, Any] = {"rollout": 64, "batch_size": 64, "envs": 8}
ROWS = 200_000  # transitions that are moved


def busy(seconds: float) -> Any:
    """CartPole whose step keeps a processor busy for so long."""
    import gymnasium

    class Busy(gymnasium.Wrapper):  # type: ignore[misc,type-arg]
        def step(self, action: Any) -> Any:
            until = time.perf_counter() + seconds
            while time.perf_counter() < until:
                pass
            return self.env.step(action)

    return Busy(gymnasium.make("CartPole-v1" if seconds < 0.002 else "Pendulum-v1"))


def collecting(env: Any, seconds: float, workers: int, **settings: Any) -> float:
    """Environment steps a second of collecting alone, with a policy on torch's weights."""
    import tandem

    options = {"eval_episodes": 0, "framework": "torch", "steps": 10**9, **settings}
    run = tandem.session("ppo", env, workers=workers, **options)
    loop, block = run.loop, run.loop.learner.block
    rows = block * loop.collector.n

    def collect() -> int:
        loop.collector.collect(block, *loop._noise(0))
        return rows

    speed = rate(collect, seconds)
    loop.collector.close()
    return speed


def rate(work: Callable[[], int], seconds: float) -> float:
    """How much of it is done a second."""
    work()
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        done += work()
    return done / (time.perf_counter() - began)


def peer(kind: str, env: str, seconds: float, **settings: Any) -> float:
    """The same policy stepping as many environments in a vector of another library, in processes or
    threads."""
    import gymnasium

    import tandem
    from tandem.envs import atari

    run = tandem.session("ppo", env, eval_episodes=0, framework="torch", steps=10**9, **settings)
    loop, kwargs = run.loop, atari.training(env, run.config.env_kwargs, run.config.options)
    n, clipped = loop.collector.n, not loop.collector.environments.action.sizes
    make = partial(atari.make, env, kwargs) if atari.is_atari(env) else partial(gymnasium.make, env)
    if kind == "gymnasium":
        envs: Any = gymnasium.vector.AsyncVectorEnv([make] * n)
    elif kind == "ale":
        envs = atari.vector(env, n, kwargs, threads=2)
    else:
        from stable_baselines3.common.vec_env import SubprocVecEnv

        envs = SubprocVecEnv([make] * n, start_method="spawn")
    obs = envs.reset() if kind == "sb3" else envs.reset(seed=0)[0]
    dtype = loop.collector.environments.observation.dtype

    def play() -> int:
        nonlocal obs
        actor, noise = loop._noise(0)
        for t in range(len(noise)):
            action = actor.act(np.asarray(obs, dtype), (), noise[t])[0]
            obs = envs.step(np.clip(action, -1.0, 1.0) if clipped else action)[0]
        return len(noise) * n

    speed = rate(play, seconds)
    envs.close()
    return speed


def training(algorithm: str, env: Any, steps: int, workers: int = 0, **settings: Any) -> float:
    """Environment steps a second from the first third of a run on, learning included."""
    import tandem
    from tandem.learning.events import BatchEnd

    run = tandem.session(algorithm, env, steps=steps, workers=workers, eval_episodes=0, **settings)
    began, first = 0.0, 0
    for event in run:
        if not began and isinstance(event, BatchEnd) and event.env_steps >= steps // 3:
            began, first = time.perf_counter(), event.env_steps
    return (run.loop.env_steps - first) / (time.perf_counter() - began)


class Filler:
    """Fills its share of the shared memory, in blocks of 1,000."""

    def __init__(self, handle: Any) -> None:
        from tandem.workers.shared_memory import SharedArrays

        self.shared = SharedArrays.attach(handle)["rows"]
        self.rows = np.ones((1000, 17), np.float32)

    def on_bytes(self, _: bytes) -> bytes:
        self.shared[:] = self.rows
        return b""


def by_memory(count: int) -> None:
    from tandem.workers.process import Process
    from tandem.workers.shared_memory import SharedArrays

    arrays = SharedArrays.create({"rows": ((1000, 17), "<f4")})
    process = Process((arrays.handle.fd,), Filler, arrays.handle)
    process.answer(60)
    into = np.empty((1000, 17), np.float32)
    for _ in range(count // 1000):
        process.send_bytes()
        process.answer(60)
        into[:] = arrays["rows"]
    process.end()


def _append(rows: Any, count: int) -> None:
    for _ in range(count):
        rows.append(np.ones(17, np.float32))


def _send(pipe: Any, count: int) -> None:
    for _ in range(count):
        pipe.send(np.ones(17, np.float32))


def by_manager(count: int) -> None:
    with Manager() as manager:
        rows = manager.list()
        process = get_context("spawn").Process(target=_append, args=(rows, count))
        process.start()
        process.join()
        list(rows)


def by_pipe(count: int) -> None:
    ours, theirs = get_context("spawn").Pipe(False)
    process = get_context("spawn").Process(target=_send, args=(theirs, count))
    process.start()
    for _ in range(count):
        ours.recv()
    process.join()


def moving(way: Callable[[int], None], count: int) -> float:
    """Transitions a second: the slope between a tenth of them and all, so that start-up does not
    count."""
    times = []
    for n in (count // 10, count):
        began = time.perf_counter()
        way(n)
        times.append(time.perf_counter() - began)
    return 0.9 * count / (times[1] - times[0])


def start() -> dict[str, float]:
    """Seconds from asking for workers to their first block, and what one resides in, in MiB."""
    import tandem

    run = tandem.session(
        "ppo", "CartPole-v1", framework="torch", workers=1, eval_episodes=0, vectorization="plain"
    )
    began = time.perf_counter()
    worker = run.loop.collector.group.workers[0]
    run.loop.collector.group.restart(0, 0)
    run.loop.collector.collect(run.loop.learner.block, *run.loop._noise(0))
    took = time.perf_counter() - began
    pages = int(Path(f"/proc/{worker.process.pid}/statm").read_text(encoding="utf-8").split()[1])
    run.loop.collector.close()
    return {"seconds": took, "MiB": pages * os.sysconf("SC_PAGE_SIZE") / 2**20}


def main() -> int:
    """Measures all; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workers", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="of which the median counts")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument(
        "--only", help="a part of a row's name: the others stay as they were measured"
    )
    args = parser.parse_args()
    t, slow = args.seconds, partial(busy, 0.001)
    sac = {"framework": "jax", "train_every": 1, "updates_per_call": 1, "learning_starts": 300}
    a3c = {"framework": "torch", "envs": 4, "rollout": 20, "vectorization": "plain"}
    work: dict[str, dict[str, Callable[[], float]]] = {
        "an environment of 1 ms × 8": {
            "one worker": lambda: collecting(slow, t, 1, **CARTPOLE),
            "one process": lambda: collecting(slow, t, 0, **CARTPOLE),
        },
        "HalfCheetah-v5 × 8, 256-256": {
            "one worker": lambda: collecting("HalfCheetah-v5", t, 1, **CHEETAH),
            "one process": lambda: collecting("HalfCheetah-v5", t, 0, **CHEETAH),
            "Gymnasium's AsyncVectorEnv": lambda: peer("gymnasium", "HalfCheetah-v5", t, **CHEETAH),
            "Stable-Baselines3's SubprocVecEnv": lambda: peer(
                "sb3", "HalfCheetah-v5", t, **CHEETAH
            ),
        },
        "ALE/Pong-v5 × 8, the Nature CNN": {
            "one worker": lambda: collecting("ALE/Pong-v5", t, 1, **PONG),
            "one process": lambda: collecting("ALE/Pong-v5", t, 0, **PONG),
            "ale_py's vector with two threads": lambda: peer("ale", "ALE/Pong-v5", t, **PONG),
            "Gymnasium's AsyncVectorEnv": lambda: peer("gymnasium", "ALE/Pong-v5", t, **PONG),
            "Stable-Baselines3's SubprocVecEnv": lambda: peer("sb3", "ALE/Pong-v5", t, **PONG),
        },
        "moving transitions of 17 floats": {
            "shared blocks of 1,000": lambda: moving(by_memory, 50 * ROWS),
            "Manager().list, one each": lambda: moving(by_manager, ROWS // 10),
            "a pipe, one each": lambda: moving(by_pipe, ROWS // 4),
        },
        "PPO on CartPole-v1": {
            "auto": lambda: training("ppo", "CartPole-v1", 240_000, "auto", framework="jax"),  # type: ignore[arg-type]
            "one process": lambda: training("ppo", "CartPole-v1", 240_000, 0, framework="jax"),
            "one worker": lambda: training("ppo", "CartPole-v1", 240_000, 1, framework="jax"),
        },
        "SAC, an environment of 4 ms, an update a step": {
            "one worker, ahead": lambda: training("sac", partial(busy, 0.004), 1500, 1, **sac),
            "one process": lambda: training("sac", partial(busy, 0.004), 1500, 0, **sac),
        },
        "SAC on HalfCheetah-v5, an update a step": {
            "one worker, ahead": lambda: training("sac", "HalfCheetah-v5", 2400, 1, **sac),
            "one process": lambda: training("sac", "HalfCheetah-v5", 2400, 0, **sac),
        },
        "A3C, an environment of 1 ms × 4, asynchronous": {
            "two actor-learners": lambda: training("a3c", slow, 12_000, learners=2, **a3c),
            "one process": lambda: training("a3c", slow, 6_000, **a3c),
        },
        "A3C on CartPole-v1, asynchronous": {
            "two actor-learners": lambda: training(
                "a3c", "CartPole-v1", 120_000, learners=2, **a3c
            ),
            "one process": lambda: training("a3c", "CartPole-v1", 120_000, **a3c),
        },
    }
    before = ROOT / "benchmarks" / "results" / "workers.json"
    measured: dict[str, Any] = (
        json.loads(before.read_text(encoding="utf-8"))["found"]
        if args.only and before.is_file()
        else {}
    )
    for name, contestants in work.items():
        if args.only and args.only not in name:
            continue
        runs: dict[str, list[float]] = {c: [] for c in contestants}
        for repeat in range(args.repeats):
            for c in contestants if repeat % 2 == 0 else reversed(contestants):
                runs[c].append(contestants[c]())
                print(f"  {repeat + 1} {name}: {c} {runs[c][-1]:,.0f}", flush=True)
        measured[name] = runs
    begun = [start() for _ in range(args.repeats)]
    write(measured, begun, args)
    return 0


def write(measured: dict[str, Any], begun: list[dict[str, float]], args: Any) -> None:
    """The medians as JSON and as tables."""

    lines = [
        "# Worker processes",
        "",
        "Median environment steps per second with and without worker processes (`python -m "
        "benchmarks.workers`). For moving transitions between processes, transitions per second. × "
        "is the speed of the first row relative to each row.",
        "",
    ]
    for name, runs in measured.items():
        first = median(next(iter(runs.values())))
        lines += [f"## {name}", "", "| | per second | × |", "|---|--:|--:|"]
        lines += [
            f"| {c} | {median(x):,.0f} | {first / median(x):.2f} |" for c, x in runs.items()
        ] + [""]
    took, size = (median(b[k] for b in begun) for k in ("seconds", "MiB"))
    lines += [
        "## A worker",
        "",
        f"A new worker needs {took:.2f} s to deliver its first block of CartPole-v1 steps, and "
        f"{size:.0f} MiB of resident memory.",
        "",
    ]
    about = tables.about()
    lines += [f"Medians of {args.repeats}. {tables.origin(about)}"]
    found = about | {"found": measured, "worker": begun}
    tables.save(ROOT / "benchmarks" / "results", "workers", found, lines)


if __name__ == "__main__":
    sys.exit(main())
