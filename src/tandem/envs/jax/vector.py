"""Vector of N functional environments for the collector: NumPy arrays outside, one compiled call
per step of all environments inside."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tandem.envs.calls import UNSEALED
from tandem.envs.checks import check_finite, other_number, raising
from tandem.envs.jax.checks import check
from tandem.envs.jax.episodes import Episodes, StepResult, beginnings, move, renew
from tandem.envs.jax.host import processor
from tandem.envs.jax.protocol import FunctionalEnv
from tandem.envs.vector import Arrays, Environments, Step, episode_seed
from tandem.errors import ResumeError
from tandem.types import Array, JSONDict, Tree, tree_map
from tandem.vector_actions import restored, taken_space

NEVER = 2**31 - 1  # steps: limit of episodes that are never truncated
POOL = 2**31  # environment number for the pool's seed; no environment of a run has it
KEPT = 8  # number of environments whose compiled functions are cached


class Programs:
    """Compiled functions of an environment, for any number of copies. Episodes depend on their
    seeds: the reset uses fold_in(key(seed), 0), the t-th step fold_in(key(seed), t)."""

    def __init__(self, env: FunctionalEnv) -> None:
        self.env = env
        self.begin = jax.jit(partial(_begin, env))  # (seeds [N], pool) -> Episodes
        self.move = jax.jit(partial(_move, env))  # (seeds, Episodes, action, limit) -> ...
        self.renew = jax.jit(partial(_renew, env))  # (seeds, pool, Episodes, over [N]) -> Episodes
        self.pool = jax.jit(partial(_pool, env))  # (seed) -> (states, observations)


_kept: OrderedDict[int, Programs] = OrderedDict()


def programs(name: str, env: FunctionalEnv) -> Programs:
    """Return the compiled functions of an environment, which is checked on first use. Raises the
    errors of `check`."""
    if (found := _kept.get(id(env))) is None:  # cached entries hold `env`, so ids are unique
        check(name, env)
        _kept[id(env)] = found = Programs(env)
    _kept.move_to_end(id(env))
    if len(_kept) > KEPT:
        _kept.popitem(last=False)
    return found


def _keys(seeds: Array, t: Any) -> Array:
    return jax.vmap(lambda seed, t: jax.random.fold_in(jax.random.key(seed), t))(
        seeds, jnp.broadcast_to(jnp.asarray(t, jnp.int32), seeds.shape)
    )


def _begin(env: FunctionalEnv, seeds: Array, pool: Tree) -> Episodes:
    state, obs = beginnings(env, _keys(seeds, 0), pool)
    n = len(seeds)
    return _typed(Episodes(state, obs, jnp.zeros(n), jnp.zeros(n, jnp.int32)))


def _move(
    env: FunctionalEnv, seeds: Array, episodes: Episodes, action: Tree, limit: Array
) -> tuple[Episodes, StepResult]:
    return _typed(move(env, _keys(seeds, episodes.length + 1), episodes, action, limit))


def _renew(
    env: FunctionalEnv, seeds: Array, pool: Tree, episodes: Episodes, over: Array
) -> Episodes:
    begun = renew(env, _keys(seeds, 0), episodes._replace(pool=pool), over)
    return _typed(begun._replace(pool=()))


def _typed(tree: Any) -> Any:
    """Convert weakly typed values (Python numbers) to arrays with fixed dtypes, so that results
    stay the same after saving and loading."""
    return jax.tree.map(
        lambda x: x if _is_key(x) else jax.lax.convert_element_type(x, x.dtype), tree
    )


def _pool(env: FunctionalEnv, seed: Array) -> tuple[Tree, Tree]:
    size = env.reset_pool  # type: ignore[attr-defined]
    return _typed(beginnings(env, jax.random.split(jax.random.key(seed), size)))


class FunctionalVector(Environments):
    """N copies of a functional environment, stepped on the CPU.

    Args:
        name: Name of the environment, for messages.
        env: The functional environment.
        n: Number of copies.
        seed: Seed of the run. Episode k of environment i has `episode_seed(seed, first + i, k)`, so
            environments do not depend on their distribution among processes, and equal those of a
            `FunctionalView` reset with that seed.
        first: Number of the first environment.
        next_seed: Alternative to that rule; called with (i, k) when environment i begins its
            episode k.
        budget: Step limit per episode, in addition to the environment's; 0: none. `was_cut` tells
            which episodes it ended.
    """

    unsealed = UNSEALED

    def __init__(
        self,
        name: str,
        env: FunctionalEnv,
        n: int,
        seed: int = 0,
        first: int = 0,
        next_seed: Callable[[int, int], int] | None = None,
        budget: int = 0,
    ) -> None:
        self.functional = env
        self._programs = programs(name, env)
        super().__init__(name, n, env.observation_space, taken_space(env.action_space))
        self._restored = restored(self.action)
        self._seed = seed
        self._next_seed = next_seed or (
            lambda env, episode: episode_seed(seed, first + env, episode)
        )
        own = int(env.max_episode_steps)
        self._limit = min(own or NEVER, budget or NEVER)
        self._budget = budget if budget and budget < (own or NEVER) else NEVER
        self._seeds = np.zeros(n, np.uint32)  # of the running episodes
        self._numbers = [-1] * n
        self._pooled = bool(getattr(env, "reset_pool", 0))
        self._pool: Tree = ()
        self._now: Episodes | None = None
        self._cut = np.zeros(n, np.bool_)
        self._valid = np.ones(n, np.bool_)

    def reset(self) -> Tree:
        self._numbers = [-1] * self.n
        return self.restart()

    def restart(self) -> Tree:
        for i in range(self.n):
            self._begin(i)
        with self._computing(0):
            if self._pooled and not self._pool:
                seed = episode_seed(self._seed, POOL, 0)
                self._pool = self._programs.pool(np.uint32(seed))
            self._now = self._programs.begin(self._seeds, self._pool)
            obs = self._read(self._now.obs)
        self.check(obs, lambda i: _when(0))
        return obs

    def episodes(self) -> list[int]:
        return list(self._numbers)

    def skip(self, episodes: list[int]) -> None:
        self._numbers = (episodes + [-1] * self.n)[: self.n]

    def was_cut(self, i: int) -> bool:
        """Return true if the budget ended the episode of environment i in the last step."""
        return bool(self._cut[i])

    def step(self, actions: Array) -> Step:
        taken = self._restored(np.array(actions, self._dtype))
        with self._computing():
            after, outcome = self._programs.move(
                self._seeds, self._now, taken, np.int32(self._limit)
            )
            reward, terminated, last, length = map(
                np.array, (outcome.reward, outcome.terminated, outcome.last, outcome.length)
            )
            obs = self._read(after.obs)
        check_finite(self.name, "the reward", reward, lambda i: _when(length[i]))
        self.check(obs, lambda i: _when(length[i]), ~terminated)
        self._now, self._cut, final = after, last, list[tuple[int, Tree]]()
        ended = np.flatnonzero(last)
        if ended.size:
            self._cut = last & ~terminated & (length >= self._budget)
            final = [(i, tree_map(lambda x, i=i: x[i].copy(), obs)) for i in ended.tolist()]
            obs = self._renewed(last, length)
        return Step(obs, reward, terminated, last & ~terminated, self._valid.copy(), final)

    def state(self) -> tuple[JSONDict, Arrays]:
        now = self._now
        assert now is not None
        data = {"seeds": self._seeds.tolist(), "episodes": list(self._numbers)}
        arrays = {"lengths": np.array(now.length), "scores": np.array(now.score)}
        trees = {"state": now.state, "obs": now.obs} | (
            {"pool": self._pool} if self._pooled else {}
        )
        for name, tree in trees.items():
            arrays |= {f"{name}/{j}": x for j, x in enumerate(_saved(tree))}
        return data, arrays

    def load_state(self, data: JSONDict, arrays: Arrays) -> None:
        if "scores" not in arrays or "seeds" not in data:
            raise ResumeError(
                f"the saved state is not from functional environments of {self.name}.",
                "the run's original mode",
                "make them with mode='plain' (vectorization), or start a new run.",
            )
        if len(data["seeds"]) != self.n:
            raise other_number(len(data["seeds"]), self.n)
        with processor():
            like = jax.eval_shape(self._programs.begin, self._seeds, ())
            state, obs = (
                self._loaded(tree, name, arrays)
                for name, tree in (("state", like.state), ("obs", like.obs))
            )
            if self._pooled:
                pool = jax.eval_shape(self._programs.pool, np.uint32(0))
                self._pool = self._loaded(pool, "pool", arrays)
            score, length = (jnp.array(arrays[name]) for name in ("scores", "lengths"))
        self._now = Episodes(state, obs, score, length)
        self._seeds = np.array(data["seeds"], np.uint32)
        self._numbers = list(data["episodes"])

    def close(self) -> None:
        self._now = None

    def _begin(self, i: int) -> None:
        """Advance environment i to the number and seed of its next episode."""
        self._numbers[i] += 1
        self._seeds[i] = self._next_seed(i, self._numbers[i])

    @contextmanager
    def _computing(self, step: int | None = None) -> Iterator[None]:
        # from a callback of the environment, or out of memory
        with processor(), raising(self.name, step=step):
            yield

    def _renewed(self, last: Array, length: Array) -> Tree:
        """Start new episodes where `last` [N], and return the observations to continue with."""
        for i in np.flatnonzero(last).tolist():
            self._begin(i)
        with self._computing(0):
            self._now = self._programs.renew(self._seeds, self._pool, self._now, last)
            obs = self._read(self._now.obs)
        self.check(obs, lambda i: _when(0 if last[i] else length[i]))
        return obs

    def _read(self, seen: Tree) -> Tree:
        """Copy JAX observations [N, ...] to new NumPy arrays, as described by `observation`."""
        if not isinstance(self.observation, dict):
            return np.array(seen, self.observation.dtype)
        flat = self.flatten(seen)
        return {key: np.array(flat[key], spec.dtype) for key, spec in self.parts.items()}

    def _loaded(self, like: Tree, name: str, arrays: Arrays) -> Tree:
        """Build a tree with the structure of `like` from saved arrays."""
        leaves_, structure = jax.tree.flatten(like)
        saved = [arrays.get(f"{name}/{j}") for j in range(len(leaves_))]
        wrong = [
            f"{name}/{j}"
            for j, (x, leaf) in enumerate(zip(saved, leaves_, strict=True))
            if x is None or (x.shape, x.dtype) != _saved_form(leaf)
        ]
        if wrong or f"{name}/{len(leaves_)}" in arrays:
            raise ResumeError(
                f"the saved state does not match {self.name}: "
                f"{wrong[0] if wrong else 'it has more arrays'}.",
                "the run's original environment and package version",
                "resume with that one, or start a new run.",
            )
        return structure.unflatten(
            _restored_leaf(x, leaf) for x, leaf in zip(saved, leaves_, strict=True)
        )


def _when(step: int) -> str:
    return f"at step {int(step)} of its episode"


def _is_key(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jax.dtypes.prng_key))


def _saved(tree: Tree) -> list[Array]:
    """Return the leaves as NumPy arrays of built-in dtypes."""
    return [
        _plain(np.array(jax.random.key_data(x) if _is_key(x) else x)) for x in jax.tree.leaves(tree)
    ]


def _plain(x: Array) -> Array:
    # bfloat16 and similar dtypes are not built into NumPy
    return x if x.dtype.isbuiltin == 1 else x.view(f"u{x.dtype.itemsize}")


def _saved_form(leaf: Any) -> tuple[tuple[int, ...], Any]:
    if _is_key(leaf):
        data = jax.eval_shape(jax.random.key_data, leaf)
        return tuple(data.shape), np.dtype(data.dtype)
    return tuple(leaf.shape), _plain(np.empty(0, leaf.dtype)).dtype


def _restored_leaf(x: Array, leaf: Any) -> Any:
    if _is_key(leaf):
        impl: list[Any] = []  # only available from a value or a tracer
        jax.eval_shape(lambda key: impl.append(jax.random.key_impl(key)), leaf)
        return jax.random.wrap_key_data(jnp.array(x), impl=impl[0])
    return jnp.array(x.view(leaf.dtype))
