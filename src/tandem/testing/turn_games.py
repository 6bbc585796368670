"""Two-player turn-based games with known optimal play and PettingZoo's AEC interface (PettingZoo is
not required). The winner receives 1, the loser -1; a draw pays 0."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from gymnasium import spaces

from tandem.envs.versus import Versus
from tandem.spaces import MASK
from tandem.types import Array, Info


class TurnGame:
    """Base class: both players observe the whole game from their own side, with a mask of the
    current player's valid moves. An invalid move raises ValueError."""

    metadata: ClassVar[dict[str, object]] = {"render_modes": [], "is_parallelizable": False}
    render_mode = None

    def __init__(self, width: int, choices: int) -> None:
        self.possible_agents = ["player_0", "player_1"]
        self.agents: list[str] = []
        seen = {
            "observation": spaces.Box(0, 1, (width,), np.float32),
            MASK: spaces.Box(0, 1, (choices,), np.int8),
        }
        self._seen, self._choices = spaces.Dict(seen), spaces.Discrete(choices)

    def observation_space(self, agent: str) -> spaces.Space:
        return self._seen

    def action_space(self, agent: str) -> spaces.Space:
        return self._choices

    def reset(self, seed: int | None = None, options: object = None) -> None:
        self.agents, self.agent_selection = list(self.possible_agents), self.possible_agents[0]
        self.rewards, self._owed = dict.fromkeys(self.agents, 0.0), dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, Info] = {agent: {} for agent in self.agents}
        self.begin()

    def step(self, action: Array) -> None:
        """Make the current player's move; None, after the end of its game, removes the player."""
        player = self.agent_selection
        index = self.possible_agents.index(player)
        self.agent_selection = self.possible_agents[1 - index]
        if self.terminations[player]:
            if action is not None:
                raise ValueError(f"{player} moves after the end of the game")
            self.agents.remove(player)
            for each in (self.terminations, self.truncations, self.infos):
                del each[player]
            self.rewards = dict.fromkeys(self.agents, 0.0)
            return
        if not self.allowed()[action]:
            raise ValueError(f"{player} may not choose {action} here")
        paid = self.play(index, int(action))
        self._owed[player] = 0.0
        for i, agent in enumerate(self.possible_agents):
            self.rewards[agent] = (paid or 0.0) * (1 if i == index else -1)
            self.terminations[agent] = paid is not None
            self._owed[agent] += self.rewards[agent]

    def observe(self, agent: str) -> dict[str, Array]:
        index = self.possible_agents.index(agent)
        turn = self.agent_selection == agent and not self.terminations.get(agent, True)
        mask = self.allowed() if turn else np.zeros(int(self._choices.n), np.int8)
        return {"observation": self.board(index), MASK: mask}

    def last(self, observe: bool = True) -> tuple[dict[str, Array] | None, float, bool, bool, Info]:
        player = self.agent_selection
        seen = self.observe(player) if observe else None
        return (
            seen,
            self._owed[player],
            self.terminations[player],
            self.truncations[player],
            self.infos[player],
        )

    def close(self) -> None:
        """Do nothing: there are no resources."""

    def begin(self) -> None:
        """Set up a new game."""
        raise NotImplementedError

    def allowed(self) -> Array:
        """Return a mask with 1 for each valid move."""
        raise NotImplementedError

    def play(self, player: int, action: int) -> float | None:
        """Make a move. Return the player's reward if it ends the game, else None."""
        raise NotImplementedError

    def board(self, player: int) -> Array:
        """Return a player's observation, float32."""
        raise NotImplementedError


class TicTacToe(TurnGame):
    """Tic-tac-toe: a draw under optimal play. A player observes its own marks [9], then the
    opponent's [9]."""

    lines = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))

    def __init__(self) -> None:
        super().__init__(18, 9)

    def begin(self) -> None:
        self.marks = np.zeros((2, 9), np.float32)

    def allowed(self) -> Array:
        return (self.marks[0] + self.marks[1] == 0).astype(np.int8)

    def play(self, player: int, action: int) -> float | None:
        self.marks[player, action] = 1
        own = self.marks[player].tolist()
        if any(own[a] and own[b] and own[c] for a, b, c in self.lines):
            return 1.0
        return 0.0 if self.marks.sum() == 9 else None

    def board(self, player: int) -> Array:
        return np.concatenate([self.marks[player], self.marks[1 - player]])


class Nim(TurnGame):
    """Nim with one heap: players take one to three objects in turn, and the one who takes the last
    wins. Leaving a multiple of four wins, so `heap % 4` is the only winning move, and there is none
    if that is 0 (Bouton 1901 has the theory for more heaps). A player observes the heap, one-hot.
    """

    def __init__(self, heap: int = 10) -> None:
        self.full = heap
        super().__init__(heap + 1, 3)

    def begin(self) -> None:
        self.heap = self.full

    def allowed(self) -> Array:
        return np.array([take <= self.heap for take in (1, 2, 3)], np.int8)

    def play(self, player: int, action: int) -> float | None:
        self.heap -= action + 1
        return 1.0 if self.heap == 0 else None

    def board(self, player: int) -> Array:
        return np.eye(self.full + 1, dtype=np.float32)[self.heap]


def tictactoe() -> Versus:
    """Make tandem/TicTacToe-v0, against a random player unless a run provides opponents."""
    return Versus(TicTacToe())
