"""Inclusion of action masks from `info`, or from a method `action_masks()`, in observations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from tandem.envs.calls import layers
from tandem.envs.opening import look, reset
from tandem.envs.tensors import bits_of
from tandem.envs.vector_reading import masked_space, may_have_masks
from tandem.envs.vector_state import inner_environment
from tandem.errors import misfit
from tandem.spaces import MASK, leaf
from tandem.types import Array, Info, Tree


class Masked(gymnasium.Wrapper, RecordConstructorArgs):  # type: ignore[misc]
    """Wrapper that adds the mask to observations as the entry `action_mask` of a Dict. The original
    observation becomes the entry `obs`, or, if it is a Dict, keeps its entries. The mask is
    `info["action_mask"]`, or else the result of `action_masks()`. A terminated episode needs no
    mask at its end, since no action follows."""

    def __init__(self, env: gymnasium.Env) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)
        self._method, self._width = mask_method(env), leaf(env.action_space).width
        self.observation_space, self._wraps = masked_space(env.observation_space, self._width)

    def reset(self, **kwargs: object) -> tuple[Tree, Info]:
        obs, info = reset(self.env, **kwargs)
        return self._shown(obs, info, False), info

    def step(self, action: Array) -> tuple[Tree, float, bool, bool, Info]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self._shown(obs, info, terminated), reward, terminated, truncated, info

    def _shown(self, obs: Tree, info: Info, terminated: bool) -> dict[str, Array]:
        mask = info.get(MASK)
        if mask is None and self._method is not None and not terminated:
            mask = self._method()
        if mask is None and not terminated:
            raise ValueError(f"no mask in info[{MASK!r}], and none from action_masks()")
        bits = np.ones(self._width, np.int8) if mask is None else bits_of(mask)
        return {**({"obs": obs} if self._wraps else obs), MASK: bits}


def with_masks(envs: Sequence[gymnasium.Env]) -> list[gymnasium.Env]:
    """Return environments of one type, wrapped if they have masks (see `gives_masks`)."""
    return [Masked(env) for env in envs] if gives_masks(envs[0], envs[0].action_space) else [*envs]


def gives_masks(env: gymnasium.Env, actions: gymnasium.Space) -> bool:
    """Return true if the environment has masks of discrete actions outside its observations: from a
    method, or in the info of its first reset. actions: its action space, with one axis."""
    if not may_have_masks(env.observation_space, actions):
        return False
    if getattr(env.unwrapped, "masks_are_observed", False):
        return False
    try:
        return mask_method(env) is not None or MASK in look(env)[1]
    except Exception:  # stepping raises it again, with the full message
        return False


def mask_method(env: gymnasium.Env) -> Callable[[], Array] | None:
    """Return the method `action_masks()` of an environment or its wrappers, as in sb3-contrib; None
    if there is none."""
    try:
        method = env.get_wrapper_attr("action_masks")
    except AttributeError:  # also for non-Gymnasium parts of a vector
        return None
    return method if callable(method) and not misfit(method) else None


def vector_method(envs: gymnasium.vector.VectorEnv) -> Callable[[Array], object] | None:
    """Return a function from the acting environments [N] to the masks of a vector; None if there
    are none. It calls the vector's method `action_masks`, or that of each environment, as in
    Gymnasium's SyncVectorEnv and AsyncVectorEnv."""
    for layer in layers(envs):
        if callable(own := getattr(layer, "action_masks", None)) and not misfit(own):
            return lambda acting: own()
    if (one := inner_environment(envs)) is None or mask_method(one) is None:
        return None
    inner = envs.unwrapped
    if not hasattr(inner, "envs"):  # environments in other processes
        return lambda acting: inner.call("action_masks")
    methods = [env.get_wrapper_attr("action_masks") for env in inner.envs]
    return lambda acting: [f() if now else None for f, now in zip(methods, acting, strict=True)]
