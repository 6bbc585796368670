"""Settings and options of runs with a user's vector of environments."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tandem.envs import atari
from tandem.envs.envpool import is_id
from tandem.envs.vector_env import VectorEnvironments
from tandem.envs.vector_source import VectorSource, brought, named, other_number
from tandem.envs.wrapped import wrapped
from tandem.errors import SettingError, note
from tandem.learning.config import Config, Options
from tandem.types import EnvKwargs, JSONDict


def refuse(source: VectorSource, values: JSONDict, options: Options) -> None:
    """Raise SettingError for options that a vector does not support. values: the given settings."""
    name = source.name
    for what, count in (
        ("workers", options.workers),
        ("runners", options.runners),
        ("learners", options.learners),
    ):
        if count not in (0, 1 if what == "learners" else 0, "auto"):
            raise SettingError(
                f"{what}={count} is not supported with {name}, a vector of environments.",
                "one process: a vector steps its own environments",
                f"leave {what} out; or give a single environment's id, or a function that makes "
                "one.",
            )
    if options.opponents:
        raise SettingError(
            f"opponents={options.opponents} is not supported with {name}, a vector of "
            "environments.",
            "a turn-based game of two, whose other player the run makes",
            "leave opponents out.",
        )
    if values.get("vectorization", "auto") != "auto":
        raise SettingError(
            f"vectorization={values['vectorization']!r} is not supported with {name}, already a "
            "vector.",
            "vectorization= only where the run makes the vector",
            "leave vectorization out.",
        )


def settled(
    source: VectorSource,
    values: JSONDict,
    chosen: Any,
    options: Options,
    seed: int,
    kwargs: EnvKwargs,
) -> tuple[Any, Options, VectorEnvironments]:
    """Return settings and options for a vector, and its environments, with which the run starts.
    Raise SettingError if `envs` was given and differs from the vector's number."""
    asked = chosen.envs if values.get("envs") is not None else None
    n = None
    if source.is_sized:
        n = asked or kwargs.get("num_envs") or chosen.envs
    envs = source.look(n, seed, atari.training(source, kwargs, options))
    if asked not in (None, envs.n):
        raise other_number(source.name, asked, envs.n)
    if options.workers == "auto":
        options = replace(options, workers=0)
    if options.learners == "auto":
        options = replace(options, learners=1)
    return replace(chosen, envs=envs.n).settled(values), options, envs


def env_of(conf: Config, env: Any) -> Any:
    """Return the source of a run's environments when it resumes or is recreated: `env` if given,
    otherwise from its Config."""
    if env is None and conf.vector not in ("", "own", "id"):
        return named(conf.vector, conf.env_kwargs)
    env = wrapped(conf.env if env is None else env, conf.wrappers)
    return (brought(env, conf.env_kwargs)[0] or env) if conf.vector else env


def kept_as(env: Any) -> str:
    """Return the value in config.json for the source of a vector; "" if `env` is not a vector."""
    if not isinstance(env, VectorSource):
        return ""
    return env.path or ("id" if is_id(env.name) else "own")


def note_resuming(environments: Any) -> None:
    """Print a note if resuming will not be exact."""
    if not environments.resumable:
        note(
            f"{environments.name} has no get_state and set_state: a resumed run keeps what it has "
            "learned and starts new episodes"
        )


def stays_on_device(algorithm: Any, backend: Any, environments: VectorEnvironments) -> bool:
    """Keep a vector's observations on their device from the step to the update, if possible, and
    return True if so. It is possible for rollouts, on the backend of the observations' tensors,
    without recurrence and statistics of observations, which are in host memory."""
    host = algorithm.settings.normalize_observations or algorithm.apart
    if algorithm.needs != "rollouts" or algorithm.sequence or host:
        return False
    if environments.device_library() != backend.framework or backend.devices > 1:
        return False
    environments.stay_on_device()
    return True
