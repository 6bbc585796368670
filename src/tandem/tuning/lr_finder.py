"""`LRFinder`: a training with a growing learning rate, to find a good one. Afterwards the agent is
restored bit for bit."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from tandem.agents.assembly import Assembly
from tandem.agents.contract import as_list, check_count
from tandem.agents.rl import BaseAgent
from tandem.agents.train_call import print_interval
from tandem.errors import NonFiniteError, SettingError, one_of
from tandem.streams import say
from tandem.tuning.finders import (
    Limits,
    Series,
    checked_agent,
    learning_rate,
    moving_average,
)
from tandem.tuning.trials import METRICS, TrialArguments, Trials
from tandem.types import AnyArray

FEW = 5  # minimum number of points before the sweep can stop early
EPS = 1e-8


class LRFinder(Series):
    """Learning rate range test: trains an agent while its learning rate grows exponentially (Smith
    2017, arXiv:1506.01186, section 3.3, with returns instead of accuracies).

    index: which of several optimizers' learning rates to vary; the last one by default.

    After `find`: lrs, rewards, losses of each point (an episode or a minibatch); best_lr;
    best_reward or best_loss, the best mean of window_size points; fault.
    """

    x_label = "learning rate"

    def __init__(self, agent: BaseAgent, index: int = -1) -> None:
        self.agent, self.index = checked_agent(agent), index
        self.lrs: list[float] = []
        self.rewards: list[float] = []
        self.losses: list[float] = []
        self.window_size, self.factor, self.start_lr = 1, 1.0, 0.0
        self.best_lr: float | None = None
        self.best_reward, self.best_loss = -inf, inf
        self.fault = ""  # if it ended early: what was not finite

    def find(
        self,
        train_loss: object = None,
        pool_network: bool = True,
        processes: int | None = None,
        processes_her: int | None = None,
        processes_pr: int | None = None,
        strategy: object = None,
        random: bool = False,
        num_updates: int | None = None,
        N: int | None = None,
        window_size: int | None = None,
        start_lr: float = 1e-4,
        end_lr: float = 1.0,
        episodes: int | None = None,
        metrics: str = "reward",
        jit_compile: bool = True,
        p: int | None = None,
    ) -> float:
        """Train the agent and return `best_lr`. The agent needs its `optimizer`; afterwards it is
        restored. Stops early if a value is not finite, if the mean of window_size rewards falls two
        standard deviations below its best, or if that of the losses grows to four times its
        minimum.

        Args:
            num_updates: Overrides the value passed to `set`.
            N: Number of steps from start_lr to end_lr: episodes, or minibatches with
                metrics="loss". Defaults to `episodes` or 100.
            window_size: Number of points in a mean; None: N / 11.
            start_lr: The first learning rate.
            end_lr: The last learning rate.
            episodes: The maximum number of episodes; None: until end_lr is reached.
            metrics: "reward" or "loss".
            p: About how many lines to print (None: 10); 0: none.

        The other arguments are those of `train`, or of `distributed_training` with a strategy.

        Raises:
            SettingError: The arguments do not fit.
            NonFiniteError: A value was not finite within the first three points.
        """
        steps = self._check(metrics, N, episodes, window_size, start_lr, end_lr)
        arguments = TrialArguments(
            train_loss,
            pool_network,
            processes,
            processes_her,
            processes_pr,
            random,
            jit_compile,
            strategy,
        )
        self._check_optimizer()
        trials = Trials(self.agent, [self.agent.optimizer], arguments)
        sweep = _Sweep(self, steps, print_interval(p, steps))
        if metrics == "reward":
            episodes = steps + 1 if episodes is None else min(episodes, steps + 1)
        outcome = trials.train(self.agent.optimizer, episodes, sweep, num_updates, goes_on=True)
        self.fault = outcome.fault
        self._conclude(p != 0)
        assert self.best_lr is not None
        return self.best_lr

    def get_best_lr(self, sma: int = 1, n_skip_beginning: int = 10, n_skip_end: int = 5) -> float:
        """Return the learning rate at the steepest rise of the reward, or fall of the loss, over
        sma points: the one in the middle of the points of that difference. Ignores n_skip_beginning
        points at the start and n_skip_end at the end; raises SettingError if none are left."""
        part = self._part(max(n_skip_beginning, sma), n_skip_end)
        change = np.array(self.get_derivatives(sma))[part]
        best = np.argmax(change) if self.metrics == "reward" else np.argmin(change)
        i: int = part.start + int(best)
        return self.lrs[max(0, i - (sma + self.window_size - 2) // 2)]

    def plot_reward(
        self, n_skip_beginning: int = 10, n_skip_end: int = 5, x_scale: str = "log"
    ) -> Any:
        """Return a matplotlib figure of the rewards by learning rate, averaged over window_size
        points and normalized by the mean and standard deviation of all; shown if there is a
        display."""
        return self._plot("reward", (n_skip_beginning, n_skip_end), x_scale)

    def plot_loss(
        self, n_skip_beginning: int = 10, n_skip_end: int = 5, x_scale: str = "log"
    ) -> Any:
        """Return a matplotlib figure of the losses by learning rate, averaged over window_size
        points."""
        return self._plot("loss", (n_skip_beginning, n_skip_end), x_scale)

    def plot_reward_change(
        self,
        sma: int = 1,
        n_skip_beginning: int = 10,
        n_skip_end: int = 5,
        y_lim: Limits = None,
        x_scale: str = "log",
    ) -> Any:
        """Return a figure of the change of the normalized rewards over sma points; y_lim: (lowest,
        highest)."""
        skips = n_skip_beginning, n_skip_end
        return self._plot_change("reward", sma, skips, x_scale, y_lim)

    def plot_loss_change(
        self,
        sma: int = 1,
        n_skip_beginning: int = 10,
        n_skip_end: int = 5,
        y_lim: Limits = None,
        x_scale: str = "log",
    ) -> Any:
        """Return a figure of the change of the averaged losses over sma points."""
        return self._plot_change("loss", sma, (n_skip_beginning, n_skip_end), x_scale, y_lim)

    @property
    def normalized_rewards(self) -> list[float]:
        """The values that `plot_reward` shows."""
        return [float(x) for x in self._curve("reward")]

    def _x(self) -> list[float]:
        return self.lrs

    def _curve(self, metrics: str) -> AnyArray:
        one_of("metrics", metrics, METRICS)
        values = np.array(self.rewards if metrics == "reward" else self.losses, float)
        if len(values) != len(self.lrs):
            raise SettingError(
                "a sweep over minibatches has no rewards.",
                'find(metrics="reward"), which sweeps over episodes',
                "use the loss, or call find again.",
            )
        means = moving_average(values, self.window_size)
        return (means - values.mean()) / (values.std() + EPS) if metrics == "reward" else means

    def _check(
        self,
        metrics: str,
        steps: int | None,
        episodes: int | None,
        window: int | None,
        start: float,
        end: float,
    ) -> int:
        """Check the arguments, reset the results, and return the number of steps to the last
        learning rate. Raises SettingError for invalid values."""
        one_of("metrics", metrics, METRICS)
        check_count("N", steps, 2)
        check_count("episodes", episodes)
        check_count("window_size", window)
        for name, value in (("start_lr", start), ("end_lr", end)):
            if (
                isinstance(value, bool)
                or not isinstance(value, (int, float))
                or not (0 < value < inf)
            ):
                raise SettingError(
                    f"{name}={value!r}.", "a number above 0", "give start_lr=1e-4, end_lr=1.0."
                )
        if start >= end:
            raise SettingError(
                f"start_lr={start:g} and end_lr={end:g}.",
                "start_lr below end_lr",
                "lower start_lr, or raise end_lr.",
            )
        if steps is None:
            steps = max(2, episodes) if episodes is not None and metrics == "reward" else 100
        self.lrs, self.rewards, self.losses = [], [], []
        self.best_lr, self.best_reward, self.best_loss = None, -inf, inf
        self.metrics, self.start_lr = metrics, float(start)
        self.factor = (end / start) ** (1 / steps)
        self.window_size = max(1, steps // 11) if window is None else window
        return steps

    def _check_optimizer(self) -> None:
        """Raise SettingError if the agent has no optimizer, or one without a variable learning
        rate."""
        optimizers = as_list(self.agent.optimizer)
        if not optimizers:
            raise SettingError(
                "the agent has no optimizer.",
                "agent.optimizer, the optimizer to tune",
                "set agent.optimizer = ... before LRFinder(agent).find(...).",
            )
        if not -len(optimizers) <= self.index < len(optimizers):
            raise SettingError(
                f"index={self.index} with {len(optimizers)} optimizers.",
                "a list index: from 0 up, or from -1 down to count from the end",
                "leave index out for the last one.",
            )
        learning_rate(optimizers[self.index])

    def _conclude(self, told: bool) -> None:
        """Set and print the result. Raises NonFiniteError or SettingError if there are too few
        points."""
        if len(self.lrs) < 3:
            raise (NonFiniteError if self.fault else SettingError)(
                self.fault or f"the sweep made only {len(self.lrs)} points.",
                "at least three points, from start_lr on",
                f"lower start_lr (it was {self.start_lr:g})."
                if self.fault
                else "give more episodes, or a smaller batch.",
            )
        self.best_lr = self.get_best_lr(min(self.window_size, len(self.lrs) - 2), 0, 0)
        if told:
            say(f"best learning rate:{self.best_lr:.2g} ({self._reason()})")

    def _reason(self) -> str:
        """Return the reason why the learning rate is the best."""
        if not np.ptp(self.rewards if self.metrics == "reward" else self.losses):
            return f"no real choice: the {self.metrics} never changed"
        return f"steepest {'rise' if self.metrics == 'reward' else 'fall'} of the {self.metrics}"


class _Sweep:
    """Callback that changes the learning rate, records the points, and ends the sweep."""

    def __init__(self, finder: LRFinder, steps: int, every: int) -> None:
        self.finder, self.steps, self.every = finder, steps, every
        self.lr, self.begun = finder.start_lr, 0  # number of minibatches before the sweep

    def on_train_begin(self, logs: dict[str, float]) -> None:
        self.begun = self._assembly().learner.updates
        self._give(self.lr)

    def on_episode_end(self, i: int, logs: dict[str, float]) -> None:
        if self.finder.metrics == "reward" and not self._is_over():
            self._point(logs)

    def on_batch_end(self, b: int, logs: dict[str, float]) -> None:
        if self.finder.metrics == "loss" and not self._is_over():
            self._point(logs)

    def _is_over(self) -> bool:
        return len(self.finder.lrs) > self.steps

    def _point(self, logs: dict[str, float]) -> None:
        f = self.finder
        f.lrs.append(self.lr)
        f.losses.append(logs["loss"])
        if "reward" in logs:
            f.rewards.append(logs["reward"])
        number = len(f.lrs)
        if self.every and (number == 1 or number % self.every == 0):
            shown = f"reward:{logs['reward']:g}   " if "reward" in logs else ""
            unit = "episode" if f.metrics == "reward" else "batch"
            say(f"{unit}:{number}   learning rate:{self.lr:.2e}   {shown}loss:{logs['loss']:.4f}")
        if self._is_over() or self._is_lost():
            f.agent.stop_training = True
            return
        # minibatches of one update block are reported one by one, but share one learning rate
        if f.metrics == "reward" or number >= self._assembly().learner.updates - self.begun:
            self.lr = f.start_lr * f.factor**number
            self._give(self.lr)

    def _give(self, lr: float) -> None:
        """Set this learning rate in all groups of the optimizer."""
        optimizer = self._assembly().optimizers[self.finder.index]
        optimizer.set_numbers("lr", [lr] * len(optimizer.numbers("lr")))

    def _assembly(self) -> Assembly:
        """Return the training of this trial."""
        assembly = self.finder.agent._assembly
        assert assembly is not None
        return assembly

    def _is_lost(self) -> bool:
        """Return True if the mean of the last points is far worse than the best one."""
        f = self.finder
        values = np.array(f.rewards if f.metrics == "reward" else f.losses)
        if len(values) < f.window_size:
            return False
        mean, spread = float(values[-f.window_size :].mean()), float(values.std())
        if f.metrics == "reward":
            f.best_reward = max(f.best_reward, mean)
            lost = mean < f.best_reward - 2 * spread
        else:
            f.best_loss = min(f.best_loss, mean)
            lost = mean > f.best_loss + max(3 * abs(f.best_loss), 4 * spread)
        return lost and len(values) > FEW
