import json
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tandem.errors import SpaceError, noting
from tandem.learning.collect.trained_agent import rows_of
from tandem.spaces import (
    Leaf,
    action_leaf,
    flattener,
    from_json,
    gymnasium_space,
    leaf,
    observation_spec,
    outline,
    to_json,
)
from tandem.types import Batch, Cuts, Trajectory, leaves, tree_map

PIXELS = spaces.Box(0, 255, (84, 84, 3), np.uint8)
TORQUE = spaces.Box(np.array([-1.0, -2.0]), np.array([1.0, 2.0]), dtype=np.float64)
HALF = spaces.Box(np.float32([0, -np.inf]), np.float32([1, 1]))


@pytest.mark.parametrize(
    "space, expected, width",
    [
        (TORQUE, Leaf("box", (2,), "float32", (), (-1.0, -2.0), (1.0, 2.0)), 2),
        (spaces.Discrete(4), Leaf("discrete", (), "int64", (4,)), 4),
        (spaces.Discrete(3, start=-1), Leaf("discrete", (), "int64", (3,), start=-1), 3),
        (spaces.MultiDiscrete([2, 5]), Leaf("multidiscrete", (2,), "int64", (2, 5)), 7),
        (spaces.MultiBinary(6), Leaf("multibinary", (6,), "int8"), 6),
        (spaces.MultiBinary((2, 3)), Leaf("multibinary", (2, 3), "int8"), 6),
        (spaces.Box(0.0, 1.0, ()), Leaf("box", (), "float32", (), (0.0,), (1.0,)), 1),
    ],
)
def test_the_leaf_of_each_kind(space, expected, width) -> None:
    assert leaf(space) == expected and leaf(space).width == width


def test_bounded_spaces_and_pictures() -> None:
    assert leaf(TORQUE).bounded
    assert not leaf(HALF).bounded and not leaf(spaces.Discrete(3)).bounded
    assert leaf(PIXELS).dtype == "uint8" and leaf(PIXELS).image
    assert not leaf(spaces.Box(0, 255, (84, 84), np.uint8)).image  # no channel axis
    assert not leaf(spaces.Box(0.0, 1.0, (84, 84, 3))).image  # not bytes


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(5),
        spaces.Tuple([spaces.Discrete(2)]),
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Dict({"a": spaces.Discrete(2)}),
        spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])),
        spaces.MultiDiscrete([2, 3], start=[0, 1]),
    ],
    ids=lambda space: type(space).__name__,
)
def test_a_space_that_no_part_can_use_is_refused_by_name(space) -> None:
    with pytest.raises(SpaceError, match=r"(?s)cannot use.*expected .*Fix: .*wrapper") as caught:
        leaf(space)
    assert type(space).__name__ in str(caught.value)


BODY = spaces.Dict({"joint": TORQUE, "touch": spaces.MultiBinary(3)})
NESTED = spaces.Dict({"camera": PIXELS, "body": BODY})


def test_dicts_inside_dicts_become_one() -> None:
    spec, obs = observation_spec(NESTED), NESTED.sample()
    assert isinstance(spec, dict) and set(spec) == {"camera", "body/joint", "body/touch"}
    assert spec["body/joint"] == leaf(TORQUE)
    flat = flattener(NESTED)(obs)
    assert {k: np.shape(v) for k, v in flat.items()} == {k: s.shape for k, s in spec.items()}
    assert flat["body/touch"] is obs["body"]["touch"]  # moved, not copied
    assert flattener(TORQUE)(obs) is obs  # an array is left alone


numbers = st.floats(-100, 100, width=32)
bounds = arrays.arrays(np.float32, st.tuples(st.integers(1, 3)), elements=numbers)
leaf_spaces = st.one_of(
    bounds.map(lambda low: spaces.Box(low, low + 1)),
    st.just(spaces.Box(-np.inf, np.inf, (3,))),
    st.builds(spaces.Discrete, st.integers(1, 9), start=st.integers(-3, 3)),
    st.lists(st.integers(1, 5), min_size=1, max_size=3).map(spaces.MultiDiscrete),
    st.integers(1, 5).map(spaces.MultiBinary),
)
names = st.text("abc", min_size=1, max_size=2)
any_space = st.recursive(
    leaf_spaces,
    lambda inner: st.dictionaries(names, inner, min_size=1, max_size=3).map(spaces.Dict),
)


@given(any_space)
def test_every_spec_comes_back_from_json_and_fits_its_samples(space) -> None:
    spec, flat = observation_spec(space), flattener(space)(space.sample())
    assert from_json(json.loads(json.dumps(to_json(spec)))) == spec
    pairs = [(spec[k], flat[k]) for k in spec] if isinstance(spec, dict) else [(spec, flat)]
    for one, value in pairs:
        assert np.shape(value) == one.shape


def test_bounds_are_none_beyond_those_of_the_space() -> None:
    """Those of floats and of whole numbers are what they were; a double is rounded inwards."""
    low, high = np.array([-0.1, -np.inf, 0.5, -1e300]), np.array([0.3, np.inf, 0.5, 1e300])
    found = leaf(spaces.Box(low, high, dtype=np.float64)).bounds
    most = np.finfo(np.float32).max
    np.testing.assert_array_equal(found[0], np.float32([-0.099999994, -np.inf, 0.5, -most]))
    np.testing.assert_array_equal(found[1], np.float32([0.29999998, np.inf, 0.5, most]))
    assert (found[0] >= low).all() and (found[1] <= high).all()
    for space in (spaces.Box(-0.1, 0.3, (2, 3), np.float32), spaces.Box(-5, 250, (2,), np.int16)):
        for bound, one in zip(leaf(space).bounds, (space.low, space.high), strict=True):
            assert bound.dtype == space.dtype and np.array_equal(bound, one)


@pytest.mark.parametrize(
    "space", [spaces.Box(-1, 1, (0,)), spaces.Box(-1, 1, (2, 0)), spaces.Dict({})]
)
def test_a_space_that_holds_nothing_is_refused(space) -> None:
    for one in (space, spaces.Dict({"a": PIXELS, "b": space})):
        with pytest.raises(SpaceError, match="at least one"):
            observation_spec(one)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (3,), np.float64),
        spaces.Box(0, 255, (8, 8, 3), np.uint8),
        spaces.Box(-np.inf, np.inf, (2,), np.float32),
        spaces.Box(np.iinfo(np.int64).min, np.iinfo(np.int64).max, (2,), np.int64),
        spaces.Discrete(5, start=-2),
        spaces.MultiDiscrete([2, 5]),
        spaces.MultiBinary((2, 3)),
        spaces.Dict(a=spaces.Dict(b=spaces.Discrete(2), c=spaces.Box(0, 1, (1,)))),
        spaces.Tuple([spaces.Discrete(2), spaces.Tuple([spaces.Box(0, 1, (1,))])]),
    ],
    ids=str,
)
def test_a_space_comes_back_from_what_a_checkpoint_keeps(space) -> None:
    kept = json.loads(json.dumps([to_json(observation_spec(space)), outline(space)]))
    assert gymnasium_space(from_json(kept[0]), kept[1]) == space
    older = gymnasium_space(from_json(kept[0]))  # from before there was an outline
    assert observation_spec(older) == observation_spec(space)


# texts, as MiniGrid's space of missions: no class that Gymnasium knows
MISSION = type("Mission", (spaces.Space,), {"sample": lambda self, *_: "get the key"})()


class Env(gymnasium.Env):
    def __init__(self, observation, action) -> None:
        self.observation_space, self.action_space = observation, action

    def step(self, action):
        assert self.action_space.contains(action)
        return 0, 0.0, False, False, {}


@pytest.mark.parametrize("text", [spaces.Text(5), MISSION], ids=["Text", "of its own"])
def test_texts_are_left_out_of_a_dict_with_a_note_and_refused_elsewhere(text) -> None:
    parts = {"a": spaces.Discrete(2), "b": spaces.Box(0, 1, (1,)), "mission": text}
    space = spaces.Dict(parts | {"c": spaces.Dict(x=text, y=spaces.Discrete(2))})
    with noting(notes := []):
        spec = observation_spec(space)
    assert list(spec) == ["a", "b", "c/y"] and "'mission'" in notes[0] and "'x'" in notes[1]
    assert list(flattener(space)(space.sample())) == list(spec)
    assert "mission" not in gymnasium_space(spec, outline(space)).spaces
    for alone in (text, spaces.Dict(a=text)):
        with pytest.raises(SpaceError, match="TransformObservation"):
            observation_spec(alone)
    env = Env(spaces.Tuple(parts.values()), spaces.Discrete(2))
    with pytest.raises(SpaceError, match="entry '2' of the observation is text") as caught:
        observation_spec(env.observation_space)
    fixed = eval(caught.value.fix.removeprefix("leave it out: ").rstrip("."))
    assert list(observation_spec(fixed.observation_space)) == ["0", "1"]


@pytest.mark.parametrize(
    "space, says",
    [
        (spaces.Dict(a=spaces.Box(-1, 1, (2,))), "ActionWrapper"),
        (spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (1,))]), "ActionWrapper"),
        (spaces.Discrete, "call it: Discrete"),
    ],
)
def test_other_actions_are_told_what_helps(space, says) -> None:
    with pytest.raises(SpaceError) as caught:
        action_leaf(space, leaf(spaces.Discrete(2)))
    assert says in caught.value.fix


def test_names_of_entries_and_classes_derived_from_spaces() -> None:
    one = spaces.Discrete(2)
    with pytest.raises(SpaceError, match="two entries of the observation space are called 'a/b'"):
        observation_spec(spaces.Dict({"a/b": one, "a": spaces.Dict(b=one)}))
    space = spaces.Tuple([spaces.Discrete(3), spaces.Dict(x=spaces.Box(0, 1, (2,)))])
    spec = observation_spec(space)  # a tuple is a dict whose names are numbers
    assert list(spec) == ["0", "1/x"] and spec["0"].sizes == (3,)
    flat = flattener(space)((2, {"x": np.ones(2)}))
    assert flat["0"] == 2 and flat["1/x"].tolist() == [1, 1]
    space = spaces.Dict({"": one, "b": spaces.Dict({"": spaces.Discrete(3)})})
    rows, single = rows_of(observation_spec(space), {"": 1, "b": {"": 2}})
    assert single and rows == {"": 1, "b/": 2}
    own = type("Own", (spaces.Box,), {})(-1, 1, (2,))
    assert leaf(own) == leaf(spaces.Box(-1, 1, (2,)))
    assert list(observation_spec(type("OwnDict", (spaces.Dict,), {})({"a": own}))) == ["a"]


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


def test_tree_map_walks_trees_side_by_side_and_leaves_come_in_their_order() -> None:
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
