"""Where a sweep looks, and what Optuna draws as settings."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from tandem import algorithms, trainer
from tandem.errors import SettingError, TandemError, UnknownNameError
from tandem.learning import fits
from tandem.settings import Schedule, Search, apply, check_ranges, declared, setting
from tandem.tuning import space as spaces
from tandem.tuning.space import Dimension, Space, fixed_beside, space_of
from tests.advice.net import follows

TUNED = {"ppo": ("CartPole-v1", "Pendulum-v1", "LunarLander-v3"), "a2c": ("CartPole-v1",)}
TUNED |= {"dqn": ("CartPole-v1", "LunarLander-v3"), "tqc": ()}
TUNED |= dict.fromkeys(("sac", "td3", "ddpg"), ("Pendulum-v1",))
RATES = Search(1e-5, 1e-2, "log")
PARTS = Search(0.0, 0.2, part="end"), Search(0.01, 0.5, part="fraction")


@dataclass(frozen=True)
class Made:
    rate: Schedule = setting(Schedule(1e-3, 1e-4), "", above=0, maximum=1, search=RATES)
    gamma: float = setting(0.9, "", minimum=0, maximum=1, search=Search(1e-4, 0.1, "near one"))
    batch: int = setting(64, "", minimum=1, search=Search(16, 256, "powers of two"))
    starts: int = setting(0, "", minimum=0, search=Search(100, 20_000, "log"))
    epochs: int = setting(4, "", minimum=1, search=Search(1, 20))
    hidden: tuple[int, ...] = setting((64, 64), "", search=Search(choices=("64", "64,64")))
    epsilon: Schedule = setting(Schedule(1.0, 0.05, 0.1), "", minimum=0, maximum=1, search=PARTS)
    double: bool = setting(True, "")
    values: Literal["scalar", "quantile"] = setting("scalar", "")
    share: float = setting(0.5, "", minimum=0, maximum=1)
    weight: float = setting(0.5, "", minimum=0)


@pytest.mark.parametrize(
    ("search", "whole", "name", "drawn", "value"),
    [
        (Search(1e-5, 1e-2, "log"), False, "x", 0.00123456, 0.00123),
        (Search(1e-4, 0.1, "near one"), False, "1 - x", 0.0123456, 0.9877),
        (Search(16, 256, "powers of two"), True, "log2 x", 5, 32),
        (Search(100, 20_000, "log"), True, "x", 12_345, 12_300),
        (Search(1, 20), True, "x", 7, 7),
        (Search(0.0, 0.2, part="end"), False, "x.end", 0.1, 0.1),
        (Search(choices=("64", "64,64")), False, "x", "64,64", "64,64"),
    ],
)
def test_what_is_drawn_becomes_a_value_of_three_digits(search, whole, name, drawn, value) -> None:
    one = Dimension("x", search, whole)
    assert one.name == name and one.value(drawn) == value
    assert type(one.value(drawn)) is type(value)


def test_settings_can_be_drawn_schedules_keep_their_form_and_a_space_is_kept_as_json() -> None:
    space = space_of(Made(), {})
    drawn, outside = space.as_they_are()
    assert not outside and drawn == {
        "rate": 1e-3,
        "1 - gamma": pytest.approx(0.1),
        "log2 batch": 6,
        "starts": 100,  # in place of 0, which no logarithm has
        "epochs": 4,
        "hidden": "64,64",
        "epsilon.end": 0.05,
        "epsilon.fraction": 0.1,
    }
    assert apply(Made(), space.settings(drawn)) == Made(starts=100)

    # a schedule keeps its form, and its parts are drawn each
    settings = space.settings(drawn | {"rate": 0.004, "epsilon.end": 0.2, "epsilon.fraction": 0.5})
    assert settings["rate"] == "0.004:0.0004" and settings["epsilon"] == "1:0.2:0.5"
    assert Schedule(0.1).moved(0.2) == Schedule(0.2)
    assert Schedule(0.0, 0.5).moved(0.2) == Schedule(0.2, 0.5)
    space = space_of(Made(), {}, {"double": True, "share": [0.1, 0.2]})
    again = Space.from_json(json.loads(json.dumps(space.to_json())), Made())
    assert again.lines() == space.lines() and len(space.dimensions) == 10
    assert [d.name for d in again.dimensions] == [d.name for d in space.dimensions]


@pytest.mark.parametrize(
    "odd", [{"batch": 100}, {"batch": 512}, {"hidden": (128,)}, {"gamma": 0.5}, {"epochs": 30}]
)
def test_settings_outside_of_a_space_are_said(odd: dict[str, Any]) -> None:
    (name,) = odd
    assert space_of(apply(Made(), odd), {}).as_they_are()[1] == [f"{name}={odd[name]}"]


@pytest.mark.parametrize("algorithm", algorithms.NAMES)
def test_every_range_is_one_of_its_setting_and_defaults_lie_within(algorithm) -> None:
    base = algorithms.get(algorithm).Settings()
    space = space_of(base, {})  # looks at both ends
    assert {"gamma", "learning_rate", "hidden"} <= {d.setting for d in space.dimensions}
    check_ranges(apply(base, {}))
    if algorithm not in TUNED:
        return
    drawn, outside = space.as_they_are()
    assert not outside and len(space.dimensions) >= 6
    found = apply(base, space.settings(drawn))
    # what counts as the lowest number of a logarithmic range
    nearly = {"entropy", "gae_lambda"}
    differ = {n for n, x in vars(base).items() if x != getattr(found, n)}
    assert differ <= nearly
    for env in TUNED[algorithm]:  # tuned settings, too
        assert space_of(trainer.resolve(algorithm, env, {})[0], {}).as_they_are()[1] == []


@pytest.mark.parametrize("algorithm", ["a2c", "dqn", "ppo", "sac", "td3"])
def test_default_ranges_leave_room_for_updates_and_told_ones_stay(algorithm: str) -> None:
    base = apply(algorithms.get(algorithm).Settings(), {"steps": 2_000, "envs": 4})
    most = {"learning_starts": 400, "target_every": 200, "rollout": 25}
    found = [d for d in space_of(base, {}).dimensions if d.setting in most]
    assert found
    for d in found:
        assert 1 <= d.search.low <= d.search.high <= most[d.setting]
        told = {d.setting: {"low": 16, "high": 1024, "scale": d.search.scale}}
        (same,) = [x for x in space_of(base, {}, told).dimensions if x.setting == d.setting]
        assert same.search.high == 1024


def test_what_does_nothing_beside_what_was_drawn_is_left_out_of_a_trial() -> None:
    told: dict[str, Any] = {"only": True, "values": ["scalar", "quantile"]}
    told |= {"quantiles": {"low": 10, "high": 100}, "prioritized": [False, True]}
    told |= {"priority_alpha": {"low": 0.3, "high": 0.9}}
    space = space_of(trainer.resolve("dqn", "CartPole-v1", {})[0], {}, told)
    drawn, outside = space.as_they_are()
    assert not outside, "200 quantiles are not in the range, and nothing has them"
    assert space.trial(drawn) == {"values": "scalar", "prioritized": False}
    more = {"values": "quantile", "prioritized": True}
    both = {**drawn, **more}
    assert space.trial(both) == {"quantiles": 10, "priority_alpha": 0.6, **more}
    for one in (drawn, both):
        trainer.resolve("dqn", "CartPole-v1", space.trial(one))


def test_what_is_given_and_counts_in_some_trials_only_is_theirs() -> None:
    kind = algorithms.get("dqn").Settings
    told = {"only": True, "values": ["scalar", "quantile"], "prioritized": True}
    given = {"quantiles": 50, "priority_alpha": 0.5, "gamma": 0.98, "atoms": 11}
    gated = fixed_beside(kind, given, told)
    assert gated == {"quantiles": [50], "priority_alpha": [0.5], "atoms": [11]}
    # nothing in the space says whether these count: they are given to all, or refused
    assert fixed_beside(kind, given, {"only": True, "gamma": True}) == {}
    assert fixed_beside(kind, given, {**told, "prioritized": False, "values": False}) == {}
    assert fixed_beside(kind, {**given, "values": "quantile", "prioritized": True}, told) == {}
    assert fixed_beside(kind, {"quantiles": 50}, {**told, "quantiles": [50, 60]}) == {}
    base = trainer.resolve("dqn", "CartPole-v1", {"gamma": 0.98})[0]
    space = space_of(base, {"gamma": 0.98}, {**told, **gated})
    drawn, outside = space.as_they_are()
    assert not outside and space.trial(drawn) == {"values": "scalar", "prioritized": False}
    more = {"values": "quantile", "prioritized": True}
    assert space.trial(drawn | more) == {"quantiles": 50, "priority_alpha": 0.5, **more}


def test_a_range_of_what_does_nothing_in_any_trial_is_refused() -> None:
    told: dict[str, Any] = {"only": True, "quantiles": {"low": 10, "high": 100}}
    with follows("tuning/space.py:_refuse_idle") as advice:
        space_of(trainer.resolve("dqn", "CartPole-v1", {})[0], {}, told)
    (given,) = advice.assigned()
    assert given == {"values": "quantile"} and "leave quantiles out of the space" in advice.fix
    space_of(trainer.resolve("dqn", "CartPole-v1", given)[0], given, told)


@pytest.mark.parametrize(
    ("algorithm", "env"),
    [("dqn", "tandem/CartPolePositions-v0"), ("sac", "tandem/PendulumPositions-v0")],
)
def test_batches_that_are_drawn_are_of_whole_sequences(algorithm: str, env: str) -> None:
    base = trainer.resolve(algorithm, env, {})[0]
    space = space_of(base, {}, {"only": True, "batch_size": True})
    (dimension,) = space.dimensions
    distribution, found = dimension.distribution(), set()
    for power in range(distribution.low, distribution.high + 1):
        chosen = trainer.resolve(algorithm, env, space.trial({dimension.name: power}))[0]
        fits.check("transitions", chosen)
        found.add(chosen.batch_size)
    assert len(found) > 2
    assert f"sequence={base.sequence}" in space.lines()["batch_size"]


def lines(told: dict[str, Any], **given: Any) -> dict[str, str]:
    return space_of(Made(), given, told).lines()


def test_a_file_overrides_and_restricts(tmp_path: Path) -> None:
    file = tmp_path / "space.toml"
    file.write_text("""
        gamma = { low = 0.95, high = 0.999, scale = "near one" }
        batch = [32, 48]
        epochs = false
        hidden = [[32], [32, 32]]
        double = true
        values = true
        share = true
        weight = { low = 0, high = 2 }
        epsilon.end = { low = 0.01, high = 0.1 }
    """)
    found = lines(spaces.read(file))
    assert found == {
        "rate": "1e-05 to 0.01, logarithmic",
        "gamma": "0.95 to 0.999, logarithmic in the distance from 1",
        "batch": "32, 48",
        "starts": "100 to 20000, logarithmic",
        "hidden": "32, '32,32'",
        "epsilon.end": "0.01 to 0.1",
        "double": "False, True",
        "values": "scalar, quantile",
        "share": "0 to 1",
        "weight": "0 to 2",
    }
    assert "gamma" in lines({}) and "gamma" not in lines({}, gamma=0.5)  # what is given
    only = lines({"only": True, "gamma": True, "rate": ["1e-3:0", 1e-4]})
    assert list(only) == ["rate", "gamma"]
    drawn = space_of(Made(), {}, {"only": True, "rate": ["1e-3:0"]}).settings({"rate": "1e-3:0"})
    assert drawn == {"rate": "1e-3:0"}


@pytest.mark.parametrize(
    ("told", "kind", "says"),
    [
        ({"gama": True}, UnknownNameError, "did you mean 'gamma'"),
        ({"weight": True}, SettingError, "low and high"),
        ({"gamma": 0.9}, SettingError, "learning_rate = { low"),
        ({"gamma": []}, SettingError, "values, [32, 64]"),
        ({"gamma": {"low": 0.9}}, SettingError, "a range, { low"),
        ({"gamma": {"low": 0.99, "high": 0.9}}, SettingError, "a range"),
        ({"gamma": {"low": "a", "high": 1}}, SettingError, "a range"),
        ({"rate": {"low": 0, "high": 1, "scale": "log"}}, SettingError, "a range"),
        ({"rate": {"low": 1e-3, "high": 1, "scale": "lg"}}, UnknownNameError, "'log'"),
        ({"batch": {"low": 3, "high": 8, "scale": "powers of two"}}, SettingError, "a range"),
        ({"rate": {"middle": {"low": 0, "high": 1}}}, SettingError, "a range"),
        ({"gamma": {"low": 0.5, "high": 1.5}}, SettingError, "between 0 and 1"),
        ({"gamma": [0.9, 1.5]}, SettingError, "between 0 and 1"),
        ({"gamma": ["high"]}, SettingError, "a number"),
        ({"values": ["scaler"]}, SettingError, "'scalar' or 'quantile'"),
        ({"only": 1}, SettingError, "true"),
        ({"only": True}, SettingError, "at least one setting"),
    ],
)
def test_what_is_no_space_is_refused(told: dict[str, Any], kind: Any, says: str) -> None:
    with pytest.raises(kind) as caught:
        lines(told)
    assert isinstance(caught.value, TandemError) and says in str(caught.value)


def test_a_setting_shows_its_own_search_and_keeps_that_of_its_base() -> None:
    searches = {s.name: s.search for s in declared(algorithms.get("tqc").Settings)}
    assert searches["batch_size"] == (Search(16, 1024, "powers of two"),)  # of SAC
    assert searches["envs"] == ()
