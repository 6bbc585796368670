"""The advice on vectors of environments that a user brings."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import gymnasium
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import tandem
from tandem.envs.factory import make
from tandem.envs.vector_env import VectorEnvironments
from tandem.envs.vector_source import brought, named
from tests.advice.net import case, follows
from tests.advice.worlds import Toy, steps, without
from tests.envs import pool
from tests.envs.vectors import Counters, Resumable

LITTLE: dict[str, Any] = {
    "framework": "torch",
    "plots": False,
    "tensorboard": False,
    "hidden": (8,),
    "rollout": 16,
    "batch_size": 32,
    "eval_episodes": 1,
    "final_episodes": 1,
    "steps": 64,
}


def wrapped(vector: Any) -> VectorEnvironments:
    return VectorEnvironments("Counters", vector)


def stepped(vector: Any, **metadata: Any) -> None:
    vector = vector()
    vector.metadata = {**vector.metadata, **metadata}
    steps(wrapped(vector), 6)


def test_a_vector_that_says_no_autoreset_mode() -> None:
    with follows("envs/vector_env.py:autoreset_mode") as advice:
        stepped(Counters, autoreset_mode=None)
    told = "gymnasium.vector.AutoresetMode.NEXT_STEP"
    assert f"envs.metadata['autoreset_mode'] = {told}" in advice.fix
    stepped(Counters, autoreset_mode=eval(told, {"gymnasium": gymnasium}))
    assert "or the mode that it has" in advice.fix
    stepped(partial(Counters, 4, AutoresetMode.SAME_STEP))


def test_a_vector_that_steps_parts() -> None:
    parts = Counters()
    parts.is_async = True
    with follows("envs/vector_env.py:_refuse_parts") as advice:
        wrapped(parts)
    assert "make it with batch_size=num_envs" in advice.fix
    parts.is_async = pool.Pool("CartPole-v1", {**pool.COMMON, "batch_size": 1}).is_async
    wrapped(parts)


def test_last_observations_that_are_missing() -> None:
    with follows("envs/vector_reading.py:Reader.last") as advice:
        stepped(partial(Counters, 4, AutoresetMode.SAME_STEP, gap=True))
    assert "put the last observations there" in advice.fix
    stepped(partial(Counters, 4, AutoresetMode.SAME_STEP))
    assert "AutoresetMode.NEXT_STEP" in advice.fix
    stepped(Counters, autoreset_mode=AutoresetMode.NEXT_STEP)


class Odd(Counters):
    """Its rewards are one number for all, unless they are as they should be."""

    right = False

    def step(self, actions: Any) -> Any:
        obs, reward, *rest = super().step(actions)
        return obs, reward if self.right else reward.sum(), *rest


def test_rewards_that_are_not_one_for_each() -> None:
    with follows("envs/vector_reading.py:Reader.numbers") as advice:
        stepped(Odd)
    assert "return the reward as such an array from its step" in advice.fix
    stepped(type("Right", (Odd,), {"right": True}))


def made(build: Any, **kwargs: Any) -> None:
    source, _ = brought(build, kwargs)
    assert source is not None
    source.environments(2 if source.is_sized else None, 0, kwargs).close()


def single(num_envs: int) -> Any:
    return Toy()


def needs(num_envs: int, size: int) -> Any:
    return Counters(num_envs)


@pytest.mark.parametrize(
    "case",
    [
        case(
            "envs/vector_source.py:VectorSource._made",
            made,
            {"build": single},
            "such as gymnasium.vector.SyncVectorEnv([make] * 8)",
            {"build": lambda num_envs: SyncVectorEnv([Toy] * num_envs)},
        ),
        case(
            "envs/vector_source.py:function_source",
            made,
            {"build": needs},
            "give the others by env_kwargs=",
            {"size": 3},
        ),
        case(
            "envs/vector_source.py:function_source",
            made,
            {"build": needs},
            "or build them into the function",
            {"build": partial(needs, size=3)},
        ),
    ],
)
def test_functions_that_make_vectors(case) -> None:
    case.follow()


def test_a_function_that_is_not_there() -> None:
    with follows("envs/vector_source.py:named") as advice:
        named("tests.envs.vectors:Resumible")
    assert named(advice.quoted()).name == "Resumable"
    with follows("envs/vector_source.py:named") as advice:
        named("CartPole-v1")
    assert "write MODULE:FUNCTION" in advice.fix
    named("gymnasium:make_vec", {"id": "CartPole-v1"})


def run(vector: Any = Resumable, **given: Any) -> None:
    tandem.session("ppo", vector, **LITTLE | given)


@pytest.mark.parametrize(
    "case",
    [
        case(
            "learning/vectors.py:refuse 2",
            run,
            {"opponents": 2},
            "leave opponents out",
            {"opponents": 0},
        ),
        case(
            "learning/vectors.py:refuse 3",
            run,
            {"vectorization": "plain"},
            "leave vectorization out",
            {"vectorization": "auto"},
        ),
        case(
            "envs/vector_source.py:other_number", run, {"vector": lambda: Resumable(4), "envs": 6}
        ),
        case(
            "envs/vector_source.py:other_number",
            run,
            {"vector": lambda: Resumable(4), "envs": 6},
            "or make a vector of 6",
            {"vector": lambda: Resumable(6)},
        ),
    ],
)
def test_what_does_not_go_with_a_vector(case) -> None:
    case.follow()


def test_one_environment_is_wanted() -> None:
    with follows("envs/factory.py:_refuse_vector") as advice:
        make(Counters())
    assert "give its id, the environment, or a function that makes it" in advice.fix
    for env in ("CartPole-v1", Toy(), Toy):
        make(env)


def test_ids_of_envpool(monkeypatch) -> None:
    with without(monkeypatch, "envpool"), follows("envs/envpool.py:_library") as advice:
        brought("envpool/CartPole-v1")
    assert advice.fix == "pip install envpool"
    monkeypatch.setitem(sys.modules, "envpool", pool)
    brought("envpool/CartPole-v1")
    with follows("envs/envpool.py:_config") as advice:
        brought("envpool/CartPole-v11")
    made(advice.quoted())
    with follows("envs/envpool.py:make_vector") as advice:
        made("envpool/CartPole-v1", size=3)
    assert "leave size out of env_kwargs" in advice.fix
    made("envpool/CartPole-v1", max_episode_steps=9)
