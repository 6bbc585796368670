"""What is said of a setting that an algorithm does not have, to programs and commands alike."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import pytest

import tandem
from tandem import algorithms, trainer
from tandem.cli import main
from tandem.errors import TandemError, UnknownNameError

QUIET: dict[str, Any] = {"framework": "torch", "plots": False, "tensorboard": False}


def refused(algorithm: str, env: str, **given: Any) -> UnknownNameError:
    with pytest.raises(UnknownNameError) as caught:
        tandem.train(algorithm, env, **given)
    return caught.value


@pytest.mark.parametrize(
    ("algorithm", "env", "given"),
    [
        ("maddpg", "mpe/simple_spread_v3", {"memory": "lstm"}),
        ("a3c", "CartPole-v1", {"burn_in": 4}),
        ("a3c", "CartPole-v1", {"hindsight": "final"}),
        ("a3c", "CartPole-v1", {"values": "quantile"}),
        ("ppo", "CartPole-v1", {"quantiles": 4}),
        ("ppo", "CartPole-v1", {"quantiles": 4, "prioritized": True}),
        ("ppo", "CartPole-v1", {"values": "categorical"}),
        ("ppo", "Pendulum-v1", {"prioritized": True, "devices": 3}),
        ("dqn", "CartPole-v1", {"normalize_advantage": False, "devices": 2}),
        ("dqn", "CartPole-v1", {"standardize_rewards": True, "normalize_rewards": True}),
        ("dqn", "CartPole-v1", {"rollout": 8, "learners": 2}),
        ("acer", "Pendulum-v1", {"action_noise": "gsde"}),
        ("a3c", "CartPole-v1", {"munchausen": True, "clip": 0.1}),
    ],
    ids=str,
)
def test_algorithms_that_are_named_take_it_and_no_others_do(
    algorithm: str, env: str, given: dict[str, Any]
) -> None:
    fix = refused(algorithm, env, **given).fix
    listed = re.search(r"it is a setting of ([\w, ]+?)(?:, with ([\w=',]+))?\. ", fix)
    named = listed[1].split(", ") if listed else []
    beside = {n: _value(x) for n, x in re.findall(r"(\w+)=(\S+)", (listed and listed[2]) or "")}
    assert named or "no algorithm takes it with all else as given (" in fix
    for name in algorithms.NAMES:
        if next(iter(given)) not in {f.name for f in fields(algorithms.get(name).Settings)}:
            assert name not in named
            continue
        small = {"buffer_size": 2000} if algorithms.get(name).needs == "transitions" else {}
        devices = given.get("devices", 1)  # two parts of a processor are another test's matter
        try:
            trainer.session(name, env, **QUIET, **given | beside | small | {"devices": 1})
            fits = devices == 1 or _divides(name, env, given)
        except TandemError:
            fits = False
        assert (name in named) == fits, (name, fix)


def _value(text: str) -> Any:
    return text.strip("'") if text.startswith("'") else int(text)


def _divides(name: str, env: str, given: dict[str, Any]) -> bool:
    s = trainer.settle(name, env, given)[0]
    return (s.batch_size or s.rollout * s.envs) % given["devices"] == 0


@pytest.mark.parametrize(
    ("env", "given", "says"),
    [
        ("CartPole-v1", {"munchausen": True}, "it is a setting of dqn."),
        ("CartPole-v1", {"quantiles": 4}, "it is a setting of dqn, with values='quantile'. "),
        ("CartPole-v1", {"munchausn": True}, "MUNCHAUSEN is a setting of dqn."),
        ("CartPole-v1", {"learning_rat": 1e-3}, "did you mean LEARNING_RATE "),
        ("CartPole-v1", {"framewrk": "torch"}, "did you mean FRAMEWORK"),
        ("CartPole-v1", {"quite_unknown_zz": 1}, "leave it out. `tandem train ppo --help`"),
        ("Pendulum-v1", {"double": True}, "(dqn: dqn cannot act in a Box action space)"),
    ],
)
def test_programs_and_commands_are_told_the_same(
    env: str, given: dict[str, Any], says: str, capsys: Any
) -> None:
    def spelled(name: str, as_flag: bool) -> str:
        return f"'--{name.lower().replace('_', '-')}'" if as_flag else f"'{name.lower()}'"

    error = refused("ppo", env, **given)
    (name, value), *_ = given.items()
    words = [spelled(name, True).strip("'")] + ([] if value is True else [str(value)])
    assert main(["train", "ppo", env, *words]) == 2
    told = capsys.readouterr().err
    for text, as_flag in ((str(error), False), (told, True)):
        assert f"there is no {'flag' if as_flag else 'setting'} of ppo " in text
        assert spelled(name, as_flag) in text
        upper = re.findall(r"[A-Z_]{9,}", says)
        expected = says.replace(upper[0], spelled(upper[0], as_flag)) if upper else says
        assert expected in text


def test_an_environment_that_cannot_be_made_leaves_what_settings_say() -> None:
    assert "it is a setting of dqn." in refused("ppo", "Nowhere-v0", munchausen=True).fix
