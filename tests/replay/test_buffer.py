"""The ring against a slow reference: lists of rows that each know what truly followed them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tandem.errors import EnvironmentFault, MemoryBudgetError, ResumeError, SettingError, SpaceError
from tandem.replay import allocation, windows
from tandem.replay.buffer import Ring
from tandem.spaces import Leaf, Spec
from tandem.types import Cuts, Trajectory, leaves, tree_map
from tests.replay.worlds import ACTION, FORCE, Row, World, block

VECTOR = Leaf("box", (2,), "float32")
PICTURE = Leaf("box", (2, 3), "uint8")
BOTH = {"at": VECTOR, "seen/left": PICTURE}
OBS: dict[str, Spec] = {"vector": VECTOR, "picture": PICTURE, "dict": BOTH}
Window = tuple[Row, np.float32, np.float32, int, list[tuple[int, np.float32]]]


def window(world: World, t: int, env: int, n: int) -> Window:
    """The n-step transition of row t: row, reward, discount, what follows; its further steps."""
    rows, passed = world.rows[env], []
    row = end = rows[t]
    reward, discount = row.reward, row.discount
    for k in range(1, n):
        if end.last or t + k >= len(rows):
            passed.append((0, np.float32(0)))
            continue
        end = rows[t + k]
        passed.append((end.obs, discount))
        reward, discount = reward + discount * end.reward, discount * end.discount
    return row, reward, discount, end.next_obs, passed


def same(a: Any, b: Any) -> None:
    for x, y in zip(leaves(a), leaves(b), strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape
        np.testing.assert_array_equal(x, y)


def check_against(ring: Ring, world: World, n: int) -> None:
    """Everything in the ring is what the world says, and nothing else is in it."""
    envs, steps = len(world.rows), len(world.rows[0])
    oldest = max(0, steps - -(-ring.capacity // envs))
    assert (ring.oldest, ring.newest) == (oldest * envs, steps * envs - 1)
    named = np.arange(-envs, (steps + 2) * envs)
    there = (named >= oldest * envs) & (named < steps * envs)
    np.testing.assert_array_equal(ring.contains(named), there)
    ids = np.arange(oldest * envs, steps * envs)
    found = [window(world, int(i) // envs, int(i) % envs, n) for i in ids]
    rows = [row for row, *_ in found]
    assert len(ring) == sum(row.valid for row in rows)
    # no more is kept than is needed
    assert len(ring._cuts) == sum(row.cut and row.discount > 0 for row in rows)
    if not len(ids):
        return
    np.testing.assert_array_equal(ring.valid[ring.position(ids)], [row.valid for row in rows])
    np.testing.assert_array_equal(ring.last[ring.position(ids)], [row.last for row in rows])
    batch = ring.transitions(ids, n)
    same(batch.obs, world.obs([row.obs for row in rows]))
    same(batch.action, world.action([row.action for row in rows]))
    same(batch.reward, np.array([reward for _, reward, *_ in found], np.float32))
    same(batch.discount, np.array([discount for _, _, discount, *_ in found], np.float32))
    alive = batch.discount > 0  # what follows a termination has no meaning, but must be a number
    following = world.obs(np.array([f[3] for f in found])[alive])
    same(tree_map(lambda x: x[alive], batch.next_obs), following)
    assert all(np.isfinite(x).all() for x in leaves(batch.next_obs))
    obs, discount = windows.between(ring, ids, n)
    passed = np.array([f[4] for f in found], np.float64).reshape(len(ids), n - 1, 2)
    same(discount, passed[..., 1].astype(np.float32))
    there = discount > 0
    same(tree_map(lambda x: x[there], obs), world.obs(passed[..., 0][there]))
    assert all(x.shape[:2] == (len(ids), n - 1) for x in leaves(obs))


@pytest.mark.slow
@settings(max_examples=300, derandomize=True, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    envs=st.integers(1, 4),
    capacity=st.integers(1, 30),
    chunks=st.lists(st.integers(0, 25), min_size=1, max_size=6),
    n=st.integers(1, 5),
    lazy=st.tuples(*[st.booleans()] * 4),
    kind=st.sampled_from(sorted(OBS)),
    force=st.booleans(),
)
def test_ring_is_the_reference(seed, envs, capacity, chunks, n, lazy, kind, force) -> None:
    action = FORCE if force else ACTION
    world = World(seed, envs, OBS[kind], action, lazy)
    ring = Ring(capacity, envs, OBS[kind], action)
    for steps in chunks:
        ring.add(world.trajectory(steps))
        check_against(ring, world, n)


def test_many_cuts_over_many_rounds() -> None:
    """The store of cut observations grows, empties at its front, moves, and mixes no rows up."""
    world = World(0, 3, VECTOR)
    ring = Ring(200, 3, VECTOR, ACTION)
    for steps in [1] * 40 + [90, 1, 1, 400, 13] * 3:
        ring.add(world.trajectory(steps))
        check_against(ring, world, 3)


def hand_made(reward: Any, discount: Any = 0.5, last=False, cut_at=(), first=0) -> Trajectory:
    """Observations [t, 0] of one environment; the true last one of a cut is [99, 0]."""
    steps = len(reward)
    obs = np.zeros((steps + 1, 1, 2), np.float32)
    obs[:, 0, 0] = first + np.arange(steps + 1)
    at = np.array(cut_at, np.int64)
    cuts = Cuts(at, np.zeros_like(at), np.tile(np.float32([99, 0]), (len(at), 1)))
    rest = (np.reshape(x, (-1, 1)) for x in (reward, discount, last))
    return block(obs[:-1], obs[-1], *rest, cuts=cuts)


def test_n_step_worked_by_hand_and_at_the_head() -> None:
    """gamma = 1/2. Steps 0..2 end in a cut with a reset at once, 3..4 terminate, 5..6 go on."""
    ring = Ring(10, 1, VECTOR, ACTION)
    last = [False, False, True, False, True, False, False]
    ring.add(hand_made([1, 2, 4, 8, 16, 32, 64], [0.5, 0.5, 0.5, 0.5, 0, 0.5, 0.5], last, [2]))
    batch = ring.transitions(np.arange(7), n=3)
    assert batch.reward.tolist() == [1 + 1 + 1, 2 + 2, 4, 8 + 8, 16, 32 + 32, 64]
    assert batch.discount.tolist() == [0.125, 0.25, 0.5, 0, 0, 0.25, 0.5]
    assert batch.next_obs[[0, 1, 2, 5, 6], 0].tolist() == [99, 99, 99, 7, 7]
    assert batch.obs[:, 0].tolist() == [0, 1, 2, 3, 4, 5, 6]
    obs, discount = windows.between(ring, np.arange(7), 3)
    assert obs[[0, 1, 3, 5], :, 0].tolist() == [[1, 2], [2, 2], [4, 4], [6, 6]]
    assert discount.tolist() == [[0.5, 0.25], [0.5, 0], [0, 0], [0.5, 0], [0, 0], [0.5, 0], [0, 0]]
    ring = Ring(10, 1, VECTOR, ACTION)  # windows at its head grow with it
    for reward, first, expected in (([1, 2], 0, (2, 0.25, 2)), ([4, 8], 2, (3, 0.125, 3))):
        ring.add(hand_made(reward, first=first))
        found = ring.transitions(np.array([0]), n=3)
        assert (found.reward[0], found.discount[0], found.next_obs[0, 0]) == expected


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 4), (2, 3, 2)])
def test_any_leading_shape(shape: tuple[int, ...], n: int) -> None:
    """And what was taken stays when the ring moves on."""
    world, ring = World(1, 2, OBS["dict"], FORCE), Ring(40, 2, OBS["dict"], FORCE)
    ring.add(world.trajectory(30))
    ids = np.random.default_rng(0).integers(ring.oldest, ring.newest + 1, shape)
    batch, flat = ring.transitions(np.asarray(ids), n), ring.transitions(np.ravel(ids), n)
    kept = tree_map(np.copy, batch[:5])
    same(batch[:5], tree_map(lambda x: x.reshape((*shape, *x.shape[1:])), flat[:5]))
    ring.add(world.trajectory(30))
    same(batch[:5], kept)


@pytest.mark.parametrize("lazy", [(False, False), (True, True), (False, True)])
@pytest.mark.parametrize("before", [0, 3, 8, 100])
def test_state_round_trip(before: int, lazy: Sequence[bool]) -> None:
    """The restored ring holds the same and goes on the same."""
    world = World(3, 2, OBS["dict"], lazy=lazy)
    ring, other = Ring(20, 2, OBS["dict"], ACTION), Ring(20, 2, OBS["dict"], ACTION)
    other.add(World(4, 2, OBS["dict"]).trajectory(31))  # whatever was there before
    if before:
        ring.add(world.trajectory(before))
    meta, arrays = ring.state()
    assert len(arrays["reward"]) == (min(before + 1, 11) if before else 0)
    other.load_state(meta, tree_map(np.copy, arrays))
    same(other.state()[1], arrays)
    for steps in (1, 4, 9):
        trajectory = world.trajectory(steps)
        ring.add(trajectory)
        other.add(trajectory)
        check_against(other, world, 3)
        ids = np.arange(ring.oldest, ring.newest + 1)
        same(ring.transitions(ids, 2), other.transitions(ids, 2))


def test_states_of_other_rings_and_rows_that_are_gone_are_refused() -> None:
    ring = Ring(4, 1, VECTOR, ACTION)
    ring.add(World(7, 1, VECTOR).trajectory(9))
    for other in ((6, 1, VECTOR), (4, 2, VECTOR), (4, 1, PICTURE)):
        with pytest.raises(ResumeError, match="saved replay buffer"):
            Ring(*other, ACTION).load_state(*ring.state())
    for ids in ([4], [9], [5, 6, 9], [-1]):
        with pytest.raises(SettingError, match="holds 5 to 8"):
            ring.transitions(np.array(ids))


def test_files_hold_the_same_as_memory(tmp_path: Path) -> None:
    spec = OBS["dict"]
    for _ in range(2):  # the second time over the files of the first
        world = World(5, 2, spec, FORCE)
        plain = Ring(30, 2, spec, FORCE)
        mapped = Ring(30, 2, spec, FORCE, path=str(tmp_path / "replay"))
        for steps in (1, 7, 40, 3):
            trajectory = world.trajectory(steps)
            plain.add(trajectory)
            mapped.add(trajectory)
        check_against(mapped, world, 4)
        a, b = plain.state(), mapped.state()
        assert a[0] == b[0]
        same(a[1], b[1])
    on_disk = sum(f.stat().st_size for f in (tmp_path / "replay").iterdir())
    size = Ring.size(30, 2, spec, FORCE)
    assert size <= on_disk < size + 8 * 200  # .npy headers


TEAM = {"at": Leaf("box", (1,), "float32"), "active": Leaf("box", (2,), "int8")}
CHOICES = Leaf("multidiscrete", (2,), "int64", (2, 2))
OWN = {"rewards": Leaf("box", (2,), "float32"), "other": Leaf("box", (2,), "float32")}


def team_ring(active: list[list[int]], limited: str = "active") -> Ring:
    """One environment that never ends; gamma = 1/2. In step t agents are paid 4^t and 2 · 4^t."""
    steps = len(active) - 1
    own = (4.0 ** np.arange(steps)[:, None, None] * [1, 2]).astype(np.float32)
    at = np.arange(steps + 1, dtype=np.float32)[:, None, None]
    obs = {"at": at, "active": np.array(active, np.int8)[:, None]}
    ring = Ring(10, 1, TEAM, CHOICES, extra=OWN, limited=limited)
    now, after = tree_map(lambda x: x[:-1], obs), tree_map(lambda x: x[-1], obs)
    paid = {"rewards": own, "other": own}
    ring.add(block(now, after, own.mean(-1), 0.5, action=np.zeros((steps, 1, 2), int), extra=paid))
    return ring


def test_each_agent_s_rewards_are_summed_and_what_is_no_reward_is_not() -> None:
    batch = team_ring([[1, 1]] * 5).transitions(np.arange(4), 3)
    assert batch.extra["rewards"].tolist() == [[7, 14], [28, 56], [48, 96], [64, 128]]
    assert batch.extra["other"].tolist() == [[1, 2], [4, 8], [16, 32], [64, 128]]
    assert batch.reward.tolist() == [10.5, 42, 72, 96]
    assert batch.discount.tolist() == [0.125, 0.125, 0.25, 0.5]
    assert batch.next_obs["at"][:, 0].tolist() == [3, 4, 4, 4]


def test_a_window_ends_where_a_limit_takes_an_agent() -> None:
    """What it saw then is what it is bootstrapped from."""
    active = [[1, 1], [1, 1], [1, 2], [1, 0], [0, 0]]
    batch = team_ring(active).transitions(np.arange(4), 3)
    assert batch.next_obs["at"][:, 0].tolist() == [2, 2, 4, 4]
    assert batch.next_obs["active"].tolist() == [[1, 2], [1, 2], [0, 0], [0, 0]]
    assert batch.extra["rewards"].tolist() == [[3, 6], [4, 8], [48, 96], [64, 128]]
    assert batch.discount.tolist() == [0.25, 0.5, 0.25, 0.5]
    # of one agent alone, an entry of that name says nothing
    plain = team_ring(active, limited="").transitions(np.arange(4), 3)
    assert plain.next_obs["at"][:, 0].tolist() == [3, 4, 4, 4]


FRAMES = Leaf("box", (84, 84, 4), "uint8")


def test_too_large_is_refused_before_it_is_allocated(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr(allocation, "available_memory", lambda: 8 * 2**30)
    with pytest.raises(MemoryBudgetError) as error:
        Ring(1_000_000, 8, FRAMES, ACTION)
    assert "26.3 GiB" in str(error.value) and "8.0 GiB" in str(error.value)
    assert "path" in error.value.fix and "30%" in error.value.fix
    Ring(10_000, 8, FRAMES, ACTION)  # one that fits
    with pytest.raises(MemoryBudgetError, match="TiB"):  # without an overflow
        Ring(10**15, 1, Leaf("box", (10**6,), "float32"), ACTION)
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 10**6}))
    with pytest.raises(MemoryBudgetError, match="disk of"):
        Ring(1_000_000, 8, FRAMES, ACTION, path=str(tmp_path))
    assert not list(tmp_path.iterdir())
    Ring(100_000, 8, FRAMES, ACTION)  # the disk does not matter here


def test_arrays_that_do_not_fit_are_refused_and_change_nothing() -> None:
    world = World(6, 2, VECTOR)
    ring = Ring(10, 2, VECTOR, ACTION)
    ring.add(world.trajectory(8))
    before = tree_map(np.copy, ring.state()[1])
    good = world.trajectory(4)
    assert len(good.cuts.t)
    for error, name, array in (
        (SpaceError, "reward", good.reward.astype(np.float64)),
        (SpaceError, "obs", good.obs[:, :, :1]),
        (SpaceError, "action", good.action[..., None]),
        (SpaceError, "discount", good.discount[:-1]),
        (SpaceError, "last", good.last.astype(np.float32)),
        (SpaceError, "bootstrap", good.bootstrap[:1]),
        (SpaceError, "cuts", good.cuts._replace(obs=good.cuts.obs[:, :1])),
        (EnvironmentFault, "last", np.zeros_like(good.last)),
    ):
        with pytest.raises(error, match=name):
            ring.add(good._replace(**{name: array}))
    same(ring.state()[1], before)
    ring.add(good)
    check_against(ring, world, 2)
