"""Finders: short trainings of an agent that say which learning rate, or which optimizer, to train it
with. Afterwards the agent is as before, to the bit."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite
from typing import Any

import numpy as np

from tandem import plots
from tandem.agents.contract import as_list, check_count
from tandem.agents.rl import BaseAgent
from tandem.agents.training import print_interval
from tandem.agents.trials import METRICS, Outcome, TrialArguments, Trials, refuse_strategy
from tandem.errors import NonFiniteError, SettingError, one_of
from tandem.types import AnyArray

FEW = 5  # points before which a sweep is not ended
EPS = 1e-8
Limits = tuple[float, float] | None


class Series:
    """Points with a reward and a loss each, and pictures of them."""

    metrics = "reward"
    rewards: Any
    losses: Any
    x_label = ""

    def _x(self) -> list[float]:
        """Returns where the points are."""
        raise NotImplementedError

    def _curve(self, metrics: str) -> AnyArray:
        """Returns a number for each point, which pictures show and derivatives are of."""
        raise NotImplementedError

    def get_derivatives(self, sma: int = 1, metrics: str | None = None) -> list[float]:
        """Returns (x_i - x_(i - sma)) / sma of each point's reward or loss, by what `find` was told
        to look at unless `metrics` says; 0 for the first sma."""
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
        """Returns which points are left without so many at either end. SettingError where none
        is."""
        check_count("n_skip_beginning", beginning, 0, none=False)
        check_count("n_skip_end", end, 0, none=False)
        points = len(self._x())
        if beginning + end >= points:
            raise SettingError(
                f"n_skip_beginning={beginning} and n_skip_end={end} of {points} points.",
                "some points that are left" if points else "a call of find, which makes them",
                "skip fewer, or let find make more." if points else "call find first.",
            )
        return slice(beginning, points - end)


class LRFinder(Series):
    """Trains an agent while its learning rate grows exponentially, so as to find one to train it
    with (Smith 2017, arXiv:1506.01186, section 3.3, with returns for accuracies).

    index: which of several optimizers' learning rate it is; the last one's by default.

    After `find`: lrs, rewards, losses, of each point (an episode, or a mini-batch); best_lr;
    best_reward or best_loss, the best mean of window_size points; outcome.
    """

    x_label = "learning rate"

    def __init__(self, agent: BaseAgent, index: int = -1) -> None:
        self.agent, self.index = _agent(agent), index
        self.lrs: list[float] = []
        self.rewards: list[float] = []
        self.losses: list[float] = []
        self.window_size, self.factor, self.start_lr = 1, 1.0, 0.0
        self.best_lr: float | None = None
        self.best_reward, self.best_loss = -inf, inf
        self.fault = ""  # why it ended early: what was not finite

    def find(
        self,
        train_loss: Any = None,
        pool_network: bool = True,
        processes: int | None = None,
        processes_her: int | None = None,
        processes_pr: int | None = None,
        strategy: Any = None,
        random: bool = True,
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
        """Trains, and returns `best_lr`. The agent needs its `optimizer`, and is as before
        afterwards.

        N: in how many steps the learning rate goes from start_lr to end_lr: episodes, or
        mini-batches with metrics="loss"; `episodes` or 100 by default. episodes: after how many at
        most it ends (None: when end_lr was reached). window_size: how many points are averaged;
        None: an eleventh of N. num_updates: instead of what `set` was told. p: about how many lines
        are printed (10), 0 for none. The others are those of `train`.

        It ends early where something is not finite; where the mean of window_size rewards has
        fallen by two standard deviations below its best; or that of losses has grown to four times
        its least. Raises SettingError for arguments that do not fit.
        """
        refuse_strategy(strategy, "LRFinder")
        steps = self._check(metrics, N, episodes, window_size, start_lr, end_lr)
        arguments = TrialArguments(
            train_loss, pool_network, processes, processes_her, processes_pr, random, jit_compile
        )
        optimizers = self._optimizers()
        trials = Trials(self.agent, [self.agent.optimizer], arguments)
        sweep = _Sweep(self, optimizers[self.index], steps, print_interval(p, steps))
        if metrics == "reward":
            episodes = steps + 1 if episodes is None else min(episodes, steps + 1)
        outcome = trials.train(
            self.agent.optimizer, episodes, sweep, num_updates, goes_on=True
        )
        self.fault = outcome.fault
        self._conclude(p != 0)
        assert self.best_lr is not None
        return self.best_lr

    def get_best_lr(
        self, sma: int = 1, n_skip_beginning: int = 10, n_skip_end: int = 5
    ) -> float:
        """Returns the learning rate where the reward rose the steepest, or the loss fell the
        steepest, over sma points, without so many points at either end: the one in the middle of
        the points that the difference is of. SettingError where no points are left."""
        part = self._part(max(n_skip_beginning, sma), n_skip_end)
        change = np.array(self.get_derivatives(sma))[part]
        best = np.argmax(change) if self.metrics == "reward" else np.argmin(change)
        return self.lrs[part.start + int(best) - (sma + self.window_size - 2) // 2]

    def plot_reward(
        self, n_skip_beginning: int = 10, n_skip_end: int = 5, x_scale: str = "log"
    ) -> Any:
        """Returns a matplotlib figure of the rewards by learning rate, averaged over window_size
        points and normalized by the mean and standard deviation of all; shown where there is a
        screen."""
        return self._plot("reward", (n_skip_beginning, n_skip_end), x_scale)

    def plot_loss(
        self, n_skip_beginning: int = 10, n_skip_end: int = 5, x_scale: str = "log"
    ) -> Any:
        """Returns such a figure of the losses, which are averaged only."""
        return self._plot("loss", (n_skip_beginning, n_skip_end), x_scale)

    def plot_reward_change(
        self,
        sma: int = 1,
        n_skip_beginning: int = 10,
        n_skip_end: int = 5,
        y_lim: Limits = None,
        x_scale: str = "log",
    ) -> Any:
        """Returns a figure of the change of such rewards over sma points; y_lim: (lowest,
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
        """Returns a figure of the change of the losses over sma points."""
        return self._plot_change("loss", sma, (n_skip_beginning, n_skip_end), x_scale, y_lim)

    @property
    def normalized_rewards(self) -> list[float]:
        """What `plot_reward` shows."""
        return [float(x) for x in self._curve("reward")]

    def _x(self) -> list[float]:
        return self.lrs

    def _curve(self, metrics: str) -> AnyArray:
        one_of("metrics", metrics, METRICS)
        values = np.array(self.rewards if metrics == "reward" else self.losses, float)
        if len(values) != len(self.lrs):
            raise SettingError(
                "there are no rewards of a sweep by mini-batches.",
                'find(metrics="reward"), whose points are episodes',
                "look at the loss, or call find again.",
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
        """Returns in how many steps the learning rate goes to its end, and begins anew. SettingError
        for what cannot be."""
        one_of("metrics", metrics, METRICS)
        check_count("N", steps, 2)
        check_count("episodes", episodes)
        check_count("window_size", window)
        for name, value in (("start_lr", start), ("end_lr", end)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not (
                0 < value < inf
            ):
                raise SettingError(
                    f"{name}={value!r}.", "a number above 0", "give start_lr=1e-4, end_lr=1.0, say."
                )
        if start >= end:
            raise SettingError(
                f"start_lr={start:g} and end_lr={end:g}.",
                "a learning rate that grows",
                "give the lower one as start_lr.",
            )
        if steps is None:
            steps = max(2, episodes) if episodes is not None and metrics == "reward" else 100
        self.lrs, self.rewards, self.losses = [], [], []
        self.best_lr, self.best_reward, self.best_loss = None, -inf, inf
        self.metrics, self.start_lr = metrics, float(start)
        self.factor = (end / start) ** (1 / steps)
        self.window_size = max(1, steps // 11) if window is None else window
        return steps

    def _optimizers(self) -> list[Any]:
        """Returns the agent's. SettingError where it has none, or none whose learning rate can
        move."""
        optimizers = as_list(self.agent.optimizer)
        if not optimizers:
            raise SettingError(
                "the agent has no optimizer.",
                "agent.optimizer, whose learning rate is looked for",
                "set agent.optimizer = ... before LRFinder(agent).find(...).",
            )
        if not -len(optimizers) <= self.index < len(optimizers):
            raise SettingError(
                f"index={self.index} of {len(optimizers)} optimizers.",
                "the number of one of them, from 0 on, or from -1 on backwards",
                "leave index out for the last one.",
            )
        learning_rate(optimizers[self.index])
        return optimizers

    def _conclude(self, told: bool) -> None:
        """Sets what was found, and says it. NonFiniteError, or SettingError, where that is
        nothing."""
        if len(self.lrs) < 3:
            raise (NonFiniteError if self.fault else SettingError)(
                self.fault or f"the sweep came to {len(self.lrs)} points.",
                "three points at least, from start_lr on",
                f"lower start_lr (it was {self.start_lr:g})."
                if self.fault
                else "give more episodes, or a smaller batch.",
            )
        self.best_lr = self.get_best_lr(min(self.window_size, len(self.lrs) - 2), 0, 0)
        if told:
            print(f"best learning rate:{self.best_lr:.2g} (steepest {self._direction()})")

    def _direction(self) -> str:
        return "rise of the reward" if self.metrics == "reward" else "fall of the loss"


class _Sweep:
    """The callback that moves the learning rate, keeps the points, and ends the sweep."""

    def __init__(self, finder: LRFinder, optimizer: Any, steps: int, every: int) -> None:
        self.finder, self.optimizer, self.steps, self.every = finder, optimizer, steps, every
        self.lr, self.begun = finder.start_lr, 0  # mini-batches that were made before

    def on_train_begin(self, logs: dict[str, float]) -> None:
        self.begun = self._updates()
        set_learning_rate(self.optimizer, self.lr)

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
            print(f"{unit}:{number}   learning rate:{self.lr:.2e}   {shown}loss:{logs['loss']:.4f}")
        if self._is_over() or self._is_lost():
            f.agent.stop_training = True
            return
        # mini-batches that were made together are told one by one, and all had the same
        if f.metrics == "reward" or number >= self._updates() - self.begun:
            self.lr = f.start_lr * f.factor**number
            set_learning_rate(self.optimizer, self.lr)

    def _updates(self) -> int:
        """Returns how many mini-batches there were."""
        assembly = self.finder.agent._assembly
        assert assembly is not None
        return assembly.learner.updates

    def _is_lost(self) -> bool:
        """Whether the mean of the last points is far worse than the best there was."""
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


class OptFinder(Series):
    """Trains an agent with each of several optimizers, from the same weights and an empty pool, and
    ranks them by the mean return of all episodes, or the least mean loss.

    optimizers: one for each trial; where the agent takes several, a list of them for each.

    After `find`: best_opt, best_index; best_reward, best_loss, its means; mean_rewards, mean_losses
    of each optimizer; rewards, losses, of each episode with each; seconds, faults.
    """

    x_label = "optimizer"

    def __init__(self, agent: BaseAgent, optimizers: Sequence[Any]) -> None:
        self.agent, self.optimizers = _agent(agent), list(optimizers)
        if not self.optimizers:
            raise SettingError(
                "OptFinder was given no optimizers.", "a list of some", "give two, say."
            )
        self.best_opt: Any = None
        self.best_index: int | None = None
        self.best_reward, self.best_loss = -inf, inf
        self._outcomes: list[Outcome] = []

    def find(
        self,
        train_loss: Any = None,
        pool_network: bool = True,
        processes: int | None = None,
        processes_her: int | None = None,
        processes_pr: int | None = None,
        strategy: Any = None,
        episodes: int = 1,
        metrics: str = "reward",
        jit_compile: bool = True,
        p: int | None = None,
    ) -> Any:
        """Trains for `episodes` episodes with each optimizer, and returns the best one. The agent and
        the optimizers are as before afterwards.

        metrics: "reward" or "loss". p: 0 prints no line for each trial. The others are those of
        `train`. Something that is not finite ends a trial, which is then the worst. Raises
        NonFiniteError where it ends all of them.
        """
        refuse_strategy(strategy, "OptFinder")
        one_of("metrics", metrics, METRICS)
        check_count("episodes", episodes, none=False)
        arguments = TrialArguments(
            train_loss,
            pool_network,
            processes,
            processes_her,
            processes_pr,
            jit_compile=jit_compile,
        )
        trials = Trials(self.agent, self.optimizers, arguments)
        self.metrics, self._outcomes = metrics, []
        self.best_opt, self.best_index, self.best_reward, self.best_loss = None, None, -inf, inf
        for i, optimizer in enumerate(self.optimizers):
            outcome = trials.train(optimizer, episodes)
            self._outcomes.append(outcome)
            if p != 0:
                print(told(i, len(self.optimizers), described(optimizer), outcome))
        self.best_index = best_of(self._outcomes, metrics)
        best = self._outcomes[self.best_index]
        self.best_opt = self.optimizers[self.best_index]
        self.best_reward, self.best_loss = best.score("reward"), best.score("loss")
        if p != 0:
            print(f"best optimizer:{described(self.best_opt)}")
        return self.best_opt

    @property
    def rewards(self) -> list[list[float]]:
        """The return of each episode, with each optimizer."""
        return [outcome.rewards for outcome in self._outcomes]

    @property
    def losses(self) -> list[list[float]]:
        """The mean loss of each episode, with each optimizer."""
        return [outcome.losses for outcome in self._outcomes]

    @property
    def mean_rewards(self) -> list[float]:
        """The mean return with each optimizer; -inf where a trial had a fault."""
        return [outcome.score("reward") for outcome in self._outcomes]

    @property
    def mean_losses(self) -> list[float]:
        """The mean loss with each optimizer; inf where a trial had a fault."""
        return [outcome.score("loss") for outcome in self._outcomes]

    @property
    def seconds(self) -> list[float]:
        """How long each trial took."""
        return [outcome.seconds for outcome in self._outcomes]

    @property
    def faults(self) -> list[str]:
        """What was not finite in each trial; "" where all was."""
        return [outcome.fault for outcome in self._outcomes]

    def plot_reward(self, x_scale: str = "linear") -> Any:
        """Returns a matplotlib figure of the mean reward with each optimizer, by their numbers from
        0 on; shown where there is a screen."""
        return self._plot("reward", (0, 0), x_scale)

    def plot_loss(self, x_scale: str = "linear") -> Any:
        """Returns such a figure of the mean losses."""
        return self._plot("loss", (0, 0), x_scale)

    def plot_reward_change(self, sma: int = 1, y_lim: Limits = None) -> Any:
        """Returns a figure of the change of mean reward from optimizer to optimizer."""
        return self._plot_change("reward", sma, (0, 0), "linear", y_lim)

    def plot_loss_change(self, sma: int = 1, y_lim: Limits = None) -> Any:
        """Returns a figure of the change of mean loss from optimizer to optimizer."""
        return self._plot_change("loss", sma, (0, 0), "linear", y_lim)

    def _x(self) -> list[float]:
        return [float(i) for i in range(len(self._outcomes))]

    def _curve(self, metrics: str) -> AnyArray:
        one_of("metrics", metrics, METRICS)
        values = np.array(self.mean_rewards if metrics == "reward" else self.mean_losses, float)
        return np.where(np.isfinite(values), values, np.nan)


# What finders share


def best_of(outcomes: Sequence[Outcome], metrics: str) -> int:
    """Returns the number of the best trial. NonFiniteError where there is none."""
    scores = [outcome.score(metrics) for outcome in outcomes]
    if not any(map(isfinite, scores)):
        raise NonFiniteError(
            f"no trial came to an end: {outcomes[0].fault or 'no episode ended in them'}",
            "one trial at least with finite losses",
            "lower the learning rates, or clip gradients; give more episodes.",
        )
    return int(np.argmax(scores) if metrics == "reward" else np.argmin(scores))


def told(i: int, trials: int, what: str, outcome: Outcome) -> str:
    """Returns a line on a trial."""
    found = outcome.fault or (
        f"mean reward:{outcome.score('reward'):g}   mean loss:{outcome.score('loss'):.4f}"
    )
    return f"trial:{i + 1} of {trials}   {what}   {found}   time:{outcome.seconds:.1f}s"


def described(optimizer: Any) -> str:
    """Returns an optimizer in words: "Adam (0.001)"; "Adam (0.001), SGD (0.1)" of several."""
    words = []
    for one in as_list(optimizer):
        try:
            words.append(f"{type(one).__name__} ({learning_rate(one):.3g})")
        except SettingError:
            words.append(type(one).__name__)
    return ", ".join(words)


def moving_average(values: AnyArray, window: int) -> AnyArray:
    """Returns the mean of each value and the window - 1 before it, of as many as there are."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    begins = np.maximum(ends - window, 0)
    return np.asarray((sums[ends] - sums[begins]) / (ends - begins))


def learning_rate(optimizer: Any) -> float:
    """Returns the learning rate of an optimizer of torch's (its first group's) or Keras's.
    SettingError where that is none, or a schedule."""
    if hasattr(optimizer, "param_groups"):
        return float(optimizer.param_groups[0]["lr"])
    inner = getattr(optimizer, "_learning_rate", None)  # Keras's property would call the schedule
    if inner is None or callable(inner):
        raise SettingError(
            f"the optimizer {type(optimizer).__name__} has "
            f"{'no learning rate' if inner is None else 'a schedule for its learning rate'}.",
            "an optimizer of torch's or Keras's with a number for its learning rate",
            "make it with learning_rate=0.001, say; a schedule can follow when it is found.",
        )
    return float(np.asarray(optimizer.learning_rate))


def set_learning_rate(optimizer: Any, value: float) -> None:
    """Gives all groups of an optimizer this learning rate."""
    if not hasattr(optimizer, "param_groups"):
        optimizer.learning_rate = value
        return
    for group in optimizer.param_groups:
        if hasattr(group["lr"], "fill_"):  # a tensor
            group["lr"].fill_(value)
        else:
            group["lr"] = value


def _agent(agent: Any) -> BaseAgent:
    """SettingError for what is no agent."""
    if not isinstance(agent, BaseAgent):
        raise SettingError(
            f"a finder was given a {type(agent).__name__}.",
            "an agent: an object of a subclass of tandem.RL or tandem.RL_pytorch",
            "for algorithms of the library there is `tandem find`.",
        )
    return agent
