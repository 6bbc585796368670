import json

import numpy as np
import pytest

from tandem.errors import MemoryBudgetError, NonFiniteError, ResumeError
from tandem.replay.sequences import SequenceBuffer
from tandem.spaces import Leaf
from tandem.types import Batch

OBS = Leaf("box", (2,), "float32", (), (-9.0,) * 2, (9.0,) * 2)
COLUMNS = dict.fromkeys(("reward", "discount", "weight"), ((), "float32"))
COLUMNS |= {"action": ((), "int64"), "last": ((), "bool"), "mu": ((3,), "float32")}
STEPS = 4


def buffer(capacity: int = 5, **options) -> SequenceBuffer:
    return SequenceBuffer(capacity, STEPS, OBS, COLUMNS, **options)


def sequences(*names: int) -> Batch:
    """One for each name, which is in all of its numbers."""
    n = np.array(names, np.float32) + np.linspace(0, 0.4, STEPS + 1, dtype=np.float32)[:, None]
    extra = {"last": n > np.inf, "mu": np.repeat(n[..., None], 3, -1)}
    return Batch(np.repeat(n[..., None], 2, -1), n.astype(np.int64), n, n, weight=n, extra=extra)


def names(x: Batch) -> list[int]:
    return [int(n) for n in x.reward[0]]


def filled(*given: int, **options) -> SequenceBuffer:
    made, rng = buffer(**options), np.random.default_rng(0)
    for name in given:
        made.add(sequences(name), rng)
    return made


def test_what_comes_out_is_what_went_in() -> None:
    made, rng = buffer(), np.random.default_rng(1)
    made.add(sequences(10, 20, 30), rng)
    drawn = made.draw(rng, 64, 0.4)
    assert len(made) == 3 and set(names(drawn.batch)) == {10, 20, 30}
    wanted = sequences(*names(drawn.batch))
    for got, x in zip(drawn.batch[:4], wanted[:4], strict=True):
        np.testing.assert_array_equal(got, x)
        assert got.dtype == x.dtype
    np.testing.assert_array_equal(drawn.batch.extra["mu"], wanted.extra["mu"])
    np.testing.assert_array_equal(drawn.importance, np.ones(64, np.float32))


def shares(made: SequenceBuffer, size: int) -> np.ndarray:
    slots = made.draw(np.random.default_rng(0), 10_000, 0.5).slots
    return np.bincount(slots, minlength=size) / 10_000


def test_prioritized_draws_in_proportion_and_weighs_by_hand() -> None:
    made = filled(1, 2, 3, 4, alpha=0.5)
    made.update(np.arange(4), np.array([1.0, 4.0, 9.0, 16.0]))
    # stratified: next to no spread
    np.testing.assert_allclose(shares(made, 4), [0.1, 0.2, 0.3, 0.4], atol=2e-4)
    drawn = made.draw(np.random.default_rng(0), 10_000, 0.5)
    weights = (1.0 / np.array([1.0, 2.0, 3.0, 4.0])[drawn.slots]) ** 0.5
    np.testing.assert_allclose(drawn.importance, weights, rtol=1e-5)
    made.add(sequences(5), np.random.default_rng(0))
    assert shares(made, 5)[4] == pytest.approx(4 / 14, abs=2e-3)  # as the largest so far


def test_the_oldest_or_those_of_low_priority_give_way_more_often() -> None:
    oldest = filled(*range(1, 8)).draw(np.random.default_rng(0), 200, 0.4)
    assert set(names(oldest.batch)) == {3, 4, 5, 6, 7}
    gone = np.zeros(5)
    for seed in range(500):
        made = filled(*range(5), alpha=1.0, evict="sample")
        made.update(np.arange(5), np.array([1.0, 1.0, 1.0, 1.0, 4.0]))
        made.add(sequences(9), np.random.default_rng(seed))
        left = names(made.draw(np.random.default_rng(0), 200, 1.0).batch)
        gone += [name not in left for name in range(5)]
    np.testing.assert_allclose(gone / 500, np.array([4, 4, 4, 4, 1]) / 17, atol=0.06)


@pytest.mark.parametrize("options", [{}, {"alpha": 0.6}, {"alpha": 0.6, "evict": "sample"}])
@pytest.mark.parametrize("count", [0, 3, 12])
def test_state_round_trip(options, count) -> None:
    made = filled(*range(count), **options)
    if count:
        made.update(np.arange(2), np.array([0.5, 3.0]))
    data, arrays = made.state()
    other = filled(50, 51, **options)
    other.load_state(data, {n: x.copy() for n, x in arrays.items()})
    for one in (made, other):
        one.add(sequences(70, 71), np.random.default_rng(3))
    draws = [one.draw(np.random.default_rng(4), 32, 0.7) for one in (made, other)]
    for part in zip(*((x.slots, x.importance, x.batch.obs) for x in draws), strict=True):
        np.testing.assert_array_equal(*part)


@pytest.mark.parametrize("options", [{}, {"alpha": 0.6}, {"alpha": 0.6, "evict": "sample"}])
def test_another_takes_over_what_one_kept_in_the_same_arrays(options) -> None:
    shared = {n: x.copy() for n, x in buffer(**options).arrays.items()}
    one, other = buffer(**options), buffer(**options)
    one.live_in(shared)
    rng = np.random.default_rng(0)
    one.add(sequences(*range(1, 8)), rng)
    one.update(np.array([0, 3]), np.array([0.1, 5.0]))
    left = json.loads(json.dumps(one.left()))
    other.live_in(shared)
    other.take_over(left)
    for n, x in one.state()[1].items():
        assert np.array_equal(other.state()[1][n], x), n
    assert one.state()[0] == other.state()[0]
    shared["writing"][0] = 2  # it ended in the middle of a sequence
    shared["column/reward"][:2, 2] = -1.0
    other.take_over(left)
    assert np.array_equal(shared["column/reward"][:, 2], shared["column/reward"][:, 1])
    assert shared["writing"][0] == -1


def test_what_is_refused() -> None:
    with pytest.raises(ResumeError, match="5 sequences of 4 steps"):
        buffer(6).load_state(*filled(1, 2).state())
    with pytest.raises(NonFiniteError, match="NaN or infinite"):
        filled(1, 2, alpha=0.6).update(np.array([0]), np.array([np.nan]))
    assert sum(x.nbytes for x in buffer().state()[1].values()) == 0  # nothing is allocated yet
    with pytest.raises(MemoryBudgetError, match="sequences of 4 steps needs"):
        buffer(10**12)


def test_pictures_of_stacks_are_kept_once_and_stacked_again() -> None:
    picture, rng = Leaf("box", (4, 6, 6), "uint8", stack=4), np.random.default_rng(5)
    shown = rng.integers(1, 256, (STEPS + 4, 3, 6, 6)).astype(np.uint8)  # none is all zeros
    stacks = np.stack([shown[i : i + STEPS + 1] for i in range(4)], 2)
    stacks[2:4, 1, :-1] = 0  # an episode of the second environment begins at its third step
    stacks[3, 1, -2] = shown[2 + 3, 1]
    stacks[4, 1, 0] = 0
    columns = {n: x for n, x in COLUMNS.items() if n in ("action", "reward", "discount", "weight")}
    made = SequenceBuffer(5, STEPS, {"eye": picture, "ear": OBS}, columns)
    plain = sequences(0, 1, 2)
    made.add(plain._replace(obs={"eye": stacks, "ear": plain.obs}, extra={}), rng)
    drawn = made.draw(rng, 30, 1.0)
    which = drawn.batch.reward[0].astype(int)
    np.testing.assert_array_equal(drawn.batch.obs["eye"], stacks[:, which])
    np.testing.assert_array_equal(drawn.batch.obs["ear"], plain.obs[:, which])
    large = [Leaf("box", (4, 84, 84), "uint8", stack=k) for k in (4, 0)]
    once, whole = (SequenceBuffer(100, 20, leaf, columns)._columns.values() for leaf in large)
    assert sum(x.nbytes for x in once) < 0.29 * sum(x.nbytes for x in whole)
    data, arrays = made.state()
    other = SequenceBuffer(5, STEPS, {"eye": picture, "ear": OBS}, columns)
    other.load_state(data, {n: x.copy() for n, x in arrays.items()})
    again = [one.draw(np.random.default_rng(1), 9, 1.0).batch.obs["eye"] for one in (made, other)]
    np.testing.assert_array_equal(*again)
