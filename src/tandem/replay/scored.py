"""Priorities computed from the terms that a loss reports per sample: the error, and for PPO also
the probability ratio."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tandem.errors import SettingError
from tandem.replay.array_files import fill
from tandem.replay.buffer import Ring
from tandem.replay.samplers import PrioritizedSampler
from tandem.types import AnyArray, IntArray, JSONDict, State, Trajectory


class ScoredSampler(PrioritizedSampler):
    """Proportional prioritized replay by a score of reported terms.

    initial: the terms of new rows until the first report, {"TD": 7.0} or {"TD": 7.0, "ratio": 1.0};
    afterwards new rows get the largest terms reported so far. The score is |TD|, or share * |TD| +
    (1 - share) * |ratio - 1|. Sampling probabilities are proportional to (score + eps) ** alpha,
    without replacement within a batch if the ring has enough rows.
    """

    def __init__(
        self,
        ring: Ring,
        initial: Mapping[str, float],
        *,
        share: float = 0.5,
        alpha: float = 0.7,
        eps: float = 1e-7,
    ) -> None:
        super().__init__(ring, alpha=alpha, eps=eps, distinct=True)
        if not 0 <= share <= 1:
            raise SettingError(f"lambda_={share!r}.", "a share from 0 to 1", "use lambda_=0.5.")
        self.share, self.most = share, dict(initial)
        self._reported = False
        self._terms = {name: np.zeros(ring.slots * ring.envs, np.float32) for name in initial}
        self._set_newest()

    @property
    def alpha(self) -> float:
        return self._priorities.alpha

    def set_alpha(self, alpha: float) -> None:
        """Set the exponent of priorities, also for rows already in the ring."""
        self._catch_up()
        self._priorities.alpha = float(alpha)
        at = self.ring.position(self.ring.rows())
        if at.size:
            score = self._score({name: x.take(at) for name, x in self._terms.items()})
            self._priorities.tree.set(at, self._priorities.powers(score))
        self._set_newest()

    def term(self, name: str) -> AnyArray:
        """Return the term "TD" or "ratio" of the valid rows in the ring, oldest first, float32
        [rows]."""
        self._catch_up()
        return self._terms[name].take(self.ring.position(self.ring.rows()))

    def add(self, trajectory: Trajectory) -> None:
        before = self.ring.newest + 1
        super().add(trajectory)
        new = self.ring.position(np.arange(max(before, self.ring.oldest), self.ring.newest + 1))
        for name, x in self._terms.items():
            x[new] = self.most[name]

    def update(self, ids: IntArray, priority: Any) -> None:
        """Set the terms reported by the loss for rows `ids` [K, B]: {"TD": [K, B], "ratio":
        [K, B]}."""
        terms = {name: np.asarray(priority[name]) for name in self._terms}
        super().update(ids, self._score(terms))
        here = self.ring.contains(ids).ravel()
        at = self.ring.position(ids.ravel()[here])
        for name, x in terms.items():
            size = abs(x)
            self._terms[name][at] = (size if name == "TD" else x).ravel()[here]
            self.most[name] = (
                max(self.most[name], float(size.max())) if self._reported else float(size.max())
            )
        self._reported = True
        self._set_newest()

    def state(self) -> State:
        data, arrays = super().state()
        used = len(arrays["priority"])
        data |= {"most": self.most, "reported": self._reported}
        return data, arrays | {f"term/{name}": x[:used] for name, x in self._terms.items()}

    def load_state(self, meta: JSONDict, arrays: dict[str, AnyArray]) -> None:
        super().load_state(meta, arrays)
        self.most, self._reported = dict(meta["most"]), meta["reported"]
        for name, x in self._terms.items():
            saved = arrays[f"term/{name}"]
            fill(x[: len(saved)], saved)
        self._set_newest()

    def take_over(self, terms: Mapping[str, AnyArray], most: Mapping[str, float]) -> None:
        """Take over another sampler's terms of the rows in the ring, by position, and the largest
        of them. Missing terms get the values of new rows. Load the ring first."""
        self.most |= {name: float(x) for name, x in most.items() if name in self.most}
        self._reported = bool(terms)
        self._set_newest()
        for name, x in self._terms.items():
            known = terms.get(name)
            x[:] = self.most[name]
            if known is not None:
                x[: len(known)] = known
        self._catch_up()
        at = self.ring.position(np.arange(self.ring.oldest, self.ring.newest + 1))
        if terms and (at := at[self.ring.valid.take(at)]).size:
            score = self._score({name: x[at] for name, x in self._terms.items()})
            self._priorities.tree.set(at, self._priorities.powers(score))

    def _score(self, terms: Mapping[str, Any]) -> Any:
        if "ratio" not in terms:
            return abs(terms["TD"])
        return self.share * abs(terms["TD"]) + (1 - self.share) * abs(terms["ratio"] - 1)

    def _set_newest(self) -> None:
        """Set the priority of new rows to the score of the largest terms."""
        self._priorities.largest = float(
            self._priorities.powers(self._score({n: np.array(x) for n, x in self.most.items()}))[0]
        )
