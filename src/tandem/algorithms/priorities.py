"""Prioritized replay of single steps (Schaul et al. 2016, arXiv:1511.05952): its settings, and what
losses say for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tandem import ops
from tandem.settings import Needs, Schedule, setting
from tandem.types import Array

PAPER = "Schaul et al. 2016"
TABLE = PAPER + ", table 3 (proportional)"


NEEDED = Needs(prioritized=True)


def alpha(needs: Needs = NEEDED) -> Any:
    """The setting for how much priorities matter."""
    return setting(
        0.6, "exponent of priorities; 0: uniform", TABLE, minimum=0, maximum=1, needs=needs
    )


def beta(needs: Needs = NEEDED) -> Any:
    """The setting for how much of the bias of drawing by them is taken back."""
    return setting(
        Schedule(0.4, 1.0),
        "exponent of the importance weights; accepts a schedule",
        TABLE,
        minimum=0,
        maximum=1,
        needs=needs,
    )


@dataclass(frozen=True)
class PrioritySettings:
    """Which transitions are drawn."""

    prioritized: bool = setting(
        False, "prioritized replay: sample transitions by error instead of uniformly", PAPER
    )
    priority_alpha: float = alpha()
    priority_beta: Schedule = beta()


def erring(settings: Any, *errors: Array) -> dict[str, Array]:
    """What a loss of critics gives beside its number for prioritized replay: the mean size of their
    errors [B] each, as "error"; nothing where replay is even."""
    if not settings.prioritized:
        return {}
    return {"error": sum(ops.of(e).abs(e) for e in errors) / len(errors)}
