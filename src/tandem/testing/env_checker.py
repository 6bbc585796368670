"""Checks of an environment before training."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import closing
from time import perf_counter
from typing import Literal, NamedTuple

import numpy as np
from gymnasium.utils.env_checker import check_env

from tandem import algorithms
from tandem.algorithms import own
from tandem.envs.actions import random_actions
from tandem.envs.factory import (
    EnvLike,
    Mode,
    Step,
    differ,
    is_instance,
    make,
    resume_fault,
    resume_fault_between,
    separate,
    spaces_of,
    vectorize,
)
from tandem.envs.vector import Environments
from tandem.envs.vector_source import VectorSource, brought
from tandem.errors import PluginError, SpaceError, TandemError
from tandem.replay.allocation import human
from tandem.replay.buffer import Ring
from tandem.settings import whole_number
from tandem.spaces import Leaf, Spec, action_leaf, described, observation_spec
from tandem.types import Array, EnvKwargs, Tree

Verdict = Literal["ok", "note", "fault"]
SECONDS = 0.3  # duration of each speed measurement


class Finding(NamedTuple):
    """Result of one check. A note is useful to know but not an obstacle."""

    what: str
    verdict: Verdict
    text: str


def check(
    env: EnvLike, steps: int = 1000, seed: int = 0, kwargs: EnvKwargs | None = None
) -> Iterator[Finding]:
    """Check an environment and yield the findings.

    Faults of the environment become findings. Errors of `make` are raised.

    Args:
        env: As for `make`, or a vector environment or a factory for one.
        steps: Number of random steps.
        seed: Seed of the environment and of the actions.
        kwargs: Arguments of the vector environment's factory.

    Raises:
        SettingError: `steps` is less than 1.
    """
    steps, seed = whole_number("steps", steps, 1), whole_number("seed", seed)
    source, made = brought(env, kwargs)
    if source is not None:
        yield from _check_vector(source, steps, seed, kwargs)
        return
    if made is not None:
        made.close()
    try:
        shown, taken = spaces_of(separate(env))
        observation = observation_spec(shown)
        action = action_leaf(taken, observation)
    except SpaceError as error:
        yield Finding("spaces", "fault", line(error))
        return
    yield Finding("spaces", "ok", described(observation, action))
    yield algorithms_of(observation, action)
    yield _gymnasium(env, action.masked)
    stepped = _steps(env, steps, seed)
    yield stepped
    if stepped.verdict == "ok":
        yield _determinism(env, steps, seed)
        yield resumed(resume_fault(env, seed=seed))
        yield from _speeds(env, seed)
    size = Ring.size(1_000_000, 1, observation, action)
    yield Finding("replay", "note", f"{human(size)} for 1,000,000 transitions")


def _check_vector(
    source: VectorSource, steps: int, seed: int, kwargs: EnvKwargs | None = None
) -> Iterator[Finding]:
    """Check a user's vector, as `check` does. An object is reset, and left open."""
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


def algorithms_of(observation: Spec, action: Leaf) -> Finding:
    """Return the algorithms that support these spaces."""
    able, refused = [], []
    for name in algorithms.names():
        try:
            kind = algorithms.for_actions(own.checked(name), action)
            kind.check(observation, action, kind.Settings())
            able.append(name)
        except (SpaceError, PluginError) as error:
            refused.append(line(error))
    if not able:
        return Finding("algorithms", "fault", "none can train in it: " + " ".join(refused))
    return Finding("algorithms", "ok", ", ".join(able))


def _gymnasium(env: EnvLike, masked: bool) -> Finding:
    """Run Gymnasium's checker. It ignores action masks, so with masks an exception is not a
    fault."""
    with (
        closing(make(separate(env))) as instance,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        try:
            check_env(instance.unwrapped, skip_render_check=True)
        except Exception as error:
            return Finding(
                "gymnasium",
                "note" if masked else "fault",
                f"{type(error).__name__}: {_plain(str(error)) or 'no message'}",
            )
    notes = dict.fromkeys(
        _plain(str(w.message)) for w in caught if "env_checker" not in str(w.message)
    )
    return Finding(
        "gymnasium", "note" if notes else "ok", "; ".join(notes) or "its checker is content"
    )


def _steps(env: EnvLike, steps: int, seed: int) -> Finding:
    """Take random steps, and report exceptions, wrong shapes, NaN and infinity."""
    try:
        with closing(_single(env, seed)) as environments:
            return random_steps(walk(environments, steps, seed))
    except TandemError as error:
        return Finding("random steps", "fault", line(error))


def random_steps(taken: Iterable[Step]) -> Finding:
    """Summarize random steps that raised no error."""
    steps = episodes = 0
    for one in taken:
        steps += len(one.reward)
        episodes += int((one.terminated | one.truncated).sum())
    return Finding(
        "random steps", "ok", f"{steps:,} steps, {episodes:,} episodes ended, every number finite"
    )


def _determinism(env: EnvLike, steps: int, seed: int) -> Finding:
    with closing(_single(env, seed)) as one, closing(_single(env, seed)) as other:
        first, second = walk(one, steps, seed), walk(other, steps, seed)
        return determinism(first, second, "fault", ": draw everything from self.np_random")


def determinism(one: Iterable[Step], other: Iterable[Step], verdict: Verdict, text: str) -> Finding:
    """Compare two walks. verdict, text: the finding if they differ."""
    for t, (a, b) in enumerate(zip(one, other, strict=True)):
        if differ(a, b):
            happened = f"the same seed and actions gave something else at step {t + 1}"
            return Finding("determinism", verdict, happened + text)
    return Finding("determinism", "ok", "the same seed and actions give the same")


def resumed(fault: TandemError | None) -> Finding:
    """Report exact resumability, from the result of `resume_fault`."""
    if fault is None:
        return Finding("resume", "ok", "exact, to the bit")
    return Finding("resume", "note", f"not exact: {line(fault)}")


def _speeds(env: EnvLike, seed: int) -> Iterator[Finding]:
    modes: tuple[Mode, ...] = ("plain", "native")
    for mode in modes:
        n = 1 if is_instance(env) else 8
        try:
            environments = vectorize(separate(env), n, seed, mode)
        except TandemError as error:
            yield Finding(f"{mode} speed", "note", line(error))
            continue
        with closing(environments):
            speed = speed_of(environments, seed)
        yield Finding(
            f"{mode} speed",
            "note",
            f"{speed:,.0f} steps/s, {n} environment{'s' * (n > 1)} in one process",
        )


def speed_of(environments: Environments, seed: int) -> float:
    """Measure the steps of single environments per second, after the first step and the first reset
    after an episode, since some environments compile code in these."""
    obs, n = environments.reset(), environments.n
    drawn = [actions(environments, np.random.default_rng(seed + i), obs) for i in range(64)]
    rng, masked = np.random.default_rng(seed), environments.action.masked
    began, count, warm = 0.0, 0, False
    while not count or perf_counter() - began < SECONDS:
        action = actions(environments, rng, obs) if masked else drawn[count % 64]
        one = environments.step(action)
        obs, count, over = one.obs, count + 1, bool((one.terminated | one.truncated).any())
        if not began or (over and not warm):
            began, count, warm = perf_counter(), 0, over
    return count * n / (perf_counter() - began)


def _single(env: EnvLike, seed: int) -> Environments:
    return vectorize(separate(env), 1, seed, "plain")


def walk(environments: Environments, steps: int, seed: int) -> Iterator[Step]:
    """Take random steps from the start, at least this many of single environments."""
    rng, obs = np.random.default_rng(seed), environments.reset()
    for _ in range(-(-steps // environments.n)):
        one = environments.step(actions(environments, rng, obs))
        obs = one.obs
        yield one


def actions(environments: Environments, rng: np.random.Generator, obs: Tree) -> Array:
    """Sample a random action for each environment."""
    if environments.action.masked or environments.action.parts:
        return random_actions(environments.action, environments.n, rng, obs)
    space = environments.action_space
    space.seed(int(rng.integers(2**31)))
    return np.stack(
        [np.asarray(space.sample(), environments.action.dtype) for _ in range(environments.n)]
    )


def line(error: TandemError) -> str:
    """Return the error's first line."""
    return error.happened.splitlines()[0]


def _plain(text: str) -> str:
    """Remove colors and line breaks from a warning's text."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m", "", text).removeprefix("WARN: ").split())
