"""Functional environments of other libraries as `FunctionalEnv`s. Each library begins new episodes
in a way of its own; adapters go below that, to the functions of one episode."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from tandem.errors import SpaceError
from tandem.functional.protocol import TimeStep
from tandem.spaces import MASK, in_space
from tandem.types import Array, Tree

NO = np.False_
BRAX_LIMIT = 1000  # steps, as brax's own training cuts episodes


class Gymnasium:
    """A `gymnasium.experimental.functional.FuncEnv`: phys2d/*, tabular/*, and users' own.

    An action space that is a Box of one whole number becomes a Discrete one. A state whose entries
    have other shapes after a step than after a reset, of as many numbers, as a scalar and an array
    of one (tabular/CliffWalking-v0 of Gymnasium 1.4), is given those of the reset. Parameters are
    the environment's own, as Gymnasium steps it."""

    def __init__(self, env: Any, max_episode_steps: int = 0) -> None:
        self.inner, self.max_episode_steps = env, max_episode_steps
        self.observation_space = env.observation_space
        self.action_space = _counted(env.action_space)
        self._shape = env.action_space.shape
        self._picture: Any = None
        # asked of the class: an object that does not draw has the base's method too
        if type(env).render_image.__qualname__.split(".")[0] != "FuncEnv":
            self.render = self._render
            self.render_fps = (getattr(env, "metadata", None) or {}).get("render_fps", 30)

    def reset(self, key: Array) -> tuple[Tree, Tree]:
        first, seeing = jax.random.split(key)
        state = self.inner.initial(first)
        return state, self.inner.observation(state, seeing)

    def step(self, key: Array, state: Tree, action: Array) -> TimeStep:
        moving, seeing = jax.random.split(key)
        action = (
            action if jnp.ndim(action) == len(self._shape) else jnp.reshape(action, self._shape)
        )
        after = self.inner.transition(state, action, moving)
        obs = self.inner.observation(after, seeing)
        reward = self.inner.reward(state, action, after, moving)
        over = self.inner.terminal(after, seeing)
        return TimeStep(
            jax.tree.map(_formed, after, state), obs, _one(reward), _one(over).astype(bool), NO
        )

    def _render(self, state: Tree) -> Array:
        if self._picture is None:
            self._picture = self.inner.render_init()
        self._picture, image = self.inner.render_image(state, self._picture)
        return np.asarray(image, np.uint8)


class Gymnax:
    """An environment of gymnax 1.x (https://github.com/RobertTLange/gymnax), which cuts its
    episodes itself. params: its parameters; None for the environment's own."""

    max_episode_steps = 0

    def __init__(self, env: Any, params: Any = None) -> None:
        self.inner = env
        self.params = env.default_params if params is None else params
        self.observation_space = _space(env.observation_space(self.params))
        self.action_space = _space(env.action_space(self.params))

    def reset(self, key: Array) -> tuple[Tree, Tree]:
        obs, state = self.inner.reset_env(key, self.params)
        # numbers of Python among its entries become arrays
        return jax.tree.map(jnp.asarray, state), in_space(self.observation_space, obs, _cast)

    def step(self, key: Array, state: Tree, action: Array) -> TimeStep:
        obs, after, reward, over, _ = self.inner.step_env(key, state, action, self.params)
        cut = self.inner.is_truncated(after, self.params)
        seen = in_space(self.observation_space, obs, _cast)
        after = jax.tree.map(_formed, after, state)
        return TimeStep(after, seen, _one(reward), _one(over).astype(bool), _one(cut).astype(bool))


class Brax:
    """An environment of brax (https://github.com/google/brax) or of MuJoCo Playground
    (https://playground.mujoco.org), which have one interface, without their wrappers.

    max_episode_steps: as their training cuts episodes.
    reset_pool: how many beginnings there are, since a reset costs as much as many steps."""

    def __init__(
        self, env: Any, max_episode_steps: int = BRAX_LIMIT, reset_pool: int = 128
    ) -> None:
        self.inner, self.max_episode_steps, self.reset_pool = env, max_episode_steps, reset_pool
        sizes = env.observation_size
        parts = {
            key: spaces.Box(-np.inf, np.inf, (n,) if isinstance(n, int) else tuple(n), np.float32)
            for key, n in (sizes.items() if isinstance(sizes, dict) else [("", sizes)])
        }
        self.observation_space = parts[""] if "" in parts else spaces.Dict(parts)
        self.action_space = spaces.Box(-1.0, 1.0, (int(env.action_size),), np.float32)

    def reset(self, key: Array) -> tuple[Tree, Tree]:
        state = self.inner.reset(key)
        return state, state.obs

    def step(self, key: Array, state: Tree, action: Array) -> TimeStep:
        after = self.inner.step(state, action)
        return TimeStep(after, after.obs, after.reward, after.done > 0, NO)


class Pgx:
    """A game of pgx (https://github.com/sotetsuk/pgx) as one player sees it: its observation, in
    float32, beside the mask of the moves that there are.

    Of two players the other one moves at random, within `reset` and `step`; who begins is drawn for
    each episode. The reward is the sum of what the learner is paid until its next turn, whoever's
    move brings it. Raises SpaceError for more than two players."""

    max_episode_steps = 0

    def __init__(self, env: Any) -> None:
        if env.num_players > 2:
            raise SpaceError(
                f"{env.id} has {env.num_players} players.",
                "a game of one or two players",
                "use another game, or play the others in a custom environment.",
            )
        self.inner, self._two = env, env.num_players == 2
        shape = tuple(env.observation_shape)
        self.observation_space = spaces.Dict(
            {
                "obs": spaces.Box(-np.inf, np.inf, shape, np.float32),
                MASK: spaces.MultiBinary(int(env.num_actions)),
            }
        )
        self.action_space = spaces.Discrete(int(env.num_actions))

    def reset(self, key: Array) -> tuple[Tree, Tree]:
        if not self._two:
            state = self.inner.init(key)
            return state, self._seen(state)

        def begun(now: tuple[Array, Array, Tree]) -> tuple[Array, Array, Tree]:
            key, first, side, others = jax.random.split(now[0], 4)
            me = jax.random.randint(side, (), 0, 2)
            state, _ = self._opponent_moves(others, self.inner.init(first), me)
            return key, state.terminated | state.truncated, (me, state)

        # a game that is over before the learner's first turn is no episode: another one is begun
        none = jnp.int32(0), self.inner.init(key)
        _, _, kept = jax.lax.while_loop(lambda now: now[1], begun, (key, jnp.bool_(True), none))
        return kept, self._seen(kept[1])

    def step(self, key: Array, state: Tree, action: Array) -> TimeStep:
        moving, others = jax.random.split(key)
        if not self._two:
            after = self.inner.step(state, action, moving)
            kept, reward = after, after.rewards[0]
        else:
            me, before = state
            mine = self.inner.step(before, action, moving)
            after, more = self._opponent_moves(others, mine, me)
            kept, reward = (me, after), mine.rewards[me] + more
        over = after.terminated
        return TimeStep(kept, self._seen(after), reward, over, after.truncated & ~over)

    def _opponent_moves(self, key: Array, state: Tree, me: Array) -> tuple[Tree, Array]:
        """Lets the other player move until it is the learner's turn, or the game is over. Returns
        also what the learner was paid meanwhile."""

        def others_turn(now: tuple[Tree, Array, Array]) -> Array:
            state = now[1]
            return (state.current_player != me) & ~(state.terminated | state.truncated)

        def moved(now: tuple[Tree, Array, Array]) -> tuple[Tree, Array, Array]:
            key, state, paid = now
            key, choosing, moving = jax.random.split(key, 3)
            weights = jnp.where(state.legal_action_mask, 0.0, -jnp.inf)
            after = self.inner.step(state, jax.random.categorical(choosing, weights), moving)
            return key, after, paid + after.rewards[me]

        paid = jnp.zeros((), state.rewards.dtype)
        _, state, paid = jax.lax.while_loop(others_turn, moved, (key, state, paid))
        return state, paid

    def _seen(self, state: Tree) -> Tree:
        return {
            "obs": jnp.asarray(state.observation, jnp.float32),
            MASK: state.legal_action_mask.astype(jnp.int8),
        }


def _counted(space: spaces.Space) -> spaces.Space:
    """A Discrete space for a Box of one whole number; others as they are."""
    if not (isinstance(space, spaces.Box) and space.dtype.kind in "iu"):
        return space
    if math.prod(space.shape) != 1:
        return space
    low, high = int(space.low.item()), int(space.high.item())
    return spaces.Discrete(high - low + 1, start=low)


def _space(space: Any) -> spaces.Space:
    """Gymnasium's space for one of gymnax's."""
    if hasattr(space, "n"):
        return spaces.Discrete(int(space.n))
    if isinstance(inner := getattr(space, "spaces", None), dict):
        return spaces.Dict({key: _space(part) for key, part in inner.items()})
    if inner is not None:
        return spaces.Tuple([_space(part) for part in inner])
    dtype = np.dtype(space.dtype)
    dtype = np.dtype(np.int8) if dtype == np.bool_ else dtype
    low, high = (
        np.broadcast_to(np.asarray(x, dtype), space.shape) for x in (space.low, space.high)
    )
    return spaces.Box(low, high, tuple(space.shape), dtype.type)


def _cast(space: spaces.Space, x: Array) -> Array:
    """An array in the dtype of its space, which gymnax does not always keep to."""
    dtype = jnp.int32 if isinstance(space, spaces.Discrete) else space.dtype
    return jnp.asarray(x).astype(dtype)


def _formed(x: Array, like: Array) -> Array:
    """An entry of a state with the shape and dtype that it had before, where it has as many
    numbers; else as it is, for `checks.check` to tell."""
    x, like = jnp.asarray(x), jnp.asarray(like)
    if (x.dtype == like.dtype and x.shape == like.shape) or x.size != like.size:
        return x
    if not np.can_cast(x.dtype, like.dtype, "same_kind"):
        return x
    return x.reshape(like.shape).astype(like.dtype)


def _one(x: Array) -> Array:
    """A number, or an array of one, without axes."""
    x = jnp.asarray(x)
    return x.reshape(()) if x.size == 1 else x
