"""Detection of invalid environment results in compiled functions. The host raises the same errors
as for environments that it steps."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from tandem.envs.checks import no_choice, no_symbol, not_finite
from tandem.spaces import MASK, Leaf, action_leaf, flattener, observation_spec
from tandem.types import Array, Tree
from tandem.vector_actions import taken_space

# Codes: 0 for none. Part k of the observation has PARTS + 2k, and one more for discrete values.
REWARD, CHOICE, PARTS = 1, 2, 3


class Faults:
    """Checker of observations and rewards [..., N] of an environment. name: of the environment."""

    def __init__(self, name: str, env: Any) -> None:
        self.name, spec = name, observation_spec(env.observation_space)
        self.parts: dict[str, Leaf] = spec if isinstance(spec, dict) else {"": spec}
        action = action_leaf(taken_space(env.action_space), spec)
        self.flatten = flattener(env.observation_space)
        # mask offset of each position's choices
        self._first = np.cumsum([0, *action.sizes[:-1]]) if action.masked else ()

    def of_observations(self, obs: Tree, terminated: Array | bool = False) -> Array:
        """Return the codes of observations, int16. Terminal observations (terminated) need no valid
        action."""
        found: Any = jnp.int16(0)
        for k, (key, spec) in enumerate(self.parts.items()):
            x = obs[key] if isinstance(obs, dict) else obs
            own = tuple(range(x.ndim - len(spec.shape), x.ndim))
            if jnp.issubdtype(x.dtype, jnp.floating):
                found = _first(found, ~jnp.isfinite(x).all(own), PARTS + 2 * k)
            if spec.sizes:
                sizes = np.array(spec.sizes) if spec.shape else spec.sizes[0]
                out = (x < spec.start) | (x >= spec.start + sizes)
                found = _first(found, out.any(own), PARTS + 2 * k + 1)
        if len(self._first):
            allowed = obs[MASK] != 0
            ends = (*self._first[1:], allowed.shape[-1])
            stuck = [~allowed[..., a:b].any(-1) for a, b in zip(self._first, ends, strict=True)]
            found = _first(found, jnp.stack(stuck).any(0) & ~jnp.asarray(terminated), CHOICE)
        return found

    def of_steps(self, obs: Tree, seen: Any) -> Array:
        """Return the codes of steps: negative for the observations acted upon (first observations
        of episodes), positive for the results."""
        after = _first(jnp.int16(0), ~jnp.isfinite(seen.reward), REWARD)
        then = self.of_observations(self.flatten(seen.obs), seen.terminated)
        after = jnp.where(after, after, then)
        before = self.of_observations(obs)
        return jnp.where(before, -before, after)

    def check(self, codes: Array, length: Array) -> None:
        """Raise an error for the first of the codes [..., N]; length: episode steps [..., N]."""
        if not codes.any():
            return
        at = tuple(np.argwhere(codes)[0])
        code, env = int(abs(codes[at])), int(at[-1])
        when = f"at step {int(length[at]) - int(codes[at] < 0)} of its episode"
        if code == REWARD:
            raise not_finite(self.name, env, "the reward", when, "NaN or infinity")
        if code == CHOICE:
            raise no_choice(self.name, env, when)
        key, spec = list(self.parts.items())[(code - PARTS) // 2]
        where = f" of {key!r}" if key else ""
        if (code - PARTS) % 2:
            raise no_symbol(self.name, env, when, f"{where.strip()} out of range".strip(), spec)
        raise not_finite(self.name, env, f"the observation{where}", when, "NaN or infinity")


def _first(found: Array, wrong: Array, code: int) -> Array:
    """Set `code` where `wrong` and nothing was found before."""
    return jnp.where((found == 0) & wrong, jnp.int16(code), found)
