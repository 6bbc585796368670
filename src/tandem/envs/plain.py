"""Objects with `reset` and `step` as environments of Gymnasium: the interface of gym before 0.26,
and whatever is like it."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from tandem.errors import EnvironmentFault, SpaceError
from tandem.types import Array, Info, Tree

Reduce = Callable[
    [Any, Any], tuple[Any, Any]
]  # (rewards, dones) of several agents -> (reward, done) of all


class Plain(gymnasium.Env):  # type: ignore[misc]
    """An environment around an object of another manner.

    env: `reset()` gives an observation, or (observation, info); it is told the seed if it takes
    one, or has a method `seed`. `step(action)` gives (observation, reward, done, info), where
    info["TimeLimit.truncated"] says that a limit ended the episode, or Gymnasium's five.
    observation_space, action_space: Gymnasium's; by default the object's own, of Gymnasium or of
    gym, or, of observations, a Box without bounds as the first one is shaped. reduce: of rewards
    and dones that come for each of several agents, one of each.

    Attributes that are asked for and are not here are the object's. Raises SpaceError where actions
    have no space, and EnvironmentFault where the object gives anything else than said above.
    """

    def __init__(
        self,
        env: Any,
        observation_space: Any = None,
        action_space: Any = None,
        reduce: Reduce | None = None,
    ) -> None:
        for name in ("reset", "step"):
            if not callable(getattr(env, name, None)):
                raise EnvironmentFault(
                    f"{type(env).__name__} has no method {name}.",
                    "methods reset and step",
                    f"write {name}, or give another env.",
                )
        self.inner, self._reduce, self._name = env, reduce, type(env).__name__
        self._seeded = _takes(env.reset, "seed")
        self.metadata = dict(getattr(env, "metadata", None) or {"render_modes": []})
        self.render_mode = getattr(env, "render_mode", None)
        self.action_space = _space(
            action_space if action_space is not None else getattr(env, "action_space", None)
        )
        if self.action_space is None:
            raise SpaceError(
                f"{self._name} has no action_space.",
                "a space of Gymnasium's that says which actions there are",
                "set env.action_space = gymnasium.spaces.Discrete(n), or a Box with the bounds.",
            )
        found = _space(
            observation_space
            if observation_space is not None
            else getattr(env, "observation_space", None)
        )
        if found is None:
            first = np.asarray(self.reset(seed=0)[0])
            dtype = first.dtype if first.dtype == np.uint8 else np.float32
            low, high = (0, 255) if dtype == np.uint8 else (-np.inf, np.inf)
            found = spaces.Box(low, high, first.shape, dtype)
        self.observation_space = found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def __deepcopy__(self, memo: dict[int, Any]) -> Plain:
        """A copy of the object, with the same `reduce`, which may be a method of an agent."""
        memo[id(self)] = made = type(self).__new__(type(self))
        made.__dict__.update(
            {n: x if n == "_reduce" else copy.deepcopy(x, memo) for n, x in vars(self).items()}
        )
        return made

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Tree, Info]:
        super().reset(seed=seed)
        if seed is not None and not self._seeded and callable(getattr(self.inner, "seed", None)):
            self.inner.seed(seed)
        given = self.inner.reset(**({"seed": seed} if self._seeded and seed is not None else {}))
        if isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], dict):
            return self._seen(given[0]), given[1]
        return self._seen(given), {}

    def step(self, action: Array) -> tuple[Tree, float, bool, bool, Info]:
        given = self.inner.step(action)
        if not isinstance(given, tuple) or len(given) not in (4, 5):
            what = (
                f"a tuple of {len(given)}"
                if isinstance(given, tuple)
                else f"a {type(given).__name__}"
            )
            raise EnvironmentFault(
                f"step of {self._name} gave {what}.",
                "(observation, reward, done, info), or (observation, reward, terminated, "
                "truncated, info)",
                "return one of these from step.",
            )
        obs, reward, *ends, info = given
        info = dict(info or {})
        if self._reduce is not None:
            reward, done = self._reduce(reward, ends[0])
            ends = [done, *ends[1:]]
        if len(ends) == 1:
            done, cut = self._flag(ends[0]), bool(info.get("TimeLimit.truncated", False))
            ends = [done and not cut, done and cut]
        terminated, truncated = map(self._flag, ends)
        return self._seen(obs), float(self._one("reward", reward)), terminated, truncated, info

    def render(self) -> Any:
        return self.inner.render() if callable(getattr(self.inner, "render", None)) else None

    def close(self) -> None:
        if callable(getattr(self.inner, "close", None)):
            self.inner.close()

    def _seen(self, obs: Tree) -> Any:
        """Numbers in the space's type, where it is a Box: most such objects give float64."""
        space = getattr(self, "observation_space", None)
        return np.asarray(obs, space.dtype) if isinstance(space, spaces.Box) else obs

    def _flag(self, value: Any) -> bool:
        return bool(self._one("end of an episode", value))

    def _one(self, what: str, value: Any) -> Array:
        x = np.asarray(value)
        if x.size != 1:
            raise EnvironmentFault(
                f"step of {self._name} gave a {what} of shape {x.shape}.",
                "one number, or with several agents reward_done_func_ma, which makes one of all",
                "write reward_done_func_ma(r, d) to return one reward and one end.",
            )
        return x.reshape(())


def adapted(env: Any, **more: Any) -> Any:
    """The environment as it is, if it is Gymnasium's and nothing is asked of it; else as `Plain`
    with `more`."""
    return (
        env
        if isinstance(env, gymnasium.Env) and not any(x is not None for x in more.values())
        else Plain(env, **more)
    )


def _takes(function: Any, name: str) -> bool:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # written in C
        return False
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _space(space: Any) -> Any:
    """A space of Gymnasium's for one of gym's, which has the same attributes; None for None."""
    if space is None or isinstance(space, spaces.Space):
        return space
    kind = type(space).__name__
    if kind == "Box":
        dtype = np.dtype(space.dtype)
        return spaces.Box(
            np.asarray(space.low, dtype),
            np.asarray(space.high, dtype),
            tuple(space.shape),
            dtype.type,
        )
    if kind == "Discrete":
        return spaces.Discrete(int(space.n), start=int(getattr(space, "start", 0)))
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(np.asarray(space.nvec))
    if kind == "MultiBinary":
        return spaces.MultiBinary(space.n)
    if kind == "Dict":
        return spaces.Dict({key: _space(part) for key, part in space.spaces.items()})
    raise SpaceError(
        f"a space of the type {type(space).__module__}.{kind}.",
        "Box, Discrete, MultiDiscrete, MultiBinary or Dict, of gymnasium or gym",
        "write it as one of gymnasium.spaces.",
    )
