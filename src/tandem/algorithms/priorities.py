"""Prioritized replay of single steps (Schaul et al. 2016, arXiv:1511.05952): settings and errors of
losses."""

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
    """Return the setting for the exponent of priorities."""
    return setting(
        0.6, "exponent of priorities; 0: uniform", TABLE, minimum=0, maximum=1, needs=needs
    )


def beta(needs: Needs = NEEDED) -> Any:
    """Return the setting for the exponent of the importance weights, which correct the bias."""
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
    """Settings for the sampling of transitions."""

    prioritized: bool = setting(
        False, "prioritized replay: sample transitions by error instead of uniformly", PAPER
    )
    priority_alpha: float = alpha()
    priority_beta: Schedule = beta()


def mean_error(settings: Any, *errors: Array) -> dict[str, Array]:
    """Return auxiliary outputs of a critic loss for prioritized replay: "error", the mean absolute
    error over the critics [B]. Empty if replay is uniform."""
    if not settings.prioritized:
        return {}
    return {"error": sum(ops.of(e).abs(e) for e in errors) / len(errors)}
