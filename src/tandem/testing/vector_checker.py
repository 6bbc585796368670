"""Checks of a vector environment before training."""

from __future__ import annotations

from collections.abc import Iterator

from tandem.envs.factory import resume_fault_between
from tandem.envs.vector_source import VectorSource
from tandem.errors import SpaceError, TandemError
from tandem.replay.allocation import human
from tandem.replay.buffer import Ring
from tandem.spaces import described
from tandem.testing.env_checker import (
    Finding,
    algorithms_of,
    determinism,
    line,
    random_steps,
    resumed,
    speed_of,
    walk,
)
from tandem.types import EnvKwargs


def check_vector(
    source: VectorSource, steps: int, seed: int, kwargs: EnvKwargs | None = None
) -> Iterator[Finding]:
    """Check a user's vector, as `env_checker.check` does. An object is reset, and left open."""
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
        yield Finding("spaces", "ok", described(envs.observation, envs.action))
        yield algorithms_of(envs.observation, envs.action)
        yield Finding("vector", "ok", f"{envs.n} environments, autoreset mode {envs.mode}")
        size = Ring.size(1_000_000, 1, envs.observation, envs.action)
        try:
            first = list(walk(envs, steps, seed))
        except TandemError as error:
            yield Finding("random steps", "fault", line(error))
            return
        yield random_steps(first)
        other = source.environments(envs.n, seed, kwargs)
        text = " of the vector: a run is not the same each time"
        yield determinism(first, walk(other, steps, seed), "note", text)
        other.close()
        if envs.resumable:
            one, two = (source.environments(envs.n, seed, kwargs) for _ in range(2))
            yield resumed(resume_fault_between(one, two, 60, seed))
        else:
            told = "new episodes begin: it has no get_state and set_state"
            yield Finding("resume", "note", told)
        speed = speed_of(envs, seed)
        yield Finding("speed", "note", f"{speed:,.0f} steps/s, {envs.n} environments")
    finally:
        envs.close()
    yield Finding("replay", "note", f"{human(size)} for 1,000,000 transitions")
