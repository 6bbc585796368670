"""The advice on environments that are functions."""

from __future__ import annotations

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
from tandem.functional import TimeStep, checks, names
from tests.advice.installs import installs
from tests.advice.net import case, follows
from tests.advice.worlds import steps, without
from tests.functional import libraries
from tests.functional.worlds import PAIR, Odd, Walk


def odd(n: int = 1, **given: Any) -> None:
    steps(vectorize(partial(Odd, **given), n))


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


def steps_of(made: Any) -> None:
    steps(vectorize(made, 1))


@dataclass
class Ball:
    at: Any


@jax.tree_util.register_dataclass
@dataclass
class RegisteredBall:
    at: Any


class Pair(Odd):
    """Gives other things than asked for, from its reset or its step."""

    reset_gives: Any = None
    step_gives: Any = None

    def reset(self, key: Any) -> Any:
        given = super().reset(key)
        return given if self.reset_gives is None else self.reset_gives(*given)

    def step(self, key: Any, state: Any, action: Any) -> Any:
        given = super().step(key, state, action)
        return given if self.step_gives is None else self.step_gives(given)


def pair(**given: Any) -> None:
    steps(vectorize(partial(Pair, **given), 1))


def alike(**given: Any) -> None:
    """What a compiled run asks for."""
    checks.same_dtypes("Pair", Pair(**given))


def deciding(how: Any) -> None:
    steps(vectorize(partial(Deciding, how=how), 1))


ENTRIES = spaces.Dict({"a": PAIR, "b": PAIR})
A, B = {"a": jnp.zeros(2)}, {"a": jnp.zeros(2), "b": jnp.zeros(2)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "row",
    [
        case(
            "functional/checks.py:_check_whole",
            odd,
            {"max_episode_steps": -1},
            "set self.max_episode_steps = 500, or 0",
            {"max_episode_steps": 0},
        ),
        case(
            "functional/checks.py:_check_whole",
            odd,
            {"max_episode_steps": 2.5},
            "set self.max_episode_steps = 500",
            {"max_episode_steps": 500},
        ),
        case(
            "functional/checks.py:_check_whole",
            odd,
            {"reset_pool": -3},
            "set self.reset_pool = 128, or 0",
            {"reset_pool": 128},
        ),
        case(
            "functional/checks.py:check 2",
            pair,
            {"reset_gives": lambda state, obs: obs},
            "return state, obs from reset",
            {"reset_gives": lambda state, obs: (state, obs)},
        ),
        case(
            "functional/checks.py:check 3",
            pair,
            {"step_gives": lambda one: (one.obs, one.state, one.reward, one.terminated)},
            "return tandem.functional.TimeStep(state, obs, reward, terminated, truncated)",
            {"step_gives": lambda one: TimeStep(*one)},
        ),
        case(
            "functional/checks.py:_traced",
            deciding,
            {"how": lambda condition, a, b: a if condition else b},
            "write jnp.where(condition, a, b)",
            {"how": jnp.where},
        ),
        case(
            "functional/checks.py:_check_attributes",
            steps_of,
            {"made": Remembering},
            "put at into the state that reset and step return",
            {"made": Odd},
        ),
        case(
            "functional/checks.py:_traced 2",
            odd,
            {"state": Ball(0.0)},
            "register its class with jax.tree_util.register_dataclass",
            {"state": RegisteredBall(jnp.float32(0))},
        ),
        case(
            "functional/checks.py:_traced 2",
            odd,
            {"state": Ball(0.0)},
            "let it be a dict or a NamedTuple",
            {"state": {"at": jnp.float32(0)}},
        ),
        case(
            "functional/checks.py:_traced 2",
            deciding,
            {"how": lambda condition, a, b: [a, b].index(2.0)},
            "correct it; its own traceback is above this one",
            {"how": jnp.where},
        ),
        case(
            "functional/checks.py:_check_leaf",
            pair,
            {"reset_gives": lambda state, obs: (obs, (state,))},
            "give one array there; reset returns state, obs, in this order",
            {"reset_gives": lambda state, obs: (state, obs)},
        ),
        case(
            "functional/checks.py:same_dtypes",
            alike,
            {"reset_gives": lambda state, obs: (state, jnp.zeros(2, int))},
            "let reset give jnp.asarray(…, jnp.float32)",
            {"reset_gives": lambda state, obs: (state, jnp.asarray(obs, jnp.float32))},
        ),
        case(
            "functional/checks.py:_check_observation",
            odd,
            {"observation_space": ENTRIES, "obs": A},
            "give 'b' in the observation",
            {"obs": B},
        ),
        case(
            "functional/checks.py:_check_observation",
            odd,
            {"observation_space": ENTRIES, "obs": A},
            "or take it out of the space",
            {"observation_space": spaces.Dict({"a": PAIR})},
        ),
        case(
            "functional/checks.py:_check_leaf",
            odd,
            {"obs": jnp.zeros((1, 2))},
            "let it be .reshape((2,))",
            {"obs": jnp.zeros((1, 2)).reshape((2,))},
        ),
        case(
            "functional/checks.py:_check_leaf",
            odd,
            {"observation_space": spaces.Box(0, 9, (2,), np.uint8)},
            "let it be .astype(jnp.uint8)",
            {"obs": jnp.zeros(2).astype(jnp.uint8)},
        ),
        case(
            "functional/checks.py:_check_state",
            odd,
            {"state": {"at": jnp.zeros(3)}, "after": {"at": jnp.zeros(3, int)}},
            "let step give jnp.asarray(…, float32).reshape((3,))",
            {"after": {"at": jnp.asarray(jnp.zeros(3, int), jnp.float32).reshape((3,))}},
        ),
        case(
            "functional/checks.py:_check_state",
            odd,
            {"state": jnp.bool_(False), "after": jnp.zeros(1, bool)},
            "or reset what step gives",
            {"state": jnp.zeros(1, bool)},
        ),
        case(
            "functional/checks.py:_check_state 2",
            odd,
            {"state": A, "after": B},
            "give state['b'] in both, or in neither",
            {"state": B},
        ),
        case(
            "functional/checks.py:_check_scalar",
            odd,
            {"reward": np.ones(3)},
            "give reward.sum()",
            {"reward": np.ones(3).sum()},
        ),
        case(
            "functional/checks.py:_check_scalar",
            odd,
            {"terminated": np.zeros(3, bool)},
            "give terminated.any()",
            {"terminated": np.zeros(3, bool).any()},
        ),
        case(
            "functional/checks.py:_check_scalar",
            odd,
            {"terminated": 0.0},
            "give jnp.asarray(terminated, bool)",
            {"terminated": np.asarray(0.0, bool)},
        ),
        case(
            "functional/names.py:_made",
            by_id,
            {"env": "tandem/CartPole-v1", "max_episode_steps": "long"},
            "max_episode_steps=500",
        ),
    ],
)
def test_what_is_wrong_with_ones_own(row) -> None:
    row.follow()


def test_arguments_that_an_id_does_not_take() -> None:
    with follows("functional/names.py:_made 2") as advice:
        by_id("tandem/CartPole-v1", gravity=9.8)
    assert "correct the arguments" in advice.fix
    assert "max_episode_steps" in advice.error.expected
    by_id("tandem/CartPole-v1", max_episode_steps=9)


def test_names_that_nobody_knows(monkeypatch) -> None:
    libraries.here(monkeypatch)
    for name, key in (
        ("gymnax/Coridor-v0", "functional/names.py:_known"),
        ("pgx/nimm", "functional/names.py:_known"),
        ("phys2d/Gird-v0", "functional/names.py:_gymnasium"),
    ):
        with follows(key) as advice:
            make(name)
        by_id(advice.quoted())


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
    with without(monkeypatch, package), follows("functional/names.py:_missing") as advice:
        make(name)
    assert installs(advice.fix) >= {"flax", "jax", "pgx"}
    assert needed in installs(advice.fix) or advice.fix.endswith(f'" {needed}')
    libraries.here(monkeypatch)
    by_id("phys2d/Grid-v0" if package == "flax" else name)


def test_jax_without_the_processor(monkeypatch) -> None:
    def devices(kind: str) -> Any:
        raise RuntimeError(f"Unknown backend {kind}")

    with monkeypatch.context() as patch:
        patch.setattr(jax, "devices", devices)
        with follows("functional/host.py:processor") as advice:
            vectorize(Walk, 2).reset()
    assert "set JAX_PLATFORMS=cuda,cpu, or leave it out" in advice.fix
    steps(vectorize(Walk, 2))


def test_states_of_others() -> None:
    saved, other = vectorize(Walk, 2), vectorize("tandem/Pendulum-v1", 2)
    plain = vectorize("CartPole-v1", 2, mode="plain")
    for envs in (saved, other, plain):
        envs.reset()
    with follows("functional/vector.py:FunctionalVector._loaded") as advice:
        other.load_state(*saved.state())
    assert "resume with that one, or start anew" in advice.fix
    with follows("functional/vector.py:FunctionalVector.load_state") as advice:
        saved.load_state(*plain.state())
    assert "make them with mode='plain' (vectorization)" in advice.fix
    again = vectorize(Walk, 2)
    again.load_state(*saved.state())
    as_plain = vectorize("CartPole-v1", 2, mode="plain")
    as_plain.load_state(*plain.state())
    assert "jax" in sys.modules
