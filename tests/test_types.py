from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.types import Batch, Cuts, Trajectory, leaves, tree_map

trees = st.recursive(
    st.integers(),
    lambda inner: (
        st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=12,
)


def test_tree_map_reaches_into_tuples_and_keeps_their_types() -> None:
    obs = {"image": np.zeros((2, 3)), "speed": np.ones(2)}
    batch = Batch(obs=obs, action=np.array([0, 1]), settings={"lr": 0.1})
    shapes = tree_map(np.shape, batch)
    assert isinstance(shapes, Batch)
    assert shapes.obs == {"image": (2, 3), "speed": (2,)} and shapes.action == (2,)
    assert shapes.reward == () and shapes.next_obs == ()  # the tree without leaves stays what it is
    assert shapes.settings == {"lr": ()}
    grid, cuts = np.zeros((4, 2)), Cuts(np.array([1]), np.array([0]), np.ones((1, 3)))
    ends = grid > 0, grid == 0, cuts, np.zeros((2, 3))
    copied = tree_map(np.copy, Trajectory(np.zeros((4, 2, 3)), grid, grid, grid, *ends))
    assert isinstance(copied, Trajectory) and isinstance(copied.cuts, Cuts)
    assert copied.cuts.obs.shape == (1, 3) and copied.cuts.obs is not cuts.obs


def test_tree_map_walks_trees_side_by_side() -> None:
    a = {"x": 1, "y": (2, 3)}
    b = {"y": (20, 30), "x": 10}  # a dict's order does not matter, its names do
    assert tree_map(lambda p, q: p + q, a, b) == {"x": 11, "y": (22, 33)}
    with pytest.raises(ValueError, match="zip"):
        tree_map(lambda p, q: p, (1, 2), (1,))
    with pytest.raises(KeyError):
        tree_map(lambda p, q: p, {"x": 1}, {"y": 1})
    # None is a tree without leaves
    assert tree_map(lambda x: x + 1, None) is None
    sums = tree_map(lambda x, y: x + y, {"a": 1, "b": None}, {"a": 2, "b": None})
    assert sums == {"a": 3, "b": None}


def test_leaves_come_in_the_trees_order() -> None:
    assert leaves({"b": 1, "a": (2, {"c": 3})}) == [1, 2, 3]
    assert leaves(()) == leaves({}) == leaves(None) == [] and leaves((None, 1)) == [1]
    assert leaves(7) == [7]


@given(trees)
def test_leaves_and_tree_map_see_the_same_leaves(tree: Any) -> None:
    seen: list[int] = []
    same = tree_map(lambda x: (seen.append(x), x)[1], tree)
    assert seen == leaves(tree) and same == tree
    twice = tree_map(lambda x: -x, tree_map(lambda x: x + 1, tree))
    assert twice == tree_map(lambda x: -(x + 1), tree)
