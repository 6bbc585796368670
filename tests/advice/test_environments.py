"""The advice about environments, vectors and games that a user brings, and about evaluating."""

import sys
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import tandem
from tandem.envs import factory
from tandem.envs.factory import make, vectorize
from tandem.envs.goals import WithGoal
from tandem.envs.team import Team
from tandem.envs.vector_env import VectorEnvironments
from tandem.envs.vector_source import brought, named
from tandem.learning.collect.evaluation import EvaluationEnvs
from tandem.testing.team_games import Climbing
from tests.advice.net import advised, follow, rows
from tests.advice.worlds import Toy, steps, without
from tests.envs import pool
from tests.envs.vectors import Counters, Resumable
from tests.test_trainer import SMALL, small


class Unseeded(Toy):
    """The last rewards of its episodes are drawn from a generator that no seed reaches."""

    def step(self, action: Any) -> Any:
        self.reward = 0.0 if self.t < 7 else np.random.default_rng().random()
        return super().step(action)


class Seeded(Toy):
    def step(self, action: Any) -> Any:
        self.reward = self.np_random.random()
        return super().step(action)


class Aimed(Toy):
    """Has a goal once it was reset."""

    def reset(self, **given: Any) -> Any:
        self.goal = np.zeros(2)
        return super().reset(**given)


class WithoutInfos(Climbing):
    def reset(self, seed: Any = None, options: Any = None) -> Any:
        return super().reset(seed)[0], None


class Odd(Counters):
    """Its rewards are one number for all."""

    def step(self, actions: Any) -> Any:
        obs, reward, *rest = super().step(actions)
        return obs, reward.sum(), *rest


def resumes(env: Any) -> None:
    if fault := factory.resume_fault(env, mode="plain"):
        raise fault


def played(env: Any) -> None:
    team = Team(env)
    team.reset(seed=0)
    team.step(team.action_space.sample())


def evaluated(environments: int = 1, max_steps: int = 0) -> None:
    envs = EvaluationEnvs(Toy, environments)
    envs.ready(1, 0, max_steps)
    envs.close()


def stepped(vector: Any = Counters, mode: Any = "its own") -> None:
    made = vector()
    if mode != "its own":
        made.metadata = {**made.metadata, "autoreset_mode": mode}
    steps(VectorEnvironments("Counters", made), 6)


def wrapped(parts: bool) -> None:
    vector = Counters()
    vector.is_async = pool.Pool("CartPole-v1", {**pool.COMMON, "batch_size": 1}).is_async ^ parts
    VectorEnvironments("Counters", vector)


def built(build: Any, **kwargs: Any) -> None:
    source, _ = brought(build, kwargs)
    assert source is not None
    source.environments(2 if source.is_sized else None, 0, kwargs).close()


def needs(num_envs: int, size: int) -> Any:
    return Counters(num_envs)


def run(vector: Any = Resumable, **given: Any) -> None:
    tandem.session("ppo", vector, framework="torch", **{**SMALL, "vectorization": "auto", **given})


STEP, SAME = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP
WHOLE, GAPS = ({"vector": partial(Counters, 4, SAME, gap=gap)} for gap in (False, True))
FOUR, SIX = {"vector": lambda: Resumable(4), "envs": 6}, {"vector": lambda: Resumable(6)}
ONE = {"build": lambda num_envs: Toy()}
MANY = {"build": lambda num_envs: SyncVectorEnv([Toy] * num_envs)}
PLAIN, AUTO = {"vectorization": "plain"}, {"vectorization": "auto"}


@rows(
    ("factory.py:vectorize", vectorize, {"env": "CartPole-v1", "n": 0}),
    ("EvaluationEnvs.__init__", evaluated, {"environments": 0}),
    ("EvaluationEnvs.ready 2", evaluated, {"max_steps": -1}),
    ("resume_fault_between", resumes, {"env": Unseeded}, "self.np_random", {"env": Seeded}),
    ("WithGoal._goal", WithGoal, {"env": Toy()}, "set self.goal in reset", {"env": Aimed()}),
    ("Team._checked", played, {"env": WithoutInfos()}, "return both", {"env": Climbing()}),
    ("autoreset_mode", stepped, {"mode": None}, "AutoresetMode.NEXT_STEP", {"mode": STEP}),
    ("autoreset_mode", stepped, {"mode": None}, "set the actual mode", WHOLE | {"mode": SAME}),
    ("checks.py:returned", stepped, GAPS, "AutoresetMode.NEXT_STEP", {"mode": STEP}),
    ("_refuse_parts", wrapped, {"parts": True}, "with batch_size=num_envs", {"parts": False}),
    ("checks.py:returned", stepped, GAPS, "put the last", WHOLE),
    ("checks.py:returned", stepped, {"vector": Odd}, "reward as an array", {"vector": Counters}),
    ("VectorSource._make", built, ONE, "gymnasium.vector.SyncVectorEnv([make] * 8)", MANY),
    ("function_source", built, {"build": needs}, "arguments in env_kwargs=", {"size": 3}),
    ("function_source", built, {"build": needs}, "build them", {"build": partial(needs, size=3)}),
    ("vectors.py:refuse 2", run, {"opponents": 2}, "leave opponents out", {"opponents": 0}),
    ("vectors.py:refuse 3", run, PLAIN, "leave vectorization", AUTO),
    ("vector_source.py:other_number", run, FOUR, {"envs": 4}),
    ("vector_source.py:other_number", run, FOUR, "or make a vector of 6", SIX),
)
def test_environments(row: Any) -> None:
    follow(*row)


def test_an_agent_that_was_trained_with_masks_says_how_to_give_them() -> None:
    class Allowing(Toy):
        def __init__(self) -> None:
            super().__init__(action_space=spaces.Discrete(3))

        def action_masks(self) -> list[int]:
            return [0, 1, 1]

    agent, env = small(Allowing, steps=32).agent, make(Allowing)
    obs, _ = env.reset()
    for seen in (obs, np.stack([obs] * 2), {"obs": obs}):
        advice = advised("trained_agent.py:rows_of", agent.act, seen)
    assert eval(advice.fix.removeprefix("give it, as in ")[:-1]) in (1, 2)


def test_names_of_environments(monkeypatch: Any) -> None:
    misnamed = partial(advised, "settings.py:named_here", named)
    assert named(misnamed("tests.envs.vectors:Resumible").quoted()).name == "Resumable"
    assert "write MODULE:FUNCTION" in misnamed("CartPole-v1").fix
    named("gymnasium:make_vec", {"id": "CartPole-v1"})
    advice = advised("factory.py:_refuse_vector", make, Counters())
    assert "give the environment, its id, or a function that returns it" in advice.fix
    for env in ("CartPole-v1", Toy(), Toy):
        make(env)
    for key, game in (("by_id 2", "mpe/simple_spred_v3"), ("by_id 3", "mpe/_mpe_utils")):
        make(advised(f"pettingzoo.py:{key}", make, game).quoted()).close()
    with without(monkeypatch, "envpool"):
        advice = advised("envpool.py:_library", brought, "envpool/CartPole-v1")
    assert advice.fix == "pip install envpool"
    monkeypatch.setitem(sys.modules, "envpool", pool)
    built(advised("envpool.py:_config", brought, "envpool/CartPole-v11").quoted())
    advice = advised("envpool.py:make_vector", built, "envpool/CartPole-v1", size=3)
    assert "leave size out of env_kwargs" in advice.fix
    built("envpool/CartPole-v1", max_episode_steps=9)
