from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tandem.errors import NonFiniteError, ResumeError, SettingError
from tandem.learning.learner_state import stored
from tandem.replay.buffer import Ring
from tandem.replay.hindsight import DictGoals, Hindsight
from tandem.replay.resized import take_over
from tandem.replay.samplers import (
    DistinctSampler,
    PassSampler,
    PrioritizedSampler,
    Sampler,
    UniformSampler,
)
from tandem.replay.scored import ScoredSampler
from tandem.replay.triplets import TripletSampler
from tandem.spaces import Leaf
from tandem.types import Trajectory
from tests.replay.worlds import ACTION, block

OBS = Leaf("box", (1,), "float32")
BETA = np.ones(1)


def steps(count: int, envs: int = 1, invalid: Any = ()) -> Trajectory:
    valid = np.ones((count, envs), bool)
    for t, env in invalid:
        valid[t, env] = False
    obs = np.zeros((count + 1, envs, 1), np.float32)
    return block(obs[:-1], obs[-1], valid=valid)


def make(kind: str, capacity: int, envs: int = 1, **settings: Any) -> Sampler:
    ring = Ring(capacity, envs, OBS, ACTION)
    return UniformSampler(ring) if kind == "uniform" else PrioritizedSampler(ring, **settings)


def assert_frequencies(ids: np.ndarray[Any, Any], expected: dict[int, float]) -> None:
    """Chi-square: four standard deviations above its mean, about one in 10,000 by chance."""
    assert set(np.unique(ids)) == set(expected)
    rows, shares = np.array(list(expected)), np.array(list(expected.values()))
    counts = np.array([(ids == row).sum() for row in rows])
    wanted = ids.size * shares / shares.sum()
    chi_square, freedom = ((counts - wanted) ** 2 / wanted).sum(), len(rows) - 1
    assert chi_square < freedom + 4 * np.sqrt(2 * freedom), (counts, wanted)


@pytest.mark.parametrize("wrapped", [False, True])
def test_uniform_draws_all_valid_rows_alike(wrapped: bool) -> None:
    sampler = make("uniform", 20, envs=2)
    if wrapped:
        sampler.add(steps(13, 2))
    first = sampler.ring.time
    sampler.add(steps(10, 2, invalid=((0, 0), (4, 1), (5, 0), (9, 1))))
    valid = {2 * (first + t) + env for t in range(10) for env in (0, 1)}
    valid -= {2 * first, 2 * (first + 4) + 1, 2 * (first + 5), 2 * (first + 9) + 1}
    draw = sampler.draw(np.random.default_rng(0), 40, 500, BETA)
    assert draw.ids.shape == (40, 500) and draw.ids.dtype == np.int64 and draw.weight == ()
    assert_frequencies(draw.ids, dict.fromkeys(sorted(valid), 1.0))


def test_prioritized_draws_in_proportion() -> None:
    sampler = make("prioritized", 8, alpha=0.5, eps=1e-9)
    sampler.add(steps(5))
    sampler.add(steps(8, invalid=((2, 0),)))  # rows 5 to 12; row 7 may not be drawn
    priority = {5: 1.0, 6: 4.0, 8: 9.0, 9: 16.0, 10: 0.25, 11: -1.0, 12: 49.0}
    sampler.update(np.array([list(priority)]), np.array([list(priority.values())]))
    # Single draws: the strata of a larger batch would make the frequencies better than chance.
    ids = sampler.draw(np.random.default_rng(0), 20_000, 1, np.ones(20_000)).ids
    assert_frequencies(ids, {5: 1, 6: 2, 8: 3, 9: 4, 10: 0.5, 11: 1, 12: 7})


def filled(count: int, priorities: Any = (), **settings: Any) -> Sampler:
    """So many rows with these priorities, whose power is 1."""
    sampler = make("prioritized", count, **{"alpha": 1.0, "eps": 1e-12, **settings})
    sampler.add(steps(count))
    if len(priorities):
        sampler.update(np.arange(count)[None], np.array(priorities, float)[None])
    return sampler


def test_one_row_from_each_part_of_the_total_and_importance_weights_by_hand() -> None:
    ids = filled(4, [1, 1, 2, 4]).draw(np.random.default_rng(0), 200, 8, np.ones(200)).ids
    assert (np.sort(ids, axis=1) == [0, 1, 2, 2, 3, 3, 3, 3]).all()
    flat = filled(10, np.logspace(-3, 3, 10), alpha=0.0)
    draw = flat.draw(np.random.default_rng(0), 5000, 1, np.ones(5000))
    assert_frequencies(draw.ids, dict.fromkeys(range(10), 1.0))
    assert (draw.weight == 1).all()
    # N P = 1/2, 1, 2, 1/2: weights 2, 1, 1/2, 2, divided by 2, the largest of their batch
    betas = np.array([1.0, 0.5, 0.0])
    draw = filled(4, [1, 2, 4, 1]).draw(np.random.default_rng(0), 3, 8, betas)
    assert draw.weight.dtype == np.float32 and draw.weight.shape == (3, 8)
    by_row = np.array([2, 1, 0.5, 2]) / 2
    np.testing.assert_allclose(draw.weight, by_row[draw.ids] ** betas[:, None], rtol=1e-6)
    draw = filled(2, [1, 99]).draw(np.random.default_rng(1), 200, 1, np.ones(200))
    assert len(np.unique(draw.ids)) == 2 and (draw.weight == 1).all()


def test_of_several_priorities_the_last_wins_and_overwritten_rows_are_left_out() -> None:
    sampler = filled(4)
    sampler.add(steps(2))  # rows 0 and 1 give way to 4 and 5
    # Slots 0 to 4 hold rows 5 (where 0 was), none (what follows), 2, 3 and 4.
    for ids, priorities, expected in (
        ([[0, 1, 2], [1, 3, 1]], [[50, 50, 3], [50, 2, 50]], [1, 0, 3, 2, 1]),
        ([[2, 5], [5, 2], [2, 4]], [[9, 9], [7, 9], [5, 6]], [7, 0, 5, 2, 6]),
        ([[0, 1]], [[99, 99]], [7, 0, 5, 2, 6]),
    ):
        sampler.update(np.array(ids), np.array(priorities, float))
        np.testing.assert_allclose(sampler.state()[1]["priority"], expected)


def test_distinct_rows_come_in_proportion_and_leave_the_tree_as_it_was() -> None:
    """One row has nine tenths of the priority."""
    sampler = make("prioritized", 50, envs=2, alpha=1.0, distinct=True)
    sampler.add(steps(10, 2, invalid=((3, 1),)))
    valid = [i for i in range(20) if i != 7]
    sampler.update(np.array([valid]), np.array([[162.0 if i == 4 else 1.0 for i in valid]]))
    before = sampler._priorities.tree._nodes.copy()
    draw = sampler.draw(np.random.default_rng(0), 4000, 6, np.full(4000, 0.5))
    np.testing.assert_array_equal(sampler._priorities.tree._nodes, before)
    assert all(len(set(batch)) == 6 for batch in draw.ids.tolist())
    assert (draw.ids == 4).any(axis=1).all()
    assert_frequencies(draw.ids[draw.ids != 4], {i: 1.0 for i in valid if i != 4})
    np.testing.assert_allclose(draw.weight[draw.ids == 4], (1 / 162) ** 0.5, rtol=1e-4)
    assert (draw.weight[draw.ids != 4] == 1.0).all()
    whole = sampler.draw(np.random.default_rng(0), 3, 19, np.ones(3)).ids
    assert (np.sort(whole, 1) == valid).all()
    # more than there are: with repeats
    assert sampler.draw(np.random.default_rng(0), 3, 20, np.ones(3)).ids.shape == (3, 20)


def test_sequences_are_drawn_once_they_are_whole() -> None:
    """By their first rows, as the ring turns; with the largest priority when they come in."""
    rng = np.random.default_rng(0)
    sampler = make("prioritized", 20, envs=2, alpha=1.0, steps=4)
    ring, seen, sizes = sampler.ring, 0, set()
    for count in (2, 1, 1, 5, 3, 4, 1, 6, 25, 2):
        invalid = tuple((t, int(rng.integers(2))) for t in range(count) if rng.random() < 0.3)
        sampler.add(steps(count, 2, invalid))
        rows = np.arange(ring.oldest, ring.newest + 1 - 3 * 2)
        whole = rows[ring.valid.take(ring.position(rows))]
        assert sampler.ready(1) == bool(len(whole))
        if not len(whole):
            continue
        ids = sampler.draw(rng, 1, 400, BETA).ids
        assert set(ids.ravel()) == set(whole) and ring.contains(sampler.sequences(ids)).all()
        assert (np.diff(sampler.sequences(ids)) == 2).all()
        sampler.update(whole[None], np.full((1, len(whole)), 1.0))
        other = make("prioritized", 20, envs=2, alpha=1.0, steps=4)
        other.ring.load_state(*ring.state())
        other.load_state(*sampler.state())
        again = other.draw(np.random.default_rng(1), 1, 9, BETA).ids
        np.testing.assert_array_equal(again, sampler.draw(np.random.default_rng(1), 1, 9, BETA).ids)
        seen, sizes = seen + 1, sizes | {len(whole)}
    assert seen > 6 and len(sizes) > 3


def test_empty_rings_senseless_numbers_and_other_states_are_refused() -> None:
    sampler = make("prioritized", 4)
    sampler.add(steps(4, invalid=((3, 0),)))
    for bad in (np.nan, np.inf, -np.inf):
        with pytest.raises(NonFiniteError, match="1 of 3"):
            sampler.update(np.array([[0, 1, 2]]), np.array([[5.0, bad, 5.0]]))
    assert sampler.state()[1]["priority"].tolist() == [1, 1, 1, 0, 0]
    for sampler in (make("uniform", 4), make("prioritized", 4)):
        for _ in range(2):
            with pytest.raises(SettingError, match="nothing to sample"):
                sampler.draw(np.random.default_rng(0), 1, 1, BETA)
            sampler.add(steps(1, invalid=((0, 0),)))  # nor is one with only such rows any better
    for wrong in ({"alpha": -0.1}, {"eps": 0.0}, {"alpha": float("nan")}):
        with pytest.raises(SettingError):
            make("prioritized", 4, **wrong)
    with pytest.raises(ResumeError, match="the ring first"):
        make("prioritized", 10).load_state(*filled(5).state())


@pytest.mark.parametrize("writes", [[3], [1] * 30, [7, 0, 25, 1], [200, 2]])
def test_priorities_keep_to_their_rows_as_the_ring_turns(writes: list[int]) -> None:
    """Against a dict of row id -> priority; draws come only from the ring's valid rows."""
    rng = np.random.default_rng(7)
    sampler = make("prioritized", 30, envs=3, alpha=1.0, eps=1e-12)
    ring, plain, largest = sampler.ring, dict[int, float](), 1.0
    for count in writes:
        trajectory = steps(count, 3, tuple((t, int(rng.integers(3))) for t in range(0, count, 4)))
        first = ring.newest + 1
        sampler.add(trajectory)
        plain |= {first + i: largest for i, valid in enumerate(trajectory.valid.ravel()) if valid}
        plain = {i: p for i, p in plain.items() if ring.oldest <= i}
        assert len(ring) == len(plain)
        if rng.random() < 0.7:
            ids = sampler.draw(rng, 4, 5, np.ones(4)).ids
            assert set(ids.ravel().tolist()) <= set(plain)
            priority = rng.random((4, 5)) * 3
            sampler.update(ids, priority)
            plain |= dict(zip(ids.ravel().tolist(), priority.ravel().tolist(), strict=True))
            largest = max(largest, float(priority.max()))
    leaves = np.zeros(ring.slots * ring.envs)
    for i, p in plain.items():
        leaves[i % len(leaves)] = p
    found = sampler.state()[1]["priority"]
    np.testing.assert_allclose(found, leaves[: len(found)], rtol=1e-9)
    assert not leaves[len(found) :].any()


@pytest.mark.parametrize("before", [0, 6, 7, 8, 30])
@pytest.mark.parametrize("gone", [2, 5, None])
def test_what_is_forgotten_is_drawn_no_more(before: int, gone: int | None) -> None:
    """Wherever in the ring's arrays the forgotten rows lie: also where they go over the end."""
    sampler = make("prioritized", 10)
    sampler.add(steps(before))
    sampler.add(steps(9))
    sampler.forget(gone)
    sampler.add(steps(3))
    ring = sampler.ring
    ids = sampler.draw(np.random.default_rng(0), 20, 10, np.ones(20)).ids
    assert set(ids.ravel().tolist()) == set(range(ring.oldest, ring.newest + 1))
    assert np.count_nonzero(sampler.state()[1]["priority"]) == len(ring)


@pytest.mark.parametrize("kind", ["uniform", "prioritized"])
@pytest.mark.parametrize("count", [4, 57])
def test_state_round_trip(kind: str, count: int) -> None:
    """The restored sampler draws the same rows with the same weights, and goes on doing so."""
    rng = np.random.default_rng(1)
    sampler, other = make(kind, 40, envs=2), make(kind, 40, envs=2)
    sampler.add(steps(count, 2, invalid=((0, 0), (3, 1))))
    drawn = sampler.draw(rng, 3, 8, np.ones(3)).ids
    sampler.update(drawn, rng.normal(size=drawn.shape).astype(np.float32))
    sampler.add(steps(1, 2))  # not drawn from yet
    other.add(steps(9, 2))
    for one, into in ((sampler.ring, other.ring), (sampler, other)):
        meta, arrays = one.state()
        into.load_state(meta, {name: x.copy() for name, x in arrays.items()})
    given = 2, 16, np.array([0.4, 0.5])
    for turn in range(4):
        a, b = (s.draw(np.random.default_rng(turn), *given) for s in (sampler, other))
        assert a.ids.tobytes() == b.ids.tobytes()
        assert np.asarray(a.weight).tobytes() == np.asarray(b.weight).tobytes()
        priority = rng.random(a.ids.shape)
        for s in (sampler, other):
            s.update(a.ids, priority)
            s.add(steps(3, 2, invalid=((1, 1),)))


def test_writing_the_state_changes_no_draw() -> None:
    def run(save: bool) -> list[bytes]:
        sampler, rng, seen = make("prioritized", 10), np.random.default_rng(0), []
        for _ in range(20):
            sampler.add(steps(1))
            if save:
                sampler.state()
            draw = sampler.draw(rng, 2, 4, np.ones(2))
            sampler.update(draw.ids, rng.random((2, 4)))
            seen.append(draw.ids.tobytes() + draw.weight.tobytes())
        return seen

    assert run(True) == run(False)


N = 3  # environments, some of which let rows go


def step(t: int, invalid: Sequence[int] = (), last: Sequence[int] = ()) -> Trajectory:
    """A step of three environments; what is observed and rewarded is the row's id."""
    ids = np.arange(t * N, t * N + N, dtype=np.float32)[None]
    valid, ended = np.ones((1, N), bool), np.zeros((1, N), bool)
    valid[0, list(invalid)] = False
    ended[0, list(last)] = True
    after = ids.reshape(N, 1) + N
    return block(ids[..., None], after, ids, np.where(ended, 0.0, 0.5), ended, valid)


def samplers_of(ring: Ring) -> list[Any]:
    kinds: list[Any] = [UniformSampler, DistinctSampler, PassSampler, PrioritizedSampler]
    return [*(kind(ring) for kind in kinds), ScoredSampler(ring, {"TD": 1.0})]


@pytest.mark.parametrize("kind", range(5))
@pytest.mark.parametrize("seed", range(4))
def test_rows_draws_and_priorities_are_the_references(kind: int, seed: int) -> None:
    rng, ring = np.random.default_rng(seed), Ring(8 * N, N, OBS, ACTION)
    sampler, kept, ever = samplers_of(ring)[kind], list[int](), list[int]()
    for t in range(40):
        invalid = list(np.flatnonzero(rng.random(N) < 0.1))
        sampler.add(step(t, invalid))
        kept += [t * N + e for e in range(N) if e not in invalid]
        ever += kept[len(kept) - N + len(invalid) :]
        kept = [i for i in kept if i >= (t - 7) * N]
        if rng.random() < 0.5:
            count, envs = int(rng.integers(8)), [None, [0], [1, 2]][rng.integers(3)]
            gone = [i for i in kept if envs is None or i % N in envs][:count]
            kept = [i for i in kept if i not in gone]
            sampler.forget_rows(count, envs)
        assert ring.rows().tolist() == kept and len(ring) == len(kept)
        assert ring.rows([1]).tolist() == [i for i in kept if i % N == 1]
        if kept:
            drawn = set(sampler.draw(np.random.default_rng(t), 1, 200, BETA).ids.ravel().tolist())
            assert drawn == set(kept) if kind <= 2 else drawn <= set(kept)
            error = (rng.random(len(kept)) + 0.1)[None].astype(np.float32)
            # also of rows that have gone since they were drawn: they do not come back
            ids = np.array([ever + kept])
            both = np.concatenate([np.ones((1, len(ever)), np.float32), error], 1)
            sampler.update(ids, {"TD": both} if kind == 4 else both)
        if kind >= 3:
            assert len(sampler.powers()) == len(kept)
            if kept:
                expected = (error[0] + sampler._priorities.eps) ** sampler._priorities.alpha
                np.testing.assert_allclose(sampler.powers(), expected, rtol=1e-6)
                mine = [x for i, x in zip(kept, expected, strict=True) if i % N == 2]
                np.testing.assert_allclose(sampler.powers([2]), mine, rtol=1e-6)
        if kind == 4 and kept:
            np.testing.assert_allclose(sampler.term("TD"), error[0])


def test_n_step_windows_of_what_is_left_are_whole_and_files_without_floors_load() -> None:
    ring = Ring(10 * N, N, OBS, ACTION)
    for t in range(6):
        ring.add(step(t))
    ring.forget_rows(4, [1])
    assert ring.floors.tolist() == [0, 4, 0]
    batch = ring.transitions(np.array([13, 0]), 2)
    np.testing.assert_array_equal(batch.reward, [13 + 0.5 * 16, 0 + 0.5 * 3])
    assert ring.contains(np.array([10, 13])).tolist() == [False, True]
    with pytest.raises(SettingError, match="fewer for some environments"):
        ring.transitions(np.array([10]))
    ring = Ring(8 * N, N, OBS, ACTION)
    ring.add(step(0))
    meta, arrays = ring.state()
    del meta["floors"]
    ring.forget_rows(2)
    valid = np.array([[True] * N, [False] * N])
    ring.load_state(meta, {n: x.copy() for n, x in arrays.items()} | {"valid": valid})
    assert ring.floors.tolist() == [0, 0, 0] and len(ring) == 3


def test_goals_and_triplets_come_from_what_is_left() -> None:
    ring = Ring(20 * N, N, OBS, ACTION)
    hindsight = Hindsight(ring, DictGoals(lambda *_: 0.0), k=None, strategy="episode")
    draws = TripletSampler(ring)
    for t in range(12):
        ring.add(step(t, last=[0, 1, 2] if t == 9 else []))
    assert hindsight.episodes.bounds(np.array([7 * N + 1]))[0] == 1  # looked at before they go
    draws.forget_rows(5, [1])
    rng = np.random.default_rng(0)
    source, _ = hindsight.sources(rng, np.full(300, 7 * N + 1))
    assert set(source.tolist()) == {t * N + 1 for t in range(5, 9)}
    seen = draws.draw(rng, 1, 400, BETA).ids[0]
    assert seen[seen % N == 1].min() == 5 * N + 1 and seen[seen % N == 0].min() == 0


@pytest.mark.parametrize("kind", [1, 4])
@pytest.mark.parametrize(("before", "after"), [(8, 8), (8, 5), (5, 8)])
def test_a_checkpoint_goes_into_a_ring_of_another_length(kind, before, after) -> None:
    one, other = Ring(before * N, N, OBS, ACTION), Ring(after * N, N, OBS, ACTION)
    sampler, again = samplers_of(one)[kind], samplers_of(other)[kind]
    for t in range(13):
        sampler.add(step(t))
        if kind == 4 and t > 3:
            ids = one.rows()[None]
            sampler.update(ids, {"TD": ids.astype(np.float32)})
    sampler.forget_rows(4, [0, 2])
    data, arrays = stored(one, sampler)
    take_over(other, again, 0.5, data, arrays)
    kept = [i for i in one.rows().tolist() if i >= (13 - after) * N]
    assert other.rows().tolist() == kept
    for t in range(13, 22):
        for s in (sampler, again):
            s.add(step(t))
        same = [i for i in one.rows().tolist() if i in set(other.rows().tolist())]
        seen = [ring.transitions(np.array(same)).obs for ring in (one, other)]
        np.testing.assert_array_equal(*seen)
        if before == after:
            given = 2, 4, np.ones(2)
            draws = [s.draw(np.random.default_rng(t), *given).ids for s in (sampler, again)]
            np.testing.assert_array_equal(*draws)
    assert len(other) == after * N
    if kind == 4:
        np.testing.assert_array_equal(again.powers()[-6:], sampler.powers()[-6:])
