"""Environment whose reward is found only by directed exploration."""

from __future__ import annotations

from tandem.testing.environments import Action, Chain


class Lock(Chain):
    """Combination lock: states 0 to n - 1 in a row, starting at 0. In each state one of the two
    actions leads to the next state, the other back to 0. Reaching the last state pays 1 and
    terminates; everything else pays 0. Truncated after 4 n steps.

    Random actions take 2 ** n - 2 steps on average without truncation. optimum = 1; value of state
    s = gamma ** (n - 2 - s).
    """

    def __init__(self, n: int = 20) -> None:
        super().__init__(n)
        self.length = 4 * n
        self.combination = [(s * s + s // 3) % 2 for s in range(n)]

    def play(self, action: Action) -> tuple[float, bool]:
        self.place = self.place + 1 if action == self.combination[self.place] else 0
        there = self.place == self.n - 1
        return float(there), there
