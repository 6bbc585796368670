from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tandem.replay import sumtree
from tandem.replay.sumtree import SumTree

PRIORITIES = st.lists(st.one_of(st.just(0.0), st.floats(1e-12, 1e12)), min_size=1, max_size=70)


@pytest.fixture(params=[1, 4096], ids=["sparse", "dense"], autouse=True)
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small trees, as these are, take the paths of large ones too."""
    monkeypatch.setattr(sumtree, "_SMALL", request.param)


def tree_of(priorities: list[float]) -> SumTree:
    tree = SumTree(len(priorities))
    tree.set(np.arange(len(priorities)), np.array(priorities))
    return tree


def test_worked_by_hand_and_a_large_tree() -> None:
    tree = tree_of([3, 0, 1, 4, 0, 2])
    assert tree.total == 10
    values = np.array([0, 2.9, 3, 3.9, 4, 7.9, 8, 9.9])
    assert tree.find(values).tolist() == [0, 0, 2, 2, 3, 3, 5, 5]
    tree.set(np.array([3, 1]), np.array([0.0, 5.0]))
    assert tree.total == 11
    assert tree.find(np.array([2.9, 3, 7.9, 8, 9])).tolist() == [0, 1, 1, 2, 5]
    assert tree.get(np.array([[1, 3], [0, 2]])).tolist() == [[5, 0], [3, 1]]
    # 2 ** 52 + 3 lies in the third leaf; less the first leaf's 1.5 it rounds to all of that
    assert tree_of([1.5, 0, 2.0**52 + 2, 0]).find(np.array([2.0**52 + 3])).tolist() == [2]
    # deep enough for the real constants: whole numbers, so that sums are exact
    rng = np.random.default_rng(0)
    priorities = rng.integers(0, 5, 50_000).astype(np.float64)
    tree = SumTree(len(priorities))
    for part in np.array_split(rng.permutation(len(priorities)), 300):
        tree.set(part, priorities[part])
    values = rng.integers(0, int(priorities.sum()), 3000).astype(np.float64)
    expected = np.searchsorted(np.cumsum(priorities), values, side="right")
    np.testing.assert_array_equal(tree.find(values), expected)
    np.testing.assert_array_equal(tree.find(values[:3]), expected[:3])


@settings(max_examples=200, derandomize=True, deadline=None)
@given(
    PRIORITIES,
    st.lists(st.tuples(st.integers(0, 69), st.floats(0, 1e6)), max_size=40),
    st.integers(1, 40),
)
def test_every_node_is_the_sum_of_its_children(priorities: Any, changes: Any, chunk: int) -> None:
    tree, plain = tree_of(priorities), list(priorities)
    changes = [(i % len(plain), p) for i, p in changes]
    for at in range(0, len(changes), chunk):
        part = changes[at : at + chunk]
        tree.set(np.array([i for i, _ in part]), np.array([p for _, p in part]))
        for i, p in part:
            plain[i] = p
    assert tree.leaves.tolist() == plain
    nodes = tree._nodes
    assert all(nodes[i] == nodes[2 * i] + nodes[2 * i + 1] for i in range(1, tree._width))
    # the tree is a function of its leaves alone
    assert nodes.tobytes() == tree_of(plain)._nodes.tobytes()


@settings(max_examples=200, derandomize=True, deadline=None)
@given(PRIORITIES.filter(any), st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=40))
def test_find_is_the_prefix_sum_search(priorities: list[float], shares: list[float]) -> None:
    """Against a loop over running sums, up to their rounding."""
    tree = tree_of(priorities)
    borders = np.cumsum(priorities)
    shares = np.array(shares) * tree.total
    values = np.concatenate([shares, borders, np.nextafter(borders, 0), [tree.total]])
    found = tree.find(values)
    slack = 1e-12 * tree.total
    for value, i in zip(values, found.tolist(), strict=True):
        assert 0 <= i < len(priorities) and priorities[i] > 0
        assert borders[i] - priorities[i] - slack <= value <= borders[i] + slack


@settings(max_examples=100, derandomize=True, deadline=None)
@given(
    PRIORITIES,
    st.lists(st.lists(st.tuples(st.integers(0, 69), st.floats(0, 1e6)), min_size=1), max_size=12),
    st.integers(0, 12),
)
def test_leaves_as_they_were_are_kept(priorities: Any, changes: Any, again: int) -> None:
    tree = tree_of(priorities)
    first, second, expected = tree.before(), None, []
    for k, part in enumerate(changes):
        if k == again:
            second, expected = tree.before(), tree.leaves.tolist()
        tree.set(np.array([i % tree.size for i, _ in part]), np.array([p for _, p in part]))
    if second is not None:
        assert second.leaves().tolist() == expected
    assert first.leaves().tolist() == first.leaves().tolist() == priorities


def test_what_is_kept_of_leaves_is_no_more_than_all_of_them() -> None:
    tree = tree_of([1.0] * 64)
    before = tree.before()
    for k in range(1000):
        tree.set(np.arange(k % 60, k % 60 + 5), np.full(5, float(k)))
        assert sum(len(indices) for indices, _ in before._changes) < tree.size
    assert before.leaves().tolist() == [1.0] * 64
