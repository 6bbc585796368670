"""Adapter from objects with the `reset` and `step` of gym before 0.26 to Gymnasium. The mode
"plain", which steps environments one by one, is `stepped`."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from tandem.envs.calls import has_methods, metadata_of
from tandem.envs.opening import amend, look
from tandem.errors import EnvironmentFault, SpaceError
from tandem.types import Array, Info, JSONDict, Tree

# (rewards, dones) of several agents -> one (reward, done)
Reduce = Callable[[Tree, Tree], tuple[float, bool]]


class Plain(gymnasium.Env):  # type: ignore[misc]
    """Gymnasium environment around an object with an older interface. Missing attributes are looked
    up on the object.

    Args:
        env: `reset()` returns an observation, or (observation, info). It receives the seed if it
            has such a parameter; otherwise a method `seed` is called. `step(action)` returns
            (observation, reward, done, info), where info["TimeLimit.truncated"] marks truncation,
            or Gymnasium's five values.
        observation_space: Gymnasium space. Defaults to the object's, of Gymnasium or gym. Without
            one, it is an unbounded Box with the shape of the first observation.
        action_space: Gymnasium space. Defaults to the object's.
        reduce: Reduces the rewards and dones of several agents to one of each.

    Raises:
        SpaceError: There is no action space.
        EnvironmentFault: The object returns anything else.
    """

    def __init__(
        self,
        env: Any,
        observation_space: spaces.Space | None = None,
        action_space: spaces.Space | None = None,
        reduce: Reduce | None = None,
    ) -> None:
        for name in ("reset", "step"):
            if not has_methods(env, name):
                raise EnvironmentFault(
                    f"{type(env).__name__} has no method {name}.",
                    "methods reset and step",
                    f"define {name}, or pass another env.",
                )
        self.inner, self._reduce, self._name = env, reduce, type(env).__name__
        self._seeded = _takes(env.reset, "seed")
        self.metadata = dict(metadata_of(env) or {"render_modes": []})
        self.render_mode = getattr(env, "render_mode", None)
        self.action_space = _space(
            action_space if action_space is not None else getattr(env, "action_space", None)
        )
        if self.action_space is None:
            raise SpaceError(
                f"{self._name} has no action_space.",
                "a Gymnasium space that defines the actions",
                "set env.action_space = gymnasium.spaces.Discrete(n), or a Box with the bounds.",
            )
        if observation_space is None:
            observation_space = getattr(env, "observation_space", None)
        observation_space = _space(observation_space)
        if observation_space is not None:
            self.observation_space = observation_space
            return
        obs, info = look(self)
        first = np.asarray(obs)
        dtype = first.dtype if first.dtype == np.uint8 else np.float32
        low, high = (0, 255) if dtype == np.uint8 else (-np.inf, np.inf)
        self.observation_space = spaces.Box(low, high, first.shape, dtype)
        amend(self, (self._cast(obs), info))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def __deepcopy__(self, memo: dict[int, object]) -> Plain:
        """Copy the object but not `reduce`, which may be a method of an agent."""
        memo[id(self)] = new = type(self).__new__(type(self))
        new.__dict__.update(
            {n: x if n == "_reduce" else copy.deepcopy(x, memo) for n, x in vars(self).items()}
        )
        return new

    def reset(
        self, *, seed: int | None = None, options: JSONDict | None = None
    ) -> tuple[Tree, Info]:
        super().reset(seed=seed)
        if seed is not None and not self._seeded and has_methods(self.inner, "seed"):
            self.inner.seed(seed)
        obs = self.inner.reset(**({"seed": seed} if self._seeded and seed is not None else {}))
        if isinstance(obs, tuple) and len(obs) == 2 and isinstance(obs[1], dict):
            return self._cast(obs[0]), obs[1]
        return self._cast(obs), {}

    def step(self, action: Array) -> tuple[Tree, float, bool, bool, Info]:
        results = self.inner.step(action)
        if not isinstance(results, tuple) or len(results) not in (4, 5):
            length = f" of {len(results)}" if isinstance(results, tuple) else ""
            raise EnvironmentFault(
                f"step of {self._name} returned a {type(results).__name__}{length}.",
                "(observation, reward, done, info), or (observation, reward, terminated, "
                "truncated, info)",
                "return one of these tuples from step.",
            )
        obs, reward, *ends, info = results
        info = dict(info or {})
        if self._reduce is not None:
            reward, done = self._reduce(reward, ends[0])
            ends = [done, *ends[1:]]
        if len(ends) == 1:
            done, cut = self._flag(ends[0]), bool(info.get("TimeLimit.truncated", False))
            ends = [done and not cut, done and cut]
        terminated, truncated = map(self._flag, ends)
        return self._cast(obs), float(self._one("reward", reward)), terminated, truncated, info

    def render(self) -> object:
        return self.inner.render() if has_methods(self.inner, "render") else None

    def close(self) -> None:
        if has_methods(self.inner, "close"):
            self.inner.close()

    def _cast(self, obs: Tree) -> Tree:
        """Convert an observation to its space's dtype if that is a Box of floats, since most such
        objects return float64."""
        space = getattr(self, "observation_space", None)
        if isinstance(space, spaces.Box) and space.dtype.kind == "f":
            return np.asarray(obs, space.dtype)
        return obs

    def _flag(self, value: object) -> bool:
        return bool(self._one("end of an episode", value))

    def _one(self, what: str, value: object) -> Array:
        x = np.asarray(value)
        if x.size != 1:
            raise EnvironmentFault(
                f"step of {self._name} returned a {what} of shape {x.shape}.",
                "one number, or with several agents a reward_done_func_ma that reduces them to one",
                "define reward_done_func_ma(r, d) to return one reward and one done.",
            )
        return x.reshape(())


def as_gymnasium(env: object, **more: Any) -> gymnasium.Env:
    """Return a Gymnasium environment unchanged. Any other object, or one with spaces or a function
    in `more`, is wrapped in a `Plain` with them."""
    if isinstance(env, gymnasium.Env) and all(x is None for x in more.values()):
        return env
    return Plain(env, **more)


def _takes(function: Callable[..., object], name: str) -> bool:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # written in C
        return False
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _space(space: Any) -> spaces.Space | None:
    """Convert a gym space, which has the same attributes, to a Gymnasium space; None stays None."""
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
    if kind == "Tuple":
        return spaces.Tuple([_space(part) for part in space.spaces])
    raise SpaceError(
        f"a space of type {type(space).__module__}.{kind}.",
        "Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple of gymnasium or gym",
        "replace it with one of gymnasium.spaces.",
    )
