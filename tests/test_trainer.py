"""The trainer door: what is chosen, refused, written down, given back."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import tandem
from tandem import trainer
from tandem.collect import evaluation as playing
from tandem.envs.factory import make
from tandem.envs.vector import episode_seed
from tandem.errors import (
    CheckpointError,
    EngineError,
    NetworkError,
    ResumeError,
    RunFolderError,
    SettingError,
    SpaceError,
    TandemError,
    UnknownNameError,
)
from tandem.learning.events import (
    BatchBegin,
    BatchEnd,
    CheckpointSaved,
    EpisodeEnd,
    EvaluationEnd,
    TrainBegin,
    TrainEnd,
)
from tandem.learning.seeds import derived
from tandem.runs import observers
from tandem.runs.callbacks import Callback, EarlyStop, LambdaCallback
from tandem.testing import environments as known
from tandem.testing.environments import Chain, Identity, IdentityBox, InfiniteHorizon
from tests.helpers import run_python

QUIET: dict[str, Any] = {
    "plots": False,
    "tensorboard": False,
    "eval_episodes": 2,
    "final_episodes": 3,
    "keep": 1,
}
SMALL: dict[str, Any] = {
    "envs": 2,
    "rollout": 16,
    "batch_size": 16,
    "epochs": 1,
    "hidden": (8,),
    **QUIET,
}
SMALL["vectorization"] = "plain"  # a block of it is 32 steps exactly: none that only resets
TINY_DQN: dict[str, Any] = {
    "hidden": (8,),
    "learning_starts": 20,
    "train_every": 4,
    "updates_per_call": 2,
    **QUIET,
}
TINY_DQN |= {"batch_size": 8, "buffer_size": 200, "eval_every": 1000, "log_every": 100}


def small(env: Any = "CartPole-v1", steps: int = 64, **given: Any) -> Any:
    return tandem.train("ppo", env, framework="torch", steps=steps, **{**SMALL, **given})


class Odd(gymnasium.Env[Any, Any]):
    """Spaces that nobody asked for."""

    def __init__(self, observation: Any, action: Any) -> None:
        self.observation_space, self.action_space = observation, action

    def reset(self, **_: Any) -> Any:
        raise AssertionError("nothing may run")


# What is chosen


def test_updates_per_step_take_the_place_of_an_entry_s_updates_per_call() -> None:
    settings = trainer.settle("dqn", "CartPole-v1", {"updates_per_step": 0.5})[0]
    assert settings.updates_per_call == 1 and settings.update_rate == 0.5
    both = {"updates_per_step": 0.5, "updates_per_call": 7}
    assert trainer.settle("dqn", "CartPole-v1", both)[0].updates_per_call == 7  # refused later


def test_given_settings_win_over_the_zoo_and_the_zoo_over_defaults() -> None:
    zoo, _, source = trainer.settle("dqn", "CartPole-v1", {})
    assert (
        zoo.learning_rate.start == 2.3e-3 and zoo.steps == 50_000 and "rl-baselines3-zoo" in source
    )
    assert zoo.double, "a default that the zoo does not mention"
    assert trainer.settle("dqn", "Nowhere-v0", {})[0].learning_rate.start == 1e-4
    given = trainer.settle("dqn", "CartPole-v1", {"learning_rate": "1e-3:0", "log_every": 7})
    assert (given[0].learning_rate.start, given[0].learning_rate.end, given[1].log_every) == (
        1e-3,
        0.0,
        7,
    )


def test_steps_replaces_the_length_and_how_far_step_sizes_fall() -> None:
    zoo = trainer.settle("dqn", "CartPole-v1", {})[0]
    shorter = trainer.settle("dqn", "CartPole-v1", {"steps": 100})[0]
    assert shorter.steps == 100
    assert [n for n in vars(zoo) if getattr(zoo, n) != getattr(shorter, n)] == [
        "steps",
        "learning_rate",
    ]


@pytest.mark.parametrize(
    "algorithm, env, given, nearest",
    [
        ("pop", "CartPole-v1", {}, "ppo"),
        ("ppo", "CartPol-v1", {}, "CartPole-v1"),
        ("ppo", "tandem/Chian-v0", {}, "tandem/Chain-v0"),
        ("ppo", "CartPole-v1", {"lerning_rate": 1e-3}, "learning_rate"),
        ("dqn", "CartPole-v1", {"evalepisodes": 3}, "eval_episodes"),
        ("ppo", "CartPole-v1", {"device": "cudda"}, "cuda"),
        ("ppo", "CartPole-v1", {"framework": "torhc"}, "torch"),
    ],
)
def test_a_mistyped_name_is_answered_with_the_nearest(
    algorithm: str, env: str, given: dict[str, Any], nearest: str
) -> None:
    with pytest.raises(UnknownNameError, match=f"did you mean.*'{nearest}'"):
        trainer.session(algorithm, env, **{"framework": "torch", **given})


@pytest.mark.parametrize(
    "algorithm, given, says",
    [
        ("ppo", {"epochs": "many"}, "epochs='many'.*\n.*whole number"),
        ("ppo", {"epochs": 1.5}, "whole number"),
        ("ppo", {"steps": float("inf")}, "steps=inf"),
        ("ppo", {"epochs": True}, "epochs=True"),
        ("ppo", {"normalize_rewards": 1}, "true or false"),
        ("ppo", {"clip": "0.2:"}, "a schedule"),
        ("ppo", {"value_weight": float("nan")}, "value_weight=nan"),
        ("ppo", {"optimizer": "adamw"}, "'adam' or 'rmsprop' or 'sgd'"),
        ("ppo", {"hidden": (8, 0)}, "at least 1 unit"),
        ("ppo", {"activation": "tahn"}, "tanh"),
        ("ppo", {"gamma": 1.01}, "between 0 and 1"),
        ("ppo", {"learning_rate": 0}, "learning_rate=0"),
        ("ppo", {"learning_rate": 1e20}, "learning_rate=1e\\+20"),
        ("ppo", {"envs": 0}, "at least 1"),
        ("ppo", {"final_episodes": 0}, "final_episodes=0"),
        ("ppo", {"checkpoint_seconds": -1}, "checkpoint_seconds=-1"),
        (
            "ppo",
            {"batch_size": 48, "rollout": 32, "envs": 8},
            "256 rows, batches have 48.*\n.*\n.*batch_size=(32|64)",
        ),
        ("ppo", {"save_every": -1}, "save_every=-1"),
        ("ppo", {"max_grad_norm": -0.5}, "max_grad_norm=-0.5"),
        ("ppo", {"clip": "0.2:-0.1"}, "clip=0.2:-0.1.*\n.*at least 0"),
        ("dqn", {"epsilon": 5}, "epsilon=5.*\n.*between 0 and 1"),
        ("dqn", {"epsilon": "1:-0.1:0.5"}, "epsilon=1:-0.1:0.5"),
        ("dqn", {"priority_beta": "0.4:2"}, "priority_beta=0.4:2"),
        ("dqn", {"updates_per_call": 0}, "updates_per_call=0"),
        ("dqn", {"train_every": 3, "envs": 2}, "train_every=3 with 2"),
        ("sac", {"temperature": -0.1}, "temperature=-0.1"),
        ("sac", {"initial_temperature": 0}, "initial_temperature=0.0"),
        ("ppo", {"shared": True, "recurrent": 8}, "shared=True and recurrent=8"),
        ("dqn", {"memmap": True}, r"memmap of a run that keeps nothing(.|\n)*give out="),
        ("ppo", {"wandb": "mine"}, "wandb of a run that keeps nothing"),
        ("ppo", {"seed": -1}, "seed=-1"),
        ("ppo", {"seed": "one"}, "seed='one'"),
        ("ppo", {"seed": 2**63}, "below 2"),
        ("ppo", {"out": 3}, "out=3(.|\n)*a path"),
        ("ppo", {"out": ""}, "out=''"),
        ("ppo", {"env_kwargs": [1]}, r"env_kwargs=\[1\]"),
        ("ppo", {"callbacks": None}, "callbacks=None"),
        ("ppo", {"callbacks": EarlyStop(475)}, "EarlyStop"),
        ("ppo", {"callbacks": [EarlyStop]}, "instances of"),
        ("ppo", {"callbacks": ["print"]}, "lambda event"),
    ],
)
def test_wrong_values_are_named(algorithm: str, given: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        trainer.session(algorithm, "CartPole-v1", framework="torch", **given)


@pytest.mark.parametrize("seed", [np.int64(3), np.uint32(7), 2**60 + 1])
def test_a_seed_may_be_a_whole_number_of_numpys(seed: Any) -> None:
    found = trainer.session("ppo", "CartPole-v1", framework="torch", seed=seed).config.seed
    assert found == int(seed) and type(found) is int


@pytest.mark.parametrize("stop_at", ["soon", -1, 1.5])
def test_a_wrong_end_of_a_sitting_is_named_before_a_folder_is_made(
    stop_at: Any, tmp_path: Path
) -> None:
    with pytest.raises(SettingError, match=f"stop_at={stop_at!r}".replace("'", ".")):
        tandem.train("ppo", "CartPole-v1", framework="torch", stop_at=stop_at, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "given", [{"episodes": 2.5}, {"episodes": None}, {"seed": -1}, {"seed": 1.5}, {"seed": None}]
)
def test_an_evaluation_of_no_whole_number_is_refused(given: dict[str, Any]) -> None:
    agent = trainer.session("ppo", "CartPole-v1", framework="torch").agent()
    with pytest.raises(SettingError, match="{}={}".format(*next(iter(given.items())))):
        tandem.evaluate(agent, "CartPole-v1", **given)


def test_a_path_is_no_agent() -> None:
    with pytest.raises(
        SettingError,
        match=r"agent='runs/cartpole'[^\n]*\nExpected: an agent\nFix: give tandem.load",
    ):
        tandem.evaluate("runs/cartpole", "CartPole-v1")  # type: ignore[arg-type]


BOX, MANY = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(3)
FAR = spaces.Box(np.finfo(np.float32).min, np.finfo(np.float32).max, (2,), np.float32)


@pytest.mark.parametrize(
    "algorithm, observation, action, says",
    [
        ("dqn", BOX, BOX, "dqn cannot act in a Box"),
        ("dqn", BOX, spaces.MultiDiscrete([2, 2]), "dqn cannot act in a MultiDiscrete"),
        (
            "dqn",
            BOX,
            spaces.MultiBinary(3),
            r"MultiBinary(.|\n)*use ppo, a2c or trpo",
        ),
        (
            "sac",
            BOX,
            spaces.MultiDiscrete([2, 3]),
            r"sac cannot act in a MultiDiscrete(.|\n)*use ppo or impala\.",
        ),
        ("sac", BOX, spaces.Box(-np.inf, np.inf, (2,)), "without bounds"),
        (
            "sac",
            BOX,
            FAR,
            r"sac cannot stretch \[-1, 1\] to bounds from -3.40282e\+38 to 3.40282e\+38",
        ),
        # their sum overflows, not their distance
        (
            "td3",
            BOX,
            spaces.Box(2e38, 3e38, (2,)),
            "td3 cannot stretch",
        ),
        ("sac", BOX, spaces.Box(-1e300, 1e300, (2,), np.float64), "sac cannot stretch"),
        ("impala", BOX, spaces.MultiBinary(3), r"MultiBinary(.|\n)*use ppo, a2c or trpo"),
        ("ppo", BOX, spaces.Dict({"a": spaces.Box(0, 5, (2,), np.int32)}), "Box of int32"),
        ("ppo", BOX, spaces.Dict({"a": spaces.Text(3)}), "Text"),
        ("ppo", BOX, spaces.Tuple(()), "without entries"),
        ("ppo", BOX, spaces.Box(0, 5, (2,), np.int32), "Box of int32"),
        ("td3", BOX, spaces.Box(0, 5, (2,), np.int64), "Box of int64"),
        ("ppo", spaces.Sequence(MANY), MANY, "Sequence"),
        (
            "sac",
            BOX,
            spaces.Dict({"a": MANY}),
            r"sac cannot act in a Dict or Tuple action space(.|\n)*use ppo, a2c",
        ),
        ("ppo", spaces.Dict({"a": spaces.Text(3)}), MANY, "Text"),
    ],
)
def test_spaces_that_an_algorithm_cannot_do_are_refused_before_anything_runs(
    algorithm: str, observation: Any, action: Any, says: str, tmp_path: Path
) -> None:
    with pytest.raises(SpaceError, match=says):
        trainer.session(
            algorithm, lambda: Odd(observation, action), framework="torch", out=tmp_path / "run"
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_without_algorithm_environment_or_engine() -> None:
    with pytest.raises(SettingError, match="without an algorithm"):
        tandem.train()
    with pytest.raises(SettingError, match="a Gymnasium id"):
        tandem.train("ppo", 7)
    with pytest.raises(UnknownNameError, match=r"no algorithm \['ppo'\]"):
        tandem.train(["ppo"], "CartPole-v1")  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match=r"no framework \['torch'\]"):
        tandem.train("ppo", "CartPole-v1", framework=["torch"])  # type: ignore[arg-type]
    with pytest.raises(EngineError, match="KERAS_BACKEND=jax"):
        run_other_keras()


def run_other_keras() -> None:
    code = """
        import keras, tandem
        try:
            tandem.train("ppo", "CartPole-v1", framework="jax")
        except tandem.errors.EngineError as error:
            import json; print(json.dumps(str(error)))
    """
    raise EngineError(run_python(code, engine="keras-torch")[0])


# Environments


def test_environments_by_id_object_and_function() -> None:
    class Counting(gymnasium.Wrapper[Any, Any, Any, Any]):
        steps = 0

        def step(self, action: Any) -> Any:
            type(self).steps += 1
            self.own = getattr(self, "own", 0) + 1
            return super().step(action)

    env = Counting(Identity())
    ended = small(env, steps=48, envs=1)
    assert env.own == 48, "evaluation steps copies, never the environment that is trained on"
    assert Counting.steps > 48
    assert ended.folder is None and ended.agent.observation.kind == "discrete"
    with pytest.raises(SettingError, match="a separate environment for each"):
        small(Identity(), envs=2)
    assert len(small(lambda: Identity(), steps=32).evaluation.returns) == 3
    assert len(small(Identity, steps=32).evaluation.returns) == 3


@pytest.mark.parametrize(
    ("algorithm", "rows"),
    [("ppo", 256), ("a2c", 40), ("trpo", 1024), ("dqn", 0), ("impala", 40), ("pqn", 2048)],
)
def test_one_environment_is_one_of_a_rollout_with_as_many_rows(algorithm: str, rows: int) -> None:
    def session(env: Any, **more: Any) -> Any:
        quiet = {"plots": False, "tensorboard": False, "eval_episodes": 0}
        return trainer.session(algorithm, env, framework="torch", **quiet, **more)

    usual = session("CartPole-v1").config.settings
    run = session(gymnasium.make("CartPole-v1"))
    s = run.config.settings
    assert s.envs == 1 and ("envs: 1, since" in run.config.source) == (usual.envs > 1)
    if rows:
        assert s.rollout == usual.rollout * usual.envs == rows
        told = session(gymnasium.make("CartPole-v1"), rollout=512)
        assert told.config.settings.rollout == 512, "what is given stays"
    next(iter(run))


@pytest.mark.parametrize("algorithm", ["ppo", "impala"])
def test_the_memory_of_one_environment_goes_back_as_far(algorithm: str) -> None:
    of = {"ppo": {"sequence": 0, "batch_size": 256}, "impala": {"replay": "uniform"}}
    more: dict[str, Any] = {"recurrent": 8} | of[algorithm]
    run = trainer.session(algorithm, Identity(), framework="torch", **more)
    usual = trainer.session(algorithm, Identity, framework="torch", **more).config.settings
    s = run.config.settings
    if algorithm == "ppo":
        assert s.sequence == usual.rollout
    else:
        assert s.replay_size * s.rollout == usual.replay_size * usual.rollout


def test_a_run_in_one_environment_is_gone_on_with(tmp_path: Path) -> None:
    given = {n: x for n, x in SMALL.items() if n not in ("envs", "rollout")}
    given |= {"framework": "torch", "steps": 4096}
    tandem.train("ppo", Identity(), stop_at=2048, out=tmp_path / "run", **given)
    again = tandem.train(resume=tmp_path / "run", env=Identity())
    whole = tandem.train("ppo", Identity(), out=tmp_path / "whole", **given)
    assert again.summary["eval_mean"] == whole.summary["eval_mean"]
    assert again.notes == whole.notes and again.notes[0].startswith("envs: 1")
    written = json.loads((tmp_path / "run" / "result.json").read_text())
    assert written["notes"] == list(again.notes)


def test_an_environment_that_is_not_ours_is_left_open() -> None:
    class Closable(Identity):
        closed = 0

        def close(self) -> None:
            self.closed += 1

    env = Closable()
    small(env, steps=32, envs=1)
    assert env.closed == 0


# Loading and acting


@pytest.mark.slow
def test_keras_says_nothing_of_entries_inside_entries() -> None:
    code = """
        import warnings
        import numpy as np
        from gymnasium import spaces
        from tandem import trainer
        from tests.test_trainer import MANY, Odd
        space = spaces.Dict(a=spaces.Dict(b=spaces.Box(-1, 1, (2,), np.float32)), c=MANY)
        warnings.filterwarnings("error", "When providing")
        trainer.session("ppo", lambda: Odd(space, MANY), framework="jax", envs=1)
        print(1)
    """
    assert run_python(code, engine="jax") == [1]


def test_a_loaded_agent_acts_without_any_framework(tmp_path: Path) -> None:
    agent = small(out=tmp_path / "run").agent
    obs = np.linspace(-0.1, 0.1, 40, dtype=np.float32).reshape(10, 4)
    code = """
        import json, sys
        import numpy as np
        import tandem

        agent = tandem.load(sys.argv[1])
        actions = agent.act(np.linspace(-0.1, 0.1, 40, dtype=np.float32).reshape(10, 4))
        print(
            json.dumps(
                [
                    actions.tolist(),
                    sorted(
                        {"torch", "keras", "jax", "tensorflow", "matplotlib"} & set(sys.modules)
                    ),
                ]
            )
        )
    """
    assert run_python(code, str(tmp_path / "run")) == [[agent.act(obs).tolist(), []]]


def test_load_takes_the_best_unless_told_otherwise(tmp_path: Path) -> None:
    small(out=tmp_path / "run", steps=320, eval_every=32, keep=2, learning_rate=0.02)
    folder = tmp_path / "run" / "checkpoints"
    numbered = sorted(f.name for f in folder.glob("step-*.zip"))
    assert numbered == ["step-000000288.zip", "step-000000320.zip"]
    best, last, at = (
        trainer.load(tmp_path / "run", which=w) for w in ("best", "last", "step-000000288")
    )
    assert (
        trainer.load(folder / "best.zip").networks["actor"](OBS) == best.networks["actor"](OBS)
    ).all()
    assert (last.networks["actor"](OBS) != at.networks["actor"](OBS)).any()
    with pytest.raises(CheckpointError, match="did you mean 'step-000000320'"):
        trainer.load(tmp_path / "run", which="step-000000321")
    with pytest.raises(CheckpointError, match=r"no checkpoint 3 in(.|\n)*one of best, last, step"):
        trainer.load(tmp_path / "run", which=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", [3, None, [], b"run", ""])
def test_what_is_no_path_is_named(path: Any) -> None:
    with pytest.raises(SettingError, match=r"path=(.|\n)*Expected: a path(.|\n)*Fix: "):
        tandem.load(path)


@pytest.mark.parametrize("obs", ["up", {"a": 1}, ["a", "b"], [[1, 2], [3]]])
def test_an_observation_that_is_no_numbers_is_named(obs: Any) -> None:
    with pytest.raises(SpaceError, match=r"the observation is (.|\n)*numbers of the shape \(2,\)"):
        agent_for(BOX, MANY).act(obs)


OBS = np.full((3, 4), 0.1, np.float32)


def test_before_any_evaluation_the_last_stands_for_the_best(tmp_path: Path) -> None:
    small(out=tmp_path / "run", steps=64, eval_episodes=0, learning_rate=0.05)
    assert [f.name for f in (tmp_path / "run" / "checkpoints").iterdir()] == ["last.zip"]
    first = trainer.session("ppo", "CartPole-v1", framework="torch", **SMALL).agent()
    assert (
        trainer.load(tmp_path / "run").networks["actor"](OBS) != first.networks["actor"](OBS)
    ).any()


def agent_for(observation: Any, action: Any, algorithm: str = "ppo", **settings: Any) -> Any:
    return trainer.session(
        algorithm, lambda: Odd(observation, action), framework="torch", **{**SMALL, **settings}
    ).agent()


def test_one_observation_or_a_batch() -> None:
    agent = agent_for(BOX, MANY)
    one, batch = agent.act(np.zeros(2)), agent.act(np.zeros((5, 2)))
    assert np.shape(one) == () and batch.shape == (5,) and (batch == one).all()
    for wrong in (np.zeros(3), np.zeros((5, 3)), np.zeros((1, 5, 2))):
        with pytest.raises(SpaceError, match=r"has shape"):
            agent.act(wrong)
    agent.seed(0)
    drawn = agent.act(np.zeros((200, 2)), deterministic=False)
    assert len(set(drawn.tolist())) == 3
    agent.seed(0)
    assert (agent.act(np.zeros((200, 2)), deterministic=False) == drawn).all()


def test_dicts_of_observations() -> None:
    inner = spaces.Dict({"place": BOX, "kind": spaces.Discrete(4, start=2)})
    agent = agent_for(spaces.Dict({"in": inner, "on": spaces.MultiBinary(2)}), MANY)
    one = {"in": {"place": np.zeros(2), "kind": 3}, "on": np.ones(2, np.int8)}
    assert np.shape(agent.act(one)) == ()
    batch = {
        "in": {"place": np.zeros((4, 2)), "kind": np.full(4, 3)},
        "on": np.ones((4, 2), np.int8),
    }
    assert agent.act(batch).tolist() == [agent.act(one)] * 4
    with pytest.raises(SpaceError, match="entries in/kind, in/place"):
        agent.act({"in": {"place": np.zeros(2), "kind": 3}})
    for kind in (3, np.full(3, 3)):
        with pytest.raises(SpaceError, match="all of one observation, or all of a batch"):
            agent.act(
                {"in": {"place": np.zeros((4, 2)), "kind": kind}, "on": np.ones((4, 2), np.int8)}
            )


def test_actions_are_as_the_environment_takes_them() -> None:
    agent = agent_for(BOX, spaces.Discrete(3, start=-1))
    agent.seed(1)
    assert set(agent.act(np.zeros((100, 2)), deterministic=False).tolist()) == {-1, 0, 1}
    bounded = spaces.Box(np.array([-2, 5], np.float32), np.array([-1, 9], np.float32))
    ppo = agent_for(BOX, bounded, log_std=2.0)
    sac = trainer.session(
        "sac", lambda: Odd(BOX, bounded), framework="torch", hidden=(8,), buffer_size=256
    ).agent()
    for agent in (ppo, sac):
        drawn = agent.act(np.random.default_rng(0).uniform(-1, 1, (200, 2)), deterministic=False)
        assert drawn.dtype == np.float32 and all(bounded.contains(a) for a in drawn)
        assert np.ptp(drawn, axis=0).min() > 0.5, "it is stretched to the bounds, or cut there"
    assert sac.act(np.zeros(2)).shape == (2,) and bounded.contains(sac.act(np.zeros(2)))
    multi = agent_for(spaces.MultiDiscrete([2, 3]), spaces.MultiDiscrete([4, 5]))
    assert multi.act(np.array([1, 2])).shape == (2,)


@pytest.mark.parametrize(
    "observation, action, says",
    [
        (spaces.Box(-1, 1, (3,)), MANY, r"observations of the form \('box', 'float32', \(3,\)\)"),
        (spaces.Box(0, 255, (2,), np.uint8), MANY, "uint8"),
        (spaces.Dict({"obs": BOX}), MANY, "'obs'"),
        (BOX, spaces.Discrete(4), r"actions of the form \('discrete', 'int64', \(4,\)\)"),
        (BOX, BOX, "actions of the form"),
    ],
)
def test_an_agent_is_not_evaluated_in_an_environment_of_other_spaces(
    observation: Any, action: Any, says: str
) -> None:
    with pytest.raises(SpaceError, match=says):
        tandem.evaluate(agent_for(BOX, MANY), lambda: Odd(observation, action))


def test_stable_baselines3_can_evaluate_an_agent() -> None:
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    agent = small(steps=32).agent
    mean, _ = evaluate_policy(
        agent, make_vec_env("CartPole-v1", n_envs=2), n_eval_episodes=4, warn=False
    )
    assert 5 < mean <= 500


def test_evaluation_is_the_same_every_time_and_for_any_number_of_environments() -> None:
    agent = small(steps=32).agent
    first = tandem.evaluate(agent, "CartPole-v1", episodes=6, seed=3)
    assert (
        first
        == tandem.evaluate(agent, "CartPole-v1", episodes=6, seed=3)
        != tandem.evaluate(agent, "CartPole-v1", 6, 4)
    )
    assert (
        first.mean == np.mean(first.returns)
        and first.std == np.std(first.returns)
        and len(first.lengths) == 6
    )
    alone = playing.evaluate(agent.actor, "CartPole-v1", 6, 3, environments=1)
    assert alone == (first.returns, first.lengths, [], 0, None)
    noisy = [tandem.evaluate(agent, "CartPole-v1", 6, 3, deterministic=False) for _ in range(2)]
    assert noisy[0] == noisy[1] != first
    assert noisy[0] != tandem.evaluate(agent, "CartPole-v1", 6, 4, deterministic=False)


# Networks of the user's


def torch_body(space: Any, width: int = 8) -> Any:
    from torch import nn

    class Body(nn.Module):  # its own forward: no twin
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(space.shape[0], width)

        def forward(self, x: Any) -> Any:
            return self.inner(x).sin()

    return Body()


def test_a_body_a_pair_or_whole_networks() -> None:
    from torch import nn

    def pair(space: Any) -> Any:
        return nn.Sequential(nn.Linear(4, 8), nn.Tanh()), nn.Sequential(nn.Linear(4, 6), nn.ReLU())

    whole = {"actor": nn.Linear(4, 2), "critic": lambda space: nn.Linear(*space.shape, 1)}
    sizes = []
    for network in (torch_body, pair, whole):
        run = trainer.session("ppo", "CartPole-v1", network=network, steps=64, **SMALL)
        assert run.config.framework == "torch", "it follows from the network"
        before = {n: w.copy() for n, w in run.backend.networks["actor"].read().items()}
        for _ in run.events():
            pass
        after = run.backend.networks["actor"].read()
        assert all((before[n] != after[n]).any() for n in before), (
            "the head and the body both learn"
        )
        assert np.shape(run.agent().act(OBS)) == (3,)
        sizes.append(
            [
                sum(x.size for x in run.backend.networks[r].read().values())
                for r in ("actor", "critic")
            ]
        )
    assert sizes == [[40 + 18, 40 + 9], [40 + 18, 30 + 7], [10, 5]]


@pytest.mark.parametrize(
    "algorithm, own, settings",
    [
        ("ppo", True, {}),
        ("ppo", False, {"normalize_observations": True}),
        ("sac", True, {"buffer_size": 256}),
    ],
)
def test_an_entry_of_the_observation_may_be_called_action(
    algorithm: str, own: bool, settings: dict[str, Any]
) -> None:
    """The last one taken, say: it is none that a critic is asked about."""
    import torch
    from torch import nn

    class Body(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(5, 6)

        def forward(self, obs: Any) -> Any:
            return self.inner(torch.cat([obs["obs"], obs["action"]], -1))

    space = spaces.Dict({"obs": BOX, "action": spaces.Box(-1, 1, (3,))})
    network = (lambda space: Body()) if own else None
    run = trainer.session(
        algorithm,
        lambda: Odd(space, BOX),
        framework="torch",
        network=network,
        hidden=(8,),
        **settings,
    )
    assert run.agent().act({"obs": np.zeros(2), "action": np.ones(3)}).shape == (2,)


def test_one_body_for_actor_and_critic() -> None:
    from torch import nn

    def pair(space: Any) -> Any:
        return nn.Sequential(nn.Linear(4, 8), nn.Tanh()), nn.Sequential(nn.Linear(4, 6), nn.ReLU())

    sizes = []
    for network in (None, torch_body, pair, {"actor": nn.Linear(4, 3)}):
        run = trainer.session(
            "ppo", "CartPole-v1", framework="torch", shared=True, network=network, steps=64, **SMALL
        )
        before = {n: w.copy() for n, w in run.backend.networks["actor"].read().items()}
        for _ in run.events():
            pass
        assert list(run.backend.networks) == ["actor"]
        after = run.backend.networks["actor"].read()
        assert all((before[n] != after[n]).any() for n in before), "both heads and the body learn"
        assert np.shape(run.agent().act(OBS)) == (3,)
        sizes.append(sum(x.size for x in after.values()))
    assert sizes[0] == 4 * 8 + 8 + 8 * 3 + 3
    assert sizes[1:] == [40 + 18 + 9, 40 + 18 + 30 + 7, 15]


@pytest.mark.parametrize("network", [[1], "mlp", {"actor": None}, "module", "tuple"])
def test_networks_of_another_kind_are_refused(network: Any) -> None:
    from torch import nn

    network = {"module": nn.Linear(4, 2), "tuple": (nn.Linear(4, 2), nn.Linear(4, 2))}.get(
        str(network), network
    )
    with pytest.raises(NetworkError):
        trainer.session("ppo", "CartPole-v1", framework="torch", network=network, **SMALL)


@pytest.mark.parametrize("framework", ["torch", None])
@pytest.mark.parametrize(
    "network, says",
    [
        (lambda: None, "cannot be called with the observation space: too many positional"),
        (lambda space, more: None, "missing a required argument: 'more'"),
        ({"actor": lambda: None, "critic": lambda: None}, "cannot be called"),
        (lambda space: None, "gave a NoneType"),
        (lambda space: [1], "gave a list"),
        (lambda space: (None, None), "gave a NoneType"),
    ],
)
def test_a_function_that_makes_no_network_is_named(
    network: Any, says: str, framework: str | None, tmp_path: Path
) -> None:
    with pytest.raises(NetworkError, match=says + r"(.|\n)*Expected: (.|\n)*Fix: "):
        trainer.session(
            "ppo",
            "CartPole-v1",
            framework=framework,
            network=network,
            out=tmp_path / "run",
            **SMALL,
        )
    assert not (tmp_path / "run").exists()


def test_an_own_environment_and_an_own_network_load_by_the_advice_that_is_given(tmp_path) -> None:
    """No file can rebuild either; the environment is not needed, and is checked where given."""
    shown: list[Any] = []

    class Own(known.Identity):
        def __init__(self) -> None:
            super().__init__()
            place = spaces.Dict(near=spaces.Box(-1, 1, (2,), np.float64))
            self.observation_space = spaces.Dict(place=place, symbol=spaces.Discrete(4, start=1))

        def observe(self) -> Any:
            return {"place": {"near": np.zeros(2)}, "symbol": np.int64(1 + self.symbol)}

    def network(space: Any) -> Any:
        import torch

        shown.append(space)

        class Body(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.dense = torch.nn.Linear(2, 8)

            def forward(self, x: Any) -> Any:
                return torch.sin(self.dense(x["place/near"]))

        return Body()

    given = {"steps": 64, "rollout": 32, "envs": 2, "epochs": 1, "batch_size": 64}
    trainer.train(
        "ppo", Own, network=network, framework="torch", out=tmp_path / "run", plots=False, **given
    )
    with pytest.raises(CheckpointError) as caught:
        tandem.load(tmp_path / "run")
    agent = eval(caught.value.fix.replace("...", "network"), {"tandem": tandem, "network": network})
    assert agent.act(Own().reset(seed=0)[0]) in range(4)
    assert all(space == Own().observation_space for space in shown) and len(shown) > 1
    assert tandem.load(tmp_path / "run", network=network, env=Own).name == agent.name
    with pytest.raises(SpaceError, match="CartPole-v1 has observations"):
        tandem.load(tmp_path / "run", network=network, env="CartPole-v1")


def test_progress_and_functions_as_callbacks_and_a_result_in_a_notebook(tmp_path, capsys) -> None:
    heard: list[str] = []
    told = [lambda event: heard.append(type(event).__name__)]
    result = small(steps=128, callbacks=told, progress=True, out=tmp_path / "run")
    assert {"TrainBegin", "EpisodeEnd", "BatchEnd", "TrainEnd"} <= set(heard)
    assert "ended by steps" in capsys.readouterr().err
    shown = result._repr_html_()
    assert str(result.evaluation) in shown and str(tmp_path) in shown
    assert ("<img" in shown) == (tmp_path / "run" / "curve.png").is_file()
    small(steps=64)
    assert capsys.readouterr() == ("", "")
    assert "<img" not in small(steps=64)._repr_html_()


def test_a_network_without_a_twin_has_to_be_given_again(tmp_path: Path) -> None:
    ended = small(
        network=torch_body, out=tmp_path / "run", steps=128, stop_at=64, learning_rate=0.02
    )
    obs = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)
    before = ended.agent.act(obs).tolist()
    with pytest.raises(CheckpointError, match=r"network of its user's \(actor\)(.|\n)*network="):
        tandem.load(tmp_path / "run")
    assert tandem.load(tmp_path / "run", network=torch_body).act(obs).tolist() == before
    assert (
        tandem.load(tmp_path / "run", network=torch_body, env="CartPole-v1").act(obs).tolist()
        == before
    )
    with pytest.raises(CheckpointError, match="shapes"):
        tandem.load(tmp_path / "run", network=lambda space: torch_body(space, width=9))
    with pytest.raises(ResumeError, match="network="):
        tandem.train(resume=tmp_path / "run")
    resumed = tandem.train(resume=tmp_path / "run", network=torch_body)
    assert resumed.agent.networks["actor"] is not ended.agent.networks["actor"]
    assert ended.agent.act(obs).tolist() == before, "an agent once given stays as it is"


@pytest.mark.slow
def test_keras_networks() -> None:
    code = """
        import json
        import keras, numpy as np, tandem
        from tandem import trainer

        QUIET = dict(
            plots=False,
            tensorboard=False,
            eval_episodes=2,
            final_episodes=2,
            envs=2,
            rollout=16,
            batch_size=16,
        )


        def body(space):
            x = keras.Input(space.shape)
            return keras.Model(
                x, keras.ops.sin(keras.layers.Dense(8)(keras.layers.BatchNormalization()(x)))
            )


        def known(space):
            return keras.Sequential(
                [keras.Input(space.shape), keras.layers.Dense(8, activation="tanh")]
            )


        whole = {"actor": known, "critic": keras.layers.Dense(1)}
        whole["actor"] = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        obs = np.random.default_rng(0).standard_normal((64, 4)).astype(np.float32)
        for network in (body, lambda s: (known(s), body(s)), whole):
            run = trainer.session(
                "ppo", "CartPole-v1", network=network, steps=64, learning_rate=0.05, **QUIET
            )
            first, out = run.agent(), []
            for agent in (first, None):
                if agent is None:
                    for _ in run.events():
                        pass
                    agent = run.agent()
                out.append(agent.networks["actor"](obs))
            print(
                json.dumps(
                    [
                        run.config.framework,
                        run.backend.networks["actor"].plan is not None,
                        bool((out[0] != out[1]).all()),
                        bool((first.networks["actor"](obs) == out[0]).all()),
                    ]
                )
            )
    """
    for engine in ("jax", "keras-torch"):
        assert run_python(code, engine=engine) == [  # type: ignore[arg-type]
            [engine, False, True, True],
            [engine, True, True, True],
            [engine, True, True, True],
        ]


# Runs and their folders


def test_nothing_is_written_without_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    seen: Counter[str] = Counter()
    small(
        callbacks=[LambdaCallback(on_checkpoint=lambda e: seen.update(["checkpoint"]))],
        eval_every=32,
    )
    assert not list(tmp_path.iterdir()) and not seen


def test_without_a_folder_the_best_agent_is_given_back_too() -> None:
    weights: list[Any] = []
    run = trainer.session(
        "ppo",
        "CartPole-v1",
        framework="torch",
        steps=320,
        learning_rate=0.1,
        **{**SMALL, "eval_every": 32},
    )
    for event in run.events():
        if isinstance(event, EvaluationEnd):
            weights.append((event.best, run.agent().networks["actor"](OBS)))
    best = [w for chosen, w in weights if chosen][-1]
    assert not weights[-1][0], "the last was not the best; choose another seed"
    assert (run.restored("best").networks["actor"](OBS) == best).all()


def test_result_json_says_what_the_issue_lists(tmp_path: Path) -> None:
    ended = small(out=tmp_path / "run")
    found = json.loads((tmp_path / "run" / "result.json").read_text(encoding="utf-8"))
    wanted = (
        "algorithm env framework seed env_steps updates seconds steps_per_second eval_mean "
        "eval_std eval_episodes eval_cut last_eval_cut versions"
    )
    assert set(wanted.split()) <= set(found)
    assert (found["algorithm"], found["env"], found["framework"], found["seed"]) == (
        "ppo",
        "CartPole-v1",
        "torch",
        0,
    )
    assert (found["env_steps"], found["updates"], found["eval_episodes"]) == (64, 4, 3)
    assert (
        found["eval_mean"] == ended.evaluation.mean == np.mean(ended.evaluation.returns)
        and "torch" in found["versions"]
    )
    config = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))
    assert (
        config["settings"]["steps"] == 64 and config["seed"] == 0 and "python" in config["versions"]
    )


def test_the_best_is_chosen_on_other_seeds_than_it_is_scored_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[tuple[int, int]] = []
    real = playing.EvaluationEnvs.ready

    def spy(self: Any, episodes: int, seed: int, *rest: Any) -> Any:
        used.append((episodes, seed))
        return real(self, episodes, seed, *rest)

    monkeypatch.setattr(playing.EvaluationEnvs, "ready", spy)
    small(out=tmp_path / "run", seed=5, eval_every=32)
    # the first of three is before training
    assert used == [(2, derived(5, "select"))] * 3 + [(3, derived(5, "final"))] * 2
    training = {
        episode_seed(derived(5, "environments"), e, k) for e in range(2) for k in range(100)
    }
    chosen, scored = (
        {episode_seed(derived(5, p), playing.EVALUATION, k) for k in range(100)}
        for p in ("select", "final")
    )
    assert not training & chosen and not training & scored and not chosen & scored


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunFolderError, match="not empty"):
        small(out=tmp_path)
    with pytest.raises(RunFolderError, match="does not exist(.|\n)*did you mean"):
        small(out=tmp_path / "run-one", steps=32)
        tandem.train(resume=tmp_path / "run-on")
    with pytest.raises(RunFolderError, match="is not a run"):
        tandem.train(resume=tmp_path)


# Events and callbacks


class Recorder(Callback):
    def __init__(self) -> None:
        self.seen: list[Any] = []


for _name in [n for n in dir(Callback) if n.startswith("on_")]:
    setattr(Recorder, _name, lambda self, event: self.seen.append(event))


def test_events_come_in_order_and_reach_callbacks_first(tmp_path: Path) -> None:
    recorder, part = Recorder(), Counter[str]()
    subset = LambdaCallback(
        on_train_end=lambda e: part.update(["end"]), on_batch_begin=lambda e: part.update(["batch"])
    )
    run = trainer.session(
        "ppo",
        "CartPole-v1",
        framework="torch",
        steps=96,
        eval_every=64,
        out=tmp_path / "run",
        callbacks=[recorder, subset],
        **SMALL,
    )
    seen = []
    for event in run:
        assert recorder.seen[-1] is event
        seen.append(event)
    assert seen == recorder.seen and part == {"end": 1, "batch": 3}
    kinds = [type(e).__name__ for e in seen]
    assert (
        kinds[:4] == ["TrainBegin", "CheckpointSaved", "EpisodeBegin", "EpisodeBegin"]
        and kinds[-1] == "TrainEnd"
    )
    order = [k for k in kinds if k in ("BatchBegin", "BatchEnd", "EvaluationEnd")]
    assert order == ["BatchBegin", "BatchEnd"] * 2 + [
        "EvaluationEnd",
        "BatchBegin",
        "BatchEnd",
        "EvaluationEnd",
    ]
    assert kinds.count("EpisodeBegin") == kinds.count("EpisodeEnd") + 2
    for name in ("env_steps", "updates", "episodes", "seconds"):
        # a block's episodes are told after it was collected, each with the steps at which it ended
        counts = [
            getattr(e, name) for e in seen if name != "env_steps" or not isinstance(e, BatchBegin)
        ]
        assert counts == sorted(counts), name
    ends = [e for e in seen if isinstance(e, EpisodeEnd)]
    assert [e.episodes for e in ends] == list(range(1, len(ends) + 1))
    begin, end = seen[0], seen[-1]
    assert isinstance(begin, TrainBegin) and (begin.steps, begin.stop_at, begin.env_steps) == (
        96,
        96,
        0,
    )
    assert isinstance(end, TrainEnd) and (end.reason, end.env_steps, end.updates) == (
        "steps",
        96,
        6,
    )
    calls = [e for e in seen if isinstance(e, BatchEnd)]
    assert (
        set(calls[0].shares) == {"environment", "acting", "learning"} and "loss" in calls[0].metrics
    )
    assert {e.path.name for e in seen if isinstance(e, CheckpointSaved)} >= {
        "last.zip",
        "best.zip",
        "step-000000064.zip",
    }


def test_a_checkpoint_is_written_before_anything_is_learned(tmp_path: Path) -> None:
    run = trainer.session(
        "ppo", "CartPole-v1", framework="torch", steps=64, out=tmp_path / "run", **SMALL
    )
    for event in run:
        if isinstance(event, CheckpointSaved):
            assert event.env_steps == 0 and event.path.is_file()
            break
    first = trainer.session("ppo", "CartPole-v1", framework="torch", **SMALL).agent()
    assert (
        trainer.load(tmp_path / "run", which="last").networks["actor"](OBS)
        == first.networks["actor"](OBS)
    ).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["on_train_begin", "on_episode_end", "on_batch_end", "on_evaluation", "on_checkpoint"]
)
def test_any_event_may_stop_the_run(kind: str, tmp_path: Path) -> None:
    stop = LambdaCallback(**{kind: lambda event: True})
    ended = small(steps=640, eval_every=32, out=tmp_path / "run", callbacks=[stop])
    assert ended.reason == "callback" and ended.summary["env_steps"] <= 160
    assert tandem.train(resume=tmp_path / "run").summary["env_steps"] == 640


def test_early_stop_remembers_across_sittings(tmp_path: Path) -> None:
    """Chain pays 1 only at its end: six wins in a row are reached at the same step in one sitting
    and in three."""

    def steps(out: Path, stops: tuple[int | None, ...]) -> int:
        given: dict[str, Any] = {**SMALL, "gamma": 0.9, "learning_rate": 0.01, "eval_episodes": 0}
        run = trainer.session(
            "ppo",
            Chain,
            framework="torch",
            steps=4000,
            out=out,
            callbacks=[EarlyStop(1.0, episodes=12)],
            **given,
        )
        for i, stop in enumerate(stops):
            if i:
                # another callback has come before it
                others = [
                    Callback(),
                    EarlyStop(1.0, episodes=12),
                ]
                run = trainer.session(resume=out, env=Chain, callbacks=others)
            *_, end = run.events(stop)
        assert isinstance(end, TrainEnd) and end.reason == "criterion"
        return end.env_steps

    whole = steps(tmp_path / "whole", (None,))
    assert 64 < whole < 4000
    assert steps(tmp_path / "parts", (32, whole - 64, None)) == whole


# Resuming


def test_resume_takes_nothing_that_the_run_knows(tmp_path: Path) -> None:
    small(out=tmp_path / "run", steps=64, stop_at=32)
    for given in (
        {"framework": "torch"},
        {"envs": 2},
        {"gamma": 0.9},
        {"seed": 3},
        {"workers": 1},
    ):
        with pytest.raises(ResumeError, match=f"resume= was given with {next(iter(given))}"):
            tandem.train(resume=tmp_path / "run", **given)  # type: ignore[arg-type]
    for other in ({"algorithm": "dqn"}, {"env": "Acrobot-v1"}, {"env_kwargs": {"a": 1}}):
        with pytest.raises(ResumeError, match=f"{next(iter(other))}=.* was given"):
            tandem.train(resume=tmp_path / "run", **other)  # type: ignore[arg-type]


def test_a_resumption_of_no_run_or_to_no_length_is_named(tmp_path: Path) -> None:
    small(out=tmp_path / "run", steps=64, stop_at=32)
    with pytest.raises(SettingError, match="steps='many'"):
        tandem.train(resume=tmp_path / "run", steps="many")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="resume=3(.|\n)*a path"):
        tandem.train(resume=3)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="extend=True was given without resume="):
        tandem.train("ppo", "CartPole-v1", extend=True)


def test_the_length_of_a_run_is_fixed_unless_extended(tmp_path: Path) -> None:
    small(out=tmp_path / "run", steps=64, learning_rate="1e-2:1e-3", clip="0.2:0.1:0.5")
    for steps, extend in ((128, False), (32, False), (32, True)):
        with pytest.raises(ResumeError, match=f"steps={steps}"):
            tandem.train(resume=tmp_path / "run", steps=steps, extend=extend)
    run = trainer.session(resume=tmp_path / "run", steps=128, extend=True)
    s = run.config.settings
    assert s.steps == 128 and s.learning_rate(0.5) == s.learning_rate(1.0) == np.float32(1e-3)
    assert s.clip(0.25) == s.clip(1.0) == np.float32(0.1) and s.clip(0.125) == np.float32(0.15)
    for _ in run.events():
        pass
    assert run.loop.env_steps == 128
    again = trainer.session(resume=tmp_path / "run")
    assert again.config == run.config, "the extended length is what the run has now"
    assert run.config.options.snapshot_every == 0, "without opponents a new run refuses it"
    assert (
        json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))["settings"][
            "steps"
        ]
        == 128
    )


def test_a_finished_run_resumed_stays_as_it_is(tmp_path: Path) -> None:
    small(out=tmp_path / "run", eval_every=48)
    before = {f: (tmp_path / "run" / f).read_bytes() for f in ("progress.csv", "config.json")}
    ended = tandem.train(resume=tmp_path / "run")
    assert ended.summary["env_steps"] == 64
    assert {f: (tmp_path / "run" / f).read_bytes() for f in before} == before


def test_a_run_on_an_object_needs_it_again(tmp_path: Path) -> None:
    small(Identity, out=tmp_path / "run", steps=64, stop_at=32)
    with pytest.raises(ResumeError, match="env="):
        tandem.train(resume=tmp_path / "run")
    assert tandem.train(env=Identity, resume=tmp_path / "run").summary["env_steps"] == 64


def test_another_environment_or_network_does_not_fit(tmp_path: Path) -> None:
    from torch import nn

    def body(width: int) -> Any:
        return lambda space: nn.Sequential(nn.Linear(4, width), nn.Tanh())

    small(lambda: make("CartPole-v1"), network=body(8), out=tmp_path / "run", steps=64, stop_at=32)
    with pytest.raises(CheckpointError, match="does not fit"):
        tandem.train(resume=tmp_path / "run", env="CartPole-v1", network=body(9))
    with pytest.raises(TandemError):
        tandem.train(resume=tmp_path / "run", env=Identity, network=lambda space: nn.Linear(1, 8))


def test_an_edited_config_is_told_and_put_right(tmp_path: Path) -> None:
    small(out=tmp_path / "run", steps=64, stop_at=32)
    file = tmp_path / "run" / "config.json"
    whole = file.read_text(encoding="utf-8")
    file.write_text(whole.replace('"gamma": 0.98', '"gamma": 0.5'))
    with pytest.warns(UserWarning, match=r"gamma=0.5 \(not 0.98\)") as told:
        ended = tandem.train(resume=tmp_path / "run")
    assert told[0].filename == __file__  # the line that called it
    assert ended.summary["env_steps"] == 64 and file.read_text(encoding="utf-8") == whole
    file.write_text("torn {")
    tandem.train(resume=tmp_path / "run")
    assert file.read_text(encoding="utf-8") == whole


# Checkpoints


def test_the_interval_of_checkpoints_stretches_where_writing_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing takes 2 s, a block 1 s, and one checkpoint is asked for every 10 s: 40 s lie between
    them, 5 %."""
    clock = [0.0]
    monkeypatch.setattr(observers, "monotonic", lambda: clock[0])
    real = observers.checkpoint.write

    def slow(*given: Any) -> None:
        clock[0] += 2.0
        real(*given)

    monkeypatch.setattr(observers.checkpoint, "write", slow)
    run = trainer.session(
        "ppo", "CartPole-v1", framework="torch", steps=32 * 130, out=tmp_path / "run",
        **{**SMALL, "eval_episodes": 0, "checkpoint_seconds": 10, "log_every": 10**6},
        eval_every=10**6,
    )  # fmt: skip
    times = []
    for event in run:
        if isinstance(event, BatchEnd):
            clock[0] += 1.0
        if isinstance(event, CheckpointSaved) and event.path.stem == "last":
            times.append(clock[0])
    assert [b - a for a, b in pairwise(times[:-1])] == [
        43.0
    ] * 3  # 41 blocks, the first beyond 40 s


def test_memory_mapped_replay_resumes_exactly(tmp_path: Path) -> None:
    def run(out: Path, stops: tuple[int | None, ...], **given: Any) -> Any:
        now = trainer.session(
            "dqn", "CartPole-v1", framework="torch", steps=300, out=out, **{**TINY_DQN, **given}
        )
        for i, stop in enumerate(stops):
            now = trainer.session(resume=out) if i else now
            for _ in now.events(stop):
                pass
        return now

    runs = [
        run(tmp_path / "plain", (None,)),
        run(tmp_path / "mapped", (None,), memmap=True),
        run(tmp_path / "parts", (100, 250, None), memmap=True),
    ]
    assert len({r.fingerprint() for r in runs}) == 1 and runs[0].loop.learner.updates > 50
    rings = [r.loop.learner.ring for r in runs]
    assert (
        len(list((tmp_path / "parts" / "replay").glob("*.npy"))) == 6
        and not (tmp_path / "plain" / "replay").exists()
    )
    for name, x in rings[0].state()[1].items():
        assert (
            x.tobytes()
            == rings[1].state()[1][name].tobytes()
            == rings[2].state()[1][name].tobytes()
        ), name


def test_infinite_horizon_is_registered() -> None:
    assert isinstance(make("tandem/InfiniteHorizon-v0").unwrapped, InfiniteHorizon)
    assert isinstance(make(IdentityBox), IdentityBox)


def test_statistics_need_a_layer_that_takes_them() -> None:
    """normalize_observations with a user's own body would do nothing: it is refused."""
    torch = pytest.importorskip("torch")
    settings = {"steps": 64, "rollout": 8, "batch_size": 64, "normalize_observations": True}
    with pytest.raises(SettingError, match="network of your own"):
        trainer.session(
            "ppo", "CartPole-v1", network=lambda space: torch.nn.Linear(4, 8), **settings
        )


def test_arguments_for_an_environment_are_kept(tmp_path) -> None:
    given = {"max_cycles": 7, "continuous_actions": True}
    pytest.importorskip("mpe2")
    run = tandem.session(
        "mappo",
        "mpe/simple_spread_v3",
        env_kwargs=given,
        steps=200,
        envs=2,
        rollout=7,
        batch_size=14,
        out=tmp_path / "run",
        eval_episodes=1,
        plots=False,
        framework="torch",
    )
    for _ in run.events(28):
        pass
    assert (
        run.action.kind == "box"
        and run.last_evaluation is not None
        and set(run.last_evaluation.lengths) == {7}
    )
    run = tandem.session(resume=tmp_path / "run")
    for _ in run:
        pass
    agent = tandem.load(tmp_path / "run")
    assert tandem.evaluate(agent, "mpe/simple_spread_v3", 2).lengths == [7, 7]
    with pytest.raises(SettingError, match="JSON data"):
        tandem.train("ppo", "CartPole-v1", env_kwargs={"render_mode": object()})
    with pytest.raises(SettingError, match="which is no id"):
        tandem.train("ppo", lambda: None, env_kwargs={"sutton_barto_reward": True})


def test_a_session_goes_on_where_it_was_left() -> None:
    given = {"framework": "torch", "steps": 160, **SMALL}
    whole, left = (trainer.session("ppo", "CartPole-v1", **given) for _ in range(2))
    list(whole)
    for event in left:
        if isinstance(event, BatchEnd):
            break
    list(left)
    assert left.fingerprint() == whole.fingerprint()
    within = trainer.session("ppo", "CartPole-v1", **given)
    for event in within:
        if isinstance(event, BatchBegin):
            break
    list(within)
    assert within.fingerprint() == whole.fingerprint()
