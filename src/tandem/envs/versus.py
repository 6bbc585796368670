"""Two-player turn-based games from one player's perspective: the opponent moves within `reset` and
`step`. The side, the opponent and its moves are all sampled from the episode's seed, so stepping,
saving and resuming work as for other environments.

Past copies as opponents: Silver et al. 2016, "Mastering the game of Go with deep neural networks
and tree search", section "Reinforcement learning of policy networks"; Bansal et al. 2018,
arXiv:1710.03748, "Opponent sampling".
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from tandem.envs.calls import has_methods, metadata_of
from tandem.envs.league import League, Player, RandomPlayer
from tandem.envs.pettingzoo import by_id, ids, in_turn, together
from tandem.errors import EnvironmentFault, SettingError, SpaceError, one_of
from tandem.spaces import MASK, action_leaf, observation_spec
from tandem.types import Array, EnvKwargs, Info, JSONDict, Tree, tree_map

ANEW = 1000  # games in a row that may end before the learner's first turn


class Versus(gymnasium.Env):  # type: ignore[misc]
    """One player's view of a game with PettingZoo's AEC interface, with two players who have equal
    spaces and move in turn.

    Observations come from the game's `observe`. With masks, they are a Dict of its entry
    "observation" and `action_mask` (int8 [C], from the same Dict or from infos); without masks, the
    observation itself. Boxes of dtypes other than floats and bytes become float32. The last
    observation of an episode needs no mask: it is all ones there.

    The reward is the sum of the learner's rewards until its next turn or the end, including those
    from the opponent's moves. A game that ends before the learner's first turn is not an episode,
    and another one is started. The episode is truncated if the game truncates the learner. Infos
    contain the learner's `side`, by name, and the number of its `opponent` (0: not from a league).

    Args:
        env: The game.
        opponent: Player of the other side: an `Agent`, or an object with its `move`. None: a random
            player, or those of a `League`.
        side: Index of the learner in `possible_agents`, 0 or 1. None: sampled for each episode.

    Raises:
        SettingError: The game does not have two players in turn, or the opponent is invalid.
        SpaceError: The players' spaces differ.
        EnvironmentFault: A mask is missing, or the learner never has a turn.
    """

    masks_are_observed = True

    def __init__(self, env: Any, opponent: Player | None = None, side: int | None = None) -> None:
        _check(env, side)
        if opponent is not None and not has_methods(opponent, "move"):
            raise SettingError(
                f"opponent={opponent!r}.",
                "an Agent, or an object with its method move(obs, state, rng)",
                "give result.agent of a run, tandem.load(folder), or None for a random player.",
            )
        self.inner, self.names, self._side = env, list(env.possible_agents), side
        self.metadata = dict(metadata_of(env) or {"render_modes": []})
        self.render_mode = getattr(env, "render_mode", None)
        self.opponent = opponent
        self.league: League | None = None
        # opponent's number; league size when the episode began; learner's side
        self.number = self.copies = self.side = 0
        space, self.action_space = (
            ask(self.names[0]) for ask in (env.observation_space, env.action_space)
        )
        self._nested = isinstance(space, spaces.Dict) and "observation" in space.spaces
        shown = space["observation"] if self._nested else space
        self._cast = isinstance(shown, spaces.Box) and not (
            shown.dtype == np.uint8 or np.issubdtype(shown.dtype, np.floating)
        )
        if self._cast:
            low, high = (np.asarray(bound, np.float32) for bound in (shown.low, shown.high))
            shown = spaces.Box(low, high, dtype=np.float32)
        self.masked = self._gives_masks(space)
        if self.masked:
            bits = spaces.MultiBinary(int(self.action_space.n))
            shown = spaces.Dict({"observation": shown, MASK: bits})
        self.observation_space = shown
        self.action = action_leaf(self.action_space, observation_spec(self.observation_space))
        self._chance = RandomPlayer(self.action)

    @property
    def resume_options(self) -> JSONDict | None:
        """The `options` of `reset` that, with the seed, repeat the running episode."""
        return None if self.league is None else {"copies": self.copies}

    def reset(
        self, *, seed: int | None = None, options: JSONDict | None = None
    ) -> tuple[Tree, Info]:
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
            given = {"options": others} if others else {}
            self.inner.reset(seed=int(self.np_random.integers(2**31)), **given)
            self._gained, self._state = 0.0, None
            if not self._wait():
                return self._observed(self._me), self._info
        raise EnvironmentFault(
            f"{ANEW} games of {type(self.inner).__name__} in a row ended before {self._me} had a "
            "turn.",
            "games in which both players move",
            "let the game continue until both players have had a turn.",
        )

    def step(self, action: Array) -> tuple[Tree, float, bool, bool, Info]:
        self._take(action)
        over = self._wait()
        reward, self._gained = self._gained, 0.0
        cut = (
            over
            and self.inner.truncations.get(self._me, False)
            and not self.inner.terminations.get(self._me, False)
        )
        return self._observed(self._me, over), reward, over and not cut, cut, self._info

    def render(self) -> object:
        return self.inner.render()

    def close(self) -> None:
        self.inner.close()

    @property
    def _me(self) -> str:
        return str(self.names[self.side])

    @property
    def _info(self) -> Info:
        return {"side": self._me, "opponent": self.number}

    def _over(self) -> bool:
        game, me = self.inner, self._me
        return me not in game.agents or game.terminations[me] or game.truncations[me]

    def _wait(self) -> bool:
        """Let the opponent move until the learner's turn. Return true if the learner's game is over
        instead."""
        game = self.inner
        while not self._over():
            player = game.agent_selection
            if player == self._me:
                return False
            if game.terminations[player] or game.truncations[player]:
                self._take(None)  # it leaves, as the AEC interface requires
                continue
            obs = tree_map(lambda x: np.asarray(x)[None], self._observed(player))
            moves, self._state = self._playing.move(obs, self._state, self.np_random)
            self._take(moves[0])
        return True

    def _take(self, action: Array | None) -> None:
        if action is not None and self.action.kind != "box":
            action = np.asarray(action).tolist()
        self.inner.step(action)
        self._gained += float(self.inner.rewards.get(self._me, 0.0))

    def _observed(self, name: str, over: bool = False) -> Tree:
        """Return a player's observation in this environment's space."""
        obs = self.inner.observe(name)
        shown = obs["observation"] if self._nested else obs
        shown = np.asarray(shown, np.float32) if self._cast else shown
        if not self.masked:
            return shown
        if over:
            return {"observation": shown, MASK: np.ones(self.action.width, np.int8)}
        mask = obs.get(MASK) if self._nested else None
        mask = self.inner.infos.get(name, {}).get(MASK) if mask is None else mask
        if mask is None:
            raise EnvironmentFault(
                f"{type(self.inner).__name__} returned no {MASK!r} for {name} at its turn, but "
                "did before.",
                "a mask at every turn",
                "return it with the observation, or in infos.",
            )
        return {"observation": shown, MASK: (np.asarray(mask) != 0).astype(np.int8)}

    def _gives_masks(self, space: spaces.Space) -> bool:
        """Return true if masks are part of the observations, or in infos after a reset."""
        if not isinstance(self.action_space, spaces.Discrete):
            return False
        if isinstance(space, spaces.Dict):
            return self._nested and MASK in space.spaces
        self.inner.reset(seed=0)
        return MASK in self.inner.infos.get(self.inner.agent_selection, {})


def classic(name: str, kwargs: EnvKwargs | None = None) -> Versus:
    """Make a PettingZoo classic game by its id, classic/NAME, against a random player. Raises
    EngineError if PettingZoo or a dependency of the game is not installed, UnknownNameError for an
    unknown game."""
    module = by_id(name, "game", ids("classic"))
    return Versus(module.env(**dict(kwargs or {})))


def _check(env: Any, side: int | None) -> None:
    """Raise an error unless `env` is a turn-based game of two players with equal spaces."""
    name = type(env).__name__
    if not in_turn(env):
        raise SettingError(
            f"{name} has no possible_agents, no observe or no agent_selection.",
            "a game with PettingZoo's AEC interface",
            "pass a single-agent environment directly to tandem.train; for agents that move "
            "together use tandem.envs.team.",
        )
    if len(env.possible_agents) != 2:
        raise SettingError(
            f"{name} has {len(env.possible_agents)} players: "
            f"{', '.join(map(str, env.possible_agents))}.",
            "two",
            "use a two-player game, or make the others part of the game.",
        )
    if together(env):
        raise SettingError(
            f"the players of {name} move together.",
            "players who move in turn",
            "pass it to tandem.envs.team.team, which has an agent axis.",
        )
    one_of("side", side, (None, 0, 1))  # None: sampled for each episode
    first, second = (
        (env.observation_space(agent), env.action_space(agent)) for agent in env.possible_agents
    )
    if first != second:
        raise SpaceError(
            f"the players of {name} have the spaces {first} and {second}.",
            "the same spaces for both, since one network plays either side",
            "give both players the same spaces.",
        )
