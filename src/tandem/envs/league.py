"""Who plays against a learner: a random player, and a pool of its past copies. Gymnasium comes only
where a game is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakSet

import numpy as np

from tandem.envs.factory import EnvLike, environment_name, make, random_actions
from tandem.envs.ids import import_gymnasium
from tandem.envs.vector import Arrays
from tandem.errors import ResumeError, SettingError
from tandem.networks.plan import Weights, select
from tandem.spaces import Leaf
from tandem.types import Array, EnvKwargs, JSONDict, Tree


class Player(Protocol):
    """Whoever may sit on the other side; every `Agent` may."""

    def move(self, obs: Tree, state: Tree, rng: np.random.Generator) -> tuple[Array, Tree]:
        """A move for one observation [1, ...], drawn: (actions [1, ...] as the environment takes
        them, what to be given as `state` at the next move); state is None at a game's first."""


class RandomPlayer:
    """Any move that is allowed, each as likely as any other."""

    def __init__(self, action: Leaf) -> None:
        self.action = action

    def move(self, obs: Tree, state: Tree, rng: np.random.Generator) -> tuple[Array, Tree]:
        return random_actions(self.action, 1, rng, obs), None


class League:
    """The opponents of a run: at first a random player, then copies of the learner. Copies are
    numbered from 1, the random player is 0, and the `size` newest of them all play, each as often
    as any other; those that left play their episodes to the end. made: from a copy's weights by
    role to a player."""

    def __init__(self, size: int) -> None:
        self.size, self.copies = size, 0  # copies made so far
        self.made: Callable[[dict[str, Weights]], Player] | None = None
        self._weights: dict[int, dict[str, Weights]] = {}
        self._players: dict[int, Player] = {}
        self._tables: WeakSet[Any] = WeakSet()

    def seat(self, table: Any) -> None:
        """Lets a game draw its opponents here."""
        self._tables.add(table)
        table.league = self

    def add(self, weights: dict[str, Weights]) -> None:
        """One more copy, of these weights, which are kept; whoever is neither among the newest nor
        at play leaves."""
        self.copies += 1
        self._put(self.copies, weights)
        for number in set(self._weights) - self._needed():
            del self._weights[number], self._players[number]

    def draw(self, rng: np.random.Generator, copies: int) -> int:
        """The number of an opponent, as one is drawn when there are so many copies."""
        return int(rng.integers(self._oldest(copies), copies + 1))

    def player(self, number: int) -> Player:
        """Who has that number, from 1 on. ResumeError for one who left."""
        if number not in self._players:
            raise ResumeError(
                f"an episode is against copy {number}, which is missing; the newest is "
                f"{self.copies}.",
                "the league in which the episode began",
                "resume from the run's last.zip.",
            )
        return self._players[number]

    def state(self) -> tuple[JSONDict, Arrays]:
        """Those who play or may be drawn."""
        names = sorted(self._needed() & set(self._weights))
        arrays = {
            f"{n}/{role}/{key}": x
            for n in names
            for role, w in self._weights[n].items()
            for key, x in w.items()
        }
        return {"copies": self.copies, "kept": names}, arrays

    def load_state(self, data: JSONDict, arrays: Arrays) -> None:
        """Those who were there when `state` was asked, and no other."""
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


class LeagueEnvFactory:
    """A callable that makes `env`, which is a `Versus` or becomes one, against the opponents of a
    league."""

    def __init__(self, env: EnvLike, league: League, kwargs: EnvKwargs | None = None) -> None:
        self.env = env
        self.league = league
        self.kwargs = kwargs
        self.__name__ = environment_name(env)

    def __call__(self) -> Any:
        from tandem.envs.versus import Versus  # with Gymnasium, see `import_gymnasium`

        gym = import_gymnasium()
        # of both players' eyes and moves
        unseen = (
            gym.wrappers.OrderEnforcing,
            gym.wrappers.PassiveEnvChecker,
            gym.wrappers.TimeLimit,
        )
        instance = inner = make(self.env, self.kwargs)
        while isinstance(inner, unseen):
            inner = inner.env
        if isinstance(inner, gym.Wrapper) and isinstance(inner.unwrapped, Versus):
            raise SettingError(
                f"{self.__name__} wraps one player's view of the game in {type(inner).__name__}.",
                "an unwrapped view, since the opponents do not see through the wrapper",
                "wrap the game itself before passing it to Versus.",
            )
        if not isinstance(inner, Versus) or inner.opponent is not None:
            why = (
                "there is no other player"
                if not isinstance(inner, Versus)
                else "the opponent is already set"
            )
            raise SettingError(
                f"opponents are not supported in {self.__name__}: {why}.",
                "a two-player turn-based game with PettingZoo's AEC interface, or an id such as "
                "classic/tictactoe_v3",
                "give such a game, or leave opponents out.",
            )
        self.league.seat(inner)
        return instance
