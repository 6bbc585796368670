"""Games of two players who move in turn, as one of them sees them: the other one moves within `reset` and `step`. All that is
drawn for an episode, the side, the opponent and its moves, follows from the episode's seed; so what steps, saves and resumes
environments does so for games.

Opponents that are past copies: Silver et al. 2016, "Mastering the game of Go with deep neural networks and tree search",
section "Reinforcement learning of policy networks"; Bansal et al. 2018, arXiv:1710.03748, "Opponent sampling".
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from weakref import WeakSet

import gymnasium
import numpy as np
from gymnasium import spaces, wrappers

from tandem.collect.environments import environment_name, make, random_actions
from tandem.collect.vector import Arrays, Json
from tandem.errors import EngineError, EnvironmentFault, ResumeError, SettingError, SpaceError, UnknownNameError
from tandem.networks.plan import Weights, select
from tandem.spaces import MASK, Leaf, action_leaf, observation_spec
from tandem.types import Array, Tree, tree_map

ANEW = 1000  # games in a row that may end before the learner's first turn
UNSEEN = (wrappers.OrderEnforcing, wrappers.PassiveEnvChecker, wrappers.TimeLimit)  # change nothing that a player sees or does
CLASSIC = ("chess_v6", "connect_four_v3", "go_v5", "leduc_holdem_v4", "texas_holdem_v4", "tictactoe_v3")  # some of PettingZoo's


class Player(Protocol):
    """Whoever may sit on the other side; every `Agent` may."""

    def play(self, obs: Tree, state: Any, rng: np.random.Generator) -> tuple[Array, Any]:
        """A move for one observation [1, ...], drawn: (actions [1, ...] as the environment takes them, what to be given as
        `state` at the next move); state is None at a game's first."""


class Chance:
    """Any move that is allowed, each as likely as any other."""

    def __init__(self, action: Leaf) -> None:
        self.action = action

    def play(self, obs: Tree, state: Any, rng: np.random.Generator) -> tuple[Array, Any]:
        return random_actions(self.action, 1, rng, obs), None


class League:
    """The opponents of a run: at first a random player, then copies of the learner. Copies are numbered from 1, the random
    player is 0, and the `size` newest of them all play, each as often as any other; those that left play their episodes to the
    end. made: from a copy's weights by role to a player."""

    def __init__(self, size: int) -> None:
        self.size, self.copies = size, 0  # copies made so far
        self.made: Callable[[dict[str, Weights]], Player] | None = None
        self._weights: dict[int, dict[str, Weights]] = {}
        self._players: dict[int, Player] = {}
        self._tables: WeakSet[Versus] = WeakSet()

    def seat(self, table: Versus) -> None:
        """Lets a game draw its opponents here."""
        self._tables.add(table)
        table.league = self

    def add(self, weights: dict[str, Weights]) -> None:
        """One more copy, of these weights, which are kept; whoever is neither among the newest nor at play leaves."""
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
                f"an episode is against copy {number}, which is not there; the newest is {self.copies}.",
                "the league that the episode began in",
                "resume from the run's last.zip.",
            )
        return self._players[number]

    def state(self) -> tuple[Json, Arrays]:
        """Those who play or may be drawn."""
        kept = sorted(self._needed() & set(self._weights))
        arrays = {f"{n}/{role}/{key}": x for n in kept for role, w in self._weights[n].items() for key, x in w.items()}
        return {"copies": self.copies, "kept": kept}, arrays

    def load_state(self, data: Json, arrays: Arrays) -> None:
        """Those who were there when `state` was asked, and no other."""
        self.copies, self._weights, self._players = data["copies"], {}, {}
        for number in data["kept"]:
            of_it = select(arrays, str(number))
            self._put(number, {role: select(of_it, role) for role in dict.fromkeys(key.split("/")[0] for key in of_it)})

    def _put(self, number: int, weights: dict[str, Weights]) -> None:
        assert self.made is not None
        self._weights[number], self._players[number] = weights, self.made(weights)

    def _oldest(self, copies: int) -> int:
        return max(0, copies - self.size + 1)

    def _needed(self) -> set[int]:
        return {*range(self._oldest(self.copies), self.copies + 1), *(table.number for table in self._tables)}


class Versus(gymnasium.Env):  # type: ignore[misc]
    """One player's view of a game with PettingZoo's AEC interface: two players with equal spaces, who move one after the other.

    env: the game. opponent: who plays the other side: an `Agent`, or whoever has its `play`; None for a random player, or for
    those of a `League`. side: which of `possible_agents` is the learner, 0 or 1; None draws it for each episode.

    Observations are what the game's `observe` gives: its entry "observation", beside the entry `action_mask` (int8 [C], from
    the same Dict or from infos) where there are masks; without them, the observation itself. Boxes of other numbers than
    floats and bytes come as float32. What ends an episode need have no mask: it is all ones there.
    The reward is the sum of all that the learner is paid until its next turn, or the end, whoever's move brings it. A game that
    ends before the learner's first turn is not an episode: another one is played. The episode is truncated where the game says
    so of the learner. Infos say the learner's `side`, by name, and the number of its `opponent` (0: not of a league).

    Raises SettingError and SpaceError for games that are not of this kind; EnvironmentFault where no mask or no turn comes.
    """

    def __init__(self, env: Any, opponent: Player | None = None, side: int | None = None) -> None:
        _check(env, side)
        self.inner, self.names, self._side = env, list(env.possible_agents), side
        self.metadata = dict(getattr(env, "metadata", None) or {"render_modes": []})
        self.render_mode = getattr(env, "render_mode", None)
        self.opponent = opponent
        self.league: League | None = None
        self.number = self.copies = self.side = 0  # of the opponent; of the league when the episode began; of the learner
        space, self.action_space = (ask(self.names[0]) for ask in (env.observation_space, env.action_space))
        self._apart = isinstance(space, spaces.Dict) and "observation" in space.spaces
        shown = space["observation"] if self._apart else space
        self._cast = isinstance(shown, spaces.Box) and not (shown.dtype == np.uint8 or np.issubdtype(shown.dtype, np.floating))
        if self._cast:
            low, high = (np.asarray(bound, np.float32) for bound in (shown.low, shown.high))
            shown = spaces.Box(low, high, dtype=np.float32)
        self.masked = self._gives_masks(space)
        if self.masked:
            bits = spaces.MultiBinary(int(self.action_space.n))
            shown = spaces.Dict({"observation": shown, MASK: bits})
        self.observation_space = shown
        self.action = action_leaf(self.action_space, observation_spec(self.observation_space))
        self._chance = Chance(self.action)

    @property
    def resume_options(self) -> dict[str, Any] | None:
        """What `reset(options=)` has to be given, beside the seed, to begin the running episode again."""
        return None if self.league is None else {"copies": self.copies}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        others = dict(options or {})
        copies = others.pop("copies", None)
        self.side = int(self.np_random.integers(2)) if self._side is None else self._side
        self._playing = self.opponent or self._chance
        if self.league is not None:
            self.copies = self.league.copies if copies is None else copies
            self.number = self.league.draw(self.np_random, self.copies)
            self._playing = self.league.player(self.number) if self.number else self._chance
        for _ in range(ANEW):
            self.inner.reset(seed=int(self.np_random.integers(2**31)), options=others or None)
            self._gained, self._state = 0.0, None
            if not self._wait():
                return self._seen(self._me), self._info
        raise EnvironmentFault(
            f"{ANEW} games of {type(self.inner).__name__} in a row ended before {self._me} had a turn.",
            "games in which both players move",
            "look at the game's rules for its beginning.",
        )

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._take(action)
        over = self._wait()
        reward, self._gained = self._gained, 0.0
        cut = over and self.inner.truncations.get(self._me, False) and not self.inner.terminations.get(self._me, False)
        return self._seen(self._me, over), reward, over and not cut, cut, self._info

    def render(self) -> Any:
        return self.inner.render()

    def close(self) -> None:
        self.inner.close()

    @property
    def _me(self) -> str:
        return str(self.names[self.side])

    @property
    def _info(self) -> dict[str, Any]:
        return {"side": self._me, "opponent": self.number}

    def _over(self) -> bool:
        game, me = self.inner, self._me
        return me not in game.agents or game.terminations[me] or game.truncations[me]

    def _wait(self) -> bool:
        """Lets the opponent move until it is the learner's turn; whether the learner's game is over instead."""
        game = self.inner
        while not self._over():
            who = game.agent_selection
            if who == self._me:
                return False
            if game.terminations[who] or game.truncations[who]:
                self._take(None)  # it leaves, as AEC has it
                continue
            obs = tree_map(lambda x: np.asarray(x)[None], self._seen(who))
            moves, self._state = self._playing.play(obs, self._state, self.np_random)
            self._take(moves[0])
        return True

    def _take(self, action: Any) -> None:
        given = action if action is None or self.action.kind == "box" else np.asarray(action).tolist()
        self.inner.step(given)
        self._gained += float(self.inner.rewards.get(self._me, 0.0))

    def _seen(self, name: str, over: bool = False) -> Any:
        """What a player observes, as the space has it."""
        given = self.inner.observe(name)
        shown = given["observation"] if self._apart else given
        shown = np.asarray(shown, np.float32) if self._cast else shown
        if not self.masked:
            return shown
        if over:
            return {"observation": shown, MASK: np.ones(self.action.width, np.int8)}
        mask = given.get(MASK) if self._apart else None
        mask = self.inner.infos.get(name, {}).get(MASK) if mask is None else mask
        if mask is None:
            raise EnvironmentFault(
                f"{type(self.inner).__name__} gave {name} no {MASK!r} at its turn, and had one before.",
                "a mask at every turn",
                "give it beside the observation, or in infos.",
            )
        return {"observation": shown, MASK: (np.asarray(mask) != 0).astype(np.int8)}

    def _gives_masks(self, space: Any) -> bool:
        """Whether there are masks beside the observations, or in infos after a reset."""
        if not isinstance(self.action_space, spaces.Discrete):
            return False
        if isinstance(space, spaces.Dict):
            return self._apart and MASK in space.spaces
        self.inner.reset(seed=0)
        return MASK in self.inner.infos.get(self.inner.agent_selection, {})


class Game:
    """A callable that makes `env`, which is a `Versus` or becomes one, against the opponents of a league."""

    def __init__(self, env: Any, league: League, kwargs: Mapping[str, Any] | None = None) -> None:
        self.env, self.league, self.kwargs, self.__name__ = env, league, kwargs, environment_name(env)

    def __call__(self) -> Any:
        made = inner = make(self.env, self.kwargs)
        while isinstance(inner, UNSEEN):
            inner = inner.env
        if isinstance(inner, gymnasium.Wrapper) and isinstance(inner.unwrapped, Versus):
            raise SettingError(
                f"{self.__name__} has {type(inner).__name__} around what one player sees of the game.",
                "the game as its own, since its opponents do not see through what is around one player",
                "change the game itself before it is given to Versus.",
            )
        if not isinstance(inner, Versus) or inner.opponent is not None:
            why = "nobody else plays" if not isinstance(inner, Versus) else "the opponent is chosen already"
            raise SettingError(
                f"opponents were asked for in {self.__name__}, where {why}.",
                "a game of two who move in turn, with PettingZoo's AEC interface, or an id such as classic/tictactoe_v3",
                "give such a game, or leave opponents out.",
            )
        self.league.seat(inner)
        return made


def in_turn(env: Any) -> bool:
    """Whether this is a game with PettingZoo's AEC interface."""
    return hasattr(env, "possible_agents") and callable(getattr(env, "observe", None))


def classic(name: str, kwargs: Mapping[str, Any] | None = None) -> Versus:
    """One of PettingZoo's classic games by its id, classic/NAME, against a random player. EngineError where PettingZoo or what
    the game needs is not installed, UnknownNameError for a game that there is not."""
    module = f"pettingzoo.{name.replace('/', '.')}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of importing a game, by which PettingZoo means its own API
            found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise EngineError(
                f"the game {name!r} needs {error.name}, which is not installed here.",
                "PettingZoo, and what the game itself is played by",
                "pip install 'tandem-rl[marl]', or 'pettingzoo[classic]' for what single games need",
            ) from error
        found = error
    if not hasattr(found, "env"):
        raise UnknownNameError("game", name, [f"classic/{game}" for game in CLASSIC])
    return Versus(found.env(**dict(kwargs or {})))


def _check(env: Any, side: int | None) -> None:
    """Refuses what is no game of two equal players in turn."""
    name = type(env).__name__
    if not in_turn(env):
        raise SettingError(
            f"{name} has no possible_agents or no observe.",
            "a game with PettingZoo's AEC interface",
            "give tandem.train an environment of one agent as it is; agents that move together are for tandem.collect.team.",
        )
    if len(env.possible_agents) != 2:
        raise SettingError(
            f"{name} has {len(env.possible_agents)} players: {', '.join(map(str, env.possible_agents))}.",
            "two",
            "give a game of two, or make the others a part of the game.",
        )
    if (getattr(env, "metadata", None) or {}).get("is_parallelizable", False):
        raise SettingError(
            f"the players of {name} move together.",
            "players who move one after the other",
            "give it to tandem.collect.team.team, which has an axis for the agents.",
        )
    if side not in (None, 0, 1):
        raise SettingError(f"side={side!r}.", "0, 1, or None to draw it for each episode", "correct it.")
    first, second = ((env.observation_space(agent), env.action_space(agent)) for agent in env.possible_agents)
    if first != second:
        raise SpaceError(
            f"the players of {name} have the spaces {first} and {second}.",
            "the same for both, since one network plays either side",
            "show and ask both players alike.",
        )
