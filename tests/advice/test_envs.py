"""The advice of `envs` on environments of one agent and on vectors of them."""

from __future__ import annotations

import sys
import threading
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from tandem import trainer
from tandem.envs import atari, factory
from tandem.envs.actions import to_environment
from tandem.envs.factory import make, spaces_of, vectorize
from tandem.envs.goals import WithGoal
from tandem.envs.plain import Plain
from tandem.envs.stepped import Stepped
from tandem.envs.vector import opened
from tandem.spaces import leaf
from tandem.testing import environments as games
from tests.advice.net import case, follows
from tests.advice.worlds import PAIR, TWO, Toy, steps

ENDLESS = spaces.Box(-np.inf, np.inf, (2,))
MASK, SPREAD = {"action_mask": np.ones(2, np.int8)}, "mpe/simple_spread_v3"


def acting(space: Any, mode: Any = "unit") -> None:
    to_environment(leaf(space), mode)


def step(n: int = 1, mode: Any = "plain", **toy: Any) -> None:
    steps(vectorize(lambda: Toy(**toy), n, mode=mode))


def vector(mode: str = "native", n: int = 2, kwargs: Any = None, env: Any = "CartPole-v1") -> None:
    steps(vectorize(env, n, mode=mode, kwargs=kwargs))


def reload(n: int, env: str, into: str = "", mode: str = "native", kwargs: Any = None) -> None:
    saved = vectorize(env, 2, mode=mode, kwargs=kwargs)
    saved.reset()
    other = vectorize(env, n, mode=into or mode, kwargs=kwargs)
    other.reset()
    other.load_state(*saved.state())


def stepped(*environments: Any) -> None:
    steps(Stepped("Toy", environments))


def resumes(env: Any) -> None:
    if fault := factory.resume_fault(env, mode="plain"):
        raise fault


class Unseeded(Toy):
    """The last rewards of its episodes are drawn from a generator that no seed reaches."""

    def step(self, action: Any) -> Any:
        self.reward = 0.0 if self.t < 7 else np.random.default_rng().random()
        return super().step(action)


class Seeded(Toy):
    def step(self, action: Any) -> Any:
        self.reward = self.np_random.random()
        return super().step(action)


class Locked(Toy):
    """Cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class Aimed(Toy):
    """Has a goal once it was reset."""

    def reset(self, **given: Any) -> Any:
        self.goal = np.zeros(2)
        return super().reset(**given)


class Old:
    """As gym had them, before 0.26."""

    action_space: Any = TWO

    def __init__(self, results: Any = None, **more: Any) -> None:
        self.results = results or (np.zeros(2), 1.0, False, {})
        vars(self).update(more)

    def reset(self) -> Any:
        return np.zeros(2)

    def step(self, action: Any) -> Any:
        return self.results


class Resetless:
    action_space, step = TWO, Old.step


def plain(env: Any, **more: Any) -> None:
    old = Plain(env, **more)
    old.reset(seed=0)
    old.step(1)


SAME = Toy()
TEAM = (np.zeros(2), [1.0, 2.0], [False, False], {})


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        case("envs/actions.py:to_environment", acting, {"space": PAIR, "mode": "tanh"}),
        case(
            "envs/actions.py:to_environment 2",
            acting,
            {"space": ENDLESS},
            "gymnasium.wrappers.TransformAction(env, function, gymnasium.spaces.Box(-1, 1, (2,)))",
            {
                "space": gymnasium.wrappers.TransformAction(
                    Toy(PAIR, ENDLESS), np.arctanh, gymnasium.spaces.Box(-1, 1, (2,))
                ).action_space
            },
        ),
        case(
            "envs/factory.py:make",
            make,
            {"env": Toy, "kwargs": {"reward": 3.0}},
            "functools.partial",
            {"env": partial(Toy, reward=3.0), "kwargs": None},
        ),
        case(
            "envs/factory.py:make 2",
            make,
            {"env": lambda size: Toy()},
            "as in lambda: MyEnv(size=3)",
            {"env": lambda: (lambda size: Toy())(size=3)},
        ),
        case(
            "envs/factory.py:make 3",
            make,
            {"env": lambda: None},
            "let it return a gymnasium.Env",
            {"env": lambda: Toy()},
        ),
        case(
            "envs/factory.py:make 3",
            make,
            {"env": 3},
            "such as 'CartPole-v1'",
            {"env": "CartPole-v1"},
        ),
        case(
            "envs/factory.py:make 3",
            make,
            {"env": Old()},
            "around one of an older interface tandem.envs.plain.Plain(env)",
            {"env": Plain(Old())},
        ),
        case(
            "envs/flat_actions.py:adapted",
            spaces_of,
            {"env": partial(Toy, action_space=None)},
            "set self.action_space in its __init__",
            {"env": partial(Toy, action_space=TWO)},
        ),
        case("envs/factory.py:vectorize", vector, {"n": 0}),
        case("envs/factory.py:vectorize 2", vector, {"mode": "fast"}),
        case(
            "envs/factory.py:separate",
            factory.separate,
            {"env": Locked()},
            "a callable that makes the environment",
            {"env": Locked},
        ),
        case(
            "envs/factory.py:resume_fault_between",
            resumes,
            {"env": Unseeded},
            "every random number from self.np_random",
            {"env": Seeded},
        ),
        case(
            "envs/factory.py:_stepped",
            vector,
            {"env": lambda: SAME, "mode": "plain"},
            "what makes a new one each time: the class, as in tandem.train(…, Toy)",
            {"env": Toy},
        ),
        case(
            "envs/factory.py:_stepped",
            vector,
            {"env": lambda: SAME, "mode": "plain"},
            "give envs=1",
            {"n": 1},
        ),
        case("envs/factory.py:_native", vector, {"env": "MountainCar-v0"}),
        case(
            "envs/factory.py:_native 2",
            vector,
            {"kwargs": {"max_episode_steps": -1}},
            "use mode='plain'",
            {"mode": "plain"},
        ),
        case(
            "envs/factory.py:_native 2",
            vector,
            {"kwargs": {"max_episode_steps": -1}},
            "leave max_episode_steps out",
            {"kwargs": {}},
        ),
        case(
            "envs/ids.py:guarded 2",
            make,
            {"env": "CartPole-v1", "kwargs": {"gravity": 1}},
            "correct the id, the function or the arguments",
            {"kwargs": {"sutton_barto_reward": True}},
        ),
        case(
            "envs/goals.py:WithGoal._goal",
            WithGoal,
            {"env": Toy()},
            "set self.goal in reset",
            {"env": Aimed()},
        ),
        case(
            "envs/atari.py:arguments",
            partial(trainer.session, "ppo", "CartPole-v1", framework="torch"),
            {"frame_stack": 2},
            "leave them out",
            {"frame_stack": 4},
        ),
        case(
            "envs/atari.py:history",
            atari.history,
            {"env": "Breakout-v4"},
            "use 'ALE/Breakout-v5'",
            {"env": "ALE/Breakout-v5"},
        ),
        case("envs/atari.py:vector", vector, {"env": "ALE/Pong-v5", "n": 1}),
        case(
            "envs/vector.py:other_number",
            reload,
            {"n": 1, "env": "ALE/Pong-v5", "kwargs": {"life_loss_ends": True}},
            "make 2 environments",
            {"n": 2},
        ),
        case(
            "envs/vector.py:other_number",
            reload,
            {"n": 3, "env": "CartPole-v1"},
            "make 2 environments",
            {"n": 2},
        ),
        case(
            "envs/particles.py:Particles.__init__",
            vector,
            {"env": SPREAD, "kwargs": {"curriculum": False}},
        ),
        case(
            "envs/particles.py:Particles.load_state",
            reload,
            {"n": 2, "env": SPREAD, "mode": "plain", "into": "native"},
            "mode='plain'",
            {"into": "plain"},
        ),
        case(
            "envs/particles.py:Particles.load_state 2",
            reload,
            {"n": 3, "env": SPREAD},
            "make 2 environments",
            {"n": 2},
        ),
        case(
            "envs/stepped.py:Stepped.load_state",
            reload,
            {"n": 2, "env": SPREAD, "mode": "native", "into": "plain"},
            "make them with that mode",
            {"into": "native"},
        ),
        case(
            "envs/vector.py:other_number",
            reload,
            {"n": 3, "env": "CartPole-v1", "mode": "plain"},
            "make 2 environments",
            {"n": 2},
        ),
        case(
            "envs/stepped.py:Stepped.__init__",
            lambda other: stepped(Toy(), other),
            {"other": Toy(ENDLESS)},
            "every copy of the environment with the same spaces",
            {"other": Toy()},
        ),
        case(
            "envs/stepped.py:not_resumable",
            resumes,
            {"env": games.Unrepeatable},
            "every random number from self.np_random",
            {"env": games.IdentityBox},
        ),
        case(
            "envs/plain.py:Plain.__init__",
            plain,
            {"env": Resetless()},
            "write reset",
            {"env": Old()},
        ),
        case(
            "envs/plain.py:Plain.__init__ 2",
            plain,
            {"env": Old(action_space=None)},
            "set env.action_space = gymnasium.spaces.Discrete(n)",
            {"env": Old(action_space=gymnasium.spaces.Discrete(2))},
        ),
        case(
            "envs/plain.py:Plain.step",
            plain,
            {"env": Old((np.zeros(2), 1.0))},
            "return one of these from step",
            {"env": Old((np.zeros(2), 1.0, False, False, {}))},
        ),
        case(
            "envs/plain.py:Plain._one",
            plain,
            {"env": Old(TEAM)},
            "write reward_done_func_ma(r, d) to return one reward and one end",
            {"reduce": lambda r, d: (sum(r), all(d))},
        ),
        case(
            "envs/plain.py:_space",
            plain,
            {"env": Old(action_space=spaces.Discrete), "action_space": object()},
            "one of gymnasium.spaces",
            {"action_space": TWO},
        ),
        case("envs/vector.py:raised", step, {"fault": "a key"}, "correct the env", {"fault": ""}),
        case(
            "envs/vector.py:wrong_observation",
            step,
            {"obs": np.zeros(3)},
            "correct the environment's observation",
            {"obs": np.zeros(2, np.float32)},
        ),
        case(
            "envs/vector.py:wrong_observation",
            step,
            {"obs": np.zeros(3, np.float32), "observation_space": PAIR},
            "or its observation_space",
            {"observation_space": spaces.Box(0, 1, (3,), np.float32)},
        ),
        case(
            "envs/vector.py:no_symbol",
            step,
            {"obs": 2, "observation_space": TWO},
            "or its observation_space",
            {"observation_space": spaces.Discrete(3)},
        ),
        case(
            "envs/vector.py:_observation_alone",
            lambda came: opened("Old", came),
            {"came": np.zeros(2)},
            "return obs, {} from reset; or wrap the environment: tandem.envs.plain.Plain(env)",
            {"came": (np.zeros(2), {})},
        ),
        case(
            "envs/vector.py:wrong_reward",
            step,
            {"reward": [1.0, 2.0]},
            "such as float(np.sum(reward))",
            {"reward": float(np.sum([1.0, 2.0]))},
        ),
        case(
            "envs/vector.py:wrong_reward",
            step,
            {"reward": None},
            "return one, such as 0.0",
            {"reward": 0.0},
        ),
        case(
            "envs/vector.py:wrong_flag",
            step,
            {"terminated": np.ones(1)},
            "return bool(terminated)",
            {"terminated": bool(np.ones(1))},
        ),
        case(
            "envs/vector.py:wrong_flag",
            step,
            {"terminated": np.ones(2)},
            "return bool(terminated.all())",
            {"terminated": bool(np.ones(2).all())},
        ),
    ],
)
def test_advice_on_environments(case) -> None:
    case.follow()


@pytest.mark.parametrize("name", ["CartPol-v1", "cartpole-v1", "tandem/Chian-v0"])
def test_ids_that_nobody_has(name) -> None:
    with follows("envs/ids.py:_unknown") as advice:
        make(name)
    make(advice.quoted())


REGISTERS = """
import gymnasium

gymnasium.register("Zzyzx-v0", entry_point="tests.advice.worlds:Toy")
"""


def test_an_id_of_a_module(tmp_path, monkeypatch) -> None:
    (tmp_path / "own_games.py").write_text(REGISTERS)
    monkeypatch.syspath_prepend(tmp_path)
    with follows("envs/ids.py:_unknown") as advice:
        make("Zzyzx-v0")
    told = advice.fix.rpartition("before it: ")[2]
    assert told == "module:Zzyzx-v0"
    make(told.replace("module", "own_games"))
    del gymnasium.registry["Zzyzx-v0"]


def test_a_package_that_is_missing(tmp_path, monkeypatch) -> None:
    (tmp_path / "games_of_others.py").write_text("import needed_by_games\n" + REGISTERS)
    monkeypatch.syspath_prepend(tmp_path)
    with follows("envs/ids.py:guarded") as advice:
        make("games_of_others:Zzyzx-v0")
    assert "install the package that the message above names" in advice.fix
    assert "needed_by_games" in advice.error.happened
    (tmp_path / "needed_by_games.py").touch()
    make("games_of_others:Zzyzx-v0")
    del gymnasium.registry["Zzyzx-v0"]
    for name in ("games_of_others", "needed_by_games"):
        sys.modules.pop(name)
