"""Settings that do nothing beside others are refused where a user gave them, and only there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import torch

from tandem import algorithms, trainer, zoo
from tandem.algorithms import unused
from tandem.algorithms.base import optimizer_options
from tandem.errors import SettingError
from tandem.learning.config import Options
from tandem.settings import Schedule, declared
from tests.advice.net import assigned, follows

OFF: dict[str, Any] = {  # what turns off what others need, where the default does not
    "optimizer": "sgd",
    "temperature": 0.1,
    "smoothing": 0.0,
    "kl": 0.0,
    "mixer": False,
    "replay": "none",
    "policy": "beta",
}


def another(kind: Any, name: str) -> Any:
    """A value of a setting that is not its default."""
    (usual,) = (s.default for s in declared(kind) if s.name == name)
    words: dict[str, Any] = {
        "ahead": 1,
        "copy_info": True,
        "evict": "sample",
        "priority": "error",
        "start_state": "zero",
        "memory": "lstm",
        "sde_sample_freq": 4,
        "target_entropy": -1.0,
    }
    if name in words:
        return words[name]
    if isinstance(usual, Schedule):
        return Schedule(usual.start / 2)
    return usual / 2 if isinstance(usual, float) and usual else usual + 1


def rows() -> Any:
    kinds = {**{n: k.Settings for n, k in algorithms.built_in().items()}, "run": Options}
    for name, kind in kinds.items():
        fields = kind.__dataclass_fields__
        for need in unused.OPTIONS if kind is Options else unused.SETTINGS:
            for one in need.names:
                if need.apart in fields:
                    continue
                if one in fields and any(n in fields for n in need.beside):
                    yield pytest.param(name, kind, need, one, id=f"{name}-{one}")


def settled(name: str, **given: Any) -> Any:
    return trainer.settle("ppo" if name == "run" else name, "Nowhere-v0", given)


@pytest.mark.parametrize(("name", "kind", "need", "setting"), list(rows()))
def test_what_does_nothing_is_refused_and_the_advice_works(name, kind, need, setting) -> None:
    off = {n: OFF[n] for n in need.beside if n in kind.__dataclass_fields__ and n in OFF}
    value = another(kind, setting)
    with pytest.raises(SettingError, match=f"{setting}=.* with ") as caught:
        settled(name, **{setting: value}, **off)
    settled(name, **off)
    if need.give.keys() & set(getattr(kind, "lacks", ())):  # leaving it out is all that there is
        assert caught.value.fix == f"leave {setting} out."
        return
    assert f"or leave {setting} out" in caught.value.fix
    (fix,) = assigned(caught.value)
    assert fix
    settled(name, **{**off, setting: value, **fix})


def test_only_what_the_user_gave_and_what_is_not_so_anyway_counts() -> None:
    zoo = trainer.settle("a2c", "Pendulum-v1", {})[0]
    assert trainer.settle("a2c", "Pendulum-v1", {"optimizer": "adam"})[0].rms_decay == zoo.rms_decay
    settled("a2c", optimizer="adam", rms_decay=algorithms.get("a2c").Settings().rms_decay)
    settled("td3", **{s.name: s.default for s in declared(algorithms.get("td3").Settings)})
    settled("run", ahead=0)
    settled("run", **{s.name: s.default for s in declared(Options)})
    settled("acer", replay="none", replay_ratio=0)  # zero asks for nothing
    settled("a3c", replay_ratio=0)
    with pytest.raises(SettingError, match="with workers=0 and runners=0 and learners=1\\."):
        settled("run", worker_patience=20)  # no text is not told as what stands beside
    assert settled("pqn", adam_epsilon=1e-5)[0].adam_epsilon == 1e-5  # radam has an epsilon too
    with pytest.raises(SettingError, match="weight_decay=0.1 with optimizer='radam'"):
        settled("pqn", weight_decay=0.1)
    settings = algorithms.get("dqn").Settings(weight_decay=0.1, optimizer="sgd")
    with follows("algorithms/base.py:optimizer_options") as advice:
        optimizer_options(settings)  # of settings that nobody settled, too
    (given,) = advice.assigned()
    optimizer_options(replace(settings, **given))
    optimizer_options(replace(settings, weight_decay=0.0))


MODES: dict[str, tuple[Any, ...]] = {  # what others stand beside, each with what it may become
    "optimizer": ("adam", "rmsprop", "sgd"),
    "temperature": (0.2,),
    "smoothing": (0.0,),
    "kl": (0.0,),
    "mixer": (False,),
    "replay": ("none", "uniform", "prioritized"),
    "prioritized": (False, True),
    "recurrent": (0,),
    "policy": ("beta",),
    "action_noise": ("gaussian", "gsde"),
    "values": ("scalar", "categorical", "quantile", "implicit"),
    "munchausen": (False, True),
    "intrinsic": ("no",),
    "hindsight": ("no",),
}


@pytest.mark.parametrize("name", list(algorithms.built_in()))
def test_settings_of_an_entry_fall_back_where_a_user_changes_its_mode(name: str) -> None:
    assert {n for need in unused.SETTINGS for n in need.beside} == set(MODES)
    kind = algorithms.get(name).Settings
    usual, known = kind(), kind.__dataclass_fields__
    for table in zoo.entries(name):
        env, _, entry = table.partition(":")
        env = zoo.families().get(env, (env or "Nowhere-v0",))[0].replace("*", "A")
        for mode, values in MODES.items():
            for value in values if mode in known else ():
                try:
                    given = {"entry": entry, mode: value}
                    s, _, _ = trainer.settle(name, env, given)
                except SettingError as error:
                    what = error.happened.removeprefix("setting ")
                    if not what.startswith(f"{mode}={value!r}"):  # as quantile of sac
                        raise
                    continue
                for one, *_ in unused.idle(unused.SETTINGS, s):
                    assert getattr(s, one) == getattr(usual, one), (table, mode, value, one)


@pytest.mark.parametrize(
    ("name", "env", "given"),
    [
        ("sac", "MountainCarContinuous-v0", {"action_noise": "gaussian"}),
        ("tqc", "MountainCarContinuous-v0", {"action_noise": "gaussian"}),
        ("crossq", "MountainCarContinuous-v0", {"action_noise": "gaussian"}),
        ("a2c", "MountainCarContinuous-v0", {"action_noise": "gaussian"}),
        ("dqn", "tandem/CartPolePositions-v0", {"recurrent": 0}),
        ("sac", "tandem/PendulumPositions-v0", {"recurrent": 0}),
        ("dqn", "CartPole-v1", {"entry": "rainbow", "values": "quantile"}),
        ("dqn", "CartPole-v1", {"entry": "rainbow", "prioritized": False}),
    ],
)
def test_a_run_begins_where_a_user_changes_the_mode_of_an_entry(
    name: str, env: str, given: Any
) -> None:
    trainer.session(name, env, framework="torch", steps=1000, **given)


def test_advice_on_munchausen_beside_an_entry_of_another_kind_comes_to_an_end() -> None:
    given: dict[str, Any] = {"entry": "rainbow", "munchausen": True, "steps": 1000}
    for key, then in (
        ("_check_munchausen", {"values": "quantile"}),
        ("_check_munchausen 2", {"n_step": 1}),
    ):
        with follows(f"algorithms/dqn.py:{key}"):
            trainer.session("dqn", "CartPole-v1", framework="torch", **given)
        given |= then
    trainer.session("dqn", "CartPole-v1", framework="torch", **given)


LACKING = [
    (name, setting)
    for name, kind in algorithms.built_in().items()
    for setting in sorted(unused.never(kind.Settings))
]
WORDS = {"intrinsic": "rnd", "action_noise": "gsde", "body": "simba"}


@pytest.mark.parametrize(("name", "setting"), LACKING)
def test_what_help_leaves_out_is_refused(name: str, setting: str) -> None:
    value = WORDS.get(setting) or another(algorithms.get(name).Settings, setting)
    env, kwargs = "Pendulum-v1", {}
    if algorithms.get(name).team:
        env, kwargs = "mpe/simple_spread_v3", {"continuous_actions": True}
    with pytest.raises(SettingError, match=setting):
        trainer.session(name, env, env_kwargs=kwargs, framework="torch", **{setting: value})


def test_what_counts_with_a_refused_setting_alone_is_left_out_too() -> None:
    crossq, mat = (unused.never(algorithms.get(name).Settings) for name in ("crossq", "mat"))
    assert {"recurrent", "memory", "priority_eta", "body"} < crossq and "log_std" not in crossq
    assert "sde_sample_freq" in mat and "log_std" not in mat  # that of a Gaussian
    assert not unused.never(algorithms.get("sac").Settings)


def test_a_deviation_needs_a_part_that_has_one() -> None:
    begin = partial(trainer.session, "ppo", framework="torch")
    with follows("algorithms/unused.py:refuse_for_actions") as advice:
        begin("CartPole-v1", log_std=-1.0)
    assert "leave log_std out" in advice.fix
    begin("CartPole-v1")
    begin("CartPole-v1", log_std=0.0)
    begin("Pendulum-v1", log_std=-1.0)


@pytest.mark.parametrize(
    "name, given",
    [
        ("a2c", {"rms_decay": 0.9}),
        ("a2c", {"adam_epsilon": 1e-3}),
        ("sac", {"learning_rate": 0.5}),
        ("ppo", {"learning_rate_warmup": 1000}),
        ("ddpg", {"actor_learning_rate": 1e-6}),
    ],
)
def test_an_optimizer_of_ones_own_has_its_own_options(name: str, given: Any) -> None:
    optimizer = torch.optim.Adam([torch.zeros(1)], lr=1e-3)
    begin = partial(trainer.session, name, "Pendulum-v1", framework="torch", optimizer=optimizer)
    (setting,) = given
    with pytest.raises(SettingError, match=f"{setting}=.* optimizer of your own") as refused:
        begin(**given)
    assert f"leave {setting} out" in refused.value.fix
    begin()  # those of the zoo's entry are no one's
    if setting == "adam_epsilon":
        begin(adam_epsilon=algorithms.get(name).Settings().adam_epsilon)


def test_settings_of_a_class_of_ones_own_mean_what_it_says() -> None:
    @dataclass(frozen=True)
    class Own(algorithms.get("ppo").Settings):  # type: ignore[misc]
        values: str = "all"
        kappa: float = 0.5

    assert "kappa" not in {n for n, *_ in unused.idle(unused.SETTINGS, Own(kappa=0.1))}
    assert "rnd_share" in {n for n, *_ in unused.idle(unused.SETTINGS, Own())}
