"""Events of a run, in order. The loop yields them; observers, writers, callbacks and your own code
consume them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypedDict

import numpy as np

from tandem.learning import notebook
from tandem.learning.figures import listed, mean_and_std
from tandem.types import EpisodeResult


class Evaluation(NamedTuple):
    """Result of evaluation episodes: undiscounted returns and lengths, one per episode."""

    mean: float
    std: float
    returns: list[float]
    lengths: list[int]
    agents: tuple[
        float, ...
    ] = ()  # mean return of each agent of a team; the team's return is their mean
    cut: int = 0  # episodes stopped by the evaluation's step limit; their return so far counts
    success: float | None = None  # share of successful episodes, if `info` has "is_success"

    @classmethod
    def of(
        cls,
        returns: list[float],
        lengths: list[int],
        agents: Sequence[Sequence[float]] = (),
        cut: int = 0,
        success: float | None = None,
    ) -> Evaluation:
        """Create an Evaluation; without episodes, mean and std are NaN."""
        each = tuple(float(x) for x in np.mean(agents, 0)) if len(agents) else ()
        mean, std = (np.mean(returns), np.std(returns)) if returns else (np.nan, np.nan)
        return cls(float(mean), float(std), list(returns), list(lengths), each, cut, success)

    def __repr__(self) -> str:
        return f"Evaluation({self})"

    def _repr_html_(self) -> str:
        """Return a table of the results for notebooks."""
        if not self.returns:
            return notebook.table({"return": "of no episodes"})
        rows = {
            "return": mean_and_std(self.mean, self.std),
            "lowest, median, highest": ", ".join(
                listed(min(self.returns), float(np.median(self.returns)), max(self.returns))
            ),
            "episodes": f"{len(self.returns):,}"
            + (f", {self.cut} of them cut" if self.cut else ""),
            "length": f"{np.mean(self.lengths):,.1f} steps",
        }
        if self.success is not None:
            rows["success"] = f"{self.success:.0%}"
        if self.agents:
            rows["of each agent"] = ", ".join(listed(*self.agents))
        return notebook.table(rows)

    def __str__(self) -> str:
        """Return, for example, "9.3 ± 0.5 over 10 episodes, 2 of them cut at 5,000 steps"."""
        count = len(self.returns)
        text = f"{mean_and_std(self.mean, self.std)} over {count} episode{'s' * (count != 1)}"
        if self.success is not None:
            text += f", {self.success:.0%} successful"
        if not self.cut:
            return text
        which = (
            "" if count == 1 else "all of them " if self.cut == count else f"{self.cut} of them "
        )
        return f"{text}, {which}cut at {max(self.lengths):,} steps"


class Counters(TypedDict):
    """Counters in every event."""

    env_steps: int
    updates: int
    episodes: int
    seconds: float


@dataclass(frozen=True)
class Event:
    """Base class of events, with the counters of the run at that moment."""

    env_steps: int  # steps of all environments so far (not counting steps that only reset)
    updates: int  # optimizer updates so far
    episodes: int  # episodes finished so far
    seconds: float  # training time so far, including earlier sessions

    def counters(self) -> Counters:
        """Return the counters, to create another event at the same moment."""
        return {
            "env_steps": self.env_steps,
            "updates": self.updates,
            "episodes": self.episodes,
            "seconds": self.seconds,
        }


@dataclass(frozen=True)
class TrainBegin(Event):
    steps: int  # length of the run
    stop_at: int  # environment step at which this session ends


@dataclass(frozen=True)
class TrainEnd(Event):
    reason: str  # "steps", "stop_at", "criterion", "callback" or the name of a signal


@dataclass(frozen=True)
class EpisodeBegin(Event):
    env: int


@dataclass(frozen=True)
class EpisodeEnd(Event):
    episode: EpisodeResult


@dataclass(frozen=True)
class BatchBegin(Event):
    """A call of K updates is about to start."""


@dataclass(frozen=True)
class BatchEnd(Event):
    """A call of K updates has ended."""

    metrics: Mapping[str, float]  # metrics of the algorithm, averaged over the call
    # seconds so far for environment, acting and learning
    shares: Mapping[str, float] = field(default_factory=dict)
    # metrics of each call, in compiled runs, where one event covers several calls
    calls: Sequence[Mapping[str, float]] = ()


@dataclass(frozen=True)
class EvaluationEnd(Event):
    evaluation: Evaluation
    best: bool  # no earlier evaluation was better
    tie: bool = False  # best, and an earlier one was as good


@dataclass(frozen=True)
class CheckpointSaved(Event):
    path: Path
