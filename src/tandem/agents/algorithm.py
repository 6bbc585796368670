"""A user's loss as an algorithm of the house."""

from __future__ import annotations

from typing import Any

import numpy as np

from tandem.agents.frozen_constants import Reads
from tandem.agents.reports import PrioritizedReplay
from tandem.algorithms.base import Settings
from tandem.errors import NetworkError
from tandem.spaces import ActionMode
from tandem.types import Array, Batch, Tree, Update, leaves

FOREVER = 2**62  # environment steps: episodes end a training, not steps


class AgentAlgorithm:
    """Trains an agent by its `__call__`, with one optimizer or several.

    reports: the names of what the loss has to tell `prioritized_replay`. extra: whether actions are
    stored in pairs with what `action` gave beside them.
    """

    acting: tuple[str, ...] = ()  # the agent acts by itself
    preparing: tuple[str, ...] = ()

    def __init__(
        self,
        agent: Any,
        backend: Any,
        optimizers: list[Any],
        envs: int,
        gamma: float,
        reports: tuple[str, ...],
        extra: bool,
    ) -> None:
        self.agent, self.backend, self.optimizers, self.reports, self.extra = (
            agent,
            backend,
            optimizers,
            reports,
            extra,
        )
        self.settings = Settings(steps=FOREVER, envs=envs, gamma=gamma)
        self.reads = Reads(agent)
        self._compiles = backend.framework in ("jax", "tensorflow")

    @staticmethod
    def action_mode(settings: Any, action: Any) -> ActionMode:
        """What the agent's `action` gives is the environment's."""
        return "as_is"

    @staticmethod
    def exploration_noise(
        settings: Any, action: Any, rng: Any, shape: tuple[int, ...], progress: Array
    ) -> Tree:
        """Policies and noise processes draw their own."""
        return ()

    def update(self, batch: Batch) -> Update:
        """One step of every optimizer."""
        values, told = self.backend.minimize_joint(
            self.optimizers, self._watched if self._compiles else self.losses, batch
        )
        return Update({"loss": sum(values)}, told or ())

    def losses(self, batch: Batch) -> tuple[list[Array], dict[str, Array]]:
        """What the agent's `__call__` gives, as a list, and what it reported. d is 0 where an
        episode goes on and 1 where it terminated; of n-step transitions 1 - gamma ** (m - 1) where
        it goes on after m steps, so that gamma (1 - d) is the discount of what follows whatever m
        is. NetworkError for a loss that is none."""
        rows = leaves(batch.obs)[0].shape[0]
        replay: PrioritizedReplay = self.agent.prioritized_replay
        replay.begin(batch.weight)
        action = [batch.extra["irl"], batch.action] if self.extra else batch.action
        found = self.agent(
            batch.obs,
            action,
            batch.next_obs,
            batch.reward,
            1.0 - batch.discount / self.settings.gamma,
        )
        losses = list(found) if isinstance(found, (list, tuple)) else [found]
        self._check(losses, rows)
        return losses, replay.taken(self.reports, rows)

    def _check(self, losses: list[Any], rows: int) -> None:
        if self.optimizers and len(losses) not in {1, len(self.optimizers)}:
            raise NetworkError(
                f"__call__ returned {len(losses)} losses for {len(self.optimizers)} optimizers.",
                "one loss, or one for each optimizer in their order",
                "return them as a list, or give as many optimizers.",
            )
        for x in losses:
            if not hasattr(x, "shape") or isinstance(x, np.ndarray):
                raise NetworkError(
                    f"__call__ returned a {type(x).__name__}.",
                    "the loss as a tensor of the agent's framework, which gradients go through",
                    "return the mean of the losses of the samples, or one of each.",
                )
            if tuple(x.shape) not in ((), (rows,)):
                raise NetworkError(
                    f"__call__ returned a loss of shape {tuple(x.shape)} for {rows} samples.",
                    f"one number, (), or one for each sample, ({rows},)",
                    "take the mean, or squeeze the axes that are too many.",
                )

    def _watched(self, batch: Batch) -> tuple[list[Array], dict[str, Array]]:
        """`losses`, while it is compiled."""
        with self.reads.noting():
            return self.losses(batch)
