"""Contracts of algorithms whose update rows are divided among devices, as functions that raise
AssertionError on violations:

    device_contracts.same_as_on_one(MyAlgorithm, Identity, "jax", rows=64, hidden=(16,))

The first call with several devices must precede the start of JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tandem.algorithms.base import Algorithm
from tandem.backends.backend import Outcome
from tandem.envs.factory import EnvLike
from tandem.learning.loop import Loop
from tandem.testing import contracts, fakes
from tandem.testing.contracts import Kind, Weights
from tandem.types import AnyArray, Array, Batch, tree_map

UPDATES = 20
GRADIENT = 1e-6  # tolerance of the first gradient, relative to its norm
# Tolerance of a trust-region step, which is computed by conjugate gradients. (After twenty steps,
# another order of the rows gives different weights too, since the line search may choose another
# length; a call of TRPO has one step.)
STEP = 1e-5
TIMES = 10  # tolerance of weights, relative to the effect of another order of the rows


class Side(NamedTuple):
    """Algorithm on a number of devices, with its initial weights."""

    loop: Loop
    run: Callable[[Batch], Outcome]
    first: dict[str, AnyArray]  # state with the initial weights

    def after(self, batch: Batch) -> tuple[Outcome, Weights]:
        """Return the outcome and weights of a call of updates from the initial weights."""
        self.loop.backend.load_state(self.first)
        return self.run(batch), contracts.weights(self.loop)


def sides(
    kind: Kind, env: EnvLike, framework: str, devices: int, **settings: Any
) -> tuple[Side, Side]:
    """Return the same algorithm on several devices and on one."""
    several = contracts.begin(kind, env, framework, devices=devices, **settings)
    one = contracts.begin(kind, env, framework, **settings)
    first = one.backend.state()

    def side(loop: Loop) -> Side:
        return Side(loop, loop.backend.compile(loop.algorithm.update), first)

    return side(several), side(one)


def same_as_on_one(
    kind: Kind, env: EnvLike, framework: str, *, rows: int, devices: int = 2, **settings: Any
) -> dict[str, float]:
    """Check that updates on made-up batches of `rows` rows equal those of one device.

    Metrics and priorities must agree up to rounding. Weights after 20 updates must agree within ten
    times the effect of another order of the rows on one device. Repeated updates must be
    bit-for-bit identical, and refused exactly if a row is not finite.

    Returns:
        The distance of the weights (`off`), and that caused by another order (`by_order`).
    """
    several, one = sides(kind, env, framework, devices, **settings)
    name, batch = (
        f"{kind.__name__} on {devices} devices",
        contracts.made_up(one.loop, UPDATES, rows),
    )
    (out, weights), (expected, there) = several.after(batch), one.after(batch)
    assert expected.applied == UPDATES, f"the batches are none to compare by: {expected}"
    assert out.applied == UPDATES, f"{name} made {out.applied} of {UPDATES} updates"
    contracts.agree(weights, several.after(batch)[1], f"{name}, twice")
    for n, x in expected.metrics.items():
        _near(out.metrics[n], x, f"{name}: {n}")
    if not isinstance(expected.priority, tuple):
        _near(out.priority, expected.priority, f"{name}: priorities")
    orders = [one.after(reordered(one.loop.algorithm, batch, seed))[1] for seed in range(3)]
    off, by_order = distance(weights, there), max(distance(x, there) for x in orders)
    assert by_order > 0 and off <= TIMES * by_order, (
        f"{name}: weights are off by {off:.1e}; another order of the rows does {by_order:.1e}"
    )
    wrong = batch._replace(**_poisoned(one.loop.algorithm, batch))
    refused, left = several.after(wrong)
    of_one, left_there = one.after(wrong)
    assert of_one.fault, "a row that is not finite was not noticed on one device"
    assert (refused.applied, refused.fault) == (of_one.applied, of_one.fault), (refused, of_one)
    assert distance(left, left_there) <= TIMES * by_order, f"{name}: weights before the refusal"
    return {"off": off, "by_order": by_order}


def first_gradients(
    kind: Kind, env: EnvLike, framework: str, *, rows: int, devices: int = 2, **settings: Any
) -> dict[str, float]:
    """Check that each optimizer's first gradient, or trust-region step, equals that of one device.
    Return the differences, relative to the norm."""
    loops = [
        contracts.begin(kind, env, framework, devices=n, gradients_only=True, **settings)
        for n in (devices, 1)
    ]
    found: list[dict[str, Array]] = []
    for loop in loops:
        algorithm, backend = loop.algorithm, loop.backend
        before = contracts.weights(loop)
        backend.compile(algorithm.update)(
            fakes.first(contracts.made_up(loops[1], UPDATES, rows), 1)
        )
        owned = contracts.optimizers(algorithm)
        found.append({o.name: o.recorded for o in owned})
        moved = {n: x - before[n] for n, x in contracts.weights(loop).items()}
        found[-1]["step"] = np.concatenate([x.reshape(-1) for x in moved.values()])
    off = {}
    for name, gradient in found[1].items():
        length = float(np.linalg.norm(gradient))
        if length:
            off[name] = float(np.linalg.norm(found[0][name] - gradient)) / length
            most = STEP if name == "step" else GRADIENT
            assert off[name] <= most, f"{kind.__name__}, {name}: off by {off[name]:.1e}"
    assert off, f"{kind.__name__} has no gradient to compare"
    return off


def resumes_on_one(
    kind: Kind,
    env: EnvLike,
    framework: str,
    *,
    updates: int = 10,
    devices: int = 2,
    **settings: Any,
) -> float:
    """Check that a run on several devices resumes on one as it would on several, up to rounding.
    Return the distance of the weights, relative to their norm."""
    several = contracts.begin(kind, env, framework, devices=devices, **settings)
    one = contracts.begin(kind, env, framework, **settings)
    contracts.train(several, updates)
    one.load_state(*contracts.copied(several.state()))
    target = several.learner.updates + 8
    for loop in (several, one):
        contracts.train(loop, target)
    weights, expected = contracts.weights(one), contracts.weights(several)
    off = distance(weights, expected) / distance(expected, {n: 0 * x for n, x in expected.items()})
    assert 0 <= off <= 1e-5, f"{kind.__name__}, resumed on one device: off by {off:.1e}"
    return off


def reordered(algorithm: Algorithm, batch: Batch, seed: int) -> Batch:
    """Return the same batches with their rows, or sequences, in another order."""
    steps = algorithm.settings.rollout + 1 if algorithm.needs == "sequences" else 1
    order = np.random.default_rng(seed).permutation(_rows(batch) // steps)

    def other(x: Array) -> Array:  # recurrent states have one row per sequence
        apart = x.reshape(len(x), -1, len(order), *x.shape[2:])
        return np.ascontiguousarray(apart[:, :, order]).reshape(x.shape)

    reordered: Batch = tree_map(other, batch._replace(settings={}))
    return reordered._replace(settings=batch.settings)


def distance(one: Weights, other: Weights) -> float:
    """Return the Euclidean distance of all weights."""
    return float(np.sqrt(sum(((one[n].astype(np.float64) - other[n]) ** 2).sum() for n in one)))


def _rows(batch: Batch) -> int:
    return int(batch.weight.shape[1])


def _poisoned(algorithm: Algorithm, batch: Batch) -> dict[str, Array]:
    """Return fields with NaN in the last weighted row of the fourth update."""
    if not isinstance(batch.reward, tuple):
        reward, last = batch.reward.copy(), -1
        if algorithm.needs == "sequences":  # their last steps have weight 0
            last -= _rows(batch) // (algorithm.settings.rollout + 1)
        reward.reshape(len(reward), -1)[3, last] = np.nan
        if "rewards" not in batch.extra:
            return {"reward": reward}
        own = batch.extra["rewards"].copy()  # per agent
        own.reshape(len(own), -1)[3, last] = np.nan
        return {"reward": reward, "extra": {**batch.extra, "rewards": own}}
    extra = {n: batch.extra[n].copy() for n in ("advantage", "return")}
    for x in extra.values():
        x.reshape(len(x), -1)[3, -1] = np.nan
    return {"extra": {**batch.extra, **extra}, "weight": np.ones_like(batch.weight)}


def _near(found: Array, expected: Array, what: str) -> None:
    known = ~np.isnan(expected)  # NaN: not measured in this update
    assert (~np.isnan(found) == known).all(), f"{what}: measured in other updates"
    off = (np.abs(found - expected) / np.maximum(1.0, np.abs(expected)))[known]
    assert (off <= 1e-5).all(), f"{what} is off by {off.max():.1e}"
