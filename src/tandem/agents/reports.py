"""What a user's loss says of its samples while it is computed: it is an output of the compiled
update, not a side effect."""

from __future__ import annotations

from typing import Any

import numpy as np

from tandem import ops
from tandem.errors import SettingError
from tandem.types import Array


class PrioritizedReplay:
    """`agent.prioritized_replay`: where a loss reports errors, and for PPO ratios, and reads
    importance weights.

    weight: in a loss, the importance weight of each sample, [B]. A loss of one number per sample is
    weighted by the library; one that is a mean already can do it by itself.
    """

    def __init__(self) -> None:
        self.weight: Array = ()
        self.sampler: Any = None  # of the training under way, or the last one
        self._told: dict[str, Array] = {}

    def update(self, TD: Array, ratio: Array | None = None) -> None:
        """In a loss: the errors of its samples, [B] or [B, 1], and for PPO the ratios of
        probabilities."""
        self._told = {"TD": TD} if ratio is None else {"TD": TD, "ratio": ratio}

    update_TD = update

    @property
    def TD(self) -> np.ndarray[Any, Any]:
        """The error that was reported last of each transition in the pool, the oldest first;
        float32 [n]."""
        return self._term("TD")

    @property
    def ratio(self) -> np.ndarray[Any, Any]:
        """The ratio that was reported last of each transition in the pool, the oldest first;
        float32 [n]."""
        return self._term("ratio")

    def powers(self) -> np.ndarray[Any, Any]:
        """(score + epsilon) ** alpha of each transition in the pool: what draws go by; float64
        [n]."""
        self._term("TD")
        found: np.ndarray[Any, Any] = self.sampler.powers
        return found

    def _term(self, name: str) -> np.ndarray[Any, Any]:
        if self.sampler is None or not hasattr(self.sampler, "term"):
            raise SettingError(
                "there are no priorities.",
                "an agent that is trained with PR=True",
                "call set(PR=True, ...) first.",
            )
        found: np.ndarray[Any, Any] = self.sampler.term(name)
        return found

    def begin(self, weight: Array) -> None:
        """A loss is about to be computed."""
        self.weight, self._told = weight, {}

    def taken(self, names: tuple[str, ...], rows: int) -> dict[str, Array]:
        """What the loss has told, [rows] each, without gradients. SettingError where it is not what
        priorities are made of."""
        told, self._told, self.weight = self._told, {}, ()
        if not names:
            return {}
        if set(told) != set(names):
            raise SettingError(
                f"the loss reported {', '.join(told) or 'nothing'} to prioritized_replay.",
                f"{' and '.join(names)} of each sample",
                f"call self.prioritized_replay.update({', '.join(names)}) in __call__, before it "
                "returns.",
            )
        for name, x in told.items():
            if tuple(x.shape) not in ((rows,), (rows, 1)):
                raise SettingError(
                    f"{name} has shape {tuple(x.shape)} for {rows} samples.",
                    f"one for each: ({rows},)",
                    "report it before the mean.",
                )
        return {
            name: ops.of(x).stop_gradient(ops.of(x).reshape(x, (rows,))) for name, x in told.items()
        }
