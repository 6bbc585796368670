"""The ring against a slow reference: lists of rows that each know what truly followed them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
from tandem.types import Batch, Cuts, Trajectory, leaves, tree_map

VECTOR = Leaf("box", (2,), "float32")
PICTURE = Leaf("box", (2, 3), "uint8")
ACTION = Leaf("discrete", (), "int64", (4,))
FORCE = Leaf("box", (3,), "float32")
OBS: dict[str, Spec] = {
    "vector": VECTOR,
    "picture": PICTURE,
    "dict": {"at": VECTOR, "seen/left": PICTURE},
}


@dataclass
class Row:
    """One step as it truly was; observations are serial numbers."""

    obs: int
    action: int
    reward: np.float32
    discount: np.float32
    last: bool
    valid: bool
    next_obs: int
    cut: bool = False  # whether the environment went on from somewhere else than next_obs


class World:
    """Environments that terminate, are cut and reset at random, in the same step or (`lazy`) in the
    next one."""

    def __init__(
        self,
        seed: int,
        envs: int,
        spec: Spec,
        action: Leaf = ACTION,
        lazy: Sequence[bool] = (False,) * 9,
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.lazy, self.spec, self.action_leaf = lazy, spec, action
        self.serial = 0
        self.rows: list[list[Row]] = [[] for _ in range(envs)]
        self.now = [self.new() for _ in range(envs)]
        self.resets = [False] * envs

    def new(self) -> int:
        self.serial += 1
        return self.serial

    def step(self, env: int) -> Row:
        obs = self.now[env]
        if self.resets[env]:
            self.resets[env] = False
            self.now[env] = self.new()
            return Row(obs, 0, np.float32(0), np.float32(0.9), False, False, self.now[env])
        fate = self.rng.choice(["on", "terminated", "cut"], p=[0.7, 0.15, 0.15])
        action, reward = int(self.rng.integers(4)), np.float32(self.rng.normal())
        following = self.now[env] = self.new()
        ended = fate != "on"
        if ended and not self.lazy[env]:
            self.now[env] = self.new()
        self.resets[env] = ended and self.lazy[env]
        discount = np.float32(0 if fate == "terminated" else self.rng.choice([0.9, 0.99]))
        return Row(
            obs, action, reward, discount, ended, True, following, ended and not self.lazy[env]
        )

    def obs(self, numbers: Any) -> Any:
        """Observations as arrays, told apart by their serial numbers."""
        numbers = np.asarray(numbers, np.int64)

        def array(leaf: Leaf) -> np.ndarray[Any, Any]:
            x = numbers.reshape(numbers.shape + (1,) * len(leaf.shape)) * 7 + np.arange(
                np.prod(leaf.shape)
            ).reshape(leaf.shape)
            return (x % 256).astype(leaf.dtype) if leaf.dtype == "uint8" else x.astype(leaf.dtype)

        return tree_map(array, self.spec)

    def action(self, numbers: Any) -> np.ndarray[Any, Any]:
        x = np.asarray(numbers)
        return (
            np.stack([x, -x, x + 1], -1).astype("float32")
            if self.action_leaf == FORCE
            else x.astype("int64")
        )

    def trajectory(self, steps: int) -> Trajectory:
        envs = range(len(self.rows))
        new = [[self.step(env) for env in envs] for _ in range(steps)]
        for line in new:
            for env, row in enumerate(line):
                self.rows[env].append(row)
        # not in the order of time
        cuts = [(t, env) for env in envs for t in range(steps) if new[t][env].cut]

        def field(name: str) -> np.ndarray[Any, Any]:
            return np.array([[getattr(row, name) for row in line] for line in new]).reshape(
                steps, len(self.rows)
            )

        return Trajectory(
            self.obs(field("obs")),
            self.action(field("action")),
            field("reward").astype("float32"),
            field("discount").astype("float32"),
            field("last").astype(bool),
            field("valid").astype(bool),
            Cuts(
                np.array([t for t, _ in cuts], np.int64),
                np.array([env for _, env in cuts], np.int64),
                self.obs([new[t][env].next_obs for t, env in cuts]),
            ),
            self.obs(self.now),
        )

    def window(self, t: int, env: int, n: int) -> tuple[Row, np.float32, np.float32, int]:
        """The n-step transition from row t: (its row, reward, discount, number of the observation
        after it)."""
        row = end = self.rows[env][t]
        reward, discount = row.reward, row.discount
        for k in range(1, n):
            if end.last or t + k >= len(self.rows[env]):
                break
            end = self.rows[env][t + k]
            reward = reward + discount * end.reward
            discount = discount * end.discount
        return row, reward, discount, end.next_obs

    def between(self, t: int, env: int, n: int) -> list[tuple[int, np.float32]]:
        """(number of the observation, discount before it) of the steps after row t that n-step
        transitions pass, 0 where the window has ended."""
        end, found = self.rows[env][t], []
        discount = end.discount
        for k in range(1, n):
            if end.last or t + k >= len(self.rows[env]):
                discount = np.float32(0)
                found.append((0, discount))
                continue
            end = self.rows[env][t + k]
            found.append((end.obs, discount))
            discount = discount * end.discount
        return found


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
    np.testing.assert_array_equal(
        ring.contains(named), (named >= oldest * envs) & (named < steps * envs)
    )
    ids = np.arange(oldest * envs, steps * envs)
    found = [world.window(int(i) // envs, int(i) % envs, n) for i in ids]
    assert len(ring) == sum(row.valid for row, *_ in found)
    # no more is kept than is needed
    assert len(ring._cuts) == sum(row.cut and row.discount > 0 for row, *_ in found)
    if not len(ids):
        return
    np.testing.assert_array_equal(ring.valid[ring.position(ids)], [row.valid for row, *_ in found])
    np.testing.assert_array_equal(ring.last[ring.position(ids)], [row.last for row, *_ in found])
    batch = ring.transitions(ids, n)
    same(batch.obs, world.obs([row.obs for row, *_ in found]))
    same(batch.action, world.action([row.action for row, *_ in found]))
    same(batch.reward, np.array([reward for _, reward, _, _ in found], np.float32))
    same(batch.discount, np.array([discount for _, _, discount, _ in found], np.float32))
    alive = batch.discount > 0  # what follows a termination has no meaning, but must be a number
    same(
        tree_map(lambda x: x[alive], batch.next_obs),
        world.obs([f[3] for f, a in zip(found, alive, strict=True) if a]),
    )
    assert all(np.isfinite(x).all() for x in leaves(batch.next_obs))
    obs, discount = windows.between(ring, ids, n)
    steps = [world.between(int(i) // envs, int(i) % envs, n) for i in ids]
    wanted = np.array([[d for _, d in each] for each in steps], np.float32)
    same(discount, wanted.reshape(len(ids), n - 1))
    numbers = np.array([[number for number, _ in each] for each in steps]).reshape(len(ids), n - 1)
    there = discount > 0
    same(tree_map(lambda x: x[there], obs), world.obs(numbers[there]))
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
def test_ring_is_the_reference(
    seed: int,
    envs: int,
    capacity: int,
    chunks: list[int],
    n: int,
    lazy: Sequence[bool],
    kind: str,
    force: bool,
) -> None:
    action = FORCE if force else ACTION
    world = World(seed, envs, OBS[kind], action, lazy)
    ring = Ring(capacity, envs, OBS[kind], action)
    for steps in chunks:
        ring.add(world.trajectory(steps))
        check_against(ring, world, n)


def test_many_cuts_over_many_rounds() -> None:
    """The store of cut observations grows, empties at its front and moves, and never mixes rows
    up."""
    world = World(0, 3, VECTOR)
    ring = Ring(200, 3, VECTOR, ACTION)
    for steps in [1] * 40 + [90, 1, 1, 400, 13] * 3:
        ring.add(world.trajectory(steps))
        check_against(ring, world, 3)


def hand_made(
    rewards: list[float], last: list[bool], discount: list[float], cut_at: int | None = None
) -> Trajectory:
    """One environment whose observations are [t, 0]; the true last observation of a cut is [99,
    0]."""
    steps = len(rewards)
    obs = np.zeros((steps + 1, 1, 2), np.float32)
    obs[:, 0, 0] = np.arange(steps + 1)
    at = np.array([] if cut_at is None else [cut_at], np.int64)
    return Trajectory(
        obs[:-1],
        np.arange(steps)[:, None] % 4,
        np.array(rewards, np.float32)[:, None],
        np.array(discount, np.float32)[:, None],
        np.array(last)[:, None],
        np.ones((steps, 1), bool),
        Cuts(at, np.zeros_like(at), np.tile(np.float32([99, 0]), (len(at), 1))),
        obs[-1],
    )


def test_n_step_worked_by_hand() -> None:
    """gamma = 1/2. Steps 0..2 end in a cut with a reset at once, 3..4 terminate, 5..6 go on."""
    ring = Ring(10, 1, VECTOR, ACTION)
    last = [False, False, True, False, True, False, False]
    ring.add(hand_made([1, 2, 4, 8, 16, 32, 64], last, [0.5, 0.5, 0.5, 0.5, 0, 0.5, 0.5], cut_at=2))
    batch = ring.transitions(np.arange(7), n=3)
    assert batch.reward.tolist() == [1 + 1 + 1, 2 + 2, 4, 8 + 8, 16, 32 + 32, 64]
    assert batch.discount.tolist() == [0.125, 0.25, 0.5, 0, 0, 0.25, 0.5]
    assert batch.next_obs[[0, 1, 2, 5, 6], 0].tolist() == [99, 99, 99, 7, 7]
    assert batch.obs[:, 0].tolist() == [0, 1, 2, 3, 4, 5, 6]
    obs, discount = windows.between(ring, np.arange(7), 3)
    assert obs[[0, 1, 3, 5], :, 0].tolist() == [[1, 2], [2, 2], [4, 4], [6, 6]]
    assert discount.tolist() == [[0.5, 0.25], [0.5, 0], [0, 0], [0.5, 0], [0, 0], [0.5, 0], [0, 0]]


def test_window_at_the_head_grows_with_the_ring() -> None:
    ring = Ring(10, 1, VECTOR, ACTION)
    ring.add(hand_made([1, 2], [False] * 2, [0.5] * 2))
    short = ring.transitions(np.array([0]), n=3)
    assert (short.reward[0], short.discount[0], short.next_obs[0, 0]) == (2, 0.25, 2)
    later = hand_made([4, 8], [False] * 2, [0.5] * 2)
    ring.add(
        later._replace(obs=later.obs + np.float32(2), bootstrap=later.bootstrap + np.float32(2))
    )
    full = ring.transitions(np.array([0]), n=3)
    assert (full.reward[0], full.discount[0], full.next_obs[0, 0]) == (3, 0.125, 3)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 4), (2, 3, 2)])
def test_any_leading_shape(shape: tuple[int, ...], n: int) -> None:
    world = World(1, 2, OBS["dict"], FORCE)
    ring = Ring(40, 2, OBS["dict"], FORCE)
    ring.add(world.trajectory(30))
    ids = np.random.default_rng(0).integers(ring.oldest, ring.newest + 1, shape)
    batch, flat = ring.transitions(np.asarray(ids), n), ring.transitions(np.ravel(ids), n)
    for x, y in zip(leaves(batch[:5]), leaves(flat[:5]), strict=True):
        assert x.shape[: len(shape)] == shape
        np.testing.assert_array_equal(x.reshape(y.shape), y)


def test_what_was_taken_stays_when_the_ring_moves_on() -> None:
    world = World(2, 1, VECTOR)
    ring = Ring(5, 1, VECTOR, ACTION)
    ring.add(world.trajectory(5))
    batch = ring.transitions(np.arange(5))
    kept: Batch = tree_map(np.copy, batch)
    ring.add(world.trajectory(5))
    same(batch, kept)


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
    assert [x.tobytes() for x in other.state()[1].values()] == [
        x.tobytes() for x in arrays.values()
    ]
    for steps in (1, 4, 9):
        trajectory = world.trajectory(steps)
        ring.add(trajectory)
        other.add(trajectory)
        check_against(other, world, 3)
        ids = np.arange(ring.oldest, ring.newest + 1)
        same(ring.transitions(ids, 2), other.transitions(ids, 2))


def test_state_of_another_ring_is_refused() -> None:
    ring = Ring(20, 2, VECTOR, ACTION)
    ring.add(World(3, 2, VECTOR).trajectory(3))
    for other in (
        Ring(22, 2, VECTOR, ACTION),
        Ring(20, 1, VECTOR, ACTION),
        Ring(20, 2, PICTURE, ACTION),
    ):
        with pytest.raises(ResumeError, match="saved replay buffer"):
            other.load_state(*ring.state())


def test_files_hold_the_same_as_memory(tmp_path: Path) -> None:
    spec = OBS["dict"]
    for _ in range(2):  # the second time over the files of the first
        world = World(5, 2, spec)
        plain = Ring(30, 2, spec, FORCE)
        mapped = Ring(30, 2, spec, FORCE, path=str(tmp_path / "replay"))
        world.action_leaf = FORCE
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


def test_size_is_that_of_the_arrays() -> None:
    assert Ring.size(1_000_000, 8, Leaf("box", (84, 84, 4), "uint8"), ACTION) == (125_001 * 8) * (
        84 * 84 * 4 + 8 + 4 + 4 + 1 + 1
    )
    ring = Ring(100, 3, OBS["dict"], FORCE)
    assert sum(x.nbytes for x in ring._columns.values()) == Ring.size(100, 3, OBS["dict"], FORCE)
    assert ring._columns["obs/seen/left"].dtype == np.uint8


def test_too_large_is_refused_before_it_is_allocated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    frames = Leaf("box", (84, 84, 4), "uint8")
    monkeypatch.setattr(allocation, "available_memory", lambda: 8 * 2**30)
    with pytest.raises(MemoryBudgetError) as error:
        Ring(1_000_000, 8, frames, ACTION)
    assert "26.3 GiB" in str(error.value) and "8.0 GiB" in str(error.value)
    assert "path" in error.value.fix and "30%" in error.value.fix
    Ring(10_000, 8, frames, ACTION)  # one that fits

    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 10**6}))
    with pytest.raises(MemoryBudgetError, match="disk of"):
        Ring(1_000_000, 8, frames, ACTION, path=str(tmp_path))
    assert not list(tmp_path.iterdir())
    Ring(100_000, 8, frames, ACTION)  # the disk does not matter here


def test_absurd_sizes_do_not_overflow() -> None:
    with pytest.raises(MemoryBudgetError, match="TiB"):
        Ring(10**15, 1, Leaf("box", (10**6,), "float32"), ACTION)


@pytest.mark.parametrize(("capacity", "envs"), [(0, 1), (1, 0), (-5, 2)])
def test_senseless_sizes_are_refused(capacity: int, envs: int) -> None:
    with pytest.raises(SettingError):
        Ring(capacity, envs, VECTOR, ACTION)


def test_arrays_that_do_not_fit_are_refused_and_change_nothing() -> None:
    world = World(6, 2, VECTOR)
    ring = Ring(10, 2, VECTOR, ACTION)
    ring.add(world.trajectory(8))
    before = tree_map(np.copy, ring.state()[1])
    good = world.trajectory(4)
    assert len(good.cuts.t)
    wrong = {
        "reward": good.reward.astype(np.float64),
        "obs": good.obs[:, :, :1],
        "action": good.action[..., None],
        "discount": good.discount[:-1],
        "last": good.last.astype(np.float32),
        "bootstrap": good.bootstrap[:1],
    }
    for name, array in wrong.items():
        with pytest.raises(SpaceError, match=name):
            ring.add(good._replace(**{name: array}))
    with pytest.raises(SpaceError, match="cuts"):
        ring.add(good._replace(cuts=good.cuts._replace(obs=good.cuts.obs[:, :1])))
    with pytest.raises(EnvironmentFault, match="last"):
        ring.add(good._replace(last=np.zeros_like(good.last)))
    same(ring.state()[1], before)
    ring.add(good)
    check_against(ring, world, 2)


def test_rows_that_are_gone_are_refused() -> None:
    ring = Ring(4, 1, VECTOR, ACTION)
    ring.add(World(7, 1, VECTOR).trajectory(9))
    for ids in ([4], [9], [5, 6, 9], [-1]):
        with pytest.raises(SettingError, match="holds 5 to 8"):
            ring.transitions(np.array(ids))
