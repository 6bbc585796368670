"""An environment whose reward nobody finds who does not look for it."""

from __future__ import annotations

from tandem.testing.environments import Action, Chain


class Lock(Chain):
    """A combination lock: states 0 to n - 1 in a row, from 0. One of the two actions, another in
    each state, leads to the next, the other one back to 0. Reaching the last one pays 1 and
    terminates; all else pays 0. Cut after 4 n steps.

    By chance that takes 2 ** n - 2 steps on average, without the cut. optimum = 1; value of state s
    = gamma ** (n - 2 - s).
    """

    def __init__(self, n: int = 20) -> None:
        super().__init__(n)
        self.length = 4 * n
        self.combination = [(s * s + s // 3) % 2 for s in range(n)]

    def play(self, action: Action) -> tuple[float, bool]:
        self.place = self.place + 1 if action == self.combination[self.place] else 0
        there = self.place == self.n - 1
        return float(there), there
