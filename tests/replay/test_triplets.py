from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from tandem.errors import SettingError
from tandem.replay.buffer import Ring
from tandem.replay.triplets import TripletSampler
from tests.replay.test_hindsight import GAMMA, OBS, Aimed, played, rows, state, terminating
from tests.replay.worlds import ACTION


@pytest.mark.parametrize("terminal", ["no", "yes", "later"])
@pytest.mark.parametrize("lazy", [False, True])
def test_every_three_steps_of_every_finished_episode_come_alike(lazy: bool, terminal: str) -> None:
    world, ring = played(lazy=lazy, terminal=terminal)
    sampler = TripletSampler(ring)
    ids = sampler.draw(np.random.default_rng(0), 40_000)
    drawn = state(ring, ids)
    held, ended = set(state(ring, rows(ring)).tolist()), set(terminating(ring))
    running = {e[0] for e in world.episodes}
    usable = [
        [s for s in e[:-1] if s in held and s not in ended]
        for e in world.all
        if e[0] not in running
    ]
    just_ended = [e for e in usable if len(e) >= 3]
    assert len(just_ended) >= 3 and len({len(e) for e in just_ended}) > 1
    expected = {
        three: 1 / len(just_ended) / (len(e) * (len(e) - 1) * (len(e) - 2) / 6)
        for e in just_ended
        for three in combinations(e, 3)
    }
    found, counts = np.unique(drawn, axis=0, return_counts=True)
    assert {tuple(x) for x in found.tolist()} == set(expected)
    wanted = 40_000 * np.array([expected[tuple(x)] for x in found.tolist()])
    assert (abs(counts - wanted) < 5 * wanted**0.5 + 5).all()


def test_halves_go_from_i_to_k_and_from_k_to_j() -> None:
    world, ring = played()
    ring_ids = TripletSampler(ring).draw(np.random.default_rng(1), 500)
    batch = TripletSampler(ring).transitions(ring_ids)
    after = {s: e[i + 1] for e in world.all for i, s in enumerate(e[:-1])}
    obs, next_obs = (
        x["observation"][..., 0].astype(int).tolist() for x in (batch.obs, batch.next_obs)
    )
    for (i, k, j), s, after_s in zip(state(ring, ring_ids).tolist(), obs, next_obs, strict=True):
        assert s == [i, after[k]] and after_s == [after[k], after[j]]
    whole = ring.transitions(ring_ids)
    np.testing.assert_array_equal(batch.action, whole.action[:, :2])
    np.testing.assert_array_equal(batch.reward, whole.reward[:, :2])
    np.testing.assert_array_equal(batch.discount, np.full((500, 2), np.float32(GAMMA)))


def test_nothing_to_draw_is_said() -> None:
    ring = Ring(50, 1, OBS, ACTION)
    ring.add(Aimed(0, 1).trajectory(1))
    with pytest.raises(SettingError, match="none of them of three steps"):
        TripletSampler(ring).draw(np.random.default_rng(0), 4)
