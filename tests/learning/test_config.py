"""Settings out of range are refused before a run begins, by their name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args, get_type_hints

import pytest

from tandem import algorithms
from tandem.errors import SettingError
from tandem.learning.config import Options
from tandem.settings import Schedule, apply, check_ranges, declared, default, setting

OUTSIDE: dict[str, dict[str, Any]] = {
    "impala": dict(replay_ratio=-1, replay_size=0, replay_starts=-2, rho=-1, c=-1),
    "acer": {"average_tau": 7, "truncation": -1, "kl": -1},
    "nstep_q": {"target_updates": 0},
    "dqn": {"max_grad_norm": -1, "epsilon": ["1:-0.5", 2], "priority_beta": -3},
    "ppo": {"max_grad_norm": 0, "clip": "0.2:-0.1"},
    "trpo": dict(radius=-1, damping=-1, conjugate_steps=0, backtracks=0, shrink=2),
    "sac": {"temperature": -0.1, "initial_temperature": 0},
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_settings_out_of_range_are_refused(name: str) -> None:
    usual = algorithms.get(name).Settings()
    check_ranges(usual)
    for number, values in OUTSIDE[name].items():
        for value in values if isinstance(values, list) else [values]:
            with pytest.raises(SettingError, match=f"setting {number}="):
                check_ranges(apply(usual, {number: value}))


def test_the_ends_of_ranges_belong_to_them() -> None:
    for name, given in (
        ("sac", {"temperature": 0.0}),
        ("trpo", {"radius": "0.01:0"}),
        ("dqn", {"epsilon": "1:0"}),
        ("acer", {"kl": 0, "replay_starts": 0}),
    ):
        check_ranges(apply(algorithms.get(name).Settings(), given))
    with pytest.raises(SettingError, match="setting save_every=-5"):
        check_ranges(Options(save_every=-5))


KINDS = (Options, *(algorithms.get(name).Settings for name in algorithms.NAMES))


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_has_limits_that_its_default_keeps(kind: type) -> None:
    hints = get_type_hints(kind)
    for declaration in declared(kind):
        kinds = {hints[declaration.name], *get_args(hints[declaration.name])}
        limited = bool(kinds & {int, float, Schedule})
        assert (declaration.limits is not None) == limited, declaration.name
        assert declaration.help
    check_ranges(kind())


@dataclass(frozen=True)
class Made:
    positive: int = setting(1, "a count", minimum=1)
    fraction: Schedule = setting(Schedule(0.5), "a part", "a paper", minimum=0, maximum=1)
    rate: Schedule = setting(Schedule(0.1), "a rate", above=0, maximum=9, fix="try 0.1.")
    often: int | Literal["auto"] = setting(2, "a count, or -1", minimum=1, special=-1)
    widths: tuple[int, ...] = setting((3,), "counts", minimum=2, expected="two each")
    name: str = setting("x", "a name")


@dataclass(frozen=True)
class Remade(Made):
    positive: int = default(5, "a book")
    often: int | Literal["auto"] = default("auto", help="another meaning")


@pytest.mark.parametrize(
    ("name", "inside", "outside", "expected"),
    [
        ("positive", (1, 10**30), (0, -1), "at least 1"),
        ("fraction", (0, 1, "0:1", "1:0"), (-0.1, 1.1, "0.5:-0.1", "1.5:0.5"), "between 0 and 1"),
        ("rate", (9, 0.001, "0.1:0"), (0, 9.5, "0:0.1", "1:-1"), "a number above 0"),
        ("often", (1, -1, "auto"), (0, -2), "at least 1"),
        ("widths", ((2, 5), ()), ((1,), (5, 1)), "two each"),
    ],
)
@pytest.mark.parametrize("kind", [Made, Remade])
def test_limits_hold_at_both_ends(kind, name, inside, outside, expected) -> None:
    for value in inside:
        check_ranges(apply(kind(), {name: value}))
    for value in outside:
        with pytest.raises(SettingError, match=f"setting {name}=.*; expected {expected}"):
            check_ranges(apply(kind(), {name: value}))


def test_another_default_keeps_the_meaning_and_the_limits() -> None:
    before, after = ({s.name: s for s in declared(kind)} for kind in (Made, Remade))
    assert after["positive"] == before["positive"]._replace(default=5, source="a book")
    assert after["often"] == before["often"]._replace(default="auto", help="another meaning")
    assert after["fraction"] == before["fraction"] and after["fraction"].source == "a paper"
