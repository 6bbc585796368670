"""Advice is followed: what an error's "Fix:" says, where it says it in a program's words, works."""

from __future__ import annotations

from typing import Any

import pytest

from tandem import algorithms, trainer
from tandem.errors import SettingError, TandemError
from tandem.learning.config import Options
from tandem.settings import Schedule, apply, check_ranges, declared
from tests.advice.net import assigned, quoted

QUIET = {"plots": False, "tensorboard": False, "eval_episodes": 0}
KINDS = [*(algorithms.get(name).Settings for name in algorithms.NAMES), Options]


def settings_with_limits() -> Any:
    for kind in KINDS:
        for s in declared(kind):
            if s.limits is not None:
                yield pytest.param(kind, s, id=f"{kind.__name__}-{s.name}")


@pytest.mark.parametrize("kind, setting", list(settings_with_limits()))
def test_a_number_out_of_its_range_is_answered_with_one_within(kind, setting) -> None:
    low = max(setting.limits.minimum, setting.limits.above)
    beyond = low - 1 if low > -float("inf") else setting.limits.maximum + 1
    if beyond == float("inf"):
        return  # any number will do
    if beyond == setting.limits.special:
        beyond -= 1
    value = (int(beyond),) if isinstance(setting.default, tuple) else beyond
    if isinstance(setting.default, Schedule):
        value = str(beyond)
    if isinstance(setting.default, int):
        value = int(beyond)
    with pytest.raises(SettingError) as caught:
        check_ranges(apply(kind(), {setting.name: value}))
    fixes = assigned(caught.value) or [
        {setting.name: caught.value.fix.removeprefix("try ").rstrip(".")}
    ]
    for fix in fixes:
        assert set(fix) == {setting.name}
        check_ranges(apply(kind(), fix))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_value_of_another_kind_is_answered_with_one_of_its_own(kind) -> None:
    for s in declared(kind):
        for odd in (object(), "no such thing", 1j, [None]):
            try:
                apply(kind(), {s.name: odd})
            except SettingError as error:
                (fix,) = assigned(error)[:1]
                check_ranges(apply(kind(), fix))


WRONG = [
    ("dqn", "CartPole-v1", {"envs": 2, "train_every": 1}),
    ("ppo", "CartPole-v1", {"batch_size": 100, "rollout": 64, "envs": 2}),
    ("ppo", "CartPole-v1", {"recurrent": 8, "sequence": 7, "rollout": 32, "batch_size": 64}),
    ("ppo", "CartPole-v1", {"recurrent": 8, "shared": True}),
    ("pqn", "CartPole-v1", {"memory": "lstm"}),
    ("ppo", "CartPole-v1", {"value_norm": "norm", "shared": True}),
    ("ppo", "CartPole-v1", {"workers": 3, "envs": 2}),
    ("ppo", "CartPole-v1", {"learning_rate": "fast"}),
    ("ppo", "CartPole-v1", {"optimizer": "adamw"}),
    ("ppo", "Pendulum-v1", {"action_noise": "gsde", "policy": "beta"}),
    ("sac", "Pendulum-v1", {"noisy": "factorised", "action_noise": "gsde"}),
    ("sac", "Pendulum-v1", {"log_std": -1.0}),
    ("td3", "Pendulum-v1", {"action_noise": "ou", "sde_sample_freq": 4}),
    ("sac", "CartPole-v1", {"action_noise": "gsde"}),
    ("qmix", "mpe/simple_spread_v3", {"recurrent": 8, "sequence": 0}),
    ("mappo", "mpe/simple_spread_v3", {"normalize_rewards": True}),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm, env, given", WRONG, ids=lambda x: x if isinstance(x, str) else "-".join(x)
)
def test_settings_that_do_not_fit_together_do_when_the_advice_is_taken(
    algorithm, env, given
) -> None:
    with pytest.raises(TandemError) as caught:
        trainer.session(algorithm, env, framework="torch", **QUIET, **given)
    fixes = assigned(caught.value)
    assert fixes, caught.value.fix
    for fix in fixes:
        told = {**given, **fix}
        try:
            trainer.session(algorithm, env, framework="torch", **QUIET, **told)
        except TandemError as error:  # of what that leads to, there is advice too
            (more,) = assigned(error)
            trainer.session(algorithm, env, framework="torch", **QUIET, **{**told, **more})


@pytest.mark.parametrize(
    "wrong",
    [
        {"algorithm": "pp0"},
        {"env": "CartPol-v1"},
        {"framework": "pytorch"},
        {"device": "gpu"},
        {"activation": "tahn"},
        {"lerning_rate": 1e-3},
    ],
    ids=lambda x: next(iter(x)),
)
def test_a_mistyped_name_is_answered_with_the_right_one(wrong) -> None:
    right = {"algorithm": "ppo", "env": "CartPole-v1", "framework": "torch", "device": "cpu"}
    with pytest.raises(TandemError) as caught:
        trainer.session(**right, **QUIET, **wrong) if "lerning_rate" in wrong else trainer.session(
            **{**right, **QUIET, **wrong}
        )
    meant = quoted(caught.value)
    (name,) = wrong
    if name == "lerning_rate":
        trainer.session(**right, **QUIET, **{meant: 1e-3})
    elif name == "device":
        assert meant == "cuda"
    else:
        trainer.session(**{**right, **QUIET, name: meant})
