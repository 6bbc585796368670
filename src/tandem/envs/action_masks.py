"""Makes the action masks that an environment returns in `info`, or by a method `action_masks()`, a
part of its observations."""

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
    """Observations are a Dict with the mask as its entry `action_mask`; the environment's own is
    the entry `obs`, or, if that is a Dict, its entries. The mask is `info["action_mask"]`, or else
    the result of `action_masks()`. The end of a terminated episode needs none: no action
    follows."""

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
    """Returns environments of one kind, wrapped if they have masks (see `gives_masks`)."""
    return [Masked(env) for env in envs] if gives_masks(envs[0], envs[0].action_space) else [*envs]


def gives_masks(env: gymnasium.Env, actions: gymnasium.Space) -> bool:
    """Whether the environment has masks of discrete actions that are not in its observations: by a
    method, or in the info of its first reset. actions: its action space, with one axis."""
    if not may_have_masks(env.observation_space, actions):
        return False
    if getattr(env.unwrapped, "masks_are_observed", False):
        return False
    try:
        return mask_method(env) is not None or MASK in look(env)[1]
    except Exception:  # it will be raised again, and told in full, where it is stepped
        return False


def mask_method(env: gymnasium.Env) -> Callable[[], Array] | None:
    """The method `action_masks()` of an environment or of a wrapper around it, as sb3-contrib has
    it; None if there is none."""
    try:
        method = env.get_wrapper_attr("action_masks")
    except AttributeError:  # also of a vector's part that is no environment of Gymnasium's
        return None
    return method if callable(method) and not misfit(method) else None


def vector_method(envs: gymnasium.vector.VectorEnv) -> Callable[[Array], object] | None:
    """A function from the environments that act [N] to the masks of a vector, by its own method
    `action_masks`, or by that of each of its environments, as in Gymnasium's SyncVectorEnv and
    AsyncVectorEnv; None if there is none."""
    for layer in layers(envs):
        if callable(own := getattr(layer, "action_masks", None)) and not misfit(own):
            return lambda acting: own()
    if (one := inner_environment(envs)) is None or mask_method(one) is None:
        return None
    inner = envs.unwrapped
    if not hasattr(inner, "envs"):  # they are in other processes
        return lambda acting: inner.call("action_masks")
    methods = [env.get_wrapper_attr("action_masks") for env in inner.envs]
    return lambda acting: [f() if now else None for f, now in zip(methods, acting, strict=True)]
