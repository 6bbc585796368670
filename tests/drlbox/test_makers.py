"""make_trainer and make_evaluator: the documented arguments, their defaults, and their effects."""

import re
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

import tandem
from tandem import algorithms, trainer
from tandem.drlbox.makers import numbered
from tandem.errors import CheckpointError, NetworkError, SettingError, UnknownNameError
from tandem.learning.parallel import choice
from tandem.settings import Schedule, apply, idle
from tandem.testing.environments import Forbidden
from tests.helpers import run_python


def cartpole() -> Any:
    return gymnasium.make("CartPole-v1")


def body(space: Any) -> nn.Module:
    return nn.Sequential(nn.Linear(space.shape[0], 16), nn.ReLU())


def bodies(space: Any) -> tuple[nn.Module, nn.Module]:
    return body(space), body(space)


class Whole(nn.Module):
    """(logits, value), as documented for a model_maker."""

    def __init__(self, env: Any) -> None:
        super().__init__()
        self.body = body(env.observation_space)
        self.logits = nn.Linear(16, env.action_space.n)
        self.value = nn.Linear(16, 1)

    def forward(self, x: Any) -> Any:
        h = self.body(x)
        return self.logits(h), self.value(h)


RUN = {"train_steps": 200, "framework": "torch", "num_parallel": 1}
SHORT: dict[str, Any] = {"env_maker": cartpole, **RUN}


def settings(name: str, **given: Any) -> Any:
    made = tandem.make_trainer(name, env_maker=cartpole, **given)
    return apply(algorithms.get(made.algorithm).Settings(), made.settings())


def of(s: Any, names: str) -> tuple[Any, ...]:
    return tuple(getattr(s, name) for name in names.split())


@pytest.mark.parametrize("name", ["a3c", "acer", "impala", "dqn"])
def test_the_documented_defaults(name: str) -> None:
    s = settings(name, num_parallel=1)
    assert of(s, "gamma steps rollout envs") == (0.99, 1_000_000, 32, 1)
    assert of(s, "online reduction optimizer max_grad_norm") == (True, "sum", "adam", 40.0)
    assert of(s, "learning_rate adam_epsilon noisy") == (Schedule(1e-4), 1e-4, "no")
    assert s.replay == ("uniform" if name in ("acer", "impala") else "none")
    assert of(s, "replay_ratio replay_size replay_starts") == (4, 1000, 100)
    if name == "dqn":
        assert of(s, "double dueling target_updates") == (True, False, 1000)
        assert s.epsilon == Schedule(1.0, 0.01)
    else:
        assert of(s, "entropy value_weight") == (Schedule(0.01), 1.0)
    if name == "acer":
        assert of(s, "kl truncation average_tau") == (0.1, 10.0, 0.05)
    if name == "impala":
        assert of(s, "rho c") == (1.0, 1.0)


def test_arguments_become_settings() -> None:
    pool = {"maxlen": 50, "minlen": 5, "evict_rule": "sample", "alpha": 0.7, "beta": "0.5:0.9"}
    replay = {"replay_type": "prioritized", "replay_ratio": 2, "replay_kwargs": pool}
    replay |= {"replay_priority_type": "error", "online_learning": False, "batch_size": 3}
    optimizer = {"opt_kwargs": {"learning_rate": 1e-3}, "opt_clip_norm": 1.0, "noisynet": "fg"}
    weights = {"a3c_entropy_weight": 0.0, "acer_kl_weight": 0.5}
    s = settings("ACER", discount=0.9, rollout_maxlen=8, **replay, **optimizer, **weights)
    assert of(s, "gamma rollout envs online") == (0.9, 8, 3, False)
    assert of(s, "replay replay_ratio replay_size replay_starts") == ("prioritized", 2, 50, 5)
    assert of(s, "evict priority_alpha priority") == ("sample", 0.7, "error")
    assert of(s, "max_grad_norm adam_epsilon noisy") == (1.0, 1e-4, "factorised")
    assert of(s, "learning_rate priority_beta") == (Schedule(1e-3), Schedule(0.5, 0.9))
    assert of(s, "entropy kl") == (Schedule(0.0), 0.5)


@pytest.mark.parametrize(
    "processes, decay, at",
    [
        (1, 500, {0.0: 1.0, 0.25: 0.505, 0.5: 0.01, 1.0: 0.01}),
        (1, 4000, {0.0: 1.0, 1.0: 0.7525}),
        (4, 100, {0.2: 0.505, 0.4: 0.01}),
        (None, 100, {0.05 * choice.cores(): 0.505}),
    ],
)
def test_epsilon_decays_by_the_steps_of_one_process(processes: Any, decay: int, at: Any) -> None:
    """As documented: with four learners the run makes four steps while each makes one."""
    given = {"train_steps": 1000, "policy_eps_decay_steps": decay}
    more = {"num_parallel": processes} if processes else {}
    epsilon = settings("dqn", **given, **more).epsilon
    for progress, wanted in at.items():
        assert float(epsilon(progress)) == pytest.approx(wanted, abs=1e-6)


def test_other_algorithms_keep_their_own_defaults_and_take_their_own_settings() -> None:
    assert settings("ppo") == algorithms.get("ppo").Settings()
    optimizer = {"opt_kwargs": {"learning_rate": 1e-3}, "noisynet": "ig"}
    given = {"rollout_maxlen": 8, "train_steps": 500, **optimizer}
    s = settings("ppo", discount=0.9, clip=0.1, batch_size=32, **given)
    # its own batch_size, not the documented one
    assert of(s, "rollout batch_size envs adam_epsilon") == (8, 32, 8, 1e-5)
    assert of(s, "gamma steps learning_rate") == (0.9, 500, Schedule(1e-3))
    assert of(s, "clip noisy") == (Schedule(0.1), "independent")


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("impala", {"replay_type": None}),  # whose replay_ratio of 4 is documented
        ("a3c", {"optimizer": "sgd"}),  # and Adam's epsilon of 1e-4
        ("acer", {"replay_type": None, "acer_kl_weight": 0.0}),
        ("ppo", {"optimizer": "sgd"}),
    ],
)
def test_documented_defaults_that_do_nothing_are_no_contradiction(name: str, given: Any) -> None:
    made = tandem.make_trainer(name, env_maker=cartpole, **given)
    left = made._without_idle(made.settings())
    trainer.resolve(name, "CartPole-v1", left)
    s = apply(algorithms.get(name).Settings(), left)
    assert not idle(s).keys() & left.keys()


@pytest.mark.parametrize(
    "error, name, given, said",
    [
        (UnknownNameError, "a3c", {"feature_makr": body}, "feature_maker"),  # with the nearest
        (UnknownNameError, "a3c", {"dqn_double": True}, "dqn_double"),
        (UnknownNameError, "ppo", {"rollot": 8}, "rollout"),
        (UnknownNameError, "dqn", {"opt_kwargs": {"lr": 1e-3}}, "learning_rate"),
        (UnknownNameError, "acer", {"replay_kwargs": {"max_len": 3}}, "maxlen"),
        (UnknownNameError, "acer", {"replay_kwargs": {1: 2}}, "no entry of replay_kwargs 1"),
        (UnknownNameError, "ace", {}, "acer"),
        (UnknownNameError, None, {}, "no algorithm None"),
        (SettingError, "a3c", {"train_steps": "many"}, "train_steps='many'"),
        (SettingError, "a3c", {"catch_signal": 1}, "catch_signal=1"),
        (SettingError, "a3c", {"noisynet": "pink"}, "noisynet"),
        (SettingError, "a3c", {"replay_type": "newest"}, "replay"),
        (SettingError, "td3", {"rollout_maxlen": 5}, "rollout_maxlen"),
        (SettingError, "dqn", {"train_steps": 0}, "steps=0"),
        (SettingError, "a3c", {"env_maker": None}, "env_maker was not given"),
    ],
)
def test_what_does_not_fit_is_refused(error: Any, name: Any, given: Any, said: str) -> None:
    with pytest.raises(error, match=said):
        tandem.make_trainer(name, **{**SHORT, **given}).run()


def test_values_of_another_kind_are_named_before_anything_is_made() -> None:
    numbers = dict.fromkeys(("feature_maker", "state_to_input", "load_model", "save_dir"), 3)
    others = {"model_maker": "model", "replay_kwargs": [1], "opt_kwargs": "a", "noisynet": ["ig"]}
    infinite = {"batch_size": float("nan"), "train_steps": float("inf")}
    for name, odd in (numbers | others | infinite).items():
        with pytest.raises(SettingError, match=re.escape(f"{name}={odd!r}")):
            tandem.make_trainer("acer", **{name: odd})


def test_an_evaluator_refuses_what_it_cannot_play_by() -> None:
    odds = {"num_episodes": 0, "policy_type": "best", "policy_eps": 2.0, "render_timestep": -1.0}
    for name, odd in (*odds.items(), ("seed", -1)):
        with pytest.raises(SettingError, match=name):
            tandem.make_evaluator("ac", load_model="runs", **{name: odd})
    with pytest.raises(SettingError, match="load_model was not given"):
        tandem.make_evaluator("ac", env_maker=cartpole)
    with pytest.raises(UnknownNameError, match="no algorithm None"):
        tandem.make_evaluator(None)  # type: ignore[arg-type]


POOL = "replay_starts is replay_kwargs['minlen'], replay_size is replay_kwargs['maxlen']"
EPSILON = "epsilon is policy_eps_start, policy_eps_end and policy_eps_decay_steps"
RATE, BETA = (
    "learning_rate is opt_kwargs['learning_rate']",
    "priority_beta is replay_kwargs['beta']",
)


@pytest.mark.parametrize(
    "name, key, odd, right, said",
    [
        ("a3c", "replay_type", "x", "none", "replay is replay_type"),
        ("a3c", "rollout_maxlen", 0, 5, "rollout is rollout_maxlen"),
        ("acer", "replay_kwargs", {"maxlen": 10}, {"maxlen": 10, "minlen": 10}, POOL),
        ("dqn", "replay_kwargs", {"beta": 2}, {"beta": 0.4, "minlen": 1}, BETA),
        ("dqn", "policy_eps_start", 3, 1, EPSILON),
        ("a3c", "opt_kwargs", {"learning_rate": -1}, {"learning_rate": 1e-3}, RATE),
    ],
)
def test_refusals_name_the_argument(name: str, key: str, odd: Any, right: Any, said: str) -> None:
    more = {"replay_type": "prioritized"} if said == BETA else {}
    with pytest.raises(SettingError) as caught:
        tandem.make_trainer(name, **SHORT, **more, **{key: odd}).run()
    assert f"; of make_trainer's arguments {said}." in caught.value.fix
    assert tandem.make_trainer(name, **SHORT, **more, **{key: right}).run().agent


def test_a_setting_that_is_called_the_same_here_is_refused_as_anywhere() -> None:
    for name, odd in (("a3c", {"final_episodes": 0}), ("ppo", {"rollout": 0})):
        with pytest.raises(SettingError) as caught:
            tandem.make_trainer(name, **SHORT, **odd).run()
        assert "make_trainer" not in caught.value.fix


@pytest.mark.parametrize("name", ["a3c", "acer", "impala", "dqn"])
@pytest.mark.parametrize("maker", [body, bodies])
def test_feature_makers_of_one_feature_and_of_two(name: str, maker: Any) -> None:
    more = {"dqn_dueling": True} if name == "dqn" else {}
    found = tandem.make_trainer(name, feature_maker=maker, batch_size=2, **SHORT, **more).run()
    assert found.summary["updates"] >= 3 and found.agent.act(np.zeros(4, np.float32)) in (0, 1)


def test_a_model_maker_wins() -> None:
    broken = {"feature_maker": lambda space: 1 / 0}
    found = tandem.make_trainer("a3c", model_maker=Whole, **broken, **SHORT).run()
    assert found.summary["updates"] == 7
    with pytest.raises(NetworkError, match="model_maker returned a str"):
        tandem.make_trainer("a3c", model_maker=lambda env: "net", **SHORT).run()


def test_what_states_are_made_into() -> None:
    seen: list[Any] = []

    def maker(space: Any) -> nn.Module:
        seen.append(space.shape)  # of the environment, as documented
        return nn.Sequential(nn.Linear(2, 8), nn.Tanh())

    given = {"state_to_input": lambda x: x[[0, 2]], "feature_maker": maker}
    made = tandem.make_trainer("a3c", **given, **SHORT)
    assert made.run().agent.observation.shape == (2,) and set(seen) == {(4,)}


def test_runs_are_numbered_and_saved_at_the_start_each_interval_and_the_end(tmp_path) -> None:
    for k in (1, 2):
        found = tandem.make_trainer("a3c", save_dir=str(tmp_path), save_interval=64, **SHORT).run()
        assert found.folder == tmp_path / f"CartPole-v1-run{k}"
    kept = sorted(p.stem for p in (found.folder / "checkpoints").glob("kept-*"))
    assert kept[0] == "kept-000000000" and len(kept) == 5
    assert kept[-1] == f"kept-{found.summary['env_steps']:09d}"
    (tmp_path / "CartPole-v1-run9").mkdir()
    assert numbered(tmp_path, "CartPole-v1").name == "CartPole-v1-run10"


def test_training_goes_on_from_a_loaded_model(tmp_path) -> None:
    first = tandem.make_trainer("dqn", save_dir=str(tmp_path), **SHORT).run()
    still = {"opt_kwargs": {"learning_rate": 1e-30}}
    again = tandem.make_trainer("dqn", load_model=first.folder, **still, **SHORT).run()
    one, other = (r.agent.networks["net"](np.ones((3, 4), np.float32)) for r in (first, again))
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    with pytest.raises(CheckpointError, match="trained with default networks"):
        tandem.make_trainer("dqn", load_model=str(first.folder), feature_maker=body, **SHORT).run()


def test_an_evaluator_gives_back_what_it_measured(tmp_path, capsys) -> None:
    run = tandem.make_trainer("a3c", save_dir=str(tmp_path), **SHORT).run()
    given = {"env_maker": cartpole, "load_model": str(run.folder), "num_episodes": 3}
    found = tandem.make_evaluator("ac", verbose=True, **given).run()
    assert len(found.returns) == 3 and found.mean > 5
    assert found.mean == pytest.approx(np.mean(found.returns))
    assert capsys.readouterr().out.count("episode") == 4
    assert tandem.make_evaluator("ac", **given).run() == found  # seeded
    greedy = tandem.make_evaluator("ac", policy_type="greedy", **given).run()
    random = tandem.make_evaluator("ac", policy_type="greedy", policy_eps=1.0, **given).run()
    assert len({tuple(e.returns) for e in (greedy, random, found)}) == 3
    other = r"which a3c trained[^\n]*; expected a model trained by dqn"
    with pytest.raises(SettingError, match=other):
        tandem.make_evaluator("dqn", **given).run()


@pytest.mark.slow
def test_an_evaluator_takes_no_forbidden_action() -> None:
    """`Forbidden` raises where one is taken."""
    agent = tandem.make_trainer("dqn", **RUN | {"env_maker": Forbidden}).run().agent
    for given in ({}, {"policy_type": "greedy"}, {"policy_type": "greedy", "policy_eps": 1.0}):
        played = {"env_maker": Forbidden, "load_model": "x", "num_episodes": 5, **given}
        made = tandem.make_evaluator("dqn", **played)
        made.agent = lambda env: agent
        assert made.run().lengths == [10] * 5


def test_an_evaluator_renders_when_told_to() -> None:
    class Shown(gymnasium.Wrapper[Any, Any, Any, Any]):
        shown = 0

        def render(self) -> Any:
            Shown.shown += 1

    run = tandem.make_trainer("dqn", **SHORT).run()
    given = {"load_model": "x", "num_episodes": 2, "render_end": True}
    made = tandem.make_evaluator("dqn", env_maker=lambda: Shown(cartpole()), **given)
    made.agent = lambda env: run.agent
    made.run()
    assert Shown.shown == 2
    made.arguments = type(made.arguments)(**{**vars(made.arguments), "render_timestep": 0.0})
    lengths = made.run().lengths
    assert Shown.shown == 2 + 2 + sum(lengths)


@pytest.mark.parametrize("made", [torch.optim.AdamW, torch.optim.Adagrad, torch.optim.SGD])
def test_a_torch_optimizer_of_the_users(made: Any) -> None:
    given = made([torch.zeros(1)], lr=1e-3)
    found = tandem.make_trainer("a3c", optimizer=given, **SHORT).run()
    assert found.summary["updates"] == 7
    with pytest.raises(SettingError, match="optimizer= is a int"):
        tandem.make_trainer("a3c", optimizer=3, **SHORT).run()


KERAS = """
import json, sys, tempfile
from pathlib import Path
import gymnasium, keras, numpy as np, tandem


def cartpole():
    return gymnasium.make("CartPole-v1")


def feature(space):
    x = y = keras.layers.Input(shape=space.shape)
    for units in (20, 10):
        y = keras.layers.Activation("relu")(keras.layers.Dense(units)(y))
    return x, y


def pair(space):
    x, y = feature(space)  # a common trunk
    return x, (keras.layers.Dense(8, "relu")(y), keras.layers.Dense(8, "relu")(y))


def model(env):
    x, y = feature(env.observation_space)
    heads = [keras.layers.Dense(env.action_space.n)(y), keras.layers.Dense(1)(y)]
    return keras.Model(inputs=x, outputs=heads)


short = {"env_maker": cartpole, "train_steps": 128, "num_parallel": 1}
for name, maker in (("impala", pair), ("dqn", feature)):
    run = tandem.make_trainer(name, feature_maker=maker, **short).run()
    twin = type(run.agent.networks["net"]).__name__ == "Twin"
    print(json.dumps([name, run.summary["updates"], twin]))
own = {"model_maker": model, "optimizer": keras.optimizers.AdamW(1e-3), "num_parallel": 2}
run = tandem.make_trainer("a3c", **{**short, **own}).run()
print(json.dumps(["model", run.summary["updates"], run.summary["eval_mean"] > 5]))
plain = cartpole()
plain.action_space.n = 2
with tempfile.TemporaryDirectory() as folder:
    for suffix in ("keras", "h5"):
        path = f"{folder}/net.{suffix}"
        own = model(plain)
        own.save(path)
        still = {"opt_kwargs": {"learning_rate": 1e-30}, "load_model": path}
        again = tandem.make_trainer("a3c", **still, **short).run()
        x = np.ones((2, 4), np.float32)
        said = np.concatenate([np.asarray(o) for o in own(x)], -1)
        close = bool(np.allclose(again.agent.networks["net"](x), said, rtol=1e-4, atol=1e-5))
        given = {"env_maker": cartpole, "load_model": path}
        found = tandem.make_evaluator("ac", num_episodes=2, **given).run()
        print(json.dumps([suffix, close, len(found.returns)]))
    x = keras.Input((4,))
    keras.Model(x, keras.layers.Lambda(lambda y: y[:, :2])(x)).save(f"{folder}/code.keras")
    try:
        tandem.make_evaluator("dqn", env_maker=cartpole, load_model=f"{folder}/code.keras").run()
    except tandem.errors.CheckpointError as error:
        print(json.dumps(["refused", "load_model_custom" in str(error), 0]))
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("engine", [pytest.param("jax", marks=pytest.mark.thorough), "tensorflow"])
def test_keras_makers_and_files(engine: Any) -> None:
    found = run_python(KERAS, engine=engine, timeout=280)
    assert found == [
        *([name, 4, True] for name in ("impala", "dqn", "model")),
        *(["keras", True, 2], ["h5", True, 2], ["refused", True, 0]),
    ]
