"""What settings may be: whatever is out of range is refused before a run begins, and said by its
name."""

from __future__ import annotations

from typing import Any

import pytest

from tandem import algorithms
from tandem.errors import SettingError
from tandem.learning.config import Options, check_ranges
from tandem.settings import apply


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("impala", "replay_ratio", -1),
        ("impala", "replay_size", 0),
        ("impala", "replay_starts", -2),
        ("impala", "rho", -1),
        ("impala", "c", -1),
        ("acer", "average_tau", 7),
        ("acer", "truncation", -1),
        ("acer", "kl", -1),
        ("nstep_q", "target_updates", 0),
        ("dqn", "max_grad_norm", -1),
        ("dqn", "epsilon", "1:-0.5"),
        ("dqn", "epsilon", 2),
        ("dqn", "priority_beta", -3),
        ("ppo", "max_grad_norm", 0),
        ("ppo", "clip", "0.2:-0.1"),
        ("trpo", "radius", -1),
        ("trpo", "damping", -1),
        ("trpo", "conjugate_steps", 0),
        ("trpo", "backtracks", 0),
        ("trpo", "shrink", 2),
        ("sac", "temperature", -0.1),
        ("sac", "initial_temperature", 0),
    ],
)
def test_settings_out_of_range_are_refused(name: str, setting: str, value: Any) -> None:
    usual = algorithms.get(name).Settings()
    check_ranges(usual)
    with pytest.raises(SettingError, match=f"setting {setting}="):
        check_ranges(apply(usual, {setting: value}))


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
