"""One call of `train`: a user's agent, the loop, and all that looks on."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from tandem.agents.assembly import Assembly
from tandem.agents.callbacks import tell
from tandem.errors import WorkerError
from tandem.learning.events import BatchEnd, EpisodeBegin, EpisodeEnd
from tandem.runs.signals import Signals


class TrainCall:
    """Trains for `episodes` episodes (None: until something ends it), and keeps the agent's
    records.

    metric: a Keras metric that is given each episode's losses, or None. p: how many lines are
      printed, 0 for none.
    """

    def __init__(
        self, agent: Any, assembly: Assembly, episodes: int | None, metric: Any, p: int | None
    ) -> None:
        self.agent, self.assembly, self.episodes, self.metric = agent, assembly, episodes, metric
        self.every = cadence(p, episodes)
        self.done = 0  # episodes of this call
        self.signal = ""
        self._ended: list[float] = []  # returns of the episodes that ended in the block under way
        self._batches = assembly.learner.updates  # that callbacks know of

    def run(self, saving: Any, writer: Any) -> np.float32:
        """The mean loss of the last episode, 0 without an update."""
        agent, began = self.agent, perf_counter()
        tell(agent.callbacks, "on_train_begin", {})
        try:
            with self.assembly, Signals(self._stop), writer:
                try:
                    if not agent.stop_training and not self._enough():
                        self._events(saving)
                except WorkerError:
                    if not self.signal:  # else it was to end anyhow
                        saving.finish()
                        raise
                saving.finish()
        finally:
            agent.time = perf_counter() - began
            agent.total_time += agent.time
            agent.stop_training = False
        tell(agent.callbacks, "on_train_end", {})
        if self.every:
            print(f"time:{int(agent.time + 0.5)}s")
        if self.signal:
            raise KeyboardInterrupt(self.signal)
        return np.float32(agent.loss if agent.loss is not None else 0.0)

    def _events(self, saving: Any) -> None:
        for event in self.assembly.loop.events():
            if isinstance(event, EpisodeBegin):
                self.assembly.actor.restart(event.env)
                tell(self.agent.callbacks, "on_episode_begin", self.done + len(self._ended), {})
            elif isinstance(event, EpisodeEnd):
                self._ended.append(event.episode.score)
            elif isinstance(event, BatchEnd):
                self._batch_ended(saving)
                for score in self._ended:
                    self._episode_ended(score, saving)
                self._ended = []
                if self.agent.stop_training or self.signal or self._enough():
                    return

    def _batch_ended(self, saving: Any) -> None:
        learner, agent = self.assembly.learner, self.agent
        made, losses = learner.updates - self._batches, learner.losses
        if not made:
            return
        if agent.callbacks:
            for i in range(made):
                tell(agent.callbacks, "on_batch_begin", self._batches + i, {})
                tell(agent.callbacks, "on_batch_end", self._batches + i, {"loss": losses[i - made]})
        self._batches = learner.updates
        saving.batch(learner.updates)

    def _episode_ended(self, score: float, saving: Any) -> None:
        agent, learner = self.agent, self.assembly.learner
        if learner.losses:
            agent._loss = self._mean(learner.losses)
            learner.losses.clear()
        agent.reward_list.append(score)
        agent.loss_list.append(0.0 if agent.loss is None else agent.loss)
        agent.total_episode += 1
        self.done += 1
        loss = agent.loss_list[-1]
        tell(agent.callbacks, "on_episode_end", self.done - 1, {"loss": loss, "reward": score})
        average = agent.average_reward()
        if self.every and (self.done == 1 or self.done % self.every == 0):
            shown = f"reward:{score:g}" if average is None else f"average reward:{average:g}"
            print(f"episode:{agent.total_episode}   loss:{loss:.4f}   {shown}")
        saving.episode(
            agent.total_episode, score if self.assembly.choices.trial_count is None else average
        )
        if average is not None and agent.criterion is not None and average >= agent.criterion:
            agent.stop_training = True
            if self.every:
                print(
                    f"episode:{agent.total_episode}   average reward:{average:g} >= "
                    f"criterion:{agent.criterion:g}"
                )
        if saving.should_stop:
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
        self.assembly.environments.request_stop()


def cadence(p: int | None, episodes: int | None) -> int:
    """Every how many episodes a line is printed, for about p lines (10 by default); 0 for never."""
    if p == 0:
        return 0
    lines = 10 if p is None else p
    if episodes is None or lines == 1:
        return 10 if episodes is None else max(1, episodes)
    each = (
        episodes // lines
        if episodes % 10 == 0
        else (episodes - episodes % (lines - 1)) // (lines - 1)
    )
    return max(1, each)
