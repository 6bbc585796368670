"""The trainer door: what is chosen, refused, written down, given back."""

import json
from collections import Counter
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import tandem
from tandem import trainer
from tandem.envs.factory import make
from tandem.envs.vector import episode_seed
from tandem.errors import (
    CheckpointError,
    NetworkError,
    ResumeError,
    RunFolderError,
    SettingError,
    SpaceError,
    TandemError,
    UnknownNameError,
)
from tandem.learning import events
from tandem.learning.collect import evaluation as playing
from tandem.learning.seeds import derived
from tandem.runs import observers
from tandem.runs.callbacks import Callback, EarlyStop, LambdaCallback
from tandem.testing import environments as known
from tandem.testing.environments import Chain, Identity
from tests.helpers import expect_installed, run_python

QUIET: dict[str, Any] = dict(plots=False, tensorboard=False, eval_episodes=2, final_episodes=3)
QUIET["keep"] = 1
SMALL: dict[str, Any] = dict(envs=2, rollout=16, batch_size=16, epochs=1, hidden=(8,), **QUIET)
SMALL["vectorization"] = "plain"  # a block of it is 32 steps exactly: none that only resets
TINY_DQN: dict[str, Any] = {**QUIET, "hidden": (8,), "learning_starts": 20, "train_every": 4}
TINY_DQN |= {"updates_per_call": 2, "batch_size": 8, "buffer_size": 200}
TINY_DQN |= {"eval_every": 1000, "log_every": 100}


def small(env: Any = "CartPole-v1", steps: int = 64, **given: Any) -> Any:
    return tandem.train("ppo", env, framework="torch", steps=steps, **{**SMALL, **given})


def session(env: Any = "CartPole-v1", algorithm: str = "ppo", **given: Any) -> Any:
    return trainer.session(algorithm, env, framework="torch", **given)


def begun(env: Any = "CartPole-v1", steps: int = 64, **given: Any) -> Any:
    return session(env, steps=steps, **{**SMALL, **given})


class Odd(gymnasium.Env[Any, Any]):  # spaces that nobody asked for
    def __init__(self, observation: Any, action: Any) -> None:
        self.observation_space, self.action_space = observation, action

    def reset(self, **_: Any) -> Any:
        raise AssertionError("nothing may run")


def test_given_settings_win_over_the_zoo_and_the_zoo_over_defaults() -> None:
    zoo, _, source, _ = trainer.resolve("dqn", "CartPole-v1", {})
    assert zoo.learning_rate.start == 2.3e-3 and zoo.steps == 50_000
    assert "rl-baselines3-zoo" in source and zoo.double, "a default that the zoo does not mention"
    assert trainer.resolve("dqn", "Nowhere-v0", {})[0].learning_rate.start == 1e-4
    given = trainer.resolve("dqn", "CartPole-v1", {"learning_rate": "1e-3:0", "log_every": 7})
    rate = given[0].learning_rate
    assert (rate.start, rate.end, given[1].log_every) == (1e-3, 0.0, 7)
    shorter = trainer.resolve("dqn", "CartPole-v1", {"steps": 100})[0]
    changed = [n for n in vars(zoo) if getattr(zoo, n) != getattr(shorter, n)]
    assert shorter.steps == 100 and changed == ["steps", "learning_rate"]
    # updates_per_step takes the place of an entry's updates_per_call
    settings = trainer.resolve("dqn", "CartPole-v1", {"updates_per_step": 0.5})[0]
    assert settings.updates_per_call == 1 and settings.update_rate == 0.5
    both = {"updates_per_step": 0.5, "updates_per_call": 7}
    assert trainer.resolve("dqn", "CartPole-v1", both)[0].updates_per_call == 7  # refused later


@pytest.mark.parametrize(
    "algorithm, given, says",
    [
        ("ppo", {"epochs": "many"}, "epochs='many'.*whole number"),
        *(("ppo", {n: x}, f"{n}={x}") for n, x in (("steps", float("inf")), ("epochs", True))),
        ("ppo", {"normalize_rewards": 1}, "true or false"),
        ("ppo", {"clip": "0.2:"}, "a schedule"),
        ("ppo", {"value_weight": float("nan")}, "value_weight=nan"),
        ("ppo", {"hidden": (8, 0)}, "at least 1 unit"),
        ("ppo", {"gamma": 1.01}, "between 0 and 1"),
        ("ppo", {"final_episodes": 0}, "final_episodes=0"),
        ("ppo", {"batch_size": 48, "rollout": 32, "envs": 8}, "256 rows.* 48(.|\n)*ize=(32|64)"),
        ("dqn", {"epsilon": "1:-0.1:0.5"}, "epsilon=1:-0.1:0.5.*between 0 and 1"),
        ("dqn", {"train_every": 3, "envs": 2}, "train_every=3 with 2"),
        ("ppo", {"shared": True, "recurrent": 8}, "shared=True is not supported with recurrent=8"),
        ("dqn", {"memmap": True}, r"memmap given for a run without a folder(.|\n)*give out="),
        ("ppo", {"wandb": "mine"}, "wandb given for a run without a folder"),
        *(("ppo", {"seed": x}, f"seed={x!r}") for x in (-1, "one")),
        ("ppo", {"seed": 2**63}, "below 2"),
        *(("ppo", {"out": x}, f"out={x!r}(.|\n)*a path") for x in (3, "")),
        ("ppo", {"env_kwargs": [1]}, r"env_kwargs=\[1\]"),
        ("ppo", {"callbacks": None}, "callbacks=None"),
    ],
)
def test_wrong_values_are_named(algorithm: str, given: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        session(algorithm=algorithm, **given)


def test_wrong_arguments_of_calls_are_named(tmp_path: Path) -> None:
    for seed in (np.int64(3), np.uint32(7), 2**60 + 1):  # may be a whole number of NumPy's
        found = session(seed=seed).config.seed
        assert found == int(seed) and type(found) is int
    agent = session().agent()
    for stop_at in ("soon", -1, 1.5):
        with pytest.raises(SettingError, match=f"stop_at={stop_at!r}".replace("'", ".")):
            small(stop_at=stop_at, out=tmp_path / "run")
    assert not (tmp_path / "run").exists(), "before a folder is made"
    no_numbers = [("episodes", 2.5), ("episodes", None), ("seed", -1), ("seed", 1.5)]
    for name, value in (*no_numbers, ("seed", None)):
        with pytest.raises(SettingError, match=f"{name}={value}"):
            tandem.evaluate(agent, "CartPole-v1", **{name: value})
    path = r"agent='runs/cartpole'[^\n]*; expected an agent.\nFix: give tandem.load"
    with pytest.raises(SettingError, match=path):
        tandem.evaluate("runs/cartpole", "CartPole-v1")  # type: ignore[arg-type]
    for wrong in (3, None, [], b"run", ""):
        with pytest.raises(SettingError, match=r"path=(.|\n)*expected a path(.|\n)*Fix: "):
            tandem.load(wrong)  # type: ignore[arg-type]


BOX, MANY = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(3)
FAR = spaces.Box(np.finfo(np.float32).min, np.finfo(np.float32).max, (2,), np.float32)
TEXT, WHOLE = spaces.Text(3), spaces.Box(0, 5, (2,), np.int32)


@pytest.mark.parametrize(
    "algorithm, observation, action, says",
    [
        ("dqn", BOX, BOX, "dqn cannot act in a Box"),
        ("dqn", BOX, spaces.MultiDiscrete([2, 2]), "dqn cannot act in a MultiDiscrete"),
        ("dqn", BOX, spaces.MultiBinary(3), r"MultiBinary(.|\n)*use ppo, a2c or trpo"),
        ("sac", BOX, spaces.MultiDiscrete([2, 3]), r"sac.* MultiDiscrete(.|\n)*ppo or impala\."),
        ("sac", BOX, spaces.Box(-np.inf, np.inf, (2,)), "without bounds"),
        ("sac", BOX, FAR, r"sac.* stretch \[-1, 1\] to bounds from -3.40282e\+38 to 3.40282e\+38"),
        ("td3", BOX, spaces.Box(2e38, 3e38, (2,)), "td3 cannot stretch"),  # their sum overflows
        ("sac", BOX, spaces.Box(-1e300, 1e300, (2,), np.float64), "sac cannot stretch"),
        ("impala", BOX, spaces.MultiBinary(3), r"MultiBinary(.|\n)*use ppo, a2c or trpo"),
        ("ppo", BOX, spaces.Dict({"a": TEXT}), "Text"),
        ("ppo", BOX, spaces.Tuple(()), "without entries"),
        *(("ppo", BOX, x, "Box of int32") for x in (WHOLE, spaces.Dict({"a": WHOLE}))),
        ("td3", BOX, spaces.Box(0, 5, (2,), np.int64), "Box of int64"),
        ("ppo", spaces.Sequence(MANY), MANY, "Sequence"),
        ("sac", BOX, spaces.Dict({"a": MANY}), r"sac.* Dict or Tuple(.|\n)*use ppo, a2c"),
        ("ppo", spaces.Dict({"a": TEXT}), MANY, "Text"),
    ],
)
def test_spaces_that_an_algorithm_cannot_do_are_refused_before_anything_runs(
    algorithm: str, observation: Any, action: Any, says: str, tmp_path: Path
) -> None:
    with pytest.raises(SpaceError, match=says):
        session(lambda: Odd(observation, action), algorithm, out=tmp_path / "run")
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
    code = """
        import json, keras, tandem
        try:
            tandem.train("ppo", "CartPole-v1", framework="jax")
        except tandem.errors.EngineError as error:
            print(json.dumps(str(error)))
    """
    assert "KERAS_BACKEND=jax" in run_python(code, engine="keras-torch")[0]


def test_environments_by_id_object_and_function() -> None:
    class Counting(gymnasium.Wrapper[Any, Any, Any, Any]):
        steps = closed = 0

        def step(self, action: Any) -> Any:
            type(self).steps += 1
            self.own = getattr(self, "own", 0) + 1
            return super().step(action)

        def close(self) -> None:
            self.closed += 1

    env = Counting(Identity())
    ended = small(env, steps=48, envs=1)
    assert env.own == 48, "evaluation steps copies, never the environment that is trained on"
    assert Counting.steps > 48 and env.closed == 0, "one that is not ours is left open"
    assert ended.folder is None and ended.agent.observation.kind == "discrete"
    with pytest.raises(SettingError, match="a separate environment for each"):
        small(Identity(), envs=2)
    for function in (lambda: Identity(), Identity):
        assert len(small(function, steps=32).evaluation.returns) == 3


@pytest.mark.parametrize(
    ("algorithm", "rows"),
    [("ppo", 256), ("a2c", 40), ("trpo", 1024), ("dqn", 0), ("impala", 40), ("pqn", 2048)],
)
def test_one_environment_is_one_of_a_rollout_with_as_many_rows(algorithm: str, rows: int) -> None:
    quiet = {"algorithm": algorithm, "plots": False, "tensorboard": False, "eval_episodes": 0}
    usual = session(**quiet).config.settings
    run = session(gymnasium.make("CartPole-v1"), **quiet)
    s = run.config.settings
    assert s.envs == 1 and ("envs: 1, since" in run.config.source) == (usual.envs > 1)
    if rows:
        assert s.rollout == usual.rollout * usual.envs == rows
        given = session(gymnasium.make("CartPole-v1"), rollout=512, **quiet)
        assert given.config.settings.rollout == 512, "what is given stays"
    next(iter(run))


def test_a_run_in_one_environment_is_resumed_and_a_memory_goes_back_as_far(tmp_path: Path) -> None:
    def both(**more: Any) -> Any:
        return [session(env, recurrent=8, **more).config.settings for env in (Identity(), Identity)]

    one, usual = both(sequence=0, batch_size=256)
    assert one.sequence == usual.rollout
    one, usual = both(algorithm="impala", replay="uniform")
    assert one.replay_size * one.rollout == usual.replay_size * usual.rollout
    given = {n: x for n, x in SMALL.items() if n not in ("envs", "rollout")}
    given |= {"framework": "torch", "steps": 4096}
    tandem.train("ppo", Identity(), stop_at=2048, out=tmp_path / "run", **given)
    again = tandem.train(resume=tmp_path / "run", env=Identity())
    whole = tandem.train("ppo", Identity(), out=tmp_path / "whole", **given)
    assert again.summary["eval_mean"] == whole.summary["eval_mean"]
    assert again.notes == whole.notes and again.notes[0].startswith("envs: 1")
    written = json.loads((tmp_path / "run" / "result.json").read_text())
    assert written["notes"] == list(again.notes)


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
        heavy = {"torch", "keras", "jax", "tensorflow", "matplotlib"} & set(sys.modules)
        print(json.dumps([actions.tolist(), sorted(heavy)]))
    """
    assert run_python(code, str(tmp_path / "run")) == [[agent.act(obs).tolist(), []]]


OBS = np.full((3, 4), 0.1, np.float32)


def logits(agent: Any) -> Any:
    return agent.networks["actor"](OBS)


def test_load_takes_the_best_unless_told_otherwise(tmp_path: Path) -> None:
    small(out=tmp_path / "run", steps=320, eval_every=32, keep=2, learning_rate=0.02)
    folder, names = tmp_path / "run" / "checkpoints", ("best", "last", "step-000000288")
    numbered = sorted(f.name for f in folder.glob("step-*.zip"))
    assert numbered == ["step-000000288.zip", "step-000000320.zip"]
    best, last, at = (logits(trainer.load(tmp_path / "run", which=w)) for w in names)
    assert (logits(trainer.load(folder / "best.zip")) == best).all()
    assert (logits(trainer.load(tmp_path / "run")) == best).all() and (last != at).any()
    with pytest.raises(CheckpointError, match="did you mean 'step-000000320'"):
        trainer.load(tmp_path / "run", which="step-000000321")
    with pytest.raises(CheckpointError, match=r"no checkpoint 3 in(.|\n)*one of best, last, step"):
        trainer.load(tmp_path / "run", which=3)  # type: ignore[arg-type]
    # before any evaluation the last stands for the best
    new = tmp_path / "new"
    small(out=new, steps=64, eval_episodes=0, learning_rate=0.05)
    assert [f.name for f in (new / "checkpoints").iterdir()] == ["last.zip"]
    assert (logits(trainer.load(new)) != logits(session(**SMALL).agent())).any()


def agent_for(observation: Any, action: Any, algorithm: str = "ppo", **settings: Any) -> Any:
    given = {**SMALL, **settings}
    return session(lambda: Odd(observation, action), algorithm, **given).agent()


def test_one_observation_or_a_batch_and_dicts_of_them() -> None:
    agent = agent_for(BOX, MANY)
    one, batch = agent.act(np.zeros(2)), agent.act(np.zeros((5, 2)))
    assert np.shape(one) == () and batch.shape == (5,) and (batch == one).all()
    for wrong in (np.zeros(3), np.zeros((5, 3)), np.zeros((1, 5, 2))):
        with pytest.raises(SpaceError, match=r"has shape"):
            agent.act(wrong)
    for wrong in ("up", {"a": 1}, ["a", "b"], [[1, 2], [3]]):
        says = r"the observation is (.|\n)*numbers of shape \(2,\)"
        with pytest.raises(SpaceError, match=says):
            agent.act(wrong)
    drawn = []
    for _ in range(2):
        agent.seed(0)
        drawn.append(agent.act(np.zeros((200, 2)), deterministic=False).tolist())
    assert len(set(drawn[0])) == 3 and drawn[0] == drawn[1]
    inner = spaces.Dict({"place": BOX, "kind": spaces.Discrete(4, start=2)})
    agent = agent_for(spaces.Dict({"in": inner, "on": spaces.MultiBinary(2)}), MANY)
    one = {"in": {"place": np.zeros(2), "kind": 3}, "on": np.ones(2, np.int8)}
    assert np.shape(agent.act(one)) == ()

    def batch(kind: Any) -> Any:
        return {"in": {"place": np.zeros((4, 2)), "kind": kind}, "on": np.ones((4, 2), np.int8)}

    assert agent.act(batch(np.full(4, 3))).tolist() == [agent.act(one)] * 4
    with pytest.raises(SpaceError, match="entries in/kind, in/place"):
        agent.act({"in": {"place": np.zeros(2), "kind": 3}})
    for kind in (3, np.full(3, 3)):
        with pytest.raises(SpaceError, match="entries of one observation, or of batches"):
            agent.act(batch(kind))


def test_actions_are_as_the_environment_takes_them() -> None:
    agent = agent_for(BOX, spaces.Discrete(3, start=-1))
    agent.seed(1)
    assert set(agent.act(np.zeros((100, 2)), deterministic=False).tolist()) == {-1, 0, 1}
    bounded = spaces.Box(np.array([-2, 5], np.float32), np.array([-1, 9], np.float32))
    ppo = agent_for(BOX, bounded, log_std=2.0)
    sac = session(lambda: Odd(BOX, bounded), "sac", hidden=(8,), buffer_size=256).agent()
    for agent in (ppo, sac):
        drawn = agent.act(np.random.default_rng(0).uniform(-1, 1, (200, 2)), deterministic=False)
        assert drawn.dtype == np.float32 and all(bounded.contains(a) for a in drawn)
        assert np.ptp(drawn, axis=0).min() > 0.5, "it is stretched to the bounds, or cut there"
    assert sac.act(np.zeros(2)).shape == (2,) and bounded.contains(sac.act(np.zeros(2)))
    multi = agent_for(spaces.MultiDiscrete([2, 3]), spaces.MultiDiscrete([4, 5]))
    assert multi.act(np.array([1, 2])).shape == (2,)


def test_an_agent_is_not_evaluated_in_an_environment_of_other_spaces() -> None:
    agent, form = agent_for(BOX, MANY), "s of the form "
    for other, says in (
        ((spaces.Box(-1, 1, (3,)), MANY), rf"observation{form}\('box', 'float32', \(3,\)\)"),
        ((spaces.Box(0, 255, (2,), np.uint8), MANY), "uint8"),
        ((spaces.Dict({"obs": BOX}), MANY), "'obs'"),
        ((BOX, spaces.Discrete(4)), rf"action{form}\('discrete', 'int64', \(4,\)\)"),
        ((BOX, BOX), f"action{form}"),
    ):
        with pytest.raises(SpaceError, match=says):
            tandem.evaluate(agent, partial(Odd, *other))


def test_stable_baselines3_can_evaluate_an_agent() -> None:
    expect_installed("stable_baselines3")  # which imports Keras, by TensorBoard
    code = """
    import tandem
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    agent = tandem.train("dqn", "CartPole-v1", steps=32, plots=False).agent
    envs = make_vec_env("CartPole-v1", n_envs=2)
    print(evaluate_policy(agent, envs, n_eval_episodes=4, warn=False)[0])
    """
    (mean,) = run_python(code, engine="torch")
    assert 5 < mean <= 500


def test_evaluation_is_the_same_every_time_and_for_any_number_of_environments() -> None:
    agent = small(steps=32).agent

    def evaluated(seed: int, **more: Any) -> Any:
        return tandem.evaluate(agent, "CartPole-v1", episodes=6, seed=seed, **more)

    first = evaluated(3)
    assert first == evaluated(3) != evaluated(4) and len(first.lengths) == 6
    assert first == tandem.evaluate(agent, "CartPole-v1", 6, 3), "by position, too"
    assert first.mean == np.mean(first.returns) and first.std == np.std(first.returns)
    alone = playing.evaluate(agent.actor, "CartPole-v1", 6, 3, environments=1)
    assert alone == (first.returns, first.lengths, [], 0, None)
    noisy = [evaluated(seed, deterministic=False) for seed in (3, 3, 4)]
    assert noisy[0] == noisy[1] != first and noisy[0] != noisy[2]


def torch_body(space: Any, width: int = 8) -> Any:
    from torch import nn

    class Body(nn.Module):  # its own forward: no twin
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(space.shape[0], width)

        def forward(self, x: Any) -> Any:
            return self.inner(x).sin()

    return Body()


def torch_pair(space: Any) -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(4, 8), nn.Tanh()), nn.Sequential(nn.Linear(4, 6), nn.ReLU())


def learned(network: Any, **more: Any) -> tuple[str, dict[str, int]]:
    """The framework of a run with a custom network, all of which learns, and sizes."""
    run = trainer.session("ppo", "CartPole-v1", network=network, steps=64, **SMALL, **more)
    before = {n: w.copy() for n, w in run.backend.networks["actor"].read().items()}
    list(run.events())
    after = run.backend.networks["actor"].read()
    assert all((before[n] != after[n]).any() for n in before), "the heads and the body learn"
    assert np.shape(run.agent().act(OBS)) == (3,)
    sizes = {n: sum(x.size for x in w.read().values()) for n, w in run.backend.networks.items()}
    return run.config.framework, sizes


def test_a_body_a_pair_or_whole_networks_and_one_for_actor_and_critic() -> None:
    from torch import nn

    whole = {"actor": nn.Linear(4, 2), "critic": lambda space: nn.Linear(*space.shape, 1)}
    pairs = [(torch_body, 58, 40 + 9), (torch_pair, 40 + 18, 30 + 7), (whole, 10, 5)]
    for network, actor, critic in pairs:
        framework, sizes = learned(network)
        assert framework == "torch", "it follows from the network"
        assert {n: sizes[n] for n in ("actor", "critic")} == {"actor": actor, "critic": critic}
    shared = [(None, 40 + 27), (torch_body, 40 + 18 + 9), (torch_pair, 40 + 18 + 30 + 7)]
    for network, size in (*shared, ({"actor": nn.Linear(4, 3)}, 15)):
        assert learned(network, framework="torch", shared=True)[1] == {"actor": size}


def test_an_entry_of_the_observation_may_be_called_action() -> None:
    """The last one taken, say: it is none that a critic is asked about."""
    import torch
    from torch import nn

    class Body(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(5, 6)

        def forward(self, obs: Any) -> Any:
            return self.inner(torch.cat([obs["obs"], obs["action"]], -1))

    space, own = spaces.Dict({"obs": BOX, "action": spaces.Box(-1, 1, (3,))}), lambda space: Body()
    normalized, of_sac = {"normalize_observations": True}, {"network": own, "buffer_size": 256}
    for algorithm, settings in (("ppo", {"network": own}), ("ppo", normalized), ("sac", of_sac)):
        agent = session(lambda: Odd(space, BOX), algorithm, hidden=(8,), **settings).agent()
        assert agent.act({"obs": np.zeros(2), "action": np.ones(3)}).shape == (2,)


def test_networks_of_another_kind_and_functions_that_make_none_are_refused(tmp_path: Path) -> None:
    from torch import nn

    line = nn.Linear(4, 2)
    with pytest.raises(UnknownNameError, match="no network function 'mlp'"):
        session(network="mlp", **SMALL)
    for network in ([1], {"actor": None}, line, (line, nn.Linear(4, 2))):
        with pytest.raises(NetworkError):
            session(network=network, **SMALL)
    # statistics need a layer that takes them
    with pytest.raises(SettingError, match="custom network"):
        begun(network=torch_body, normalize_observations=True)
    lacking = "cannot be called with the observation space: too many positional"
    for network, says in (
        (lambda: None, lacking),
        (lambda space, more: None, "missing a required argument: 'more'"),
        ({"actor": lambda: None, "critic": lambda: None}, "cannot be called"),
        (lambda space: None, "returned a NoneType"),
        (lambda space: [1], "returned a list"),
        (lambda space: (None, None), "returned a NoneType"),
    ):
        for framework in ("torch", None):
            given = {"framework": framework, "network": network, "out": tmp_path / "run"}
            with pytest.raises(NetworkError, match=says + r"(.|\n)*; expected (.|\n)*Fix: "):
                trainer.session("ppo", "CartPole-v1", **given, **SMALL)
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

    small(Own, network=network, out=tmp_path / "run")
    with pytest.raises(CheckpointError) as caught:
        tandem.load(tmp_path / "run")
    agent = eval(caught.value.fix.replace("...", "network"), {"tandem": tandem, "network": network})
    assert agent.act(Own().reset(seed=0)[0]) in range(4)
    assert all(space == Own().observation_space for space in shown) and len(shown) > 1
    assert tandem.load(tmp_path / "run", network=network, env=Own).name == agent.name
    with pytest.raises(SpaceError, match="CartPole-v1 has observations"):
        tandem.load(tmp_path / "run", network=network, env="CartPole-v1")


def test_a_network_without_a_twin_has_to_be_given_again(tmp_path: Path) -> None:
    given = {"out": tmp_path / "run", "stop_at": 64, "learning_rate": 0.02}
    ended = small(network=torch_body, steps=128, **given)
    obs = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)
    before = ended.agent.act(obs).tolist()
    with pytest.raises(CheckpointError, match=r"custom network \(actor\)(.|\n)*network="):
        tandem.load(tmp_path / "run")
    for more in ({}, {"env": "CartPole-v1"}):
        loaded = tandem.load(tmp_path / "run", network=torch_body, **more)
        assert loaded.act(obs).tolist() == before
    with pytest.raises(CheckpointError, match="shapes"):
        tandem.load(tmp_path / "run", network=lambda space: torch_body(space, width=9))
    with pytest.raises(ResumeError, match="network="):
        tandem.train(resume=tmp_path / "run")
    resumed = tandem.train(resume=tmp_path / "run", network=torch_body)
    assert resumed.agent.networks["actor"] is not ended.agent.networks["actor"]
    assert ended.agent.act(obs).tolist() == before, "an agent once given stays as it is"


KERAS = """
    import json, keras, numpy as np
    from keras.layers import BatchNormalization, Dense
    from tandem import trainer
    from tests.test_trainer import SMALL

    def body(space):
        x = keras.Input(space.shape)
        return keras.Model(x, keras.ops.sin(Dense(8)(BatchNormalization()(x))))

    def known(space):
        return keras.Sequential([keras.Input(space.shape), Dense(8, activation="tanh")])

    whole = {"actor": keras.Sequential([keras.Input((4,)), Dense(2)]), "critic": Dense(1)}
    obs = np.random.default_rng(0).standard_normal((64, 4)).astype(np.float32)
    given = {**SMALL, "eval_episodes": 0, "final_episodes": 1, "steps": 64, "learning_rate": 0.05}
    for network in (body, lambda s: (known(s), body(s)), whole):
        run = trainer.session("ppo", "CartPole-v1", network=network, **given)
        first = run.agent()
        before = first.networks["actor"](obs)
        list(run.events())
        planned = run.backend.networks["actor"].plan is not None
        learns = bool((before != run.agent().networks["actor"](obs)).all())
        stays = bool((first.networks["actor"](obs) == before).all())
        print(json.dumps([run.config.framework, planned, learns, stays]))
"""


@pytest.mark.slow
def test_keras_networks() -> None:
    for engine in ("jax", "keras-torch"):
        rows = [[engine, planned, True, True] for planned in (False, True, True)]
        assert run_python(KERAS, engine=engine) == rows  # type: ignore[arg-type]


def test_without_a_folder_nothing_is_written_and_the_best_agent_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    weights, saved = [], []
    callbacks = [LambdaCallback(on_checkpoint=saved.append)]
    run = begun(steps=320, learning_rate=0.1, eval_every=32, callbacks=callbacks)
    for event in run.events():
        if isinstance(event, events.EvaluationEnd):
            weights.append((event.best, logits(run.agent())))
    best = [w for chosen, w in weights if chosen][-1]
    assert not weights[-1][0], "the last was not the best; choose another seed"
    assert (logits(run.restored("best")) == best).all()
    assert not list(tmp_path.iterdir()) and not saved


def test_result_json_has_the_scores_and_progress_is_shown_if_asked_for(tmp_path, capsys) -> None:
    ended = small(out=tmp_path / "run")
    found = json.loads((tmp_path / "run" / "result.json").read_text(encoding="utf-8"))
    expected = {"algorithm": "ppo", "env": "CartPole-v1", "framework": "torch", "seed": 0}
    expected |= {"env_steps": 64, "updates": 4, "eval_episodes": 3}
    assert {n: found[n] for n in expected} == expected and "torch" in found["versions"]
    assert found["eval_mean"] == ended.evaluation.mean == np.mean(ended.evaluation.returns)
    small(progress=True)
    assert ", with evaluations" in capsys.readouterr().err
    small()
    assert capsys.readouterr() == ("", "")


def test_the_best_is_chosen_on_other_seeds_than_it_is_scored_on(tmp_path, monkeypatch) -> None:
    used: list[tuple[int, int]] = []
    real = playing.EvaluationEnvs.ready

    def spy(self: Any, episodes: int, seed: int, *rest: Any) -> Any:
        used.append((episodes, seed))
        return real(self, episodes, seed, *rest)

    monkeypatch.setattr(playing.EvaluationEnvs, "ready", spy)
    small(out=tmp_path / "run", seed=5, eval_every=32)
    # the first of three is before training
    assert used == [(2, derived(5, "select"))] * 3 + [(3, derived(5, "final"))] * 2

    def of(part: str, environments: Any) -> set[Any]:
        return {episode_seed(derived(5, part), e, k) for e in environments for k in range(100)}

    training, evaluation = of("environments", range(2)), [playing.EVALUATION]
    chosen, scored = of("select", evaluation), of("final", evaluation)
    assert not training & chosen and not training & scored and not chosen & scored


def test_a_folder_that_is_no_run_is_refused_and_a_finished_one_stays_as_it_is(tmp_path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunFolderError, match="not empty"):
        small(out=tmp_path)
    with pytest.raises(RunFolderError, match="is not a run"):
        tandem.train(resume=tmp_path)
    small(out=tmp_path / "run", eval_every=48)
    before = {f: (tmp_path / "run" / f).read_bytes() for f in ("progress.csv", "config.json")}
    ended = tandem.train(resume=tmp_path / "run")
    assert ended.summary["env_steps"] == 64
    assert {f: (tmp_path / "run" / f).read_bytes() for f in before} == before


def test_events_come_in_order_and_reach_callbacks_first(tmp_path: Path) -> None:
    heard, part = list[Any](), Counter[str]()
    every = {n: heard.append for n in dir(Callback) if n.startswith("on_")}
    some = {n: lambda e, n=n: part.update([n]) for n in ("on_train_end", "on_batch_begin")}
    callbacks = [LambdaCallback(**every), LambdaCallback(**some)]
    run = begun(steps=96, eval_every=64, out=tmp_path / "run", callbacks=callbacks)
    seen = []
    for event in run:
        assert heard[-1] is event
        seen.append(event)
    assert seen == heard and part == {"on_train_end": 1, "on_batch_begin": 3}
    kinds = [type(e).__name__ for e in seen]
    assert kinds[:4] == ["TrainBegin", "CheckpointSaved", "EpisodeBegin", "EpisodeBegin"]
    assert kinds[-1] == "TrainEnd"
    order = [k for k in kinds if k in ("BatchBegin", "BatchEnd", "EvaluationEnd")]
    block, evaluation = ["BatchBegin", "BatchEnd"], ["EvaluationEnd"]
    assert order == block * 2 + evaluation + block + evaluation
    assert kinds.count("EpisodeBegin") == kinds.count("EpisodeEnd") + 2
    # a block's episodes are told after it was collected, each with the steps at which it ended
    without = [e for e in seen if not isinstance(e, events.BatchBegin)]
    for name in ("env_steps", "updates", "episodes", "seconds"):
        counts = [getattr(e, name) for e in (without if name == "env_steps" else seen)]
        assert counts == sorted(counts), name
    ends = [e for e in seen if isinstance(e, events.EpisodeEnd)]
    assert [e.episodes for e in ends] == list(range(1, len(ends) + 1))
    begin, end = seen[0], seen[-1]
    assert isinstance(begin, events.TrainBegin) and isinstance(end, events.TrainEnd)
    assert (begin.steps, begin.stop_at, begin.env_steps) == (96, 96, 0)
    assert (end.reason, end.env_steps, end.updates) == ("steps", 96, 6)
    first = next(e for e in seen if isinstance(e, events.BatchEnd))
    assert set(first.shares) == {"environment", "acting", "learning"} and "loss" in first.metrics
    files = {e.path.name for e in seen if isinstance(e, events.CheckpointSaved)}
    assert files >= {"last.zip", "best.zip", "step-000000064.zip"}


def test_a_checkpoint_is_written_before_anything_is_learned(tmp_path: Path) -> None:
    for event in begun(out=tmp_path / "run"):
        if isinstance(event, events.CheckpointSaved):
            assert event.env_steps == 0 and event.path.is_file()
            break
    written = logits(trainer.load(tmp_path / "run", which="last"))
    assert (written == logits(session(**SMALL).agent())).all()


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
    """Chain pays 1 at its end: six wins come at the same step in one sitting and in three."""

    def steps(out: Path, stops: tuple[int | None, ...]) -> int:
        given: dict[str, Any] = {"gamma": 0.9, "learning_rate": 0.01, "eval_episodes": 0}
        criterion = [EarlyStop(1.0, episodes=12)]
        run = begun(Chain, 4000, out=out, callbacks=criterion, **given)
        for i, stop in enumerate(stops):
            if i:  # another callback has come before it
                others = [Callback(), EarlyStop(1.0, episodes=12)]
                run = trainer.session(resume=out, env=Chain, callbacks=others)
            *_, end = run.events(stop)
        assert isinstance(end, events.TrainEnd) and end.reason == "criterion"
        return end.env_steps

    whole = steps(tmp_path / "whole", (None,))
    assert 64 < whole < 4000
    assert steps(tmp_path / "parts", (32, whole - 64, None)) == whole


def test_resume_takes_nothing_that_the_run_knows(tmp_path: Path) -> None:
    small(out=tmp_path / "run", steps=64, stop_at=32)
    known_to_it: dict[str, Any] = {"framework": "torch", "envs": 2, "gamma": 0.9, "workers": 1}
    other_run = {"algorithm": "dqn", "env": "Acrobot-v1", "env_kwargs": {"a": 1}}
    for error, says, given in (
        *((ResumeError, f"resume= was given with {n}", {n: x}) for n, x in known_to_it.items()),
        (ResumeError, "resume= was given with seed", {"seed": 3}),
        *((ResumeError, f"{n}=.* was given", {n: x}) for n, x in other_run.items()),
        (SettingError, "steps='many'", {"steps": "many"}),
        (SettingError, r"resume=3(.|\n)*a path", {"resume": 3}),
    ):
        with pytest.raises(error, match=says):
            tandem.train(**{"resume": tmp_path / "run", **given})


def test_the_length_of_a_run_is_fixed_unless_extended(tmp_path: Path) -> None:
    small(out=tmp_path / "run", steps=64, learning_rate="1e-2:1e-3", clip="0.2:0.1:0.5")
    for steps, extend in ((128, False), (32, False), (32, True)):
        with pytest.raises(ResumeError, match=f"steps={steps}"):
            tandem.train(resume=tmp_path / "run", steps=steps, extend=extend)
    run = trainer.session(resume=tmp_path / "run", steps=128, extend=True)
    s = run.config.settings
    assert s.steps == 128 and s.learning_rate(0.5) == s.learning_rate(1.0) == np.float32(1e-3)
    assert s.clip(0.25) == s.clip(1.0) == np.float32(0.1) and s.clip(0.125) == np.float32(0.15)
    list(run.events())
    assert run.loop.env_steps == 128
    again = trainer.session(resume=tmp_path / "run")
    assert again.config == run.config, "the extended length is what the run has now"
    assert run.config.options.snapshot_every == 0, "without opponents a new run refuses it"
    written = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))
    assert written["settings"]["steps"] == 128


def test_a_run_on_an_object_needs_it_again_and_no_other(tmp_path: Path) -> None:
    from torch import nn

    def body(width: int) -> Any:
        return lambda space: nn.Sequential(nn.Linear(4, width), nn.Tanh())

    run, made = tmp_path / "run", lambda: make("CartPole-v1")
    small(made, network=body(8), out=run, stop_at=32)
    with pytest.raises(ResumeError, match="env="):
        tandem.train(resume=run, network=body(8))
    with pytest.raises(CheckpointError, match="does not fit"):
        tandem.train(resume=run, env="CartPole-v1", network=body(9))
    with pytest.raises(TandemError):
        tandem.train(resume=run, env=Identity, network=lambda space: nn.Linear(1, 8))
    assert tandem.train(resume=run, env=made, network=body(8)).summary["env_steps"] == 64


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


def test_the_interval_of_checkpoints_stretches_where_writing_is_slow(tmp_path, monkeypatch) -> None:
    """Writing takes 2 s, a block 1 s, one is asked for every 10 s: 40 s lie between them, 5 %."""
    clock, real = [0.0], observers.checkpoint.write
    monkeypatch.setattr(observers, "monotonic", lambda: clock[0])

    def slow(*given: Any) -> None:
        clock[0] += 2.0
        real(*given)

    monkeypatch.setattr(observers.checkpoint, "write", slow)
    given = {"eval_episodes": 0, "eval_every": 10**6, "log_every": 10**6, "checkpoint_seconds": 10}
    times = []
    for event in begun(steps=32 * 130, out=tmp_path / "run", **given):
        if isinstance(event, events.BatchEnd):
            clock[0] += 1.0
        if isinstance(event, events.CheckpointSaved) and event.path.stem == "last":
            times.append(clock[0])
    # 41 blocks, the first beyond 40 s
    assert [b - a for a, b in pairwise(times[:-1])] == [43.0] * 3


def test_memory_mapped_replay_resumes_exactly(tmp_path: Path) -> None:
    def run(out: Path, stops: tuple[int | None, ...], **given: Any) -> Any:
        now = session(algorithm="dqn", steps=300, out=out, **{**TINY_DQN, **given})
        for i, stop in enumerate(stops):
            now = trainer.session(resume=out) if i else now
            list(now.events(stop))
        return now

    runs = [
        run(tmp_path / "plain", (None,)),
        run(tmp_path / "mapped", (None,), memmap=True),
        run(tmp_path / "parts", (100, 250, None), memmap=True),
    ]
    assert len({r.fingerprint() for r in runs}) == 1 and runs[0].loop.learner.updates > 50
    assert len(list((tmp_path / "parts" / "replay").glob("*.npy"))) == 6
    assert not (tmp_path / "plain" / "replay").exists()
    plain, *mapped = (r.loop.learner.ring.state()[1] for r in runs)
    for name, x in plain.items():
        assert [x.tobytes()] * 2 == [other[name].tobytes() for other in mapped], name


def test_arguments_for_an_environment_are_kept(tmp_path) -> None:
    pytest.importorskip("mpe2")
    given = {"max_cycles": 7, "continuous_actions": True}
    short = {**SMALL, "rollout": 7, "batch_size": 14, "eval_episodes": 1}
    del short["vectorization"]
    env, out = "mpe/simple_spread_v3", tmp_path / "run"
    run = session(env, "mappo", env_kwargs=given, steps=200, out=out, **short)
    list(run.events(28))
    assert run.action.kind == "box" and run.last_evaluation is not None
    assert set(run.last_evaluation.lengths) == {7}
    run = tandem.session(resume=out)
    list(run)
    assert tandem.evaluate(tandem.load(out), env, 2).lengths == [7, 7]
    with pytest.raises(SettingError, match="JSON data"):
        tandem.train("ppo", "CartPole-v1", env_kwargs={"render_mode": object()})
    with pytest.raises(SettingError, match="unexpected keyword argument"):
        tandem.train("ppo", lambda: None, env_kwargs={"sutton_barto_reward": True})
    with pytest.raises(SettingError, match="an existing Chain"):
        tandem.train("ppo", Chain(), env_kwargs={"n": 3})


@pytest.mark.parametrize("at", [events.BatchEnd, events.BatchBegin])
def test_a_session_goes_on_where_it_was_left(at: type) -> None:
    whole, left = begun(steps=160), begun(steps=160)
    list(whole)
    for event in left:
        if isinstance(event, at):
            break
    list(left)
    assert left.fingerprint() == whole.fingerprint()
