"""The user's own loop over minibatches, `CTL`, in place of a compiled call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tandem.backends.backend import Outcome
from tandem.errors import SettingError
from tandem.types import Array, Batch, Tree, tree_map


class MiniBatch(tuple[Any, ...]):
    """Inputs of the loss for a minibatch: (s, a, next_s, r, d)."""

    batch: Batch  # the full minibatch, [1, B, ...]


class CustomLoop:
    """Loop that calls the agent's `CTL` with minibatches, and makes an update for each one passed
    to `distributed_train_step`."""

    def __init__(self, agent: Any, gamma: float, irl: bool) -> None:
        self.agent, self.gamma, self.irl = agent, gamma, irl
        self._run: Callable[[Batch], Outcome] | None = None  # set during a call
        self._outcomes: list[Outcome] = []

    def __call__(self, run: Callable[[Batch], Outcome], batch: Batch) -> Outcome:
        """Return the equivalent of `run(batch)` for batches [K, B, ...], with the mean loss from
        `CTL` as losses. Raises SettingError if the number of updates differs from the number of
        minibatches."""
        count = len(next(iter(batch.settings.values())))
        self._run, self._outcomes = run, []
        try:
            total, batches = self.agent.CTL([self._inputs(batch, k) for k in range(count)])
        finally:
            self._run = None
        if len(self._outcomes) != count:
            raise SettingError(
                f"{type(self.agent).__name__}.CTL made {len(self._outcomes)} updates for {count} "
                "minibatches.",
                "one update per minibatch, so that all workers make equally many",
                "call self.distributed_train_step(inputs) once per minibatch.",
            )
        whole: Outcome = _joined(self._outcomes)
        loss = np.full(len(whole.metrics["loss"]), float(total) / max(1, int(batches)), np.float32)
        return whole._replace(metrics={**whole.metrics, "loss": loss})

    def step(self, inputs: object) -> float:
        """Make an update with one of the minibatches. Return its loss."""
        if self._run is None or not isinstance(inputs, MiniBatch):
            raise SettingError(
                f"distributed_train_step was given a {type(inputs).__name__}"
                f"{'' if self._run else ' outside of CTL'}.",
                "an item of CTL's argument, unchanged, while CTL runs",
                "for inputs in multi_worker_dataset: self.distributed_train_step(inputs)",
            )
        outcome = self._run(inputs.batch)
        self._outcomes.append(outcome)
        return float(outcome.metrics["loss"][-1])

    def _inputs(self, batch: Batch, k: int) -> MiniBatch:
        one = tree_map(lambda x: x[k], batch)
        action: Tree = [one.extra["irl"], one.action] if self.irl else one.action
        done: Array = 1.0 - one.discount / self.gamma
        inputs = MiniBatch((one.obs, action, one.next_obs, one.reward, done))
        inputs.batch = tree_map(lambda x: x[k : k + 1], batch)
        return inputs


def _joined(outcomes: list[Outcome]) -> Outcome:
    """Concatenate the outcomes of consecutive updates, up to the first that was not finite."""
    until = next((i + 1 for i, o in enumerate(outcomes) if o.fault), len(outcomes))
    made = outcomes[:until]
    rows = [o.priority for o in made]
    return Outcome(
        {n: np.concatenate([o.metrics[n] for o in made]) for n in made[0].metrics},
        rows[0] if isinstance(rows[0], tuple) else tree_map(lambda *x: np.concatenate(x), *rows),
        sum(o.applied for o in made),
        False,
        made[-1].fault,
    )
