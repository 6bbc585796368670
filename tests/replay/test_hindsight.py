"""Hindsight against a slow reference: lists of episodes, in which each state has a number."""

from collections.abc import Callable
from itertools import combinations, pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tandem.errors import SettingError
from tandem.replay.buffer import Ring
from tandem.replay.episodes import EpisodeBounds
from tandem.replay.hindsight import DictGoals, Hindsight, Info
from tandem.replay.triplets import TripletSampler
from tandem.spaces import Leaf
from tests.replay.worlds import ACTION, World

NUMBER = Leaf("box", (1,), "float32")
OBS: dict[str, Any] = {"observation": NUMBER, "achieved_goal": NUMBER, "desired_goal": NUMBER}
GAMMA = 0.9
NOTHING = Info()
OWN = -1.0  # the goal that episodes have while they are played


class Aimed(World):  # observations with goals
    ends, terminates = 0.25, 0.4

    def said(self) -> Any:
        return 0, np.float32(0), np.float32(GAMMA)

    def obs(self, numbers: Any) -> dict[str, Any]:
        x = np.asarray(numbers, np.float32)[..., None]
        return {"observation": x, "achieved_goal": 10 * x, "desired_goal": np.full_like(x, OWN)}


def chances(*given: float) -> Any:
    """A generator of these numbers, and then of such as end no episode."""
    left = iter(given)
    return SimpleNamespace(random=lambda: next(left, 1.0))


def played(envs: int = 3, lazy: bool = False, terminal: str = "no") -> tuple[Aimed, Ring]:
    """terminal: whether what follows a termination is stored; "later": since it was loaded."""
    world = Aimed(0, envs, lazy=(lazy,) * envs)
    ring = Ring(60, envs, OBS, ACTION, terminal=terminal == "yes")
    for steps in (7, 1, 30, 12):  # it wraps around
        if terminal == "later" and steps == 12:
            older, ring = ring, Ring(60, envs, OBS, ACTION, terminal=True)
            meta, arrays = older.state()
            del meta["terminal_from"]  # as checkpoints of older versions
            ring.load_state(meta, arrays)
        ring.add(world.trajectory(steps))
    return world, ring


def zeros(a: Any, g: Any, info: Any) -> Any:
    return np.zeros(len(g))


def rows(ring: Ring) -> np.ndarray:
    ids = np.arange(ring.oldest, ring.newest + 1)
    return ids[ring.valid[ring.position(ids)]]


def state(ring: Ring, ids: np.ndarray) -> np.ndarray:
    return ring.transitions(ids).obs["observation"][..., 0].astype(int)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("envs", [1, 3])
def test_bounds_are_those_of_the_episodes_that_were_played(envs: int, lazy: bool) -> None:
    world, ring = Aimed(1, envs, lazy=(lazy,) * envs), Ring(60, envs, OBS, ACTION)
    episodes = EpisodeBounds(ring)
    for steps in (4, 9, 1, 40, 3):
        ring.add(world.trajectory(steps))
        ids = rows(ring)
        first, last = episodes.bounds(ids)
        again = EpisodeBounds(ring).bounds(ids)  # one that looks for the first time
        assert (first == again[0]).all() and (last == again[1]).all()
        of = {s: e for e in world.all for s in e}
        held = set(state(ring, ids).tolist())
        for s, a, b in zip(*(state(ring, x).tolist() for x in (ids, first, last)), strict=True):
            steps_held = [x for x in of[s][:-1] if x in held] if len(of[s]) > 1 else [s]
            assert (a, b) == (steps_held[0], steps_held[-1])


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_an_episode_that_is_broken_off_has_no_part_in_the_next(strategy: Any) -> None:
    world, ring = Aimed(0, 2), Ring(60, 2, OBS, ACTION)
    world.rng = chances()
    hindsight = Hindsight(ring, DictGoals(zeros), k=None, strategy=strategy)
    ring.add(world.trajectory(3))
    hindsight.episodes.bounds(rows(ring))  # it has looked by then
    ring.break_off([1])
    world.begin(1)
    ring.add(world.trajectory(4))
    ids = rows(ring)
    first, last = hindsight.episodes.bounds(ids)
    assert (first % 2 == ids % 2).all() and (last % 2 == ids % 2).all()
    spans = zip((ids % 2).tolist(), (first // 2).tolist(), (last // 2).tolist(), strict=True)
    assert set(spans) == {(0, 0, 6), (1, 0, 2), (1, 3, 6)}
    source, found = hindsight.sources(np.random.default_rng(0), np.tile(ids, 50))
    again = EpisodeBounds(ring).bounds(source[found])[0]
    assert (again == np.tile(first, 50)[found]).all()


@pytest.mark.parametrize("terminal", ["no", "yes", "later"])
@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_goals_are_what_the_episode_reached(strategy: Any, lazy: bool, terminal: str) -> None:
    world, ring = played(lazy=lazy, terminal=terminal)
    ids = np.tile(rows(ring), 200)
    before = ring.transitions(ids)
    arrived, states = before.next_obs["achieved_goal"].copy(), state(ring, ids)
    goals = DictGoals(lambda a, g, info: (a == g)[:, 0] * 1.0, lambda a, g, info: (a == g)[:, 0])
    hindsight = Hindsight(ring, goals, k=None, strategy=strategy)
    batch = hindsight.relabel(np.random.default_rng(0), ids, before)
    given = batch.obs["desired_goal"]
    assert (given == batch.next_obs["desired_goal"]).all()

    of, held = {s: e for e in world.all for s in e}, set(states.tolist())
    ended = terminating(ring)
    assert bool(ended) == (terminal != "yes")
    unknown = {of[s][-1] for s in ended}
    found: dict[int, set[int]] = {}
    for s, goal in zip(states.tolist(), given[:, 0].tolist(), strict=True):
        found.setdefault(s, set()).add(round(goal / 10) if goal != OWN else 0)
    for s, its in found.items():
        reached = [after for x, after in pairwise(of[s]) if x in held and after not in unknown]
        later, end = {x for x in reached if x > s}, set(reached[-1:])
        expected = {"future": later, "final": end, "episode": set(reached)}[strategy]
        assert its == (expected if expected and s not in ended else {0}), (s, strategy)

    changed, done = given[:, 0] != OWN, (arrived == given)[:, 0]
    assert done[changed].any() and not done[changed].all()
    assert (batch.reward[changed] == done[changed]).all()
    over = done | (ring.discount[ring.position(ids)] == 0)  # stays an end with any goal
    expected = np.where(over, np.float32(0), np.float32(GAMMA))
    np.testing.assert_array_equal(batch.discount[changed], expected[changed])


def terminating(ring: Ring) -> list[int]:
    """States before a termination, where the ring did not store what followed."""
    ids = rows(ring)
    at = ring.position(ids)
    ended = ring.last[at] & (ring.discount[at] == 0) & (ids < ring.terminal_from * ring.envs)
    return state(ring, ids[ended]).tolist()


def test_future_goals_are_drawn_evenly() -> None:
    world, ring = Aimed(0, 1), Ring(50, 1, OBS, ACTION)
    world.rng = chances()
    ring.add(world.trajectory(11))
    hindsight = Hindsight(ring, DictGoals(zeros), k=None)
    source, found = hindsight.sources(np.random.default_rng(0), np.full(12_000, 4))
    assert found.all()
    counts = np.bincount(source, minlength=11)
    assert (counts[:4] == 0).all() and abs(counts[4:] - 12_000 / 7).max() < 5 * (12_000 / 7) ** 0.5


@pytest.mark.parametrize("k, share", [(4.0, 0.8), (1, 0.5), (0, 0.0), (None, 1.0)])
def test_k_says_how_many_keep_their_goal(k: float | None, share: float) -> None:
    _, ring = played()
    ids = np.tile(rows(ring), (4, 100))
    hindsight = Hindsight(ring, DictGoals(zeros), k=k, strategy="episode")
    batch = hindsight.relabel(np.random.default_rng(0), ids, ring.transitions(ids))
    assert batch.reward.shape == ids.shape and batch.obs["desired_goal"].shape == (*ids.shape, 1)
    possible = hindsight.sources(np.random.default_rng(0), ids.reshape(-1))[1].mean()
    found = (batch.obs["desired_goal"] != OWN).mean()
    assert found == pytest.approx(share * possible, abs=0.01)


def test_what_keeps_its_goal_keeps_everything() -> None:
    _, ring = played()
    ids = np.tile(rows(ring), 20)
    whole = ring.transitions(ids)
    hindsight = Hindsight(ring, DictGoals(lambda a, g, i: np.ones(len(g))))
    batch = hindsight.relabel(np.random.default_rng(0), ids, ring.transitions(ids))
    same = batch.obs["desired_goal"][:, 0] == OWN
    assert 0.2 < same.mean() < 0.5
    for name in ("observation", "achieved_goal"):
        np.testing.assert_array_equal(batch.obs[name], whole.obs[name])
        np.testing.assert_array_equal(batch.next_obs[name], whole.next_obs[name])
    np.testing.assert_array_equal(batch.discount, whole.discount)
    assert (batch.reward[same] == 0).all() and (batch.reward[~same] == 1).all()


def test_judgements_for_one_goal_at_a_time_and_wrong_ones() -> None:
    _, ring = played()
    ids = rows(ring)
    wrong = Hindsight(ring, DictGoals(lambda a, g, i: np.zeros((len(g), 1))), k=None)
    with pytest.raises(SettingError, match=r"rewards of shape \(\d+, 1\)"):
        wrong.relabel(np.random.default_rng(0), ids, ring.transitions(ids))
    with pytest.raises(SettingError, match="strategy='past'"):
        Hindsight(ring, wrong.goals, strategy="past")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="k=-1"):
        Hindsight(ring, wrong.goals, k=-1)
    short = Ring(50, 1, OBS, ACTION)
    short.add(Aimed(0, 1).trajectory(1))
    with pytest.raises(SettingError, match="none of the .* has three steps"):
        TripletSampler(short).draw(np.random.default_rng(0), 1, 4)
    # Gymnasium-Robotics' compute_terminated gives one answer, whatever it is asked for
    obs, goal = {"achieved_goal": np.array([[1.0], [2.0], [3.0]])}, np.array([[1.0], [5.0], [3.0]])
    never = DictGoals(lambda a, g, i: -1.0 * (a != g)[:, 0], lambda a, g, i: False)
    reward, done = never.judge(obs, goal, NOTHING)
    assert reward.tolist() == [0, -1, 0] and done.tolist() == [False] * 3 and done.dtype == np.bool_
    near = DictGoals(zeros, lambda a, g, i: bool(np.linalg.norm(a - g) < 0.5))
    assert near.judge(obs, goal, NOTHING)[1].tolist() == [True, False, True]


def test_observations_of_broken_off_and_ended_episodes_are_found_in_any_order() -> None:
    """Environment 1 ends in the newest step, and environment 0 is lost after it."""
    world, ring = Aimed(0, 2), Ring(20, 2, OBS, ACTION, terminal=True)
    world.rng = chances(1.0, 0.0)  # environment 1 terminates in its first step
    ring.add(world.trajectory(1))
    ring.break_off([0])
    world.begin(0)
    ring.add(world.trajectory(1))
    after = ring.after(np.array([0, 1]))["observation"][:, 0]
    assert after.tolist() == [3.0, 4.0] and ring.discount[[0, 1]].tolist() == [np.float32(GAMMA), 0]


def test_info_that_is_not_stored_raises_however_it_is_read() -> None:
    reads: list[Callable[[Any], Any]] = [
        lambda info: info["wind"],
        lambda info: info.get("wind", 0.0),
        lambda info: "wind" in info,
        lambda info: [x["wind"] for x in info],
        lambda info: info[0]["wind"],
        lambda info: 1.0 if info else 0.0,
        len,
    ]
    other = Info(calm=np.zeros(2))
    for read in reads:
        with pytest.raises(SettingError, match="copy_info=True"):
            read(NOTHING)
    for read in reads[:-2]:
        with pytest.raises(SettingError, match=r"info\['wind'\]"):
            read(other)
    stored = Info(wind=np.array([1.0, 2.0]), place=np.array([[0, 1], [2, 3]]))
    assert stored["wind"].tolist() == [1, 2] == [x["wind"] for x in stored] and len(stored) == 2
    assert stored.get("wind")[1] == stored[1]["wind"] and "wind" in stored and "wind" in stored[0]
    assert stored[-1].get("place").tolist() == [2, 3]


@pytest.mark.parametrize("terminal", ["no", "yes", "later"])
@pytest.mark.parametrize("lazy", [False, True])
def test_every_three_steps_of_every_finished_episode_come_alike(lazy: bool, terminal: str) -> None:
    world, ring = played(lazy=lazy, terminal=terminal)
    sampler = TripletSampler(ring)
    ids = sampler.draw(np.random.default_rng(0), 1, 40_000).ids[0]
    drawn = state(ring, ids)
    held, ended = set(state(ring, rows(ring)).tolist()), set(terminating(ring))
    running = {e[0] for e in world.episodes}
    finished = [e[:-1] for e in world.all if e[0] not in running]
    usable = [[s for s in e if s in held and s not in ended] for e in finished]
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
    ring_ids = TripletSampler(ring).draw(np.random.default_rng(1), 1, 500).ids[0]
    batch = TripletSampler(ring).transitions(ring_ids)
    after = {s: e[i + 1] for e in world.all for i, s in enumerate(e[:-1])}
    obs, next_obs = (x["observation"][..., 0].tolist() for x in (batch.obs, batch.next_obs))
    for (i, k, j), s, after_s in zip(state(ring, ring_ids).tolist(), obs, next_obs, strict=True):
        assert s == [i, after[k]] and after_s == [after[k], after[j]]
    whole = ring.transitions(ring_ids)
    np.testing.assert_array_equal(batch.action, whole.action[:, :2])
    np.testing.assert_array_equal(batch.reward, whole.reward[:, :2])
    np.testing.assert_array_equal(batch.discount, np.full((500, 2), np.float32(GAMMA)))
