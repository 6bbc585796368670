"""Choice of the number of workers, by timing the run's environments."""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import ceil
from shutil import which
from time import perf_counter

import numpy as np

from tandem.envs.actions import random_actions
from tandem.envs.factory import is_instance
from tandem.learning.parallel.env_factory import EnvFactory
from tandem.platforms import cores as cores

HANDOVER = 400e-6  # overhead of workers per block, in seconds
GAIN = 0.75  # use workers only below this fraction of the time without them
WORTH = 1e-3  # minimum time saved per block, in seconds
BUDGET = 0.2  # duration of the timing, in seconds


def cpus_of(given: Mapping[str, object]) -> int:
    """Return the number of CPUs that a run with these settings keeps busy."""
    each = 1
    for name, beside in (("workers", 1), ("learners", 0), ("devices", 0), ("threads", 0)):
        value = str(given.get(name) or "")
        if value.isdigit():
            each = max(each, int(value) + beside)
    return each


def has_gpu() -> bool:
    """Return true if there is an NVIDIA GPU that a framework would use."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return not hidden and (os.path.exists("/dev/nvidiactl") or bool(which("nvidia-smi")))


def runs_at_once(given: Mapping[str, object]) -> int:
    """Return the number of runs with these settings to execute in parallel: as many as there are
    cores for their processes and threads; one if they use a GPU."""
    device = given.get("device")
    if device == "cuda" or (device in (None, "auto") and has_gpu()):
        return 1
    return max(1, cores() // cpus_of(given))


def choose(env_factory: EnvFactory, block: int, ahead: int) -> tuple[int, str]:
    """Return the number of workers for blocks of `block` steps, and the reason; `ahead` as in
    `WorkerOptions`."""
    if is_instance(env_factory.env):
        return 0, "workers: 0, since the environment is one object"
    number = min(cores() - 1, env_factory.n if ahead else env_factory.n - 1)
    if number < 1:
        return (
            0,
            f"workers: 0, for {env_factory.n} environment{'s' * (env_factory.n > 1)} on {cores()} "
            f"core{'s' * (cores() > 1)}",
        )
    alone = seconds(env_factory, env_factory.n) * block
    if ahead:
        chosen = number if alone >= WORTH else 0
        return chosen, f"workers: {chosen}, since collecting a block takes {_ms(alone)}"
    shared = seconds(env_factory, ceil(env_factory.n / (number + 1))) * block + HANDOVER
    chosen = number if shared < min(GAIN * alone, alone - WORTH) else 0
    return (
        chosen,
        f"workers: {chosen}, since stepping a block takes {_ms(alone)} here and {_ms(shared)} in "
        f"{number + 1} processes",
    )


def seconds(env_factory: EnvFactory, n: int) -> float:
    """Measure the time of a step of n environments with random actions, in seconds."""
    environments, rng = env_factory.make(0, n), np.random.default_rng(0)
    try:
        obs, steps, spent = environments.reset(), 0, 0.0
        while spent < BUDGET:
            actions = random_actions(environments.action, n, rng, obs)
            began = perf_counter()
            obs = environments.step(actions).obs
            spent += perf_counter() - began
            steps += 1
        return spent / steps
    finally:
        environments.close()


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"
