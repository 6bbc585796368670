"""`OptFinder`: a training with each of several optimizers, from the same weights. Afterwards the
agent is restored bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import numpy as np

from tandem.agents.contract import check_count
from tandem.agents.rl import BaseAgent
from tandem.errors import SettingError, one_of
from tandem.streams import say
from tandem.tuning.finders import Limits, Series, best_of, checked_agent, described, ties, told
from tandem.tuning.trials import METRICS, TrialArguments, TrialResult, Trials
from tandem.types import AnyArray


def _of_each(value: Callable[[TrialResult], object], doc: str) -> Any:
    """Return a property of a finder: the value of each of its outcomes."""
    return property(lambda self: [value(outcome) for outcome in self._outcomes], doc=doc)


class OptFinder(Series):
    """Trains an agent with each of several optimizers, from the same weights and an empty pool, and
    ranks them by the highest mean return of all episodes, or the lowest mean loss.

    optimizers: one per trial, or a list per trial if the agent takes several.

    After `find`: best_opt, best_index; best_reward, best_loss, its means; mean_rewards, mean_losses
    of each optimizer; rewards, losses of each episode with each optimizer; seconds, faults.
    """

    x_label = "optimizer"

    def __init__(self, agent: BaseAgent, optimizers: Sequence[object]) -> None:
        self.agent, self.optimizers = checked_agent(agent), list(optimizers)
        if not self.optimizers:
            raise SettingError(
                "OptFinder was given no optimizers.", "a list of optimizers", "give two or more."
            )
        self.best_opt: object = None
        self.best_index: int | None = None
        self.best_reward, self.best_loss = -inf, inf
        self._outcomes: list[TrialResult] = []

    def find(
        self,
        train_loss: object = None,
        pool_network: bool = True,
        processes: int | None = None,
        processes_her: int | None = None,
        processes_pr: int | None = None,
        strategy: object = None,
        episodes: int = 1,
        metrics: str = "reward",
        jit_compile: bool = True,
        p: int | None = None,
    ) -> Any:
        """Train for `episodes` episodes with each optimizer and return the best one. The agent and
        the optimizers are restored afterwards.

        metrics: "reward" or "loss". p: 0 suppresses the line for each trial. The other arguments
        are those of `train`, or of `distributed_training` with a strategy. A value that is not
        finite ends a trial and ranks it last. Raises NonFiniteError if this happens to all of them.
        """
        one_of("metrics", metrics, METRICS)
        check_count("episodes", episodes, none=False)
        arguments = TrialArguments(
            train_loss,
            pool_network,
            processes,
            processes_her,
            processes_pr,
            jit_compile=jit_compile,
            strategy=strategy,
        )
        trials = Trials(self.agent, self.optimizers, arguments)
        self.metrics, self._outcomes = metrics, []
        self.best_opt, self.best_index, self.best_reward, self.best_loss = None, None, -inf, inf
        for i, optimizer in enumerate(self.optimizers):
            outcome = trials.train(optimizer, episodes)
            self._outcomes.append(outcome)
            if p != 0:
                say(told(i, len(self.optimizers), described(optimizer), outcome))
        self.best_index = best_of(self._outcomes, metrics)
        best = self._outcomes[self.best_index]
        self.best_opt = self.optimizers[self.best_index]
        self.best_reward, self.best_loss = best.score("reward"), best.score("loss")
        if p != 0:
            same = ties(self._outcomes, self.best_index, metrics)
            say(f"best optimizer:{described(self.best_opt)}{same}")
        return self.best_opt

    rewards: list[list[float]] = _of_each(
        lambda outcome: outcome.rewards, "The return of each episode, with each optimizer."
    )
    losses: list[list[float]] = _of_each(
        lambda outcome: outcome.losses, "The mean loss of each episode, with each optimizer."
    )
    mean_rewards: list[float] = _of_each(
        lambda outcome: outcome.score("reward"),
        "The mean return with each optimizer; -inf where a trial had a fault.",
    )
    mean_losses: list[float] = _of_each(
        lambda outcome: outcome.score("loss"),
        "The mean loss with each optimizer; inf where a trial had a fault.",
    )
    seconds: list[float] = _of_each(lambda outcome: outcome.seconds, "How long each trial took.")
    faults: list[str] = _of_each(
        lambda outcome: outcome.fault, 'What was not finite in each trial; "" where all was.'
    )

    def plot_reward(self, x_scale: str = "linear") -> Any:
        """Return a matplotlib figure of the mean reward by optimizer number, from 0; shown if there
        is a display."""
        return self._plot("reward", (0, 0), x_scale)

    def plot_loss(self, x_scale: str = "linear") -> Any:
        """Return a matplotlib figure of the mean loss by optimizer number, from 0."""
        return self._plot("loss", (0, 0), x_scale)

    def plot_reward_change(self, sma: int = 1, y_lim: Limits = None) -> Any:
        """Return a figure of the change of mean reward from optimizer to optimizer."""
        return self._plot_change("reward", sma, (0, 0), "linear", y_lim)

    def plot_loss_change(self, sma: int = 1, y_lim: Limits = None) -> Any:
        """Return a figure of the change of mean loss from optimizer to optimizer."""
        return self._plot_change("loss", sma, (0, 0), "linear", y_lim)

    def _x(self) -> list[float]:
        return [float(i) for i in range(len(self._outcomes))]

    def _curve(self, metrics: str) -> AnyArray:
        one_of("metrics", metrics, METRICS)
        values = np.array(self.mean_rewards if metrics == "reward" else self.mean_losses, float)
        return np.where(np.isfinite(values), values, np.nan)
