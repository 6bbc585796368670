"""Settings that have no effect without others: a note where a user gave them, and the same run."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import torch

from tandem import algorithms, trainer, zoo
from tandem.algorithms.base import optimizer_options
from tandem.errors import SettingError
from tandem.learning.config import Options
from tandem.settings import Needs, Schedule, declared, idle, offered, setting
from tests.advice.net import follows

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
        "cluster": "auto",
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
    for name, kind in {
        **{n: k.Settings for n, k in algorithms.built_in().items()},
        "run": Options,
    }.items():
        for one in declared(kind):
            if one.needs is not None and one.name not in getattr(kind, "lacks", ()):
                yield pytest.param(name, kind, one, id=f"{name}-{one.name}")


def settled(name: str, **given: Any) -> Any:
    return trainer.resolve("ppo" if name == "run" else name, "Nowhere-v0", given)


def resolved(name: str, **given: Any) -> tuple[Any, list[str]]:
    of, options, _, notes = settled(name, **given)
    return (of, options), [n for n in notes if "no effect" in n]


@pytest.mark.parametrize(("name", "kind", "setting"), list(rows()))
def test_a_setting_without_effect_is_noted_and_the_run_is_the_same(name, kind, setting) -> None:
    needs, own = setting.needs, kind.__dataclass_fields__
    off = {n: OFF[n] for n in needs.values if n in own and n in OFF}
    value = another(kind, setting.name)
    run, notes = resolved(name, **{setting.name: value}, **off)
    assert notes == [f"{setting.name}={value} has no effect without {needs}."]
    assert (run, []) == resolved(name, **off)
    # and with what it needs it has one
    there = {n: x[-1] if isinstance(x, tuple) else x for n, x in needs.values.items()}
    if not there.keys() & set(getattr(kind, "lacks", ())):
        run, notes = resolved(
            name, **{setting.name: value}, **{n: x for n, x in there.items() if n in own}
        )
        assert getattr(run[name == "run"], setting.name) == value and not notes


def test_only_what_the_user_gave_and_what_is_not_so_anyway_counts() -> None:
    entry = trainer.resolve("a2c", "Pendulum-v1", {})[0]
    assert trainer.resolve("a2c", "Pendulum-v1", {"optimizer": "adam"})[0].rms_decay == 0.99
    assert entry.rms_decay == 0.99 or entry.optimizer == "rmsprop"
    for name in ("td3", "run"):
        kind = Options if name == "run" else algorithms.get(name).Settings
        assert not resolved(name, **{s.name: s.default for s in declared(kind)})[1]
    assert settled("pqn", adam_epsilon=1e-5)[0].adam_epsilon == 1e-5  # radam has an epsilon too
    assert settled("pqn", weight_decay=0.1)[0].weight_decay == 0.0
    settings = algorithms.get("dqn").Settings(weight_decay=0.1, optimizer="sgd")
    with follows("algorithms/base.py:optimizer_options") as advice:
        optimizer_options(settings)  # of settings that nobody settled
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
    kind = algorithms.get(name).Settings
    assert {n for s in declared(kind) if s.needs for n in s.needs.values} <= set(MODES)
    usual, known = kind(), kind.__dataclass_fields__
    for table in zoo.entries(name):
        env, _, entry = table.partition(":")
        env = zoo.families().get(env, (env or "Nowhere-v0",))[0].replace("*", "A")
        for mode, values in MODES.items():
            for value in values if mode in known else ():
                try:
                    given = {"entry": entry, mode: value}
                    s, *_ = trainer.resolve(name, env, given)
                except SettingError as error:
                    what = error.happened.removeprefix("setting ")
                    if not what.startswith(f"{mode}={value!r}"):  # as quantile of sac
                        raise
                    continue
                for one in idle(s):
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
def test_a_run_begins_where_a_user_changes_the_mode_of_an_entry(name, env, given) -> None:
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
    for setting in getattr(kind.Settings, "lacks", ())
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
    def left_out(name: str) -> set[str]:
        kind = algorithms.get(name).Settings
        return {s.name for s in declared(kind)} - {s.name for s in offered(kind)}

    crossq, mat = left_out("crossq"), left_out("mat")
    assert {"recurrent", "memory", "priority_eta", "body"} < crossq and "log_std" not in crossq
    assert "sde_sample_freq" in mat and "log_std" not in mat  # that of a Gaussian
    assert not left_out("sac")


def test_a_deviation_needs_a_part_that_has_one() -> None:
    def begun(env: str, **given: Any) -> tuple[float, bool]:
        run = trainer.session("ppo", env, framework="torch", **given)
        run.close()
        return run.config.settings.log_std, any("no effect on actions" in n for n in run.notes)

    assert begun("CartPole-v1", log_std=-1.0) == (0.0, True)
    assert begun("CartPole-v1", log_std=0.0) == (0.0, False)
    assert begun("Pendulum-v1", log_std=-1.0) == (-1.0, False)


def test_what_only_a_resumed_run_has_is_noted_in_a_new_one() -> None:
    for name in ("extend", "trust"):
        run = trainer.session("ppo", "CartPole-v1", framework="torch", **{name: True})
        run.close()
        assert run.notes == [f"{name} has no effect without resume."]


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
    with pytest.raises(SettingError, match=f"{setting}=.* custom optimizer") as refused:
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
        half: float = setting(0.5, "of it", minimum=0, needs=Needs(values=("some", "all")))

    assert idle(Own()).keys() == idle(algorithms.get("ppo").Settings()).keys()
    assert "half" in idle(Own(values="none"))
