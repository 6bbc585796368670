"""The advice about settings, which algorithms and runs refuse together."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

import tandem
from tandem import algorithms, trainer
from tandem.errors import SettingError, TandemError
from tandem.learning import asynchronous, fits, selfplay
from tandem.learning.compiled import choice
from tandem.learning.config import Options
from tandem.learning.events import BatchBegin, BatchEnd
from tandem.math import returns
from tandem.replay.buffer import Ring
from tandem.replay.scored import ScoredSampler
from tandem.reports import plots
from tandem.reports.comparison import compare
from tandem.settings import Schedule, apply, check_ranges, declared
from tandem.spaces import Leaf, action_leaf
from tandem.testing import contracts
from tandem.testing import environments as games
from tandem.testing.goal_games import BitFlip
from tandem.vector_actions import taken_space
from tests.advice.net import assigned, follow, follows, quoted, rows
from tests.advice.worlds import QUIET, SHORT, Toy, made, ran

BOX = partial(Toy, spaces.Box(-1, 1, (2,), np.float32))
TEAM, PENDULUM = {"env": "mpe/simple_spread_v3"}, {"env": "Pendulum-v1"}
BOXES = {**TEAM, "env_kwargs": {"continuous_actions": True}}
SARSA, SIMBA = {"bootstrap": "sarsa"}, {"body": "simba"}
MUNCHAUSEN = {"munchausen": True}


def body(space: Any) -> Any:
    return torch.nn.Sequential(torch.nn.Linear(space.shape[0], 8), torch.nn.Tanh())


def run(usual: str, **given: Any) -> None:
    ran(given.pop("algorithm", usual), **given)


POINT = {"values": "categorical", "v_min": 5, "v_max": 5}
GSDE = {"env": BOX, "action_noise": "gsde", "exploration": "0.3:0.1"}
OWN = BOXES | {"network": body}
NORMS = {"env": BOX, "weight_projection": True, "weight_norm": True}
SHORT_POOL = {"recurrent": 8, "sequence": 8, "burn_in": 8, "batch_size": 8, "buffer_size": 15}
FLIPS = {"hindsight": "final", "env": lambda num_envs: SyncVectorEnv([BitFlip] * num_envs)}


@pytest.mark.slow
@rows(
    ("action_spaces.py:floats 2", "ppo", BOXES, "mappo", {"algorithm": "mappo"}),
    ("action_spaces.py:floats 2", "td3", BOXES, "maddpg", {"algorithm": "maddpg"}),
    ("SoftActorCritic.check", "sac", {"recurrent": 8, "sequence": 4, "n_step": 2}, {"n_step": 1}),
    ("teams.py:check_replay", "qmix", TEAM | {"recurrent": 8, "prioritized": True}),
    ("teams.py:check_replay", "qmix", TEAM | {"recurrent": 8, "n_step": 2}),
    ("critics.py:check_values", "dqn", POINT, {"v_min": -10, "v_max": 10}),
    ("NStepQ.check", "nstep_q", SARSA | {"replay": "uniform"}),
    ("NStepQ.check 2", "nstep_q", SARSA | {"replay": "none", "rollout": 1}, {"rollout": 2}),
    ("NStepQ.check 3", "nstep_q", SARSA | {"replay": "none", "double": False}),
    ("_check_munchausen", "dqn", MUNCHAUSEN | {"values": "categorical"}, {"values": "implicit"}),
    ("_check_munchausen 2", "dqn", MUNCHAUSEN | {"n_step": 2}, {"n_step": 1}),
    ("_check_munchausen 3", "dqn", MUNCHAUSEN | {"double": True}, {"double": False}),
    ("bodies.py:body", "dqn", SIMBA | {"layer_norm": True}, "layer_norm", {"layer_norm": False}),
    ("TRPO.check 2", "trpo", SIMBA | {"normalize_observations": False}),
    ("Deterministic.check 2", "td3", GSDE, {"exploration": 0.3}),
    ("TQC.check", "tqc", {"env": BOX, "quantiles": 20, "dropped": 20}, {"dropped": 2}),
    ("MAT.check", "mat", BOXES | {"embedding": 10, "heads": 4}, {"embedding": 12}),
    ("MAT.sources", "mat", OWN, "leave network out", {"network": None}),
    ("MAT.sources", "mat", OWN, "use mappo", {"algorithm": "mappo", "centralized": False}),
    ("OnSequences.roles", "impala", {"recurrent": 8, "shared": False}),
    ("recurrent_replay.py:check", "dqn", {"env": BitFlip, "hindsight": "final", "recurrent": 8}),
    ("Deterministic.check", "td3", {"env": BOX, "action_noise": "ou", "recurrent": 8}),
    ("DQN.check", "dqn", {"values": "implicit", "recurrent": 8}, {"values": "quantile"}),
    ("CrossQ.check", "crossq", NORMS, "leave weight_norm out", {"weight_norm": False}),
    ("asynchronous.py:refuse_statistics", "a3c", {"learners": 2, "normalize_rewards": True}),
    ("fits.py:transitions 4", "dqn", SHORT_POOL, {"buffer_size": 16}),
    ("goals.py:goals_of", "dqn", FLIPS, "give the environment itself", {"env": BitFlip}),
)
def test_settings_of_algorithms(row: Any) -> None:
    key, algorithm, *rest = row
    follow(key, partial(run, algorithm), *rest)


def fitting(algorithm: str, devices: int = 2, **given: Any) -> None:
    kind = algorithms.get(algorithm)
    fits.check(kind.needs, apply(kind.Settings(), given), devices)


UNEVEN = {"rollout": 9, "batch_size": 45}


@rows(
    ("ppo", UNEVEN | {"envs": 10}, "use batch_size=30, or devices=1"),
    # no batch of 45 rows would do
    ("ppo", UNEVEN | {"envs": 5, "batch_size": 15}, "use devices=1"),
    ("ppo", UNEVEN | {"envs": 10, "recurrent": 8, "sequence": 3}, "use batch_size=30, or devices"),
    ("a2c", {"envs": 3, "rollout": 5}, "use envs=2, or devices=1"),
    ("dqn", {"batch_size": 33}, "use batch_size=32, or devices=1"),
    ("qmix", {"recurrent": 8, "sequence": 4, "batch_size": 60}, "use batch_size=56, or devices=1"),
    ("a3c", {"envs": 5}, "use envs=4, or devices=1"),
)
def test_uneven_shares_of_devices(row: Any) -> None:
    algorithm, *rest = row
    follow("devices.py:check_even", partial(fitting, algorithm), *rest)


def refused(**options: Any) -> None:
    """What a session asks of its options before it begins processes."""
    given = algorithms.get("a3c").needs, "CartPole-v1", replace(Options(), **options)
    asynchronous.refuse("a3c", *given)
    selfplay.refuse("a3c", *given)


def scored(lambda_: float) -> None:
    ring = Ring(8, 1, Leaf("box", (2,), "float32"), Leaf("discrete", (), "int64", (4,)))
    ScoredSampler(ring, {"TD": 7.0}, share=lambda_)


def statistics(normalize_observations: bool) -> None:
    normalizes = {"normalize_observations": normalize_observations, "normalize_rewards": False}
    asynchronous.refuse_statistics(2, SimpleNamespace(**normalizes))


@pytest.fixture
def folder(tmp_path, monkeypatch) -> None:
    from tests.reports.test_comparison import seeds

    monkeypatch.chdir(tmp_path)
    seeds(tmp_path / "ppo", [1.0, 2.0])


ONES = np.ones((4, 3), np.float32)
FLAT = {"reward": ONES, "discount": ONES.ravel(), "last": ONES > 0, "n": 2}
OF_ZOO = "normalize_rewards=False if the zoo's entry sets it"
SEEN, UNSEEN = ({"normalize_observations": on} for on in (True, False))
series = partial(plots.series, [1.0, 2.0], [1.0, 2.0], "x", "y")
zoo = partial(made, "acer", "LunarLander-v3")
# a learner without an environment of its own
replayed = partial(contracts.begin, algorithms.get("dqn"), games.Chain, "torch", steps=100)


@rows(
    ("asynchronous.py:refuse 4", refused, {"learners": 2, "devices": 2}),
    ("asynchronous.py:refuse 4", refused, {"learners": 2, "devices": 2}, "out", {"devices": 1}),
    ("asynchronous.py:refuse_statistics", zoo, {"learners": 2}, OF_ZOO, {"learners": 1}),
    ("asynchronous.py:refuse_statistics", statistics, SEEN, UNSEEN),
    ("ReplayLearner._relabeling", replayed, {"hindsight": "future"}, {"hindsight": "no"}),
    ("ScoredSampler.__init__", scored, {"lambda_": 1.01}),
    ("ScoredSampler.__init__", scored, {"lambda_": -0.01}),
    ("plots.py:series", series, {"x_scale": "lg"}, {"x_scale": "log"}),
    ("comparison.py:compare", compare, {"folders": "ppo", "which": "lats"}, {"which": "last"}),
    ("comparison.py:compare 2", compare, {"folders": "ppo", "by": "folders"}, {"by": "folder"}),
    ("returns.py:n_step", returns.n_step, FLAT, "give discount.reshape(4, 3)", {"discount": ONES}),
)
def test_settings_elsewhere(row: Any, folder: None) -> None:
    follow(*row)


SPEC, TWO = Leaf("box", (4,), "float32"), Leaf("discrete", (), "int64", (2,))
PARTS = action_leaf(taken_space(spaces.Dict(go=spaces.Discrete(2))), SPEC)


def chosen(name: str = "ppo", action: Any = TWO, functional: bool = True, **given: Any) -> str:
    kind, engine = algorithms.get(name), given.pop("framework", "jax")
    o = apply(Options(), {"workers": given.pop("workers", 0)})
    of_run = kind, apply(kind.Settings(), given), o, (SPEC, action), engine, "cpu"
    return str(choice.settled("tandem/CartPole-v1", functional, *of_run)[0].vectorization)


def compiled(vectorization: str = "compiled", **given: Any) -> None:
    assert chosen(vectorization=vectorization, **given) == vectorization


@rows(
    ("choice.py:check", {"functional": False}, "give such an env", {"functional": True}),
    ("choice.py:check", {"functional": False}, "vectorization", {"vectorization": "auto"}),
    ("choice.py:check 2", {"name": "dqn", "n_step": 2}, {"n_step": 1}),
    ("choice.py:check 2", {"name": "sac", "normalize_rewards": True}, {"normalize_rewards": False}),
    ("choice.py:check 2", {"recurrent": 8}, {"recurrent": 0}),
    ("choice.py:check 2", {"noisy": "independent"}, {"noisy": "no"}),
    ("choice.py:check 2", {"action": PARTS}, "one type of action", {"action": TWO}),
    ("choice.py:check 2", {"workers": 2}, "leave workers out", {"workers": 0}),
    ("choice.py:check 2", {"name": "impala"}, "choose ppo", {"name": "ppo"}),
    ("choice.py:check 2", {"name": "mappo"}, "dqn, sac, tqc", {"name": "sac"}),
    ("choice.py:settled", {"framework": "torch"}, {"framework": "jax"}),
    ("choice.py:settled", {"framework": "torch"}, "vectorization", {"vectorization": "auto"}),
)
def test_compiled_runs(row: Any) -> None:
    key, *rest = row
    follow(key, compiled, *rest)


def test_auto_compiles_where_it_pays() -> None:
    auto = partial(chosen, vectorization="auto")
    assert auto() == auto(name="sac") == auto(name="trpo") == "compiled"
    assert auto(framework="torch") == auto(functional=False) == auto(action=PARTS) == "auto"
    assert auto(workers=2) == auto(recurrent=8) == auto(name="acer") == "auto"
    assert auto(name="dqn", updates_per_call=128) == "auto"
    assert auto(name="dqn") == auto(workers="auto") == "compiled"
    with pytest.raises(SettingError, match="with nstep_q,"):  # as its users call it
        compiled(name="nstep_q")


KINDS = [*(algorithms.get(name).Settings for name in algorithms.NAMES), Options]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_number_out_of_its_range_is_answered_with_one_within(kind: Any) -> None:
    for setting in (s for s in declared(kind) if s.limits is not None):
        low = max(setting.limits.minimum, setting.limits.above)
        beyond = low - 1 if low > -float("inf") else setting.limits.maximum + 1
        if beyond == float("inf"):
            continue  # any number will do
        beyond -= beyond == setting.limits.special
        convert = {int: int, tuple: lambda x: (int(x),), Schedule: str}
        value = convert.get(type(setting.default), lambda x: x)(beyond)
        with pytest.raises(SettingError) as caught:
            check_ranges(apply(kind(), {setting.name: value}))
        tried = caught.value.fix.removeprefix("try ").rstrip(".")
        for fix in assigned(caught.value) or [{setting.name: tried}]:
            assert set(fix) == {setting.name}
            check_ranges(apply(kind(), fix))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_value_of_another_kind_is_answered_with_one_of_its_own(kind: Any) -> None:
    for s in declared(kind):
        for odd in (object(), "no such thing", 1j, [None]):
            try:
                apply(kind(), {s.name: odd})
            except SettingError as error:
                (fix,) = assigned(error)[:1]
                check_ranges(apply(kind(), fix))


UNEVEN_STEPS = {"recurrent": 8, "sequence": 7, "rollout": 32, "batch_size": 64}


@pytest.mark.slow
@rows(
    ("fits.py:transitions", "dqn", {"envs": 2, "train_every": 1}),
    ("fits.py:rollouts", "ppo", {"batch_size": 100, "rollout": 64, "envs": 2}),
    ("fits.py:rollouts 2", "ppo", UNEVEN_STEPS),
    ("OnPolicy.roles", "ppo", {"recurrent": 8, "shared": True}),
    ("ppo.py:PPO.roles", "ppo", {"value_norm": "norm", "shared": True}),
    ("WorkerOptions.of 3", "ppo", {"workers": 3, "envs": 2}),
    ("settings.py:convert", "ppo", {"learning_rate": "fast"}),
    ("settings.py:convert", "ppo", {"optimizer": "adamw"}),
    ("gsde.py:check 2", "ppo", PENDULUM | {"action_noise": "gsde", "policy": "beta"}),
    ("gsde.py:refuse 2", "sac", PENDULUM | {"noisy": "factorised", "action_noise": "gsde"}),
    ("gsde.py:check", "sac", {"action_noise": "gsde"}),
    ("recurrent_replay.py:check_sequence", "qmix", TEAM | {"recurrent": 8, "sequence": 0}),
    ("refuse_lacking", "mappo", TEAM | {"normalize_rewards": True}),
)
def test_settings_that_do_not_fit_together_do_when_the_advice_is_taken(row: Any) -> None:
    key, algorithm, given = row
    follow(key, partial(made, algorithm), given)


@pytest.mark.parametrize(
    "wrong, right",
    [
        ({"algorithm": "pp0"}, "ppo"),
        ({"env": "CartPol-v1"}, "CartPole-v1"),
        ({"framework": "pytorch"}, "torch"),
        ({"device": "gpu"}, "cuda"),
        ({"activation": "tahn"}, "tanh"),
        ({"lerning_rate": 1e-3}, "learning_rate"),
    ],
)
def test_a_mistyped_name_is_answered_with_the_right_one(wrong: Any, right: str) -> None:
    given = {"algorithm": "ppo", "env": "CartPole-v1", **QUIET}
    with pytest.raises(TandemError) as caught:
        trainer.session(**given | wrong)
    assert quoted(caught.value) == right


def test_a_session_that_was_left_within_a_block(tmp_path: Any) -> None:
    def left(at: type) -> trainer.Session:
        run = trainer.session("a2c", "CartPole-v1", **SHORT, out=tmp_path / at.__name__)
        run.train_loop.saves_when_left = False  # as of a trial that is pruned
        next(event for event in run if isinstance(event, at))
        return run

    run = left(BatchBegin)
    with follows("loop.py:Loop.events") as advice:
        list(run)
    assert "resume from the run's folder" in advice.fix and "the next BatchEnd" in advice.fix
    assert tandem.train(resume=tmp_path / "BatchBegin").summary["env_steps"] >= 32
    assert list(left(BatchEnd))
