"""The learner for sequences, which are used once when new and again from a replay buffer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tandem.algorithms.base import Call, Forward
from tandem.algorithms.on_sequences import OnSequences
from tandem.learning import fits, normalization
from tandem.learning.learners import Learner, Span, averaged
from tandem.learning.seeds import Generators
from tandem.networks.recurrent import state_size
from tandem.replay.sequences import SequenceBuffer
from tandem.types import Array, Batch, JSONDict, Trajectory, Tree, tree_map


def buffer_for(algorithm: OnSequences, observation: Tree, action: Any) -> SequenceBuffer | None:
    """Return the replay buffer for the algorithm's settings, or None without replay."""
    s = algorithm.settings
    if s.replay == "none":
        return None
    number, flag = ((), "float32"), ((), "bool")
    columns = {
        "action": (action.shape, action.dtype),
        "reward": number,
        "discount": number,
        "weight": number,
    }
    columns |= {"last": flag, "cut": number} | {
        n: (x, "float32") for n, x in algorithm.behavior(action).items()
    }
    if s.recurrent:
        columns |= {"start": number, "net_state": ((state_size(s),), "float32")}
    alpha = s.priority_alpha if s.replay == "prioritized" else None
    return SequenceBuffer(
        s.replay_size, s.rollout, observation, columns, alpha=alpha, evict=s.evict
    )


class SequenceLearner(Learner):
    """Makes one update on each block of new sequences, then a random number of updates on replayed
    ones."""

    def __init__(
        self,
        algorithm: OnSequences,
        backend: Any,
        observation: Tree,
        action: Any,
        generators: Generators,
        networks: dict[str, Forward],
    ) -> None:
        super().__init__(algorithm, backend, generators)
        s, self.networks = self.settings, networks
        self.pending = 0  # pending updates on replayed sequences after the latest block
        fits.sequences(s, backend.devices)
        self.buffer = buffer_for(algorithm, observation, action)
        statistics = normalization.statistics(s, observation, backend.networks)
        self._observations, self._rewards = statistics
        self._run = backend.compile(algorithm.update)

    def break_off(self, envs: Sequence[int]) -> None:
        if self._rewards:
            self._rewards.break_off(envs)

    def learn(self, trajectory: Trajectory, span: Span) -> dict[str, float]:
        """Learn from a block, and return the averaged metrics; empty if there was no update."""
        metrics = list(self.rounds(trajectory, span))
        return averaged(metrics) if metrics else {}

    def rounds(self, trajectory: Trajectory, span: Span) -> Iterator[dict[str, float]]:
        """Yield the metrics of each update of `learn`. The buffer stores raw data: each update
        scales rewards by the statistics at that time, and observations by those that the actors of
        the newest sequences used."""
        s, data = self.settings, self.algorithm.prepare(trajectory, self.networks)
        if self._rewards:
            self._rewards.add(trajectory)
        cut, after = data.extra["cut"], data.extra.pop("after")
        if self.buffer is not None:
            rng = self.generators("replay")
            self.buffer.add(data._replace(weight=data.weight * (1 - cut)), rng)
            self.pending = (
                int(rng.poisson(s.replay_ratio)) if len(self.buffer) >= s.replay_starts else 0
            )
        if s.online:
            fresh = data._replace(
                reward=self._scaled(data.reward) + after,
                extra={**data.extra, "cut": np.zeros_like(cut)},
            )
            yield self._update(fresh, np.ones(s.envs, np.float32), span)[0]
        yield from self.replays(span)
        if self._observations:
            self._observations.add(trajectory)
            self._observations.publish()

    def _scaled(self, reward: Array) -> Array:
        return self._rewards.scaled(reward) if self._rewards else reward

    def replays(self, span: Span) -> Iterator[dict[str, float]]:
        """Make the `pending` updates, and yield the metrics of each."""
        s, rng = self.settings, self.generators("replay")
        while self.pending:
            assert self.buffer is not None
            self.pending -= 1
            drawn = self.buffer.draw(
                rng, s.envs, float(s.priority_beta(np.array([span.progress]))[0])
            )
            batch = drawn.batch._replace(reward=self._scaled(drawn.batch.reward))
            metrics, priority = self._update(batch, drawn.importance, span, redrawn=s.noisy != "no")
            if not isinstance(priority, tuple):
                self.buffer.update(drawn.slots, priority[0])
            yield metrics

    def _update(
        self, sequences: Batch, importance: Array, span: Span, redrawn: bool = False
    ) -> tuple[dict[str, float], Array]:
        """Make one update on sequences [T + 1, B, ...], and return its metrics and the sequences'
        new priorities. New sequences use the noise of noisy networks that they were collected with;
        with `redrawn`, the noise is resampled."""
        valid = sequences.weight
        batch = sequences._replace(
            weight=valid * importance, extra={**sequences.extra, "valid": valid}
        )
        rows = tree_map(lambda x: x.reshape(1, -1, *x.shape[2:]), batch)
        schedule = self.algorithm.schedule(
            Call(np.full(1, span.progress), span.begin, span.end, self.updates)
        )
        if redrawn:
            schedule |= self.backend.noise(
                self.settings.noisy, self.generators("noise/learning"), 1
            )
        outcome = self._run(rows._replace(settings=schedule))
        return self._count_updates(outcome), outcome.priority

    def state(self, replay: bool) -> tuple[JSONDict, dict[str, Array]]:
        data: JSONDict = {"updates": self.updates, "owed": self.pending}
        statistics = normalization.state(self._observations, self._rewards)
        if not replay or self.buffer is None:
            return data, statistics
        data["buffer"], arrays = self.buffer.state()
        return data, arrays | statistics

    def load_state(self, data: JSONDict, arrays: dict[str, Array]) -> None:
        self.updates, self.pending = data["updates"], data.get("owed", 0)
        normalization.load_state(self._observations, self._rewards, arrays)
        if self.buffer is not None:
            self.buffer.load_state(data["buffer"], arrays)
