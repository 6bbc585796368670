"""One call of `train`: callbacks, records, printed lines, files and stopping."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from time import perf_counter
from typing import Any

import numpy as np

from tandem.agents.collection import AgentActor
from tandem.agents.contract import AgentMembers, SetArguments, TrainArguments
from tandem.agents.training import PhaseLearner
from tandem.errors import SettingError, WorkerError, warn
from tandem.learning.collect.ahead import AheadCollector
from tandem.learning.events import BatchBegin, BatchEnd, EpisodeBegin, EpisodeEnd
from tandem.learning.loop import Loop
from tandem.runs.callbacks import refuse_other_hooks
from tandem.runs.checkpoint import Checkpoint
from tandem.runs.rotation import Rotation
from tandem.runs.train_loop import TrainLoop
from tandem.streams import say

Logs = dict[str, float]
HOOKS = tuple(
    f"on_{what}_{when}" for what in ("train", "episode", "batch") for when in ("begin", "end")
)


class LambdaCallback:
    """A callback made of functions.

    Any object in `agent.callbacks` with some of these methods is a callback: on_train_begin(logs),
    on_train_end(logs), on_episode_begin(i, logs), on_episode_end(i, logs) with logs["loss"] and
    logs["reward"], on_batch_begin(b, logs), on_batch_end(b, logs) with logs["loss"]. i counts the
    episodes of this training, b all minibatches, both from 0. To end training, set
    `agent.stop_training = True` in any of them.
    """

    def __init__(
        self,
        on_train_begin: Callable[[Logs], object] | None = None,
        on_train_end: Callable[[Logs], object] | None = None,
        on_episode_begin: Callable[[int, Logs], object] | None = None,
        on_episode_end: Callable[[int, Logs], object] | None = None,
        on_batch_begin: Callable[[int, Logs], object] | None = None,
        on_batch_end: Callable[[int, Logs], object] | None = None,
    ) -> None:
        functions = {
            "on_train_begin": on_train_begin,
            "on_train_end": on_train_end,
            "on_episode_begin": on_episode_begin,
            "on_episode_end": on_episode_end,
            "on_batch_begin": on_batch_begin,
            "on_batch_end": on_batch_end,
        }
        for name, function in functions.items():
            if function is not None:
                setattr(self, name, function)


def notify(callbacks: Iterable[object], name: str, *arguments: object) -> None:
    """Call this method of every callback that has it."""
    for callback in callbacks:
        if (method := getattr(callback, name, None)) is not None:
            method(*arguments)


def check_callbacks(callbacks: Iterable[object]) -> None:
    """Raise UnknownNameError for a callback with a hook of another library, SettingError for one
    without any hook: neither would ever be called."""
    for callback in callbacks:
        refuse_other_hooks(type(callback), HOOKS, "setting agent.stop_training = True")
        if not isinstance(callback, LambdaCallback) and not any(
            getattr(callback, name, None) for name in HOOKS
        ):
            raise SettingError(
                f"a {type(callback).__name__} in agent.callbacks has no callback method.",
                f"an object with at least one of {', '.join(HOOKS)}",
                "agent.callbacks = [tandem.LambdaCallback(on_episode_end=lambda i, logs: "
                "print(i, logs))].",
            )


class TrainCall:
    """A call of `train`, for a number of episodes (None: no limit). It prints progress and keeps
    the agent's records.

    metric: a Keras metric that is updated with each episode's losses, or None.
    """

    def __init__(
        self,
        agent: AgentMembers,
        loop: Loop,
        actor: AgentActor,
        learner: PhaseLearner,
        arguments: TrainArguments,
        metric: Any,
        rotation: Rotation,
    ) -> None:
        check_callbacks(agent.callbacks)
        self.rotation = rotation
        self.agent, self.loop, self.actor, self.learner = agent, loop, actor, learner
        self.episodes, self.metric = arguments.episodes, metric
        self.every = print_interval(arguments.p, arguments.episodes)
        self.done = 0  # episodes of this call
        self.train_loop = TrainLoop(loop, [self])
        self._raised: BaseException | None = None  # raised by a callback within a phase
        self._batches = learner.updates  # already reported to callbacks
        self.rounds = learner.rounds  # with several workers
        self._began, self._total_time = perf_counter(), agent.total_time

    def run(self, optimizers: AbstractContextManager[object]) -> np.float32:
        """Return the mean loss of the last episode, 0 if there was no update. optimizers: context
        manager, entered while they are used."""
        agent = self.agent
        self.learner.listener = self
        if self.rounds is not None:
            self.rounds.begin(self.episodes, lambda: self.done + len(agent._unrecorded))
        notify(agent.callbacks, "on_train_begin", {})
        try:
            with optimizers, self.train_loop.catching(), self.rotation.writer:
                try:
                    if not self._enough():
                        self._together()
                except WorkerError:
                    if self.rounds is not None:  # amid updates there is no consistent state to save
                        raise
                    if self.train_loop.signal is None:  # else training ends anyway
                        self.rotation.finish()
                        raise
                self.rotation.finish()
        finally:
            self.loop.collector.environments.forget_stop()
            self.learner.listener = None
            self.train_loop.observers.clear()  # else this object and the pool would be kept
            self._take_time()
            agent.stop_training = False
        notify(agent.callbacks, "on_train_end", {})
        if self.every:
            say(f"time:{int(agent.time + 0.5)}s")
        if (signal := self.train_loop.signal) is not None:
            raise KeyboardInterrupt(signal)
        return np.float32(agent._loss if agent._loss is not None else 0.0)

    def _together(self) -> None:
        """Train, and notify other workers if this one ends before them."""
        try:
            if not self.agent.stop_training:
                self._follow()
        except BaseException:
            if self.rounds is not None:
                self.rounds.leave(fails=True)
            raise
        if self.rounds is not None and not self._enough():
            self.rounds.leave(fails=False)

    def _follow(self) -> None:
        """Train by following the loop's events until one ends it."""
        self.learner.go_on()  # the rest of a phase that was stopped or saved
        if not self._block_ended():
            deque(self.train_loop.events(), 0)

    # Events of the train loop

    def on_episode_begin(self, event: EpisodeBegin) -> None:
        self.actor.restart(event.env)
        number = self.done + len(self.agent._unrecorded)
        notify(self.agent.callbacks, "on_episode_begin", number, {})

    def on_episode_end(self, event: EpisodeEnd) -> None:
        self.agent._unrecorded.append(event.episode.score)

    def on_batch_begin(self, event: BatchBegin) -> None:
        if isinstance(self.loop.collector, AheadCollector):
            self.loop.collector.request(self.actor)

    def on_batch_end(self, event: BatchEnd) -> None:
        if self._block_ended():
            self.train_loop.stop()

    def _block_ended(self) -> bool:
        """Record the episodes that ended in a block. Return whether to end training."""
        if self._raised is not None:
            raise self._raised
        self._take_time()
        if self.learner.updates > self._batches:
            self._batches = self.learner.updates
            self.rotation.batch(self._batches)
        while self.agent._unrecorded:
            self._episode_ended(self.agent._unrecorded.pop(0))
        return self.should_stop() or self._enough()

    def _take_time(self) -> None:
        """Update the agent's times, which are part of files saved during training."""
        self.agent.time = perf_counter() - self._began
        self.agent.total_time = self._total_time + self.agent.time

    # Interface of the learner, see `training.Listener`

    def hears_batches(self) -> bool:
        return any(
            getattr(callback, name, None) is not None
            for callback in self.agent.callbacks
            for name in ("on_batch_begin", "on_batch_end")
        )

    def batch_begins(self, number: int) -> None:
        self._notify("on_batch_begin", number, {})

    def batch_ended(self, number: int, loss: float) -> None:
        self._notify("on_batch_end", number, {"loss": loss})

    def should_stop(self) -> bool:
        asked = self.agent.stop_training and (self.rounds is None or self.rounds.is_first)
        over = self.rounds is not None and self.rounds.over
        return bool(asked or self.train_loop.signal or self._raised or over)

    def _notify(self, name: str, number: int, logs: Logs) -> None:
        """Notify callbacks within a phase. An exception ends the phase and is raised after the
        block, so that a later `train` can resume from there."""
        if self._raised is None:
            try:
                notify(self.agent.callbacks, name, number, logs)
            except BaseException as error:
                self._raised = error

    def _episode_ended(self, score: float) -> None:
        """Record an episode, notify callbacks, print, save, and check whether to end training."""
        agent, learner = self.agent, self.learner
        if learner.losses:
            agent._loss = self._mean(learner.losses)
            learner.losses.clear()
        loss = 0.0 if agent._loss is None else agent._loss
        agent.reward_list.append(score)
        agent.loss_list.append(loss)
        agent.total_episode += 1
        self.done += 1
        logs = {"loss": loss, "reward": score} | agent.measured()
        notify(agent.callbacks, "on_episode_end", self.done - 1, logs)
        average, arguments = agent.average_reward(), agent._arguments
        criterion = None if arguments is None else arguments.criterion
        if self.every and (self.done == 1 or self.done % self.every == 0):
            shown = f"reward:{score:g}" if average is None else f"average reward:{average:g}"
            say(f"episode:{agent.total_episode}   loss:{loss:.4f}   {shown}")
        averaged = arguments is not None and arguments.trial_count is not None
        self.rotation.episode(agent.total_episode, average if averaged else score)
        if average is not None and criterion is not None and average >= criterion:
            agent.stop_training = True
            if self.every:
                say(
                    f"episode:{agent.total_episode}   average reward:{average:g} >= "
                    f"criterion:{criterion:g}"
                )
        if self.rotation.should_stop:
            agent.stop_training = True

    def _mean(self, losses: list[float]) -> float:
        if self.metric is None:
            return float(np.mean(losses))
        self.metric.reset_state()
        self.metric.update_state(np.array(losses, np.float32))
        return float(self.metric.result())

    def _enough(self) -> bool:
        if self.rounds is not None and self.rounds.layout.workers > 1:
            return self.rounds.enough
        return self.episodes is not None and self.done >= self.episodes


def print_interval(p: int | None, episodes: int | None) -> int:
    """Return the number of episodes between printed lines, for about p lines (default: 10); 0 for
    never."""
    if p == 0:
        return 0
    lines = 10 if p is None else p
    if episodes is None or lines == 1:
        return 10 if episodes is None else max(1, episodes)
    if episodes % 10 == 0:
        return max(1, episodes // lines)
    return max(1, (episodes - episodes % (lines - 1)) // (lines - 1))


# Arguments without effect, each reported once

BUILT = (
    "{name}={value} is not used: batches are built in this process, for all transitions at once, "
    "which is faster than handing parts to processes."
)
UNUSED = "{name}={value} is not used: "


def say_what_is_not_used(arguments: SetArguments, train: TrainArguments) -> None:
    """Warn about arguments without effect, alone or without others, and say what happens
    instead."""
    a, t, s = arguments, train, UNUSED
    rules = (
        ("processes_her", t.processes_her not in (None, 1), BUILT),
        ("processes_pr", t.processes_pr not in (None, 1), BUILT),
        (
            "random",
            t.random,
            "{name}={value} is not used: there are no sub-pools to choose from; each environment "
            "has its own columns, and minibatches are sampled from all of them.",
        ),
        (
            "processes",
            not t.pool_network and t.processes not in (None, 1),
            s + "with pool_network=False environments step in this process.",
        ),
        (
            "num_store",
            t.num_store and a.PPO and a.update_steps,
            s + "with PPO=True a phase follows every update_steps steps; set update_batches "
            "instead for a phase every num_store episodes.",
        ),
        (
            "clearing_freq",
            t.clearing_freq and not t.window_size_,
            s + "it requires window_size_, the number of transitions to drop.",
        ),
        (
            "window_size_",
            t.window_size_ and not t.clearing_freq,
            s + "it requires clearing_freq, which sets how often to drop transitions.",
        ),
        (
            "window_size_ppo",
            t.window_size_ppo and not (a.PPO and a.PR),
            s + "update_param drops that many transitions only with PPO=True and PR=True.",
        ),
        (
            "window_size_pr",
            t.window_size_pr and (a.PPO or not a.PR),
            s + "update_param drops that many transitions only with PR=True and without PPO.",
        ),
        (
            "update_steps",
            a.update_steps and a.update_batches and not a.PPO,
            s + "update_param is called after every update_batches minibatches.",
        ),
    )
    modes = {
        "PR=True": (a.PR, ("alpha", "epsilon", "initial_TD", "beta")),
        "PR=True and PPO=True": (a.PR and a.PPO, ("lambda_", "initial_ratio")),
        "HER=True": (a.HER, ("k", "strategy")),
    }
    usual = SetArguments()
    rules += tuple(
        (name, not on and getattr(a, name) != getattr(usual, name), s + f"it requires {mode}.")
        for mode, (on, names) in modes.items()
        for name in names
    )
    for name, applies, text in rules:
        if applies:
            value = getattr(train if hasattr(train, name) else arguments, name)
            say_once(name, text.format(name=name, value=value))


def say_what_becomes_of_priorities(arguments: SetArguments, saved: Checkpoint) -> bool:
    """Warn if a training with priorities resumes without them, or vice versa, and return whether it
    does."""
    pool = saved.group("learner")
    before = saved.data.get("arguments", {}).get("PR", arguments.PR)
    if has_pool := "ring" in saved.data["loop"]["learner"]:  # may be older than the arguments
        before = "sampler/priority" in pool
    if bool(before) == bool(arguments.PR):
        return False
    first = f"initial_TD={arguments.initial_TD:g}"
    if arguments.PPO:
        first += f" and initial_ratio={arguments.initial_ratio:g}"
    kept = "the networks, optimizers and counters"
    lost = f"the priorities: the file has none, so every transition starts with {first}"
    if before:
        lost = "the priorities: minibatches are sampled uniformly from all transitions"
    if has_pool:
        kept += ", and the newest transitions of the pool that fit"
    warn(
        f"{saved.path} was saved with PR={bool(before)}, but set was called with "
        f"PR={bool(arguments.PR)}. Kept: {kept}. Not kept: {lost}. To resume unchanged, call "
        f"set(PR={bool(before)}, ...)."
    )
    return True


def say_once(name: str, text: str) -> None:
    """Warn about an argument, once per process."""
    if name not in _said:
        _said.add(name)
        warn(text)


_said: set[str] = set()
