"""Settings for normalization of observations and rewards by running statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tandem.settings import setting

DETAILS = "Huang et al. 2022"  # "The 37 implementation details of PPO"


def rewards() -> Any:
    """Return the setting for rewards in units of the standard deviation of returns."""
    return setting(
        False,
        "divide rewards by the running standard deviation of returns, clipped at 10",
        DETAILS + ", continuous details 8, 9",
    )


@dataclass(frozen=True)
class NormalizedSettings:
    """Settings of normalization."""

    normalize_observations: bool = setting(
        False,
        "normalize observations with running mean and standard deviation, clipped at 10",
        DETAILS + ", continuous details 6, 7",
    )
    normalize_rewards: bool = rewards()
