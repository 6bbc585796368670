import functools
import json
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from tandem.envs.actions import random_actions
from tandem.envs.factory import (
    Stepped,
    environment_name,
    episode_seed,
    make,
    resume_fault,
    separate,
    spaces_of,
    vectorize,
)
from tandem.envs.vector_env import VectorEnvironments
from tandem.errors import (
    EngineError,
    EnvironmentFault,
    NonFiniteError,
    ResumeError,
    SettingError,
    SpaceError,
    UnknownNameError,
)
from tandem.learning.collect.trained_agent import rows_of
from tandem.spaces import Leaf, from_json, to_json
from tandem.testing import environments as known
from tandem.testing.memory_games import CartPolePositions
from tests.envs.made import assert_same
from tests.envs.vectors import Counters


def _random_steps(envs, count, seed):
    rng = np.random.default_rng(seed)
    return np.stack([random_actions(envs.action, envs.n, rng, None) for _ in range(count)])


ZEROS = np.zeros(2, np.int64)


class Strict(gymnasium.Env):
    """Shows the sum of its actions, in its space's own dtype only, unless it is `lenient`."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def __init__(self, action_space, lenient=False):
        self.action_space, self.lenient = action_space, lenient

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.sum = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        own = self.action_space
        assert self.lenient or (action.dtype == own.dtype and own.contains(action))
        self.sum = self.sum + np.sum(action, dtype=action.dtype) * action.dtype.type(3)
        return np.array([self.sum], np.float32), 0.0, False, False, {}


class Shows(known.InfiniteHorizon):  # what a function of the step in its episode returns
    def __init__(self, shown, space=None, length=9):
        super().__init__(length)
        self.observation_space, self.shown = space or self.observation_space, shown

    def observe(self):
        return self.shown(self.t)


class Returns(known.InfiniteHorizon):
    """One of the numbers of its steps (1: reward, 2: terminated, 3: truncated) is another."""

    def __init__(self, at, value):
        super().__init__()
        self.at, self.value = at, value

    def step(self, action):
        one = list(super().step(action))
        one[self.at] = self.value
        return tuple(one)


def each(*makers, **given):
    """A vector of what these return."""
    left = iter(makers)
    return vectorize(lambda: next(left)(), len(makers), **given)


@pytest.mark.parametrize(
    "error, says, env, kwargs",
    [
        (UnknownNameError, "CartPole-v1", "CartPol-v1", {}),
        (UnknownNameError, "tandem/Chain-v0", "tandem/Chian-v0", {}),
        (EngineError, "no_such_module", "no_such_module:Thing-v0", {}),
        (SettingError, "be created: .*KeyError: '9x9'", "FrozenLake-v1", {"map_name": "9x9"}),
        (SettingError, "CartPole-v1 cannot be created: .*sutton", "CartPole-v1", {"sutton": True}),
        (SettingError, ":CartPole-v1 cannot be created: .*Empty module name", ":CartPole-v1", {}),
        (SettingError, "Cart Pole-v1 cannot be created: .*Malformed", "Cart Pole-v1", {}),
        (SettingError, "returns a gymnasium.Env", lambda: 3, {}),
        (SettingError, "without arguments: missing a .* argument: 'action_space'", Strict, {}),
        (SettingError, "without arguments: missing a .* argument: 'size'", lambda size: 1, {}),
        (SettingError, "with {'m': 7}: got an unexpected", known.Chain, {"m": 7}),
        (SettingError, "an existing Chain", known.Chain(), {"n": 7}),
    ],
)
def test_what_cannot_be_made_is_named(error, says, env, kwargs):
    with pytest.raises(error, match=says):
        make(env, kwargs)


def test_other_versions_and_missing_packages_are_named(monkeypatch):
    deprecated = pytest.warns(DeprecationWarning, match="LunarLander")
    with deprecated, pytest.raises(UnknownNameError, match="LunarLander-v3"):
        make("LunarLander-v2")
    monkeypatch.setitem(sys.modules, "Box2D", None)
    for name in [m for m in sys.modules if m.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(EngineError, match=r"tandem-rl\[box2d\]"):
        make("LunarLander-v3")


def test_ids_objects_classes_and_functions():
    env = known.Chain(7)
    assert make(env) is env
    assert isinstance(make(known.Chain), known.Chain)
    assert make(functools.partial(known.Chain, 7)).n == 7
    assert make("CartPole-v1", {"sutton_barto_reward": True}).unwrapped._sutton_barto_reward
    wrapper = CartPolePositions  # whose `spec` is a property of its objects
    for name, *kinds in (
        ("CartPole-v1", "CartPole-v1", gymnasium.make("CartPole-v1")),
        ("Chain", env, known.Chain, functools.partial(known.Chain, 7)),
        ("CartPolePositions", wrapper),
    ):
        assert {environment_name(kind) for kind in kinds} == {name}
    assert vectorize(env, 1).n == 1  # one object is one environment
    for shared in (env, lambda: env):
        with pytest.raises(SettingError, match="same environment"):
            vectorize(shared, 2)
    copied = separate(env)
    assert copied is not env and copied.n == env.n and separate("CartPole-v1") == "CartPole-v1"


def test_an_unknown_id_with_its_module_is_answered_with_one_that_can_be_given():
    prefix = "tandem.testing.environments:"
    with pytest.raises(UnknownNameError) as caught:
        make(f"{prefix}tandem/Chian-v0")
    assert caught.value.fix.startswith(f"did you mean '{prefix}tandem/Chain-v0'")
    assert "Else give a class or function of tandem" in caught.value.fix
    assert make(f"{prefix}tandem/Chain-v0").unwrapped.n == known.Chain().n
    with pytest.raises(UnknownNameError) as caught:
        make(f"{prefix}Xqzwkjh")
    assert caught.value.fix.startswith("give a class or function of tandem.testing.environments")
    with pytest.raises(UnknownNameError, match=f"did you mean '{prefix}Slow'"):
        make(f"{prefix}Slw")


@pytest.mark.parametrize(
    "kind, env, n, given",
    [
        (VectorEnvironments, "CartPole-v1", 8, {}),
        (Stepped, "CartPole-v1", 2, {}),
        (Stepped, "CartPole-v1", 8, {"mode": "plain"}),
        (VectorEnvironments, "CartPole-v1", 2, {"mode": "native"}),
        (Stepped, "Pendulum-v1", 2, {}),
        (VectorEnvironments, "CartPole-v1", 8, {"kwargs": {"max_episode_steps": 9}}),
        # vector entry points would cut every step by this limit
        (Stepped, "CartPole-v1", 8, {"kwargs": {"max_episode_steps": -1}}),
    ],
)
def test_auto_is_native_where_that_can_be_resumed(kind, env, n, given):
    envs = vectorize(env, n, **given)
    envs.reset()
    assert type(envs) is kind
    actions = random_actions(envs.action, n, np.random.default_rng(0), None)
    assert not envs.step(actions).truncated.any()
    with pytest.raises(SettingError, match="no vector entry point"):
        vectorize("Pendulum-v1", 2, mode="native")
    with pytest.raises(SettingError, match="mode="):
        vectorize("Pendulum-v1", 2, mode="quick")


def test_arrays_are_new_in_every_step_and_the_callers_actions_are_not_written_to():
    for mode in ("plain", "native"):
        envs = vectorize("CartPole-v1", 2, mode=mode)
        obs = envs.reset()
        kept = obs.copy()
        first = envs.step(np.array([0, 1]))
        copies = [np.array(x) for x in first[:5]]
        second = envs.step(np.array([0, 1]))
        np.testing.assert_array_equal(obs, kept)
        for x, y, z in zip(first[:5], copies, second[:5], strict=True):
            np.testing.assert_array_equal(x, y)
            assert not np.shares_memory(x, z) and x.flags.c_contiguous

    class Greedy(known.IdentityBox):
        def play(self, action):
            action *= 0
            return super().play(action)

    envs = vectorize(Greedy, 2)
    envs.reset()
    actions = np.ones((2, 1), np.float32)
    envs.step(actions)
    assert (actions == 1).all() and envs.state()[1]["actions"].tolist() == [[1.0], [1.0]]


def test_observations_follow_their_spec_and_spaces_must_be_there_and_agree():
    obs = vectorize("tandem/IdentityDict-v0", 3).reset()
    expected = {"noise": ((3, 2), "float32"), "inner/symbol": ((3,), "int64")}
    assert {k: (x.shape, x.dtype.name) for k, x in obs.items()} == expected
    picture = vectorize("tandem/IdentityImage-v0", 2).reset()
    assert (picture.shape, picture.dtype) == ((2, 36, 36, 1), np.uint8)
    doubles = vectorize(lambda: Shows(lambda t: np.full(1, 3e38, np.float64)), 2)
    assert doubles.reset().dtype == np.float32
    # its square overflows, which is no fault
    assert (doubles.step(ZEROS).obs == np.float32(3e38)).all()

    class Bare(gymnasium.Env):
        observation_space = spaces.Discrete(2)

    for env in (Bare, Bare(), lambda: gymnasium.Wrapper(Bare())):
        with pytest.raises(SpaceError, match="has no action_space"):
            spaces_of(env)
    with pytest.raises(SpaceError, match="environment 1"):
        each(lambda: known.Chain(3), lambda: known.Chain(4))


OWN = {
    "float16": spaces.Box(-2, 2, (2,), np.float16),
    "float64": spaces.Box(-0.1, 0.3, (2,), np.float64),
    "int32": spaces.Discrete(3, dtype=np.int32),
    "start": spaces.Discrete(3, start=5, dtype=np.int32),
    "several": spaces.MultiDiscrete([3, 4], dtype=np.int32),
    "usual": spaces.Box(-2, 2, (2,), np.float32),
}


def test_random_actions_are_within_a_box_wherever_it_lies():
    bounded = (1500, 3000, 1500, 2500), (-3000, -1500, -2500, -1500), (0, 1e6, 0, 1000)
    for low, high, first, last in (*bounded, (-np.inf, np.inf, -1000, 1000)):
        space = spaces.Box(low, high, (2,))
        envs = vectorize(lambda space=space: Strict(space), 300)
        drawn = random_actions(envs.action, 300, np.random.default_rng(0), None)
        assert first <= drawn.min() < first + 20 and last - 20 < drawn.max() <= last


def _goes_on(make_env, envs, dtype):
    for actions in _random_steps(envs, 20, 0):
        envs.step(actions)
    data, arrays = envs.state()
    assert arrays["actions"].dtype == dtype
    again = vectorize(make_env, 2)
    again.load_state(json.loads(json.dumps(data)), arrays)
    for actions in _random_steps(envs, 5, 1):
        assert_same(envs.step(actions)[:5], again.step(actions)[:5])
    assert again.state()[1]["actions"].dtype == dtype
    return data


@pytest.mark.parametrize("space", OWN.values(), ids=OWN)
def test_actions_reach_an_environment_in_its_spaces_own_dtype(space):
    envs = vectorize(lambda: Strict(space), 2)
    envs.reset()
    _goes_on(lambda: Strict(space), envs, space.dtype)
    assert from_json(json.loads(json.dumps(to_json(envs.action)))).own == envs.action.own


@pytest.mark.parametrize("space", [OWN["float16"], OWN["float64"]], ids=str)
def test_a_run_whose_actions_had_another_dtype_goes_on_with_that(space):
    """States from before actions had the space's own dtype say nothing of it."""
    envs = vectorize(lambda: Strict(space, lenient=True), 2)
    envs.reset()
    # as it was then
    envs.load_state({"seeds": [1, 2], "episodes": [0, 0], "lengths": [0, 0]}, envs.state()[1])
    data = _goes_on(lambda: Strict(space, lenient=True), envs, np.float32)
    assert data["dtype"] == "float32"


def test_a_vector_of_its_own_gets_actions_in_its_spaces_dtype_too():
    vector = Counters(2)
    vector.single_action_space = OWN["float16"]
    envs = VectorEnvironments("Vector", vector)
    envs.reset()
    envs.step(np.ones((2, 2), np.float32))
    assert vector.taken[0].dtype == np.float16


NO_ARRAY = np.zeros(1, np.bool_)
# also where the bad step is the last of its episode
CASES = [(where, length) for where in ("observation", "reward") for length in (10, 4)]
NOT_FINITE = [(x, functools.partial(known.NotFinite, 4, x, length)) for x, length in CASES]


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize(
    "bad, at, error, says",
    [
        *((env, 4, NonFiniteError, f"{where}.*at step 4 of its ep") for where, env in NOT_FINITE),
        (lambda: known.Raises(2), 2, EnvironmentFault, "ValueError at step 2 .*on purpose"),
        (lambda: known.WrongShape(1), 1, EnvironmentFault, r"shape \(2,\).*at step 1"),
        (lambda: Returns(1, 10**400), 1, EnvironmentFault, "returned the reward 1000"),
        (lambda: Returns(1, np.ones(2)), 1, EnvironmentFault, "the reward array"),
        (lambda: Returns(2, NO_ARRAY), 1, EnvironmentFault, r" terminated=array\(\[False\]\)"),
        (lambda: Returns(3, NO_ARRAY), 1, EnvironmentFault, r" truncated=array\(\[False\]\)"),
    ],
)
def test_faults_are_named_with_environment_and_step(bad, at, error, says, alone):
    envs = each(*((known.InfiniteHorizon, bad, known.InfiniteHorizon) if alone else (bad,) * 3))
    envs.reset()
    for _ in range(at - 1):
        envs.step(np.zeros(3, np.int64))
    with pytest.raises(error, match=f"environment {int(alone)} of .*{says}") as caught:
        envs.step(np.zeros(3, np.int64))
    assert ("ValueError" in says) == isinstance(caught.value.__cause__, ValueError)


def test_faults_of_resets_are_named():
    with pytest.raises(EnvironmentFault, match="while resetting"):
        vectorize(lambda: known.Raises(0), 1).reset()
    image = spaces.Box(0, 255, (2, 2), np.uint8)
    with pytest.raises(EnvironmentFault, match="float64"):
        vectorize(lambda: Shows(lambda t: np.full((2, 2), 0.5), image), 1).reset()
    for wrong in ([0.9, 1.0], [-1, 2], [256, 1], [[1, 2], [3, 4.5]]):  # to agents, too
        with pytest.raises(SpaceError, match="uint8 cannot hold"):
            rows_of(Leaf("box", (2,), "uint8"), wrong)


def test_a_reward_in_an_array_of_one_number_is_a_reward():
    pairs = [[np.ones(1), np.ones(1)], [np.ones((1, 1)), 0.5], [np.array(3), 1]]
    for rewards in (*pairs, [0.0, np.array([2.0], np.float32)], [True, np.float16(2)]):
        envs = each(*(functools.partial(Returns, 1, reward) for reward in rewards))
        envs.reset()
        found = envs.step(ZEROS).reward
        expected = [float(np.ravel(reward)[0]) for reward in rewards]
        assert found.dtype == np.float32 and found.tolist() == expected


BYTES = spaces.Box(0, 255, (2,), np.uint8)


@pytest.mark.parametrize("length", [1, 9])
@pytest.mark.parametrize(
    "space, wrong, expected",
    [
        *((BYTES, x, "") for x in ([0.9, 1], [1, 256], np.array([0.9, 1.0]), np.array([-1, 2]))),
        (BYTES, np.array([1.0, 2.0], np.float32), ""),
        (spaces.Box(-9, 9, (1,), np.int8), np.array([200]), ""),
        (spaces.Discrete(4), 1.5, ""),
        (spaces.MultiBinary(2), np.array([0.5, 1.0]), ""),
        (spaces.Dict({"a": BYTES}), {"a": np.array([0.5, 1.0])}, ""),
        (spaces.Tuple([BYTES]), (np.array([-1, 1]),), ""),
        (spaces.Discrete(4), 4, "from 0 to 3"),
        (spaces.Discrete(4, start=1), 0, "from 1 to 4"),
        (spaces.MultiDiscrete([2, 3]), [0, 3], r"from 0 to \(1, 2\)"),
        (spaces.Dict({"": spaces.Discrete(2)}), {"": -1}, "from 0 to 1"),
    ],
)
def test_numbers_that_the_space_cannot_hold_are_refused(space, wrong, expected, length):
    """After the reset too, and where they are the last of their episode."""
    right = space.sample()
    envs = vectorize(lambda: Shows(lambda t: wrong if t else right, space, length), 2)
    envs.reset()
    returned = "returned the observation .*" if expected else ""
    says = rf"environment 0 of .* {returned}at step 1 of its episode(.|\n)*{expected}"
    with pytest.raises(EnvironmentFault, match=says):
        envs.step(ZEROS)


@pytest.mark.parametrize(
    "space, right",
    [
        (BYTES, np.array([1, 255])),
        (BYTES, [3, 4]),
        (BYTES, np.array([True, False])),
        (spaces.Discrete(4), np.int32(3)),
        (spaces.Box(-9, 9, (2,), np.float32), np.array([1.5, 2])),
        (spaces.Box(-9, 9, (2,), np.float32), np.array([1, 2])),
    ],
)
def test_numbers_of_another_width_are_taken_where_they_fit(space, right):
    envs = vectorize(lambda: Shows(lambda t: right, space), 1)
    np.testing.assert_array_equal(envs.reset()[0], right)
    found = envs.step(np.zeros(1, np.int64)).obs
    np.testing.assert_array_equal(found[0], right)
    assert found.dtype == envs.observation.dtype
    np.testing.assert_array_equal(rows_of(envs.observation, right)[0][0], right)


PLAIN = ("CartPole-v1", "Pendulum-v1", "tandem/IdentityDict-v0", "tandem/IdentityImage-v0")


@pytest.mark.parametrize("env, mode", [("CartPole-v1", "native"), *((x, "plain") for x in PLAIN)])
def test_goes_on_exactly_after_a_state_through_json(env, mode):
    envs, again = (vectorize(env, 3, seed=4, mode=mode) for _ in range(2))
    envs.reset()
    for actions in _random_steps(envs, 333, seed=0):
        envs.step(actions)
    data, arrays = envs.state()
    again.load_state(json.loads(json.dumps(data)), arrays)
    assert json.loads(json.dumps(again.state()[0])) == json.loads(json.dumps(data))
    for actions in _random_steps(envs, 300, seed=1):
        expected, one = envs.step(actions), again.step(actions)
        assert_same((*one[:5], *one.final), (*expected[:5], *expected.final))


def test_the_action_log_survives_growth_and_ends_and_seeds_are_apart():
    """Episodes of different lengths, longer together than the log's first size."""
    envs = Stepped("Identity", [known.Identity(3, n) for n in (7, 1000, 300)], seed=0)
    envs.reset()
    history = _random_steps(envs, 700, seed=3)
    for actions in history:
        envs.step(actions)
    data, arrays = envs.state()
    assert data["lengths"] == [0, 700, 100] and data["episodes"] == [100, 0, 2]
    expected = np.concatenate([history[:, 1], history[600:, 2]])
    np.testing.assert_array_equal(arrays["actions"], expected)
    seeds = {episode_seed(s, i, k) for s in range(4) for i in range(8) for k in range(50)}
    assert len(seeds) == 4 * 8 * 50 and max(seeds) < 2**31


def test_rewards_that_hang_on_earlier_episodes_are_not_resumable():
    def normalized():
        return gymnasium.wrappers.NormalizeReward(gymnasium.make("CartPole-v1"))

    envs = vectorize(normalized, 2)
    envs.reset()
    for _ in range(6):
        envs.step(ZEROS)
    vectorize(normalized, 2).load_state(*envs.state())  # in their first episodes
    while not envs.step(ZEROS).final:
        pass
    envs.step(ZEROS)
    data, arrays = envs.state()
    with pytest.raises(ResumeError, match="its rewards differ"):
        vectorize(normalized, 2).load_state(data, arrays)
    del arrays["paid"]  # as older versions saved it
    vectorize(normalized, 2).load_state(data, arrays)
    assert "rewards differ" in str(resume_fault(normalized))


def test_what_cannot_be_resumed_is_named():
    class Hidden(known.Chain):  # the same observation, another future: only going on shows it
        def play(self, action):
            self.place = self.place or np.random.default_rng().integers(1, 3)
            return super().play(action)

    for mode in ("plain", "native"):
        assert resume_fault("CartPole-v1", mode=mode) is None
        envs = vectorize("CartPole-v1", 3, mode=mode)
        envs.reset()
        with pytest.raises(ResumeError, match="has 3 environments, but this run has 2"):
            vectorize("CartPole-v1", 2, mode=mode).load_state(*envs.state())
    assert resume_fault(known.Identity(3)) is None
    assert "environment 0 of tandem/Unrepeatable-v0" in str(resume_fault("tandem/Unrepeatable-v0"))
    assert "not exactly resumable" in str(resume_fault(known.Unrepeatable))
    assert isinstance(resume_fault(Hidden), ResumeError)


def test_a_native_state_keeps_kinds_and_aliases_or_says_so():
    envs = vectorize("CartPole-v1", 2, mode="native")
    envs.reset()
    inner = envs._envs
    inner.x = np.float64(1.5)
    inner.y = (1, [2.0, float("inf")])
    inner.z = {"a": np.arange(3), "b": None, "c": True}
    inner.legacy = np.random.Generator(np.random.MT19937(3))
    data, arrays = envs.state()
    expected = inner.legacy.random(3)
    inner.x, inner.y, inner.z = 0, 0, 0
    envs.load_state(json.loads(json.dumps(data)), arrays)
    assert type(inner.x) is np.float64 and inner.y == (1, [2.0, float("inf")])
    assert inner.z["a"].tolist() == [0, 1, 2] and inner.z["b"] is None and inner.z["c"] is True
    np.testing.assert_array_equal(inner.legacy.random(3), expected)

    inner.p, inner.q = np.zeros(2), np.ones(2)
    data, arrays = envs.state()
    inner.p = inner.q = np.zeros(2)  # one array under two names cannot take two values
    with pytest.raises(ResumeError, match="could not be restored"):
        envs.load_state(data, arrays)
    inner.screens = [object()]
    with pytest.raises(ResumeError, match="screens.*not exactly resumable"):
        envs.state()
