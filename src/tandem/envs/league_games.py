"""Games against a league's players."""

from __future__ import annotations

from typing import Any

from tandem.envs.factory import EnvLike, environment_name, make
from tandem.envs.ids import import_gymnasium
from tandem.envs.league import League
from tandem.errors import SettingError
from tandem.types import EnvKwargs


class LeagueEnvFactory:
    """Factory of `env`, which is or becomes a `Versus`, with opponents from a league."""

    def __init__(self, env: EnvLike, league: League, kwargs: EnvKwargs | None = None) -> None:
        self.env = env
        self.league = league
        self.kwargs = kwargs
        self.__name__ = environment_name(env)

    def __call__(self) -> Any:
        from tandem.envs.versus import Versus  # imports Gymnasium, see `import_gymnasium`

        gym = import_gymnasium()
        # wrappers that change neither player's observations nor moves
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
