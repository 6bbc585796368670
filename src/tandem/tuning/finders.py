"""Shared parts of the finders: series of points with plots, and printed lines."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

import numpy as np

from tandem.agents.contract import as_list, check_count
from tandem.agents.rl import BaseAgent
from tandem.backends.variables import host
from tandem.errors import NonFiniteError, SettingError
from tandem.reports import plots
from tandem.tuning.trials import TrialResult
from tandem.types import AnyArray

Limits = tuple[float, float] | None


class Series:
    """Points with a reward and a loss each, and their plots."""

    metrics = "reward"
    rewards: Sequence[object]  # one per point, or one list per trial
    losses: Sequence[object]
    x_label = ""

    def _x(self) -> list[float]:
        """Return the x value of each point."""
        raise NotImplementedError

    def _curve(self, metrics: str) -> AnyArray:
        """Return a number for each point, used for plots and derivatives."""
        raise NotImplementedError

    def get_derivatives(self, sma: int = 1, metrics: str | None = None) -> list[float]:
        """Return (x_i - x_(i - sma)) / sma of each point's reward or loss, 0 for the first sma.
        metrics: defaults to that of `find`."""
        check_count("sma", sma, none=False)
        curve = self._curve(self.metrics if metrics is None else metrics)
        change = (curve[sma:] - curve[:-sma]) / sma
        return [0.0] * min(sma, len(curve)) + [float(x) for x in change]

    def _plot(self, metrics: str, skips: tuple[int, int], x_scale: str) -> Any:
        part = self._part(*skips)
        x, y = self._x()[part], self._curve(metrics)[part]
        return plots.series(x, y, self.x_label, metrics, x_scale)

    def _plot_change(
        self, metrics: str, sma: int, skips: tuple[int, int], x_scale: str, y_lim: Limits
    ) -> Any:
        part = self._part(*skips)
        x, y = self._x()[part], self.get_derivatives(sma, metrics)[part]
        return plots.series(x, y, self.x_label, f"change of {metrics}", x_scale, y_lim)

    def _part(self, beginning: int, end: int) -> slice:
        """Return the slice of points without these numbers at either end. Raises SettingError if
        none are left."""
        check_count("n_skip_beginning", beginning, 0, none=False)
        check_count("n_skip_end", end, 0, none=False)
        points = len(self._x())
        if beginning + end >= points:
            raise SettingError(
                f"skipping the first {beginning} and the last {end} of {points} points leaves "
                "none.",
                "at least one point" if points else "the points of a call to find",
                "lower n_skip_beginning, n_skip_end or sma, or let find collect more points."
                if points
                else "call find first.",
            )
        return slice(beginning, points - end)


def best_of(outcomes: Sequence[TrialResult], metrics: str) -> int:
    """Return the index of the best trial. Raises NonFiniteError if there is none."""
    scores = [outcome.score(metrics) for outcome in outcomes]
    if not any(map(isfinite, scores)):
        raise NonFiniteError(
            f"no trial finished: {outcomes[0].fault or 'no episode ended'}",
            "at least one trial with finite losses",
            "lower the learning rates, clip gradients, or give more episodes.",
        )
    return int(np.argmax(scores) if metrics == "reward" else np.argmin(scores))


def ties(outcomes: Sequence[TrialResult], best: int, metrics: str) -> str:
    """Return a remark on the trials that tie with the best one, which is the first of them, or
    ""."""
    score = outcomes[best].score(metrics)
    equal = [str(i + 1) for i, outcome in enumerate(outcomes) if outcome.score(metrics) == score]
    same = f"   the first of trials {', '.join(equal)}, with the same mean {metrics}"
    return same if len(equal) > 1 else ""


def told(i: int, trials: int, what: str, outcome: TrialResult) -> str:
    """Return a line that describes a trial."""
    found = outcome.fault or (
        f"mean reward:{outcome.score('reward'):g}   mean loss:{outcome.score('loss'):.4f}"
    )
    return f"trial:{i + 1} of {trials}   {what}   {found}   time:{outcome.seconds:.1f}s"


def described(optimizer: object) -> str:
    """Return optimizers as text: "Adam (0.001)", or "Adam (0.001), SGD (0.1)" for several."""
    words = []
    for one in as_list(optimizer):
        try:
            words.append(f"{type(one).__name__} ({learning_rate(one):.3g})")
        except SettingError:
            words.append(type(one).__name__)
    return ", ".join(words)


def moving_average(values: AnyArray, window: int) -> AnyArray:
    """Return the mean of each value and the window - 1 values before it, or as many as there
    are."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    begins = np.maximum(ends - window, 0)
    return np.asarray((sums[ends] - sums[begins]) / (ends - begins))


def learning_rate(optimizer: object) -> float:
    """Return the learning rate of a torch optimizer (its first group) or a Keras optimizer. Raises
    SettingError if it has none, or a schedule."""
    if hasattr(optimizer, "param_groups"):
        return float(optimizer.param_groups[0]["lr"])
    inner = getattr(optimizer, "_learning_rate", None)  # Keras's property would call the schedule
    if inner is None or callable(inner):
        raise SettingError(
            f"the optimizer {type(optimizer).__name__} has "
            f"{'no learning rate' if inner is None else 'a schedule for its learning rate'}.",
            "a torch or Keras optimizer with a constant learning rate",
            "create it with learning_rate=0.001, for example; use a schedule after the search.",
        )
    return float(host(inner))


def checked_agent(agent: object) -> BaseAgent:
    """Return the agent. Raises SettingError if it is not one."""
    if not isinstance(agent, BaseAgent):
        raise SettingError(
            f"a finder was given a {type(agent).__name__}.",
            "an agent: an instance of a subclass of tandem.RL or tandem.RL_pytorch",
            "use `tandem find` for built-in algorithms.",
        )
    return agent
