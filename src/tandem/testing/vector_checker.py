"""Checks of a vector of environments before anything is trained in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tandem.envs.factory import resume_fault_between
from tandem.envs.vector_source import VectorSource
from tandem.errors import SpaceError, TandemError
from tandem.replay.allocation import human
from tandem.replay.buffer import Ring
from tandem.testing.env_checker import Finding, actions, algorithms_of, differ, line, speed_of
from tandem.types import EnvKwargs


def check_vector(
    source: VectorSource, steps: int, seed: int, kwargs: EnvKwargs | None = None
) -> Iterator[Finding]:
    """As `env_checker.check`, of a user's vector. An object is reset, and left open."""
    n = int((kwargs or {}).get("num_envs", 8)) if source.is_sized else None
    try:
        envs = source.environments(n, seed, kwargs)
    except SpaceError as error:
        yield Finding("spaces", "fault", line(error))
        return
    except TandemError as error:
        yield Finding("vector", "fault", line(error))
        return
    try:
        yield algorithms_of(envs.observation, envs.action)
        yield Finding("vector", "ok", f"{envs.n} environments, autoreset mode {envs.mode}")
        size = Ring.size(1_000_000, 1, envs.observation, envs.action)
        try:
            first, episodes = _walk(envs, steps, seed)
        except TandemError as error:
            yield Finding("random steps", "fault", line(error))
            return
        taken = f"{len(first) * envs.n:,} steps, {episodes:,} episodes ended, every number finite"
        yield Finding("random steps", "ok", taken)
        other = source.environments(envs.n, seed, kwargs)
        yield _determinism(first, _walk(other, steps, seed)[0])
        other.close()
        if envs.resumable:
            one, two = (source.environments(envs.n, seed, kwargs) for _ in range(2))
            fault = resume_fault_between(one, two, 60, seed)
            yield (
                Finding("resume", "ok", "exact, to the bit")
                if fault is None
                else Finding("resume", "note", f"not exact: {line(fault)}")
            )
        else:
            told = "new episodes begin: it has no get_state and set_state"
            yield Finding("resume", "note", told)
        speed = speed_of(envs, seed)
        yield Finding("speed", "note", f"{speed:,.0f} steps/s, {envs.n} environments")
    finally:
        envs.close()
    yield Finding("replay", "note", f"{human(size)} for 1,000,000 transitions")


def _walk(envs: Any, steps: int, seed: int) -> tuple[list[Any], int]:
    """About so many random steps, and how many episodes ended in them."""
    rng, obs, rows = np.random.default_rng(seed), envs.reset(), []
    for _ in range(-(-steps // envs.n)):
        rows.append(envs.step(actions(envs, rng, obs)))
        obs = rows[-1].obs
    return rows, sum(int((one.terminated | one.truncated).sum()) for one in rows)


def _determinism(one: list[Any], other: list[Any]) -> Finding:
    for t, (a, b) in enumerate(zip(one, other, strict=True)):
        if differ(a, b):
            return Finding(
                "determinism",
                "note",
                f"the same seed and actions gave something else at step {t + 1} of the vector: a "
                "run is not the same each time",
            )
    return Finding("determinism", "ok", "the same seed and actions give the same")
