"""Functional environments to test with, right and wrong."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from tandem.functional import TimeStep

PAIR, TWO = spaces.Box(-9, 9, (2,), np.float32), spaces.Discrete(2)


class Drawn(NamedTuple):
    """A state with a key, which draws its numbers, and some that are not floats."""

    key: Any
    at: Any
    count: Any
    half: Any


class Walk:
    """A walk pushed by the action, which is its reward, and by chance; over beyond 2 or `limit`."""

    observation_space, action_space = PAIR, TWO

    def __init__(self, limit: int = 12, pool: int = 0) -> None:
        self.max_episode_steps = limit
        if pool:
            self.reset_pool = pool

    def reset(self, key: Any) -> Any:
        own, first = jax.random.split(key)
        at = jax.random.uniform(first, (2,), minval=-1.0, maxval=1.0)
        return Drawn(own, at, jnp.int32(0), jnp.bfloat16(0)), at

    def step(self, key: Any, state: Any, action: Any) -> TimeStep:
        own, drawn = jax.random.split(state.key)
        push = jnp.array([0.5, -0.5])[action]
        at = state.at + push + 0.1 * jax.random.normal(drawn, (2,))
        at += 0.1 * jax.random.normal(key, (2,))
        state = Drawn(own, at, state.count + 1, state.half + 1)
        over = jnp.abs(at).max() > 2
        return TimeStep(state, at, action.astype(jnp.float32), over, np.False_)


class Weak(Walk):
    """A state of Python's numbers, which give way to other types as long as they are that."""

    def reset(self, key: Any) -> Any:
        _, obs = super().reset(key)
        return {"at": obs, "third": 1 / 3}, obs

    def step(self, key: Any, state: Any, action: Any) -> TimeStep:
        third = state["third"] * jnp.bfloat16(1.01)
        at = state["at"] + jnp.asarray(third, jnp.float32) - 0.3 * action
        state = {"at": at, "third": jnp.asarray(third, jnp.float32)}
        return TimeStep(state, at, third, jnp.abs(at).max() > 2, np.False_)


class Doors(Walk):
    """Some of its four doors are shut, as a mask says; going through one of these is worth -1."""

    observation_space = spaces.Dict({"at": PAIR, "action_mask": spaces.MultiBinary(4)})
    action_space = spaces.Discrete(4)
    shut_all = 99  # steps after which no door is open

    def _shown(self, state: Any) -> Any:
        open_ = (jnp.arange(4) + state.count) % 3 > 0
        open_ &= state.count < self.shut_all
        return {"at": state.at, "action_mask": open_.astype(jnp.int8)}

    def reset(self, key: Any) -> Any:
        state, _ = super().reset(key)
        return state, self._shown(state)

    def step(self, key: Any, state: Any, action: Any) -> TimeStep:
        allowed = self._shown(state)["action_mask"][action] > 0
        one = super().step(key, state, action % 2)
        return one._replace(obs=self._shown(one.state), reward=jnp.where(allowed, 1.0, -1.0))


class Odd:
    """What `reset` and `step` give is what it is made with."""

    observation_space, action_space, max_episode_steps = PAIR, TWO, 9

    def __init__(
        self, state=None, after=None, obs=None, reward=1.0, terminated=False, **attributes
    ) -> None:
        self.begun = jnp.zeros(3) if state is None else state
        self.after = self.begun if after is None else after
        self.obs, self.reward, self.terminated = obs, reward, terminated
        vars(self).update(attributes)

    def reset(self, key: Any) -> Any:
        return self.begun, jnp.zeros(2) if self.obs is None else self.obs

    def step(self, key: Any, state: Any, action: Any) -> Any:
        obs = jnp.zeros(2) if self.obs is None else self.obs
        return TimeStep(
            self.after, obs, jnp.asarray(self.reward), jnp.asarray(self.terminated), np.False_
        )


class Broken(Walk):
    """From its third step on, what is seen, or paid, is no number."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def step(self, key: Any, state: Any, action: Any) -> TimeStep:
        one = super().step(key, state, action)
        broken = jnp.where(one.state.count >= 3, jnp.nan, 0.0)
        if self.what == "obs":
            return one._replace(obs=one.obs + broken)
        return one._replace(reward=one.reward + broken)
