"""Prioritized replay of single steps (Schaul et al. 2016, arXiv:1511.05952): its settings, and what
losses say for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tandem.algorithms import unused
from tandem.settings import Schedule, setting

PAPER = "Schaul et al. 2016"
EXPONENTS = ("priority_alpha", "priority_beta")


@dataclass(frozen=True)
class PrioritySettings:
    """Which transitions are drawn."""

    prioritized: bool = setting(False, "draw transitions by their error instead of evenly", PAPER)
    priority_alpha: float = setting(
        0.6, "exponent of priorities", PAPER + ", table 3 (proportional)", minimum=0, maximum=1
    )
    priority_beta: Schedule = setting(
        Schedule(0.4, 1.0),
        "exponent of importance weights; a schedule",
        PAPER,
        minimum=0,
        maximum=1,
    )


def check(settings: Any) -> None:
    """SettingError for exponents where nothing is drawn by priorities."""
    if not settings.prioritized:
        unused.refuse(settings, EXPONENTS, "without prioritized", "prioritized=True")


def check_sequences(settings: Any) -> None:
    """The same, of algorithms that replay whole sequences."""
    if settings.replay != "prioritized":
        beside = f"with replay={settings.replay!r}"
        unused.refuse(settings, EXPONENTS, beside, "replay='prioritized'")
