"""What happens in a call of `train`, and when: training phases with their mini-batches, callbacks,
records, and the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from tandem.agents.collection import AgentActor, keep_all
from tandem.agents.contract import AgentMembers, TrainArguments
from tandem.agents.user_functions import AgentAlgorithm
from tandem.backends.backend import Backend
from tandem.errors import WorkerError
from tandem.learning.events import BatchEnd, EpisodeBegin, EpisodeEnd
from tandem.learning.learners import Span, averaged, checked, load_stored, stored
from tandem.learning.loop import Loop
from tandem.learning.seeds import Generators
from tandem.replay.buffer import Ring
from tandem.replay.refit import refitted
from tandem.replay.samplers import Draw, Sampler
from tandem.runs.autosave import Autosave, Writer
from tandem.runs.signals import Signals
from tandem.types import AnyArray, Array, Batch, IntArray, JSONDict, State, Trajectory, Tree

Logs = dict[str, float]
AFTER_EACH = ("batch_size_fn", "adjust_func")  # hooks that are called after each mini-batch


@dataclass
class UpdateSchedule:
    """When to learn, and how much."""

    batch_size: int  # transitions in a mini-batch
    # steps collected for a phase, which goes over all of them; None: a phase after each step
    rollout_steps: int | None
    updates_per_phase: int | None  # mini-batches; None: 1, or `passes` over the pool
    passes: int  # over what was collected
    sync_phases: int | None  # phases between calls of update_param
    sync_updates: int | None  # mini-batches between them instead
    # episodes that end before the phases of all their steps come, one after the other
    store_episodes: int | None = None


class PhaseLearner:
    """Makes a training phase after each step, or after as many as were asked for: mini-batches,
    and then `update_param`.

    fetch: from drawn ids to transitions. relabel: gives them other goals. preprocess: from
    observations to what the loss is given. after_update_param: called with the sampler after
    `update_param`, on_new_rows whenever transitions were added: either may forget some of them.
    """

    block = 1  # a step of each environment at a time: episodes are counted exactly

    def __init__(
        self,
        algorithm: AgentAlgorithm,
        backend: Backend,
        generators: Generators,
        sampler: Sampler,
        schedule: UpdateSchedule,
        *,
        preprocess: Callable[[Tree], Tree],
        relabel: Callable[[np.random.Generator, IntArray, Batch], Batch] | None,
        fetch: Callable[[IntArray], Batch],
        beta: float,
        after_update_param: Callable[[Sampler], None],
    ) -> None:
        self.algorithm, self.backend, self.generators = algorithm, backend, generators
        self.sampler, self.schedule = sampler, schedule
        self.preprocess, self.relabel, self.fetch, self.beta = preprocess, relabel, fetch, beta
        self.after_update_param = after_update_param
        self.on_new_rows: Callable[[Sampler], None] = keep_all
        self.updates = 0  # made so far
        self.phases = 0
        self.left = 0  # of the phases under way that are not drawn yet
        self.together = 1  # phases under way
        self.fresh = 0  # steps since the last phase
        self.ended = 0  # episodes since then
        self.since = sampler.ring.envs  # and since moved numbers went back to their originals
        self.losses: list[float] = []  # of each mini-batch since this was emptied
        self.jit = True
        self._run: Callable[[Batch], Any] | None = None

    @property
    def ring(self) -> Ring:
        return self.sampler.ring

    def is_warmup(self, env_steps: int) -> bool:
        """Returns False: the agent's policy or noise explores from the first step on."""
        return False

    def break_off(self, envs: Sequence[int]) -> None:
        self.ring.break_off(envs)

    def compile_anew(self) -> None:
        """The next update is compiled, whether or not one like it was."""
        self._run = None

    def compile(self, jit: bool) -> None:
        """From now on updates are compiled by XLA, or are not (`jit`)."""
        # each optimizer looks, since weights may have been frozen or thawed
        changed = [o.look() for o in self.algorithm.optimizers]
        if self._run is None or jit != self.jit or any(changed):
            self.jit, self._run = jit, self.backend.compile(self.algorithm.update, jit)
            self.algorithm.constants.forget()

    def learn(self, trajectory: Trajectory, span: Span) -> dict[str, float]:
        """Returns the losses of the updates, averaged; none while there is nothing to learn yet."""
        self.sampler.add(trajectory)
        steps = trajectory.reward.size
        self.fresh += steps
        ended = int(np.count_nonzero(trajectory.last))
        self.ended += ended
        # without a rollout a phase, to rules, is an episode of each environment
        begins, self.since = self.since >= self.ring.envs, self.since + ended
        self.on_new_rows(self.sampler)
        s = self.schedule
        if s.store_episodes:
            early = self.ended < s.store_episodes
        else:
            early = s.rollout_steps is not None and self.fresh < s.rollout_steps
        if early or not self.sampler.ready(s.batch_size):
            return {}
        phases = steps
        if s.rollout_steps is not None:
            phases = 1
        elif s.store_episodes:
            phases = self.fresh
        self.fresh = self.ended = 0
        if begins or s.rollout_steps is not None or s.store_episodes:
            self.since = ended
            self.algorithm.agent.initialize_adjusting()
        # as many phases at once as come before the next update_param
        metrics: list[dict[str, float]] = []
        while phases and self.sampler.ready(s.batch_size):  # windows may leave too few
            together = 1
            if s.sync_phases is not None:
                together = min(phases, s.sync_phases - self.phases % s.sync_phases)
            elif s.sync_updates is not None:
                together = phases
            metrics += self._phase(together)
            phases -= together
        return averaged(metrics)

    def set_updates_per_phase(self, value: float) -> None:
        """From now on a phase has as many mini-batches; the one under way too, unless it has made
        as many already: then nothing changes."""
        s, new = self.schedule, int(value)
        old = s.updates_per_phase or 1
        if self.left:
            if new * self.together <= old * self.together - self.left:
                return
            self.left += (new - old) * self.together
        s.updates_per_phase = new

    def _phase(self, phases: int) -> list[dict[str, float]]:
        """Makes so many phases together, and `update_param` where it is due. Returns the metrics of
        each compiled call."""
        s = self.schedule
        updates = s.updates_per_phase or 1
        if s.updates_per_phase is None and s.rollout_steps is not None:
            updates = max(1, s.passes * len(self.ring) // s.batch_size)
        self.left, self.together = updates * phases, phases
        metrics: list[dict[str, float]] = []
        agent = self.algorithm.agent
        hooked = any(callable(getattr(agent, name, None)) for name in AFTER_EACH)
        while self.left:
            # all of them in one call, or those up to the next update_param or hook
            sync, count = s.sync_updates, 1 if hooked else self.left
            if sync is not None:
                count = min(count, sync - self.updates % sync)
            self.left -= count
            metrics.append(self._call(*self._draw(count)))
            self._adjust()
            if sync is not None and self.updates % sync == 0:
                self._update_param()
                if not self.sampler.ready(s.batch_size):  # it forgot too many for another
                    break
        self.phases += phases
        if s.sync_updates is None and (s.sync_phases is None or self.phases % s.sync_phases == 0):
            self._update_param()
        return metrics

    def _draw(self, updates: int) -> Draw:
        """Returns the rows of so many mini-batches, all of which are in the pool now."""
        beta = np.full(updates, self.beta)
        return self.sampler.draw(self.generators("replay"), updates, self.schedule.batch_size, beta)

    def _call(self, ids: IntArray, weight: Array) -> dict[str, float]:
        """One compiled call of K updates, on the rows ids [K, B]. Returns its metrics."""
        batch = self.fetch(ids)
        if self.relabel is not None:
            batch = self.relabel(self.generators("hindsight"), ids, batch)
        number = self.updates + np.arange(len(ids), dtype=np.float32)
        batch = batch._replace(
            obs=self.preprocess(batch.obs),
            next_obs=self.preprocess(batch.next_obs),
            weight=weight,
            settings={"update": number} | self.algorithm.input_settings(len(ids)),
        )
        if self._run is None or self.algorithm.outdated():
            self.compile_anew()
            self.compile(self.jit)
        assert self._run is not None
        outcome = self._run(batch)
        self.updates += outcome.applied
        metrics = checked(outcome, self.updates)
        self.losses += [float(x) for x in outcome.metrics["loss"]]
        if not isinstance(outcome.priority, tuple):
            self.sampler.update(ids, outcome.priority)
        return metrics

    def _adjust(self) -> None:
        """What the agent may want to change after mini-batches, once the pool holds those of a
        phase."""
        s, agent = self.schedule, self.algorithm.agent
        if len(self.ring) < (s.updates_per_phase or 1) * s.batch_size:
            return
        if (size := getattr(agent, "batch_size_fn", None)) is not None:
            s.batch_size = max(1, min(int(size()), len(self.ring)))
        if (adjust := getattr(agent, "adjust_func", None)) is not None:
            adjust()

    def _update_param(self) -> None:
        self.algorithm.agent.update_param()
        self.after_update_param(self.sampler)

    def state(self, replay: bool) -> State:
        data, arrays = stored(self.ring, self.sampler) if replay else ({}, {})
        data |= {n: getattr(self, n) for n in ("updates", "phases", "fresh", "ended", "since")}
        return data | {"batch": self.schedule.batch_size}, arrays

    def load_state(self, data: JSONDict, arrays: dict[str, AnyArray]) -> None:
        self.updates, self.phases, self.fresh = data["updates"], data["phases"], data["fresh"]
        self.ended, self.since = data.get("ended", 0), data.get("since", self.since)
        self.schedule.batch_size = data["batch"]
        if "ring" in data:
            load_stored(self.ring, self.sampler, *refitted(data, arrays, self.ring))


# Callbacks, and a call of train


class LambdaCallback:
    """A callback made of functions. Any object with some of these methods is one, in
    `agent.callbacks`.

    on_train_begin(logs), on_train_end(logs), on_episode_begin(i, logs), on_episode_end(i, logs)
    with logs["loss"] and logs["reward"], on_batch_begin(b, logs), on_batch_end(b, logs) with
    logs["loss"]. i counts the episodes of this training, b all mini-batches, from 0. Setting
    `agent.stop_training = True` in any of them ends the training.
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
    """Calls the method of that name of every callback that has it."""
    for callback in callbacks:
        if (method := getattr(callback, name, None)) is not None:
            method(*arguments)


class TrainCall:
    """Trains for as many episodes as `train` was told (None: until something ends it), prints as
    many lines, and keeps the agent's records.

    metric: a Keras metric that is given each episode's losses, or None.
    """

    def __init__(
        self,
        agent: AgentMembers,
        loop: Loop,
        actor: AgentActor,
        learner: PhaseLearner,
        arguments: TrainArguments,
        metric: Any,
    ) -> None:
        self.agent, self.loop, self.actor, self.learner = agent, loop, actor, learner
        self.episodes, self.metric = arguments.episodes, metric
        self.every = print_interval(arguments.p, arguments.episodes)
        self.done = 0  # episodes of this call
        self.signal = ""
        self._ended: list[float] = []  # returns of the episodes that ended in the block under way
        self._batches = learner.updates  # that callbacks know of

    def run(
        self, autosave: Autosave, writer: Writer, optimizers: AbstractContextManager[object]
    ) -> np.float32:
        """Returns the mean loss of the last episode, 0 without an update. optimizers: entered while
        they are used."""
        agent, began = self.agent, perf_counter()
        notify(agent.callbacks, "on_train_begin", {})
        try:
            with optimizers, Signals(self._stop), writer:
                try:
                    if not agent.stop_training and not self._enough():
                        self._follow(autosave)
                except WorkerError:
                    if not self.signal:  # else it was to end anyhow
                        autosave.finish()
                        raise
                autosave.finish()
        finally:
            agent.time = perf_counter() - began
            agent.total_time += agent.time
            agent.stop_training = False
        notify(agent.callbacks, "on_train_end", {})
        if self.every:
            print(f"time:{int(agent.time + 0.5)}s")
        if self.signal:
            raise KeyboardInterrupt(self.signal)
        return np.float32(agent.loss if agent.loss is not None else 0.0)

    def _follow(self, autosave: Autosave) -> None:
        """Trains, by following the loop's events until one ends it."""
        agent = self.agent
        for event in self.loop.events():
            if isinstance(event, EpisodeBegin):
                self.actor.restart(event.env)
                number = self.done + len(self._ended)
                notify(agent.callbacks, "on_episode_begin", number, {})
            elif isinstance(event, EpisodeEnd):
                self._ended.append(event.episode.score)
            elif isinstance(event, BatchEnd):
                self._batches_ended(autosave)
                for score in self._ended:
                    self._episode_ended(score, autosave)
                self._ended = []
                if agent.stop_training or self.signal or self._enough():
                    return

    def _batches_ended(self, autosave: Autosave) -> None:
        """Tells callbacks of the mini-batches since the last time, if there were any."""
        learner, callbacks = self.learner, self.agent.callbacks
        new = learner.updates - self._batches
        if not new:
            return
        if callbacks:
            for i in range(new):
                loss = learner.losses[i - new]
                notify(callbacks, "on_batch_begin", self._batches + i, {})
                notify(callbacks, "on_batch_end", self._batches + i, {"loss": loss})
        self._batches = learner.updates
        autosave.batch(learner.updates)

    def _episode_ended(self, score: float, autosave: Autosave) -> None:
        """Keeps the records of an episode, tells callbacks, prints, saves, and looks whether
        training is to end."""
        agent, learner = self.agent, self.learner
        if learner.losses:
            agent._loss = self._mean(learner.losses)
            learner.losses.clear()
        loss = 0.0 if agent.loss is None else agent.loss
        agent.reward_list.append(score)
        agent.loss_list.append(loss)
        agent.total_episode += 1
        self.done += 1
        logs = {"loss": loss, "reward": score} | agent.measured()
        notify(agent.callbacks, "on_episode_end", self.done - 1, logs)
        average, criterion = agent.average_reward(), agent.criterion
        if self.every and (self.done == 1 or self.done % self.every == 0):
            shown = f"reward:{score:g}" if average is None else f"average reward:{average:g}"
            print(f"episode:{agent.total_episode}   loss:{loss:.4f}   {shown}")
        arguments = agent._arguments
        averaged = arguments is not None and arguments.trial_count is not None
        autosave.episode(agent.total_episode, average if averaged else score)
        if average is not None and criterion is not None and average >= criterion:
            agent.stop_training = True
            if self.every:
                print(
                    f"episode:{agent.total_episode}   average reward:{average:g} >= "
                    f"criterion:{criterion:g}"
                )
        if autosave.should_stop:
            agent.stop_training = True

    def _mean(self, losses: list[float]) -> float:
        if self.metric is None:
            return float(np.mean(losses))
        self.metric.reset_state()
        self.metric.update_state(np.array(losses, np.float32))
        return float(self.metric.result())

    def _enough(self) -> bool:
        return self.episodes is not None and self.done >= self.episodes

    def _stop(self, name: str) -> None:
        self.signal = name
        self.loop.collector.environments.request_stop()


def print_interval(p: int | None, episodes: int | None) -> int:
    """Returns every how many episodes a line is printed, for about p lines (10 by default); 0 for
    never."""
    if p == 0:
        return 0
    lines = 10 if p is None else p
    if episodes is None or lines == 1:
        return 10 if episodes is None else max(1, episodes)
    if episodes % 10 == 0:
        return max(1, episodes // lines)
    return max(1, (episodes - episodes % (lines - 1)) // (lines - 1))
