"""Adapters from functional environments of other libraries to `FunctionalEnv`. Libraries differ in
how they start new episodes, so the adapters use their functions for a single episode."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from tandem.envs.jax.protocol import TimeStep
from tandem.errors import SpaceError
from tandem.spaces import MASK, in_space
from tandem.types import Array, Tree

NO = np.False_
BRAX_LIMIT = 1000  # episode length in brax's own training, in steps


class Gymnasium:
    """Adapter for `gymnasium.experimental.functional.FuncEnv`: phys2d/*, tabular/*, custom ones.

    A Box action space of a single integer becomes Discrete. State entries whose shapes differ
    between step and reset but hold equally many numbers, such as a scalar and an array of one
    (tabular/CliffWalking-v0 of Gymnasium 1.4), get the shapes of the reset. Parameters are the
    environment's defaults, as in Gymnasium."""

    def __init__(self, env: Any, max_episode_steps: int = 0) -> None:
        self.inner, self.max_episode_steps = env, max_episode_steps
        self.observation_space = env.observation_space
        self.action_space = _counted(env.action_space)
        self._shape = env.action_space.shape
        self._picture: Any = None
        # the base class defines the method too, so check whether the class overrides it
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
    """Adapter for gymnax 1.x (https://github.com/RobertTLange/gymnax), whose environments truncate
    episodes themselves. params: the environment's parameters; None for its defaults."""

    max_episode_steps = 0

    def __init__(self, env: Any, params: Any = None) -> None:
        self.inner = env
        self.params = env.default_params if params is None else params
        self.observation_space = _space(env.observation_space(self.params))
        self.action_space = _space(env.action_space(self.params))

    def reset(self, key: Array) -> tuple[Tree, Tree]:
        obs, state = self.inner.reset_env(key, self.params)
        # convert Python numbers among its entries to arrays
        return jax.tree.map(jnp.asarray, state), in_space(self.observation_space, obs, _cast)

    def step(self, key: Array, state: Tree, action: Array) -> TimeStep:
        obs, after, reward, over, _ = self.inner.step_env(key, state, action, self.params)
        cut = self.inner.is_truncated(after, self.params)
        seen = in_space(self.observation_space, obs, _cast)
        after = jax.tree.map(_formed, after, state)
        return TimeStep(after, seen, _one(reward), _one(over).astype(bool), _one(cut).astype(bool))


class Brax:
    """Adapter for brax (https://github.com/google/brax) and MuJoCo Playground
    (https://playground.mujoco.org), which share an interface, without their wrappers.

    max_episode_steps: episode length in their training.
    reset_pool: number of initial states, since a reset costs as much as many steps."""

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
    """Adapter for a pgx game (https://github.com/sotetsuk/pgx) from one player's perspective, with
    a float32 observation and a mask of the valid moves.

    In two-player games the opponent moves at random, within `reset` and `step`, and the first
    player is sampled for each episode. The reward is the sum of the learner's rewards until its
    next turn, including those from the opponent's moves. Raises SpaceError for more than two
    players."""

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

        # a game that ends before the learner's first turn is not an episode: start another one
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
        """Let the opponent move until the learner's turn, or the end of the game. Also return the
        learner's rewards from these moves."""

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
    """Convert a Box of a single integer to a Discrete space; return others unchanged."""
    if not (isinstance(space, spaces.Box) and space.dtype.kind in "iu"):
        return space
    if math.prod(space.shape) != 1:
        return space
    low, high = int(space.low.item()), int(space.high.item())
    return spaces.Discrete(high - low + 1, start=low)


def _space(space: Any) -> spaces.Space:
    """Convert a gymnax space to a Gymnasium space."""
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
    """Convert an array to the dtype of its space, which gymnax does not always return."""
    dtype = jnp.int32 if isinstance(space, spaces.Discrete) else space.dtype
    return jnp.asarray(x).astype(dtype)


def _formed(x: Array, like: Array) -> Array:
    """Give a state entry its previous shape and dtype if the sizes match; otherwise return it
    unchanged, for `checks.check` to report."""
    x, like = jnp.asarray(x), jnp.asarray(like)
    if (x.dtype == like.dtype and x.shape == like.shape) or x.size != like.size:
        return x
    if not np.can_cast(x.dtype, like.dtype, "same_kind"):
        return x
    return x.reshape(like.shape).astype(like.dtype)


def _one(x: Array) -> Array:
    """Remove the axes of an array with a single element."""
    x = jnp.asarray(x)
    return x.reshape(()) if x.size == 1 else x
