"""Where a user's environments step: in this process, or shared out among several."""

from __future__ import annotations

import copy
import warnings
from math import ceil
from time import perf_counter
from typing import Any

import numpy as np

from tandem.envs.stepped import Stepped
from tandem.errors import SettingError, TandemError
from tandem.parallel.choice import cores
from tandem.parallel.remote import Remote

HANDOVER = 150e-6  # seconds that a step costs more in several processes
WORKER = (
    64 * 2**20
    # bytes that a worker resides in, at most, where its environment needs little: 41 MiB were
    # measured
)
TRIAL = 50  # steps, to see how long one takes
PLAIN = (type(None), bool, int, float, str, bytes, np.generic, np.ndarray)


def choose(env: Any, processes: int | None, pool_network: bool) -> tuple[int, str]:
    """How many processes are to step the agent's environments, and why. None: as many as make it
    faster, by trying a copy."""
    given = list(env) if isinstance(env, (list, tuple)) else [env]
    if not pool_network or processes == 1:
        return 1, ""
    if processes is not None:
        return processes, ""
    if len(given) < 2 or isinstance(given[0], str):
        return 1, ""
    available = cores()
    try:
        step = seconds(copied(given[0]))
    except (TandemError, AttributeError, TypeError, ValueError) as error:
        return (
            1,
            f"1 process: a copy of the environment could not be tried ({type(error).__name__})",
        )
    times = {
        p: ceil(len(given) / p) * step + (HANDOVER if p > 1 else 0)
        for p in range(1, min(available, len(given)) + 1)
    }
    best = min(times, key=lambda p: times[p] * (1.0 if p == 1 else 1.1))
    per = f"a step of one environment takes {step * 1e6:.0f} µs"
    return (
        best,
        f"{best} process{'es' * (best > 1)} for {len(given)} environments on {available} cores: "
        f"{per}",
    )


def fitting(pool: int, pool_size: int, least: int, memory: float) -> int:
    """The most processes, up to the number of cores, for which a pool of `pool` bytes and
    `pool_size` transitions leaves memory (bytes) for workers, and each process `least` of the
    transitions; 1 at least."""
    within = [
        n
        for n in range(1, cores() + 1)
        if ceil(pool_size / n) >= least and pool + (n - 1) * WORKER <= memory
    ]
    return max(within, default=1)


def seconds(env: Any) -> float:
    """The time of a step of random actions."""
    env.action_space.seed(0)
    env.reset()
    began = perf_counter()
    for _ in range(TRIAL):
        ended = env.step(env.action_space.sample())
        if any(np.any(x) for x in ended[2:-1]):
            env.reset()
    return (perf_counter() - began) / TRIAL


def as_many(envs: list[Any], processes: int) -> list[Any]:
    """At least as many environments as processes: copies, where the agent has one."""
    if len(envs) == 1 and processes > 1:
        return [envs[0], *(copied(envs[0]) for _ in range(processes - 1))]
    return envs


def copied(env: Any) -> Any:
    """Another one like it. SettingError where it cannot be copied."""
    if isinstance(env, str):
        return env
    try:
        return copy.deepcopy(env)
    except Exception as error:
        raise SettingError(
            f"the environment {type(env).__name__} cannot be copied: {error}",
            "an environment for each process",
            "give a list of them as agent.env.",
        ) from error


def vector(name: str, envs: list[Any], seed: int, processes: int) -> Stepped | Remote:
    """All of them as one vector."""
    if processes == 1:
        return Stepped(name, envs, seed)
    return Remote(name, envs, seed, processes)


def reduction(agent: Any, processes: int) -> Any:
    """The agent's `reward_done_func_ma`; for other processes one of an agent with nothing but plain
    data."""
    if processes == 1:
        return agent.reward_done_func_ma
    light = copy.copy(agent)
    for name, value in list(vars(light).items()):
        if not _plain(value):
            vars(light).pop(name)
    return light.reward_done_func_ma


def say_once(processes_her: int | None, processes_pr: int | None) -> None:
    """Why batches are not built in processes."""
    for name, number in (("processes_her", processes_her), ("processes_pr", processes_pr)):
        if number not in (None, 1) and name not in _said:
            _said.add(name)
            warnings.warn(
                f"{name}={number}: batches are built in this process, for all transitions at "
                "once; to hand parts of one to"
                " processes takes longer than that.",
                stacklevel=4,
            )


_said: set[str] = set()


def _plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_plain, value.values()))
    return isinstance(value, PLAIN) or (
        isinstance(value, (list, tuple)) and all(map(_plain, value))
    )
