"""`python -m benchmarks.gpu`: updates, compiled runs and replay on a GPU, each in a process of its
own; in less than nine minutes. Into benchmarks/results/gpu.json and gpu.md.

Needs torch or JAX with CUDA; `--device cpu` tries it out."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks import tables
from benchmarks.measure import ROOT, last_line

Job = dict[str, Any]
NETWORKS = (256, 1024)  # units of two layers
HOW = ("torch", "torch, compiled", "torch, CUDA graphs", "jax")
ENVS = (2_048, 16_384, 65_536)
# LeanRL on an H100, by its README: updates of SAC and TD3 with 256-256 (a step each), and
# frames of PPO in Atari games
LEANRL = {"sac": 725, "td3": 936, "frames": 6_809}


def jobs() -> list[Job]:
    """Everything that is measured, most important first."""
    listed: list[Job] = [
        {"kind": "updates", "algorithm": name, "units": units, "how": how}
        for units in NETWORKS
        for name in ("sac", "td3")
        for how in HOW
    ]
    listed += [{"kind": "frames", "how": how} for how in HOW]
    listed += [{"kind": "run", "envs": envs} for envs in ENVS]
    listed += [{"kind": "replay", "where": where} for where in ("device", "host")]
    return listed


def measured(job: Job, device: str, seconds: float) -> dict[str, float]:
    """A rate per second, and megabytes of the device's memory."""
    kinds = {"updates": _updates, "frames": _frames, "run": _run, "replay": _replay}
    rate = kinds[job["kind"]](job, device, seconds)
    return {"rate": rate, "megabytes": _memory(job.get("how", "jax"), device)}


def _repeated(call: Any, seconds: float) -> float:
    """Calls a second, by the median of what one takes, after those that compile."""
    for _ in range(3):
        call()
    took, end = [], perf_counter() + seconds
    while perf_counter() < end or len(took) < 3:
        began = perf_counter()
        call()
        took.append(perf_counter() - began)
    return 1 / median(took)


def _made(name: str, job: Job, device: str, observation: Any, action: Any, **given: Any) -> Any:
    from tandem import algorithms, backends
    from tandem.testing import fakes

    framework, _, compiled = job["how"].partition(", ")
    if compiled == "compiled":
        from tandem.backends import torch_programs

        torch_programs.ON_CUDA = "default"
    kind = algorithms.get(name, action)
    backend = backends.make(framework, device, compile="yes" if compiled else "no")
    sources = fakes.sources(name, action, observation, **given)
    return kind(backend, sources, observation, action, kind.Settings(**given))


def _updates(job: Job, device: str, seconds: float) -> float:
    """Updates of batches of 256 transitions of HalfCheetah's sizes, 16 a call."""
    from tandem.spaces import Leaf
    from tandem.testing import fakes

    seen = Leaf("box", (17,), "float32", (), (-9.0,) * 17, (9.0,) * 17)
    action = Leaf("box", (6,), "float32", (), (-1.0,) * 6, (1.0,) * 6)
    wide = {"hidden": (job["units"],) * 2}
    algorithm = _made(job["algorithm"], job, device, seen, action, **wide)
    batches = fakes.batches(algorithm, seen, action, 16, 256)
    run = algorithm.backend.compile(algorithm.update)
    return 16 * _repeated(lambda: run(batches), seconds)


def _frames(job: Job, device: str, seconds: float) -> float:
    """Frames of which PPO learns with the Nature CNN: 1,024 a block, 4 epochs in minibatches of
    256. Without games, which the processor plays."""
    from tandem.spaces import Leaf
    from tandem.testing import fakes

    seen = Leaf("box", (84, 84, 4), "uint8", (), (0.0,) * 28_224, (255.0,) * 28_224)
    action = Leaf("discrete", (), "int64", (6,))
    algorithm = _made("ppo", job, device, seen, action, shared=True)
    data = fakes.batches(algorithm, seen, action, 1, 1_024)
    rows = np.stack([np.random.default_rng(i).permutation(1_024) for i in range(4)])
    settings = {n: np.repeat(x, 16) for n, x in data.settings.items()}
    flat = fakes.first(data, 1)._replace(settings={})
    flat = type(flat)(*(_flat(x) for x in flat))._replace(settings=settings)
    run = algorithm.backend.compile(algorithm.update)
    return 1_024 * _repeated(lambda: run(flat, rows.reshape(16, 256)), seconds)


def _flat(tree: Any) -> Any:
    from tandem.types import tree_map

    return tree_map(lambda x: x[0], tree)


def _run(job: Job, device: str, seconds: float) -> float:
    """Steps of a compiled run of PPO in tandem/CartPole-v1."""
    given = {"envs": job["envs"], "rollout": 16, "epochs": 4, "batch_size": 4 * job["envs"]}
    return _session("ppo", device, seconds, given)


def _replay(job: Job, device: str, seconds: float) -> float:
    """Steps of DQN in tandem/CartPole-v1: compiled, with its replay memory on the device, or
    stepped, which sends each batch there."""
    given = {"envs": 128, "buffer_size": 100_000, "batch_size": 256, "learning_starts": 1_000}
    where = {"device": "compiled", "host": "auto"}[job["where"]]
    env = "tandem/CartPole-v1" if job["where"] == "device" else "CartPole-v1"
    return _session("dqn", device, seconds, given | {"vectorization": where}, env)


def _session(
    name: str, device: str, seconds: float, given: Job, env: str = "tandem/CartPole-v1"
) -> float:
    import tandem
    from tandem.learning.events import BatchEnd

    more = {"framework": "jax", "device": device, "eval_episodes": 0, "plots": False}
    run = tandem.session(name, env, steps=10**10, **more, **given)
    mark, began = 0, 0.0
    for event in run:
        if isinstance(event, BatchEnd) and event.updates:
            if not mark and event.env_steps >= 20 * given["envs"]:
                mark, began = event.env_steps, perf_counter()
            elif mark and perf_counter() - began > seconds:
                run.stop("measured")
    return (run.loop.env_steps - mark) / (perf_counter() - began)


def _memory(how: str, device: str) -> float:
    if device == "cpu":
        return 0.0
    if how == "jax":
        import jax

        return float(jax.devices()[0].memory_stats()["peak_bytes_in_use"]) / 1e6
    import torch

    return torch.cuda.max_memory_allocated() / 1e6


def main(arguments: list[str] | None = None) -> int:
    """Measures all; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--seconds", type=float, default=5.0, help="of each, compiling apart")
    parser.add_argument("--only", default="", help="the kind: updates, frames, run or replay")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.one:
        print(json.dumps(measured(json.loads(args.one), args.device, args.seconds)))
        return 0
    here = {"CUDA_VISIBLE_DEVICES": "0", "JAX_PLATFORMS": ""} if args.device == "cuda" else {}
    found = []
    for job in jobs():
        if args.only not in job["kind"]:
            continue
        words = "benchmarks.gpu", "--device", args.device, "--seconds", args.seconds
        try:
            said = last_line(*words, "--one", json.dumps(job), contestant=_engine(job), **here)
            found.append(job | json.loads(said))
        except Exception as error:  # the others are measured all the same
            found.append(job | {"error": str(error)[-300:]})
        print(found[-1], flush=True)
    _write(found, args.device, args.out)
    return 0


def _engine(job: Job) -> str:
    return str(job.get("how", "jax")).partition(",")[0]


def _write(found: list[Job], device: str, out: Path) -> None:
    about = tables.about() | {"device": device, "card": _card(device), "found": found}
    lines = [f"# On {about['card']}", "", "| | per second | MB |", "|---|--:|--:|"]
    for job in found:
        words = [str(v) for n, v in job.items() if n not in ("rate", "megabytes", "error")]
        shown = f"{job['rate']:,.0f} | {job['megabytes']:,.0f}" if "rate" in job else "failed | "
        lines.append(f"| {' '.join(words)} | {shown} |")
    lines += ["", "updates: batches of 256; frames: PPO's learning alone; run, replay: steps."]
    lines.append(
        f"LeanRL publishes, on an H100 and with its environments: SAC {LEANRL['sac']} and TD3 "
        f"{LEANRL['td3']} steps, PPO in Atari {LEANRL['frames']:,} frames per second."
    )
    tables.save(out, "gpu", about, [*lines, "", tables.origin(about)])


def _card(device: str) -> str:
    if device == "cpu":
        return "a processor"
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "a GPU"


if __name__ == "__main__":
    sys.exit(main())
