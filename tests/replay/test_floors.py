"""Rows that are let go of for some environments only, against a list that is kept beside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tandem.errors import SettingError
from tandem.learning.learner_state import stored
from tandem.replay.buffer import Ring
from tandem.replay.hindsight import DictGoals, Hindsight
from tandem.replay.resized import take_over
from tandem.replay.samplers import DistinctSampler, PassSampler, PrioritizedSampler, UniformSampler
from tandem.replay.scored import ScoredSampler
from tandem.replay.triplets import TripletDraws
from tandem.types import Trajectory
from tests.replay.test_samplers import BETA, OBS
from tests.replay.worlds import ACTION, block

N = 3


def step(t: int, invalid: Sequence[int] = (), last: Sequence[int] = ()) -> Trajectory:
    """A step of three environments; what is observed and rewarded is the row's id."""
    ids = np.arange(t * N, t * N + N, dtype=np.float32)[None]
    valid, ended = np.ones((1, N), bool), np.zeros((1, N), bool)
    valid[0, list(invalid)] = False
    ended[0, list(last)] = True
    after = ids.reshape(N, 1) + N
    return block(ids[..., None], after, ids, np.where(ended, 0.0, 0.5), ended, valid)


def samplers(ring: Ring) -> list[Any]:
    kinds: list[Any] = [UniformSampler, DistinctSampler, PassSampler, PrioritizedSampler]
    return [*(kind(ring) for kind in kinds), ScoredSampler(ring, {"TD": 1.0})]


@pytest.mark.parametrize("kind", range(5))
@pytest.mark.parametrize("seed", range(4))
def test_rows_draws_and_priorities_are_the_references(kind: int, seed: int) -> None:
    rng, ring = np.random.default_rng(seed), Ring(8 * N, N, OBS, ACTION)
    sampler, kept, ever = samplers(ring)[kind], list[int](), list[int]()
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
            draw = sampler.draw(np.random.default_rng(t), 1, 200, BETA)
            assert set(draw.ids.ravel().tolist()) <= set(kept)
            assert kind > 2 or set(draw.ids.ravel().tolist()) == set(kept)
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


def test_n_step_windows_of_what_is_left_are_whole() -> None:
    ring = Ring(10 * N, N, OBS, ACTION)
    for t in range(6):
        ring.add(step(t))
    ring.forget_rows(4, [1])
    assert ring.floors.tolist() == [0, 4, 0]
    batch = ring.transitions(np.array([13, 0]), 2)
    np.testing.assert_array_equal(batch.reward, [13 + 0.5 * 16, 0 + 0.5 * 3])
    assert not ring.contains(np.array([10]))[0] and ring.contains(np.array([13]))[0]
    with pytest.raises(SettingError, match="of some environments less"):
        ring.transitions(np.array([10]))


def test_goals_and_triplets_come_from_what_is_left() -> None:
    ring = Ring(20 * N, N, OBS, ACTION)
    hindsight = Hindsight(ring, DictGoals(lambda *_: 0.0), k=None, strategy="episode")
    draws = TripletDraws(ring)
    for t in range(12):
        ring.add(step(t, last=[0, 1, 2] if t == 9 else []))
    low, _ = hindsight.episodes.bounds(np.array([7 * N + 1]))
    assert low == 1  # looked at before they go
    draws.forget_rows(5, [1])
    rng = np.random.default_rng(0)
    source, _ = hindsight.sources(rng, np.full(300, 7 * N + 1))
    assert set(source.tolist()) == {t * N + 1 for t in range(5, 9)}
    seen = draws.draw(rng, 1, 400, BETA).ids[0]
    assert seen[seen % N == 1].min() == 5 * N + 1 and seen[seen % N == 0].min() == 0


@pytest.mark.parametrize("kind", [1, 4])
@pytest.mark.parametrize(("before", "after"), [(8, 8), (8, 5), (5, 8)])
def test_a_checkpoint_goes_into_a_ring_of_another_length(
    kind: int, before: int, after: int
) -> None:
    one, other = Ring(before * N, N, OBS, ACTION), Ring(after * N, N, OBS, ACTION)
    sampler, again = samplers(one)[kind], samplers(other)[kind]
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
        np.testing.assert_array_equal(
            one.transitions(np.array(same)).obs, other.transitions(np.array(same)).obs
        )
        if before == after:
            draws = [
                s.draw(np.random.default_rng(t), 2, 4, np.ones(2)).ids for s in (sampler, again)
            ]
            np.testing.assert_array_equal(*draws)
    assert len(other) == after * N
    if kind == 4:
        np.testing.assert_array_equal(again.powers()[-6:], sampler.powers()[-6:])


def test_files_without_floors_load() -> None:
    ring = Ring(8 * N, N, OBS, ACTION)
    ring.add(step(0))
    meta, arrays = ring.state()
    del meta["floors"]
    ring.forget_rows(2)
    arrays = {n: x.copy() for n, x in arrays.items()} | {"valid": np.ones((2, N), bool)}
    arrays["valid"][1] = False
    ring.load_state(meta, arrays)
    assert ring.floors.tolist() == [0, 0, 0] and len(ring) == 3
