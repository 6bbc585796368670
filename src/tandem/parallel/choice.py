"""How many workers make a run faster, by a trial of its environments."""

from __future__ import annotations

import os
from math import ceil
from time import perf_counter

import numpy as np

from tandem.envs.factory import is_instance, random_actions
from tandem.parallel.share import Source

HANDOVER = 400e-6  # seconds that a block costs more with workers
GAIN = 0.75  # of the time without workers: above it they are not worth it
WORTH = 1e-3  # seconds of a block that they have to save at least
BUDGET = 0.2  # seconds of a trial


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def choose(source: Source, block: int, ahead: int) -> tuple[int, str]:
    """How many workers for blocks of `block` steps, and why; `ahead` as in `Terms`."""
    if is_instance(source.env):
        return 0, "workers: 0, since the environment is one object"
    number = min(cores() - 1, source.n if ahead else source.n - 1)
    if number < 1:
        return (
            0,
            f"workers: 0, for {source.n} environment{'s' * (source.n > 1)} on {cores()} "
            f"core{'s' * (cores() > 1)}",
        )
    alone = seconds(source, source.n) * block
    if ahead:
        chosen = number if alone >= WORTH else 0
        return chosen, f"workers: {chosen}, since collecting a block takes {_ms(alone)}"
    shared = seconds(source, ceil(source.n / (number + 1))) * block + HANDOVER
    chosen = number if shared < min(GAIN * alone, alone - WORTH) else 0
    return (
        chosen,
        f"workers: {chosen}, since stepping a block takes {_ms(alone)} here and {_ms(shared)} in "
        f"{number + 1} processes",
    )


def seconds(source: Source, n: int) -> float:
    """The time of a step of n of the environments, with random actions."""
    environments, rng = source.part(0, n), np.random.default_rng(0)
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
