"""A block of a compiled run, act, prepare and update, as a pure function; and calls of many blocks
at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tandem.compiled import moments
from tandem.compiled.arrays import from_arrays, to_arrays
from tandem.compiled.collecting import Acting, BlockEpisodes, Collecting, forwards
from tandem.compiled.generator import Keyed
from tandem.functional.protocol import FunctionalEnv
from tandem.spaces import observation_spec
from tandem.types import Array, Batch, Tree


class Carry(NamedTuple):
    """All that a block depends on, beside the variables' values and what the host says."""

    acting: Acting
    key: Array
    sound: Array  # bool  false from the first update on that was not finite: none is made any more
    kept: Tree  # what an algorithm learns from later ones with: a ring, statistics


class Report(NamedTuple):
    """Results of a block."""

    ended: BlockEpisodes
    metrics: Array  # [K, names]
    codes: Array  # int32 [K]: see keras_jax_traced.Updates


class BlockInputs(NamedTuple):
    """Inputs of several blocks that the host computes."""

    settings: dict[str, Array]  # [M, K] each
    progress: Array  # float32 [M, T]  of the run, at each step
    chance: Array  # bool [M]  whether actions are random


class Blocks(ABC):
    """An algorithm in N copies of an environment.

    `algorithm` is on a backend whose updates can be traced. learns: of some blocks, those that
    collect only, it is false: these are another compiled function. name: of the environment.
    """

    capacity = 256  # blocks in a call at most: so long are a report's arrays

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

    per_block: int  # updates in each

    @property
    def names(self) -> list[str]:
        """Of the metrics, once a block has been traced."""
        return list(self.updates.names)

    @abstractmethod
    def keeping(self, acting: Acting) -> Tree:
        """The initial state of what is kept between blocks."""

    @abstractmethod
    def block(
        self, learns: bool, values: list[Array], carry: Carry, inputs: BlockInputs
    ) -> tuple[list[Array], Carry, Report]:
        """One of them. `inputs` without its first axis."""

    def begin(self, seed: int) -> Carry:
        """The carry of a run's beginning."""

        # no two leaves may share an array: a call uses them up
        carry: Carry = jax.tree.map(jnp.copy, jax.jit(self.begun)(jax.random.key(seed)))
        return carry

    def begun(self, key: Array) -> Carry:
        """The same, to be traced."""
        first, key = jax.random.split(key)
        acting = self.collecting.begin(first)
        return Carry(acting, key, jnp.bool_(True), self.keeping(acting))

    @staticmethod
    def inputs(settings: dict[str, Array], progress: Array, chance: Array) -> BlockInputs:
        """See `BlockInputs`."""
        return BlockInputs(settings, progress, chance)

    def state(self, carry: Carry, whole: bool) -> tuple[dict[str, Array], dict[str, Array]]:
        """A carry as arrays: of what collects, and with `whole` of what is kept."""
        collected = to_arrays((carry.acting, carry.key), "acting")
        kept = to_arrays(carry.kept, "kept") if whole else {}
        return collected, kept | self.statistics(carry.kept)

    def statistics(self, kept: Tree) -> dict[str, Array]:
        """Those in `kept`, by the names that `normalization.state` gives them."""
        return {}

    @abstractmethod
    def taken(self, kept: Tree, arrays: dict[str, Array]) -> Tree:
        """`kept` with what another run saved of it."""

    def load(self, seed: int, collected: dict[str, Array], kept: dict[str, Array]) -> Carry:
        """The carry that `state` took apart."""
        like = jax.eval_shape(self.begun, jax.random.key(seed))
        acting, key = from_arrays((like.acting, like.key), "acting", collected)
        return Carry(acting, key, jnp.bool_(True), from_arrays(like.kept, "kept", kept))

    def run(self, carry: Carry, learns: bool, inputs: BlockInputs) -> tuple[Carry, Report]:
        """As many blocks as `inputs` has rows; the variables of the backend move. The report's
        arrays are NumPy's, [M, ...]. `carry` is used up."""
        count = len(inputs.chance)
        if learns not in self._calls:
            self._calls[learns] = jax.jit(
                partial(self.many, learns),
                donate_argnums=(0, 1),
                compiler_options=self.updates.options,
            )
        told = jax.tree.map(lambda x: padded(x, self.capacity), inputs)
        values, carry, report = self._calls[learns](
            self.updates.current(), carry, told, np.int32(count)
        )
        self.updates.assign(values)
        return carry, jax.tree.map(lambda x: np.asarray(x)[:count], report)

    def many(
        self, learns: bool, values: list[Array], carry: Carry, inputs: BlockInputs, count: Array
    ) -> Any:
        """`count` blocks: a loop of any length is one compiled function, so how many there are in a
        call changes no number."""

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
    """x [M, ...] with zeros behind, [length, ...]."""
    x = np.asarray(x)
    return np.concatenate([x, np.zeros((length - len(x), *x.shape[1:]), x.dtype)])


class Rollouts(Blocks):
    """Several epochs over each rollout, then it is gone: what `RolloutLearner` does."""

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
        """Of each update; () for all, whose order is nothing."""
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
        """Those of a block: what `Updates` gives. What an update does not measure is NaN."""
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
        """Statistics of (rewards, observations), () for none."""
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
        with self.updates.scope(values) as now:  # `prepare` moves statistics of values
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
    """Updates on transitions drawn from a ring of the latest ones: what `ReplayLearner` does."""

    def __init__(self, algorithm: Any, env: FunctionalEnv, name: str = "the environment") -> None:
        super().__init__(algorithm, env, name)
        s = self.settings
        # whole blocks, so that none is written around the end
        self.length = max(1, s.buffer_size // (self.steps * self.n)) * self.steps
        owed = s.updates_per_call
        self.per_block = owed if owed > 0 else self.steps * self.n

    def keeping(self, acting: Acting) -> Tree:
        """(the ring [length, N, ...], how many steps of each environment were ever written)."""
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
        # modulo, so that it never overflows; not below `length` once the ring is full
        written = jnp.where(written >= 2 * self.length, written - self.length, written)
        after = Carry(acting, key, sound, (ring, written))
        return values, after, Report(ended, metrics, codes)
