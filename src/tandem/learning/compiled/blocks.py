"""Blocks of a compiled run (acting, preparing and updating) as pure functions, and calls of many
blocks at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tandem.envs.jax.protocol import FunctionalEnv
from tandem.learning.compiled import moments
from tandem.learning.compiled.arrays import from_arrays, to_arrays
from tandem.learning.compiled.collecting import Acting, BlockEpisodes, Collecting, forwards
from tandem.learning.compiled.generator import Keyed
from tandem.spaces import observation_spec
from tandem.types import Array, Batch, Tree


class Carry(NamedTuple):
    """State that a block depends on, in addition to the variables' values and the host's inputs."""

    acting: Acting
    key: Array
    sound: Array  # bool  false from the first non-finite update, after which none is applied
    kept: Tree  # state for learning in later blocks: a replay ring, statistics


class Report(NamedTuple):
    """Results of a block."""

    ended: BlockEpisodes
    metrics: Array  # [K, names]
    codes: Array  # int32 [K]: see keras_jax_traced.Updates


class BlockInputs(NamedTuple):
    """Inputs of several blocks, computed by the host."""

    settings: dict[str, Array]  # [M, K] each
    progress: Array  # float32 [M, T]  of the run, at each step
    chance: Array  # bool [M]  true if actions are random


class Blocks(ABC):
    """Blocks of an algorithm in N copies of an environment.

    `algorithm` is on a backend whose updates can be traced. The argument `learns` is false for
    blocks that only collect, which are a separate compiled function. name: of the environment.
    """

    capacity = 256  # maximum number of blocks per call, and length of a report's arrays

    def __init__(self, algorithm: Any, env: FunctionalEnv, name: str = "the environment") -> None:
        self.name = name
        self.algorithm, self.backend, self.env = algorithm, algorithm.backend, env
        self.settings = s = algorithm.settings
        self.n, self.steps = s.envs, s.block
        self.updates = self.backend.traced(algorithm.update)
        self.collecting = Collecting(algorithm, env, s.envs, name)
        roles = tuple(dict.fromkeys((*algorithm.acting, *algorithm.preparing)))
        self.networks = forwards(self.backend, roles)
        rows = self.steps * self.n
        self.capacity = max(1, min(self.capacity, 2**20 // rows))
        self._calls: dict[bool, Callable[..., Any]] = {}

    per_block: int  # updates per block

    @property
    def names(self) -> list[str]:
        """Names of the metrics, available once a block has been traced."""
        return list(self.updates.names)

    @abstractmethod
    def keeping(self, acting: Acting) -> Tree:
        """Return the initial state of `Carry.kept`."""

    @abstractmethod
    def block(
        self, learns: bool, values: list[Array], carry: Carry, inputs: BlockInputs
    ) -> tuple[list[Array], Carry, Report]:
        """Execute one block. `inputs` lack their first axis."""

    def begin(self, seed: int) -> Carry:
        """Return the carry at the start of a run."""

        # leaves must not share arrays, since a call donates them
        carry: Carry = jax.tree.map(jnp.copy, jax.jit(self.begun)(jax.random.key(seed)))
        return carry

    def begun(self, key: Array) -> Carry:
        """Return the initial carry, for tracing."""
        first, key = jax.random.split(key)
        acting = self.collecting.begin(first)
        return Carry(acting, key, jnp.bool_(True), self.keeping(acting))

    @staticmethod
    def inputs(settings: dict[str, Array], progress: Array, chance: Array) -> BlockInputs:
        """See `BlockInputs`."""
        return BlockInputs(settings, progress, chance)

    def state(self, carry: Carry, whole: bool) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return a carry as arrays: collection state and, with `whole`, the kept state."""
        collected = to_arrays((carry.acting, carry.key), "acting")
        kept = to_arrays(carry.kept, "kept") if whole else {}
        return collected, kept | self.statistics(carry.kept)

    def statistics(self, kept: Tree) -> dict[str, Array]:
        """Return the statistics in `kept`, by their names in `normalization.state`."""
        return {}

    @abstractmethod
    def taken(self, kept: Tree, arrays: dict[str, Array]) -> Tree:
        """Return `kept` with the values saved by another run."""

    def load(self, seed: int, collected: dict[str, Array], kept: dict[str, Array]) -> Carry:
        """Rebuild the carry from the result of `state`."""
        like = jax.eval_shape(self.begun, jax.random.key(seed))
        acting, key = from_arrays((like.acting, like.key), "acting", collected)
        return Carry(acting, key, jnp.bool_(True), from_arrays(like.kept, "kept", kept))

    def run(self, carry: Carry, learns: bool, inputs: BlockInputs) -> tuple[Carry, Report]:
        """Execute one block per row of `inputs`, and update the backend's variables. The report
        holds NumPy arrays [M, ...]. `carry` is donated, and invalid afterwards."""
        count = len(inputs.chance)
        if learns not in self._calls:
            self._calls[learns] = self.updates.compiled(partial(self.many, learns), (0, 1))
        told = jax.tree.map(lambda x: padded(x, self.capacity), inputs)
        values, carry, report = self._calls[learns](
            self.updates.current(), carry, told, np.int32(count)
        )
        self.updates.assign(values)
        return carry, jax.tree.map(lambda x: np.asarray(x)[:count], report)

    def many(
        self, learns: bool, values: list[Array], carry: Carry, inputs: BlockInputs, count: Array
    ) -> Any:
        """Execute `count` blocks. Loops of all lengths share one compiled function, so the number
        of blocks per call does not change results."""

        def at(i: Array, tree: Tree) -> Tree:
            return jax.tree.map(lambda x: x[i], tree)

        def one(i: Array, state: Any) -> Any:
            values, carry, reports = state
            values, carry, report = self.block(learns, values, carry, at(i, inputs))
            put = jax.lax.dynamic_update_index_in_dim
            return values, carry, jax.tree.map(lambda x, new: put(x, new, i, 0), reports, report)

        shapes = jax.eval_shape(partial(self.block, learns), values, carry, at(0, inputs))[2]
        empty = jax.tree.map(lambda x: jnp.zeros((self.capacity, *x.shape), x.dtype), shapes)
        return jax.lax.fori_loop(0, count, one, (values, carry, empty))


def padded(x: Any, length: int) -> Any:
    """Pad x [M, ...] with zeros to [length, ...]."""
    x = np.asarray(x)
    return np.concatenate([x, np.zeros((length - len(x), *x.shape[1:]), x.dtype)])


class Rollouts(Blocks):
    """Blocks with several epochs over each rollout, which is then discarded, as `RolloutLearner`
    does."""

    def __init__(self, algorithm: Any, env: FunctionalEnv, name: str = "the environment") -> None:
        super().__init__(algorithm, env, name)
        s = self.settings
        self.rows = s.rollout * s.envs
        self.epochs, self.batch = s.epochs, s.batch_size or self.rows
        whole = algorithm.whole_update()
        self.first = self.backend.traced(whole) if whole else None
        self.batches = self.epochs * (self.rows // self.batch)
        self.per_block = self.batches + (1 if whole else 0)
        self._rewards: Any = moments.CompiledRewardStandard() if s.standardize_rewards else None
        if s.normalize_rewards:
            self._rewards = moments.CompiledRewardScale(s.envs, s.gamma)
        self._observations = None
        if s.normalize_observations:
            self._observations = moments.Observations(observation_spec(env.observation_space))

    def _rows(self, key: Array) -> Any:
        """Return the rows of each update; () for all rows, whose order does not matter."""
        if self.batch == self.rows:
            return ()
        shuffles = jax.random.split(key, self.epochs)
        rows = jax.vmap(lambda k: jax.random.permutation(k, self.rows))(shuffles)
        return rows.reshape(self.batches, self.batch)

    @property
    def names(self) -> list[str]:
        return [*(self.first.names if self.first else ()), *self.updates.names]

    def _updates(
        self, values: list[Array], data: Batch, settings: dict[str, Array], key: Array, sound: Any
    ) -> tuple[list[Array], Array, Array]:
        """Make the updates of a block, and return the result of `Updates`. Metrics that an update
        does not measure are NaN."""
        if self.first is None:
            made: tuple[list[Array], Array, Array] = self.updates(
                values, data, settings, self._rows(key), sound
            )
            return made
        first, rest = ({n: x[at] for n, x in settings.items()} for at in (slice(1), slice(1, None)))
        values, above, begun = self.first(values, data, first, (), sound)
        live = sound & (begun < 2).all()
        values, below, codes = self.updates(values, data, rest, self._rows(key), live)
        (m, k), (n, j) = above.shape, below.shape
        metrics = jnp.full((m + n, k + j), jnp.nan).at[:m, :k].set(above).at[m:, k:].set(below)
        return values, metrics, jnp.concatenate([begun, codes])

    def keeping(self, acting: Acting) -> Tree:
        """Return statistics of (rewards, observations), () for none."""
        rewards = self._rewards.begin() if self._rewards else ()
        return rewards, self._observations.begin() if self._observations else ()

    def _named(self, kept: Tree) -> dict[str, moments.Statistics]:
        rewards, seen = kept
        named = {f"observation/{key}": one for key, one in (seen or {}).items()}
        if self._rewards:
            is_scale = isinstance(self._rewards, moments.CompiledRewardScale)
            named["reward"] = rewards[0] if is_scale else rewards
        return named

    def statistics(self, kept: Tree) -> dict[str, Array]:
        named = self._named(kept).items()
        return {f"{n}/{part}": np.array(x) for n, s in named for part, x in s._asdict().items()}

    def taken(self, kept: Tree, arrays: dict[str, Array]) -> Tree:
        named = {
            n: moments.Statistics(
                *(jnp.asarray(arrays[f"{n}/{x}"], jnp.float32) for x in s._fields)
            )
            if f"{n}/mean" in arrays
            else s
            for n, s in self._named(kept).items()
        }
        rewards, seen = kept
        if self._rewards:
            is_scale = isinstance(self._rewards, moments.CompiledRewardScale)
            rewards = (named["reward"], rewards[1]) if is_scale else named["reward"]
        return rewards, {key: named[f"observation/{key}"] for key in seen} if seen else seen

    def block(
        self, learns: bool, values: list[Array], carry: Carry, inputs: BlockInputs
    ) -> tuple[list[Array], Carry, Report]:
        key, exploring, stepping, order = jax.random.split(carry.key, 4)
        with self.updates.scope(values) as now:  # `prepare` updates value statistics
            noise = self.collecting.noise(exploring, inputs.progress)
            acting, trajectory, ended = self.collecting.collect(
                self.networks, carry.acting, noise, stepping, ()
            )
            rewards, seen = carry.kept
            if self._rewards:
                rewards, trajectory = self._rewards(rewards, trajectory)
            data = self.algorithm.prepare(trajectory, self.networks)
            values = now()
        values, metrics, codes = self._updates(values, data, inputs.settings, order, carry.sound)
        sound = carry.sound & (codes < 2).all()
        if self._observations:
            seen = self._observations.add(seen, trajectory.obs)
            with self.updates.scope(values) as now:
                roles = self.networks
                self._observations.publish(seen, (self.backend.networks[r] for r in roles))
                values = now()
        after = Carry(acting, key, sound, (rewards, seen))
        return values, after, Report(ended, metrics, codes)


class Replay(Blocks):
    """Blocks with updates on transitions sampled from a ring of the latest ones, as `ReplayLearner`
    does."""

    def __init__(self, algorithm: Any, env: FunctionalEnv, name: str = "the environment") -> None:
        super().__init__(algorithm, env, name)
        s = self.settings
        # a multiple of the block length, so that no block wraps around the end
        self.length = max(1, s.buffer_size // (self.steps * self.n)) * self.steps
        owed = s.updates_per_call
        self.per_block = owed if owed > 0 else self.steps * self.n

    def keeping(self, acting: Acting) -> Tree:
        """Return (the ring [length, N, ...], the number of steps written per environment)."""
        lead = (self.length, self.n)
        obs = self.collecting.flatten(acting.episodes.obs)
        action = self.collecting.action
        kind = jnp.int32 if action.sizes else jnp.float32
        like = jax.tree.map(lambda x: jnp.zeros((self.length, *x.shape), x.dtype), obs)
        ring = {
            "obs": like,
            "next_obs": like,
            "action": jnp.zeros((*lead, *action.shape), kind),
            "reward": jnp.zeros(lead),
            "discount": jnp.zeros(lead),
        }
        return ring, jnp.int32(0)

    def taken(self, kept: Tree, arrays: dict[str, Array]) -> Tree:
        return from_arrays(kept, "kept", arrays)

    def block(
        self, learns: bool, values: list[Array], carry: Carry, inputs: BlockInputs
    ) -> tuple[list[Array], Carry, Report]:
        s, (ring, written) = self.settings, carry.kept
        key, exploring, random, stepping, drawing, learning = jax.random.split(carry.key, 6)
        with self.updates.scope(values):
            noise = self.collecting.noise(exploring, inputs.progress)
            by_chance = inputs.chance, self.collecting.chance(random)
            acting, t, ended = self.collecting.collect(
                self.networks, carry.acting, noise, stepping, by_chance
            )
        rows = {"obs": t.obs, "next_obs": t.cuts.obs, "action": t.action}
        rows |= {"reward": t.reward, "discount": t.discount}
        at = written % self.length
        ring = jax.tree.map(
            lambda r, x: jax.lax.dynamic_update_slice_in_dim(r, x.astype(r.dtype), at, 0),
            ring,
            rows,
        )
        written = written + self.steps
        shape, names = (self.per_block, s.batch_size), len(self.updates.names)
        if learns:
            filled = jnp.minimum(written, self.length) * self.n
            ids = jax.random.randint(drawing, shape, 0, filled)
            taken = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[ids], ring)
            noise = self.algorithm.loss_noise(Keyed(learning), shape)
            values, metrics, codes = self.updates(
                values, Batch(**taken, noise=noise), inputs.settings, None, carry.sound
            )
        else:
            metrics = jnp.zeros((self.per_block, names))
            codes = jnp.full(self.per_block, -1, jnp.int32)
        sound = carry.sound & (codes < 2).all()
        # reduced to avoid overflow, but never below `length` once the ring is full
        written = jnp.where(written >= 2 * self.length, written - self.length, written)
        after = Carry(acting, key, sound, (ring, written))
        return values, after, Report(ended, metrics, codes)
