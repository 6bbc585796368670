"""A ring that keeps each picture of a stack once, against one that keeps whole stacks."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tandem.errors import EnvironmentFault, SpaceError
from tandem.replay.buffer import Ring
from tandem.replay.samplers import PrioritizedSampler, UniformSampler
from tandem.spaces import Leaf, from_json, to_json
from tandem.types import Cuts, Trajectory, leaves
from tests.replay.worlds import ACTION, World

GIB = 2**30


def stack_of(k: int) -> Leaf:
    return Leaf("box", (k, 2, 3), "uint8", stack=k)


class Cameras(World):
    """Environments that show their newest k pictures."""

    ends = 0.25

    def __init__(self, seed: int, envs: int, k: int, lazy: Any = (False,) * 9, dtype="uint8"):
        self.k, self.dtype, self.stacks = k, dtype, dict[int, Any]()
        super().__init__(seed, envs, lazy=lazy)

    def follow(self, env: int) -> int:
        number, episode = super().follow(env), self.episodes[env]
        first = len(episode) == 1
        before = np.zeros((self.k, 2, 3), self.dtype) if first else self.stacks[episode[-2]]
        # as many games are between scenes: zeros that are no padding
        dark = self.values.random() < 0.2
        picture = np.zeros((2, 3)) if dark else self.values.integers(0, 256, (2, 3))
        self.stacks[number] = np.concatenate([before[1:], picture[None].astype(self.dtype)])
        return number

    def obs(self, numbers: Any) -> Any:
        shape = np.shape(numbers)
        found = [self.stacks[int(n)] for n in np.ravel(numbers)]
        return np.array(found, self.dtype).reshape(*shape, self.k, 2, 3)


def same(once: Ring, whole: Ring, n: int) -> None:
    """Every row of both rings is the same transition. What follows a termination means nothing."""
    sizes = [(r.oldest, r.newest, len(r), len(r._cuts)) for r in (once, whole)]
    assert sizes[0] == sizes[1]
    ids = np.arange(whole.oldest, whole.newest + 1)
    np.testing.assert_array_equal(once.valid[once.position(ids)], whole.valid[whole.position(ids)])
    one, other = once.transitions(ids, n), whole.transitions(ids, n)
    goes_on = other.discount > 0
    for a, b in zip(leaves(tuple(one[:4])), leaves(tuple(other[:4])), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    for a, b in zip(leaves(one.next_obs), leaves(other.next_obs), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_array_equal(a[goes_on], b[goes_on])


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 3),
    st.integers(2, 5),
    st.integers(1, 40),
    st.lists(st.integers(1, 30), min_size=1, max_size=6),
    st.integers(1, 4),
    st.tuples(*(st.booleans(),) * 3),
)
def test_it_is_a_ring_of_whole_stacks(seed, envs, k, capacity, blocks, n, lazy) -> None:
    world, leaf = Cameras(seed, envs, k, lazy), stack_of(k)
    once = Ring(capacity, envs, leaf, ACTION)
    whole = Ring(capacity, envs, replace(leaf, stack=0), ACTION)
    for steps in blocks:  # longer ones than the ring, too
        block = world.trajectory(steps)
        once.add(block)
        whole.add(block)
        same(once, whole, n)
    again = Ring(capacity, envs, leaf, ACTION)
    meta, arrays = once.state()
    again.load_state(meta, {name: x.copy() for name, x in arrays.items()})
    block = world.trajectory(5)
    again.add(block)
    whole.add(block)
    same(again, whole, n)


def test_files_floats_and_stacks_beside_other_observations(tmp_path: Path) -> None:
    spec = {"eye": replace(stack_of(3), dtype="float32"), "speed": Leaf("box", (2,), "float32")}
    plain = {name: replace(leaf, stack=0) for name, leaf in spec.items()}
    world = Cameras(3, 2, 3, dtype="float32")
    once, whole = Ring(30, 2, spec, ACTION, path=str(tmp_path)), Ring(30, 2, plain, ACTION)

    def both(x: Any) -> Any:
        return {"eye": x, "speed": np.full((*x.shape[:-3], 2), 7, np.float32)}

    for steps in (9, 4, 13, 1, 1, 6):
        block = world.trajectory(steps)
        cuts = block.cuts._replace(obs=both(block.cuts.obs))
        block = block._replace(obs=both(block.obs), bootstrap=both(block.bootstrap), cuts=cuts)
        once.add(block)
        whole.add(block)
        same(once, whole, 2)
    assert len(list(tmp_path.glob("*age*"))) == 1


@pytest.mark.parametrize("envs", (1, 2))
def test_samplers_draw_only_rows_that_can_be_shown(envs: int) -> None:
    world, leaf, rng = Cameras(1, envs, 4), stack_of(4), np.random.default_rng(0)
    once, whole = Ring(20, envs, leaf, ACTION), Ring(20, envs, replace(leaf, stack=0), ACTION)
    rare, even = PrioritizedSampler(once), UniformSampler(once)
    seen: set[int] = set()
    for _ in range(25):
        block = world.trajectory(3)
        rare.add(block)
        whole.add(block)
        for draw in (rare.draw(rng, 4, 8, np.ones(4)), even.draw(rng, 4, 8)):
            assert once.contains(draw.ids).all() and once.valid[once.position(draw.ids)].all()
            found = [ring.transitions(draw.ids).obs for ring in (once, whole)]
            np.testing.assert_array_equal(*found)
            seen |= set(draw.ids.ravel().tolist())
        rare.update(draw.ids, rng.random(draw.ids.shape))
        p = rare._priorities.tree.leaves
        # rows that are only shown by others are drawn no more
        assert np.count_nonzero(p) == len(once)
    assert len(seen) > 60 * envs


def test_pictures_that_are_stored_once_take_what_size_says() -> None:
    atari = Leaf("box", (4, 84, 84), "uint8", stack=4)
    action = Leaf("discrete", (), "int64", (6,))
    for envs in (1, 8):
        assert 100_000 * 84 * 84 < Ring.size(100_000, envs, atari, action) < 0.8 * GIB
    assert Ring.size(100_000, 1, replace(atari, stack=0), action) > 2.6 * GIB
    ring = Ring(1_000, 8, atari, action)
    assert sum(x.nbytes for x in ring._columns.values()) == Ring.size(1_000, 8, atari, action)
    # the observation after the newest row; what the oldest shows
    assert ring._columns["obs"].shape == (125 + 1 + 3, 8, 84, 84)


def test_what_is_no_stack_is_refused() -> None:
    """One that repeats its first picture, as Gymnasium's wrapper does, would come back wrong."""
    leaf, world = stack_of(3), Cameras(2, 1, 3)
    block = world.trajectory(12)
    repeated = block.obs.copy()
    starts = 1 + np.flatnonzero(block.last[:-1, 0])
    assert len(starts)
    repeated[starts, 0, :-1] = 99
    for split in (12, int(starts[0])):  # within a block, and between two
        ring = Ring(50, 1, leaf, ACTION)

        def part(low: int, high: int, repeated: Any = repeated) -> Trajectory:
            cut = (block.cuts.t >= low) & (block.cuts.t < high)
            cuts = Cuts(block.cuts.t[cut] - low, block.cuts.env[cut], block.cuts.obs[cut])
            rows = [x[low:high] for x in (repeated, *block[1:6])]
            after = repeated[high] if high < 12 else block.bootstrap
            return Trajectory(*rows, cuts, after)

        with pytest.raises(EnvironmentFault, match="does not continue the previous one"):
            for low, high in ((0, split), (split, 12)):
                ring.add(part(low, high))
    with pytest.raises(SpaceError, match="stacks of 4"):
        Ring(10, 1, replace(leaf, stack=4), ACTION)
    with pytest.raises(SpaceError, match="stacks of shape"):
        Ring(10, 1, leaf, ACTION).add(block._replace(obs=block.obs[:, :, 1:]))
    assert from_json(to_json(stack_of(4))) == stack_of(4)
    old = to_json(stack_of(4))
    del old["stack"]  # as checkpoints written before there was one
    assert from_json(old) == replace(stack_of(4), stack=0)
