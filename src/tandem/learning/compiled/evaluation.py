"""Evaluation on the device: whole episodes of functional environments in parallel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tandem.learning.collect.evaluation import EvaluationStopped, Played
from tandem.learning.compiled.collecting import Acting, Collecting
from tandem.networks.plan import Weights
from tandem.types import Array

LANES = 10  # maximum number of parallel episodes
STEPS = 1_000  # steps per call; evaluations can be stopped between calls


class Lanes(NamedTuple):
    """Parallel episodes, one in each of E environments."""

    acting: Acting
    key: Array
    done: Array  # bool [E]
    score: Array  # float32 [E]
    length: Array  # int32 [E]
    cut: Array  # bool [E]  the budget ended it
    faults: Array  # int16 [E]  fault codes of the environment, at step `length`


class CompiledEvaluator:
    """Evaluator of the deterministic policy, with given weights."""

    def __init__(self, blocks: Any, episodes: int) -> None:
        """episodes: typical number per evaluation, which sets the number of parallel episodes; more
        are played in several rounds."""
        self._updates, self._networks = blocks.updates, blocks.backend.networks
        self._roles, self._forwards = blocks.algorithm.acting, blocks.networks
        self.lanes = max(1, min(LANES, episodes))
        self._collecting = Collecting(blocks.algorithm, blocks.env, self.lanes, blocks.name)
        self._begin = jax.jit(self.begun)
        self._go = jax.jit(self.played, donate_argnums=1)

    def __call__(
        self,
        weights: dict[str, Weights],
        episodes: int,
        seed: int,
        max_steps: int,
        stopped: Callable[[], bool],
    ) -> Played:
        """See `collect.evaluation.evaluate`; weights: of the acting roles."""
        values = self.values(weights)
        found = Played([], [], [], 0)
        for number in range(-(-episodes // self.lanes)):
            key = jax.random.fold_in(jax.random.key(seed), number)
            lanes = jax.tree.map(jnp.copy, self._begin(key))
            while not np.asarray(lanes.done).all():
                if stopped():
                    raise EvaluationStopped
                lanes = self._go(values, lanes, np.int32(max_steps))
            self._collecting.faults.check(np.asarray(lanes.faults), np.asarray(lanes.length))
            found = with_more(found, lanes.score, lanes.length, lanes.cut, episodes)
        return found

    def values(self, weights: dict[str, Weights]) -> list[Array]:
        """Return the variables' values, with these weights in the acting networks."""
        values: list[Array] = self._updates.current()
        places = {id(v): i for i, v in enumerate(self._updates.variables)}
        for role in self._roles:
            for variable, x in self._networks[role].pairs(weights[role]):
                values[places[id(variable)]] = jnp.asarray(x)
        return values

    def begun(self, key: Array) -> Lanes:
        """Return the state before the first step."""
        first, key = jax.random.split(key)
        acting, n = self._collecting.begin(first), self.lanes
        no, zero = jnp.zeros(n, bool), jnp.zeros(n)
        return Lanes(acting, key, no, zero, jnp.zeros(n, jnp.int32), no, jnp.zeros(n, jnp.int16))

    def played(self, values: list[Array], lanes: Lanes, max_steps: Array) -> Lanes:
        """Play up to STEPS more steps."""

        def goes_on(state: tuple[Array, Lanes]) -> Array:
            return (state[0] < STEPS) & ~state[1].done.all()

        def step(state: tuple[Array, Lanes]) -> tuple[Array, Lanes]:
            t, now = state
            key, one = jax.random.split(now.key)
            acting, seen, faults = self._collecting.best(self._forwards, now.acting, one)
            cut = (seen.length >= max_steps) & ~seen.last
            faults = jnp.where(now.done, now.faults, faults)
            ends = (seen.last | cut | (faults != 0)) & ~now.done
            after = Lanes(
                acting,
                key,
                now.done | ends,
                jnp.where(ends, seen.score, now.score),
                jnp.where(ends, seen.length, now.length),
                jnp.where(ends, cut, now.cut),
                faults,
            )
            return t + 1, after

        with self._updates.scope(values):
            return jax.lax.while_loop(goes_on, step, (jnp.int32(0), lanes))[1]


def with_more(found: Played, score: Array, length: Array, cut: Array, episodes: int) -> Played:
    """Append the lanes' results, [E] each, up to a total number of episodes."""
    left = min(len(score), episodes - len(found.returns))
    return Played(
        found.returns + np.asarray(score)[:left].astype(float).tolist(),
        found.lengths + np.asarray(length)[:left].tolist(),
        [],
        found.cut + int(np.asarray(cut)[:left].sum()),
    )
