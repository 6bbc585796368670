"""Settings of runs whose environment is a single object, which cannot step several in parallel."""

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
    """Return settings, options and their source. For an environment object, unless `values` has
    `envs`, they are changed to one environment. Rollouts keep their number of rows, so that batches
    still divide them, and replay buffers of sequences keep their number of steps."""
    n, now = chosen.envs, by_name(chosen)
    if not is_instance(env) or n == 1 or values.get("envs") is not None:
        return chosen, options, source
    changed: dict[str, Any] = {"envs": 1}
    said = "envs: 1, since the environment is one object"
    if "rollout" in now and values.get("rollout") is None:
        changed["rollout"] = now["rollout"] * n
        said += f" (rollout: {changed['rollout']}, as many rows as with {n})"
        if chosen.recurrent and now.get("sequence") == 0:
            changed["sequence"] = now["rollout"]  # 0: whole rollout, whose length has changed
        for name in ("replay_size", "replay_starts"):  # counted in sequences, which are now longer
            if name in now and values.get(name) is None:
                changed[name] = -(-now[name] // n)
    note(said)
    return replace(chosen, **changed), options, f"{source}; {said}"


def evaluated_in(env: EnvLike, eval_env: EnvLike) -> EnvLike:
    """Return `eval_env`, or None if it is the training environment object: evaluations then step a
    copy, if it can be copied."""
    return None if eval_env is env and is_instance(env) and not is_vector(env) else eval_env
