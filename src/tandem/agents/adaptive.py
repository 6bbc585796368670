"""What of an agent's training may follow its effective sample size or its gradient noise."""

from __future__ import annotations

from tandem.agents.contract import AgentMembers
from tandem.math.effective import effective_sample_size, rows_to_drop, smoothed


class AdaptiveMethods(AgentMembers):
    """What the hooks of a subclass, or its callbacks, may call to adapt the training."""

    def adjust_window_size(
        self, p: int | None = None, scale: float = 1.0, smooth_alpha: float = 0.2
    ) -> int:
        """Returns how many of the oldest transitions to drop, so that as many stay as their
        effective sample size says: n - clip(int(E scale), 1, n - 1), where E is the exponential
        moving average of 1 / sum p ** 2 over the calls, and p the priorities. 0 for fewer than two.
        Changes nothing in the pool.

        p: the number of a process: then n, E and p are of its environments' transitions; None for
        the whole pool.
        """
        powers = self.prioritized_replay.powers(p)
        if len(powers) < 2:
            return 0
        if p is None and len(self.prioritized_replay.columns) == 1:
            p = 0
        size = smoothed(self._sample_sizes.get(p), effective_sample_size(powers), smooth_alpha)
        self._sample_sizes[p] = size
        return rows_to_drop(size, len(powers), scale)
