"""The advice on environments that are functions."""

import sys
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from tandem.envs.factory import make, vectorize
from tandem.envs.jax import checks, names
from tandem.functional import TimeStep
from tests.advice.net import advised, follow, rows
from tests.advice.worlds import installs, steps, without
from tests.functional import libraries
from tests.functional.worlds import PAIR, Odd, Walk


def by_id(env: str, **kwargs: Any) -> None:
    steps(vectorize(env, 2, kwargs=kwargs))


class Deciding(Odd):
    """Decides in Python where it is to."""

    how: Any = None

    def step(self, key: Any, state: Any, action: Any) -> TimeStep:
        reward = self.how(action == 1, 1.0, 0.0)
        return super().step(key, state, action)._replace(reward=jnp.asarray(reward))


class Remembering(Odd):
    """Keeps in an attribute what belongs into the state."""

    def reset(self, key: Any) -> Any:
        self.at = jax.random.uniform(key, (2,))
        return super().reset(key)

    def step(self, key: Any, state: Any, action: Any) -> TimeStep:
        return super().step(key, state, action)._replace(obs=self.at + action)


@dataclass
class Ball:
    at: Any


@jax.tree_util.register_dataclass
class RegisteredBall(Ball):
    pass


class Pair(Odd):
    """Gives other things than asked for, from its reset or its step."""

    reset_gives: Any = staticmethod(lambda state, obs: (state, obs))
    step_gives: Any = staticmethod(lambda one: one)

    def reset(self, key: Any) -> Any:
        return self.reset_gives(*super().reset(key))

    def step(self, key: Any, state: Any, action: Any) -> Any:
        return self.step_gives(super().step(key, state, action))


def world(made: Any = Odd, **given: Any) -> None:
    steps(vectorize(partial(made, **given), 1))


def alike(**given: Any) -> None:
    """What a compiled run asks for."""
    checks.same_dtypes("Pair", Pair(**given))


odd, deciding, pair = world, partial(world, Deciding), partial(world, Pair)
ENTRIES = spaces.Dict({"a": PAIR, "b": PAIR})
A, B = {"a": jnp.zeros(2)}, {"a": jnp.zeros(2), "b": jnp.zeros(2)}
IF = {"how": lambda condition, a, b: a if condition else b}
INDEX = {"how": lambda condition, a, b: [a, b].index(2.0)}
BALL, SPACE = {"state": Ball(0.0)}, {"observation_space": ENTRIES}
ONE_ENTRY = {"observation_space": spaces.Dict({"a": PAIR})}
BOOLEAN = "jnp.asarray(terminated, bool)"
TURNED = {"reset_gives": lambda state, obs: (obs, (state,))}
RIGHT = {"reset_gives": lambda state, obs: (state, obs)}
WHOLE = {"reset_gives": lambda state, obs: (state, jnp.zeros(2, int))}
SPLIT = {"step_gives": lambda one: (one.obs, one.state, one.reward, one.terminated)}
BYTES = {"observation_space": spaces.Box(0, 9, (2,), np.uint8)}
CUT = "set self.max_episode_steps = 500"
BARE = {"reset_gives": lambda state, obs: obs}
STEP = "return tandem.functional.TimeStep(state, obs, reward, terminated, truncated)"
STATE, REGISTER = {"state": {"at": jnp.float32(0)}}, "with jax.tree_util.register_dataclass"
REGISTERED = {"state": RegisteredBall(jnp.float32(0))}
ROW, FLAT = {"obs": jnp.zeros((1, 2))}, {"obs": jnp.zeros((1, 2)).reshape((2,))}
WHOLES = jnp.zeros(3, int)
TURNS, LIKE = {"state": {"at": jnp.zeros(3)}, "after": {"at": WHOLES}}, "jnp.asarray(…, float32)"
FLOATS = {"after": {"at": jnp.asarray(WHOLES, jnp.float32).reshape((3,))}}
ARRAY, ENDS = {"state": jnp.zeros(1, bool)}, np.zeros(3, bool)
SCALAR = {"state": jnp.bool_(False), "after": jnp.zeros(1, bool)}


@pytest.mark.slow
@rows(
    ("_check_whole", odd, {"max_episode_steps": -1}, f"{CUT}, or 0", {"max_episode_steps": 0}),
    ("_check_whole", odd, {"max_episode_steps": 2.5}, CUT, {"max_episode_steps": 500}),
    ("_check_whole", odd, {"reset_pool": -1}, "set self.reset_pool = 128, or 0", {"reset_pool": 0}),
    ("checks.py:check 2", pair, BARE, "return state, obs from reset", RIGHT),
    ("checks.py:check 3", pair, SPLIT, STEP, {"step_gives": lambda one: TimeStep(*one)}),
    ("_traced", deciding, IF, "use jnp.where(condition, a, b)", {"how": jnp.where}),
    ("_check_attributes", world, {"made": Remembering}, "put at into the state", {"made": Odd}),
    ("_traced 2", odd, BALL, f"register its class {REGISTER}", REGISTERED),
    ("_traced 2", odd, BALL, "a dict or a NamedTuple", STATE),
    ("_traced 2", deciding, INDEX, "its own traceback is above this one", {"how": jnp.where}),
    ("_check_leaf", pair, TURNED, "return one array there; reset returns state, obs", RIGHT),
    ("_check_leaf", odd, ROW, "use .reshape((2,))", FLAT),
    ("_check_leaf", odd, BYTES, "use .astype(jnp.uint8)", {"obs": jnp.zeros(2, jnp.uint8)}),
    ("same_dtypes", alike, WHOLE, "return jnp.asarray(…, jnp.float32)", RIGHT),
    ("_check_observation", odd, SPACE | {"obs": A}, "return 'b' in the observation", {"obs": B}),
    ("_check_observation", odd, SPACE | {"obs": A}, "or remove it from the space", ONE_ENTRY),
    ("_check_state", odd, TURNS, f"return {LIKE}.reshape((3,)) from step", FLOATS),
    ("_check_state", odd, SCALAR, "or change reset", ARRAY),
    ("_check_state 2", odd, {"state": A, "after": B}, "return state['b'] from both", {"state": B}),
    ("_check_scalar", odd, {"reward": np.ones(3)}, "give reward.sum()", {"reward": np.float64(3)}),
    ("_check_scalar", odd, {"terminated": ENDS}, "terminated.any()", {"terminated": ENDS.any()}),
    ("_check_scalar", odd, {"terminated": 0.0}, BOOLEAN, {"terminated": np.asarray(0.0, bool)}),
    ("names.py:_create", by_id, {"env": "tandem/CartPole-v1", "max_episode_steps": "long"}),
)
def test_what_is_wrong_with_ones_own(row: Any) -> None:
    key, *rest = row
    follow(key if ":" in key else f"envs/jax/checks.py:{key}", *rest)


def test_names_that_nobody_knows(monkeypatch) -> None:
    advice = advised("envs/jax/names.py:_create 2", by_id, "tandem/CartPole-v1", gravity=9.8)
    assert "correct the arguments" in advice.fix
    assert "max_episode_steps" in advice.error.expected
    by_id("tandem/CartPole-v1", max_episode_steps=9)
    libraries.here(monkeypatch)
    for name, key in (
        ("gymnax/Coridor-v0", "_known"),
        ("pgx/nimm", "_known"),
        ("phys2d/Gird-v0", "_gymnasium"),
    ):
        make(advised(f"envs/jax/names.py:{key}", make, name).quoted())


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, package, needed",
    [
        ("gymnax/Corridor-v0", "gymnax", "gymnax"),
        ("brax/slide", "brax.envs", "brax"),
        ("playground/Slide", "mujoco_playground", "playground"),
        ("pgx/nim", "pgx", "pgx"),
        ("phys2d/CartPole-v1", "flax", "flax"),
    ],
)
def test_packages_that_are_missing(name, package, needed, monkeypatch) -> None:
    names._by_id.cache_clear()
    for module in [name for name in sys.modules if name.startswith("gymnasium.envs.phys2d")]:
        monkeypatch.delitem(sys.modules, module)
    with without(monkeypatch, package):
        advice = advised("envs/jax/names.py:_missing", make, name)
    assert installs(advice.fix) >= {"flax", "jax", "pgx"}
    assert needed in installs(advice.fix) or advice.fix.endswith(f'" {needed}')
    libraries.here(monkeypatch)
    make("phys2d/Grid-v0" if package == "flax" else name)


def test_jax_without_the_processor(monkeypatch) -> None:
    def devices(kind: str) -> Any:
        raise RuntimeError(f"Unknown backend {kind}")

    with monkeypatch.context() as patch:
        patch.setattr(jax, "devices", devices)
        advice = advised("envs/jax/host.py:processor", vectorize(Walk, 2).reset)
    assert "set JAX_PLATFORMS=cuda,cpu, or leave it out" in advice.fix
    steps(vectorize(Walk, 2))
