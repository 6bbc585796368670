"""Opponents of a learner: a random player and a pool of its past copies. Gymnasium is imported only
when a game is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakSet

import numpy as np

from tandem.envs.actions import random_actions
from tandem.envs.vector import Arrays
from tandem.errors import ResumeError
from tandem.networks.plan import Weights, select
from tandem.spaces import Leaf
from tandem.types import Array, JSONDict, Tree


class Player(Protocol):
    """Interface of opponents, which every `Agent` has."""

    def move(self, obs: Tree, state: Tree, rng: np.random.Generator) -> tuple[Array, Tree]:
        """Sample a move for one observation [1, ...]. Return (actions [1, ...] in the environment's
        format, `state` for the next move). state is None at the first move of a game."""


class RandomPlayer:
    """Player that samples valid moves uniformly."""

    def __init__(self, action: Leaf) -> None:
        self.action = action

    def move(self, obs: Tree, state: Tree, rng: np.random.Generator) -> tuple[Array, Tree]:
        return random_actions(self.action, 1, rng, obs), None


class League:
    """Pool of a run's opponents: at first a random player (number 0), then copies of the learner
    (numbered from 1). The `size` newest are sampled uniformly; older ones finish their episodes.
    made: creates a player from a copy's weights by role."""

    def __init__(self, size: int) -> None:
        self.size, self.copies = size, 0  # copies made so far
        self.made: Callable[[dict[str, Weights]], Player] | None = None
        self._weights: dict[int, dict[str, Weights]] = {}
        self._players: dict[int, Player] = {}
        self._tables: WeakSet[Any] = WeakSet()

    def seat(self, table: Any) -> None:
        """Let a game sample its opponents from this league."""
        self._tables.add(table)
        table.league = self

    def add(self, weights: dict[str, Weights]) -> None:
        """Add a copy with these weights, which are stored without copying. Remove copies that are
        neither among the newest nor in a running episode."""
        self.copies += 1
        self._put(self.copies, weights)
        for number in set(self._weights) - self._needed():
            del self._weights[number], self._players[number]

    def draw(self, rng: np.random.Generator, copies: int) -> int:
        """Sample the number of an opponent, given the number of copies."""
        return int(rng.integers(self._oldest(copies), copies + 1))

    def player(self, number: int) -> Player:
        """Return the player with this number, from 1. Raises ResumeError if it was removed."""
        if number not in self._players:
            raise ResumeError(
                f"an episode is against copy {number}, which is missing; the newest is "
                f"{self.copies}.",
                "the league in which the episode began",
                "resume from the run's last.zip.",
            )
        return self._players[number]

    def state(self) -> tuple[JSONDict, Arrays]:
        """Return the state: players that are in running episodes or can be sampled."""
        names = sorted(self._needed() & set(self._weights))
        arrays = {
            f"{n}/{role}/{key}": x
            for n in names
            for role, w in self._weights[n].items()
            for key, x in w.items()
        }
        return {"copies": self.copies, "kept": names}, arrays

    def load_state(self, data: JSONDict, arrays: Arrays) -> None:
        """Restore exactly the players in the result of `state`."""
        self.copies, self._weights, self._players = data["copies"], {}, {}
        for number in data["kept"]:
            of_it = select(arrays, str(number))
            self._put(
                number,
                {
                    role: select(of_it, role)
                    for role in dict.fromkeys(key.split("/")[0] for key in of_it)
                },
            )

    def _put(self, number: int, weights: dict[str, Weights]) -> None:
        assert self.made is not None
        self._weights[number], self._players[number] = weights, self.made(weights)

    def _oldest(self, copies: int) -> int:
        return max(0, copies - self.size + 1)

    def _needed(self) -> set[int]:
        return {
            *range(self._oldest(self.copies), self.copies + 1),
            *(table.number for table in self._tables),
        }
