"""What a run has whose environment is one object: there are no others to step beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tandem.envs.factory import EnvLike, is_instance
from tandem.envs.vector_env import is_vector
from tandem.errors import note
from tandem.learning.config import Options
from tandem.settings import by_name


def settled(
    env: EnvLike, values: dict[str, Any], chosen: Any, options: Options, source: str
) -> tuple[Any, Options, str]:
    """Settings, options and their source: of an object, and where no `envs` is in `values`, for one
    environment. A rollout then has as many rows as it had, so that batches go on dividing it, and
    what is replayed in sequences is as many steps."""
    n, now = chosen.envs, by_name(chosen)
    if not is_instance(env) or n == 1 or values.get("envs") is not None:
        return chosen, options, source
    changed: dict[str, Any] = {"envs": 1}
    said = "envs: 1, since the environment is one object"
    if "rollout" in now and values.get("rollout") is None:
        changed["rollout"] = now["rollout"] * n
        said += f" (rollout: {changed['rollout']}, as many rows as with {n})"
        if chosen.recurrent and now.get("sequence") == 0:
            changed["sequence"] = now["rollout"]  # 0 is a whole rollout, which was shorter
        for name in ("replay_size", "replay_starts"):  # in sequences, which are longer now
            if name in now and values.get(name) is None:
                changed[name] = -(-now[name] // n)
    note(said)
    return replace(chosen, **changed), options, f"{source}; {said}"


def evaluated_in(env: EnvLike, eval_env: EnvLike) -> EnvLike:
    """`eval_env`; None where it is the object that is trained in: then evaluations step a copy, if
    there can be one."""
    return None if eval_env is env and is_instance(env) and not is_vector(env) else eval_env
