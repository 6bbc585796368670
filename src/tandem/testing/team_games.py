"""Multi-agent games with known solutions and PettingZoo's parallel interface (PettingZoo is not
required).

`optimum` is the highest possible return of an episode, the same for each agent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from gymnasium import spaces

from tandem.types import AnyArray, Info

Array = AnyArray
# observations, rewards, terminations, truncations and infos, by agent
Step = tuple[Mapping[str, object], ...]
T = TypeVar("T")


class TeamGame:
    """Base class: identical agents, which all observe the state and receive the same reward."""

    agents: list[str]
    optimum: float
    render_mode = None

    def __init__(self, agents: int, choices: int, states: int) -> None:
        self.possible_agents, self.states = [f"agent_{i}" for i in range(agents)], states
        self.agents, self.place = [], 0
        self._seen: spaces.Space = spaces.Box(0, 1, (states,), np.float32)
        self._choices: spaces.Space = spaces.Discrete(choices)

    def observation_space(self, agent: str) -> spaces.Space:
        return self._seen

    def action_space(self, agent: str) -> spaces.Space:
        return self._choices

    def reset(
        self, seed: int | None = None, options: object = None
    ) -> tuple[dict[str, Array], dict[str, Info]]:
        self.agents, self.place = list(self.possible_agents), 0
        return self._to_all(self.state()), self._to_all(self.info())

    def step(self, actions: dict[str, Array]) -> Step:
        reward, over = self.play([int(actions[a]) for a in self.agents])
        return self._after(reward, over)

    def _after(self, reward: float, over: bool, cut: bool = False) -> Step:
        """Return the result of a step, and remove all agents if the game ended."""
        result = tuple(map(self._to_all, (self.state(), reward, over, cut, self.info())))
        self.agents = [] if over or cut else self.agents
        return result

    def state(self) -> Array:
        """Return the state of the game as a one-hot vector."""
        return np.eye(self.states, dtype=np.float32)[self.place]

    def info(self) -> Info:
        """Return the info of each agent."""
        return {}

    def play(self, actions: list[int]) -> tuple[float, bool]:
        """Apply all actions. Return (reward of each agent, true at the end of the game)."""
        raise NotImplementedError

    def close(self) -> None:
        """Do nothing: there are no resources."""

    def _to_all(self, x: T) -> dict[str, T]:
        return dict.fromkeys(self.agents, x)


class Barred(TeamGame):
    """Two agents must choose the successor of the observed number (after the last, the first):
    reward 1 if both are right, else 0, in each of `length` steps. The number itself is invalid
    according to `info["action_mask"]`; choosing it raises ValueError."""

    def __init__(self, choices: int = 3, length: int = 5) -> None:
        super().__init__(2, choices, choices)
        self.length, self.taken, self.optimum = length, 0, float(length)

    def info(self) -> Info:
        return {"action_mask": (np.arange(self.states) != self.place).astype(np.int8)}

    def play(self, actions: list[int]) -> tuple[float, bool]:
        if self.place in actions:
            raise ValueError(f"the invalid action {self.place} was taken, of {actions}")
        reward = float(all(a == (self.place + 1) % self.states for a in actions))
        self.taken = self.taken % self.length + 1
        self.place = self.taken**2 % self.states
        return reward, self.taken == self.length


class Matrix(TeamGame):
    """Two agents choose once, and both receive the matrix entry as reward."""

    def __init__(self, payoff: Sequence[Sequence[float]]) -> None:
        self.payoff = np.asarray(payoff, np.float64)
        super().__init__(2, len(self.payoff), 1)
        self.optimum = float(self.payoff.max())

    def play(self, actions: list[int]) -> tuple[float, bool]:
        return float(self.payoff[tuple(actions)]), True


class Climbing(Matrix):
    """Climbing game (Claus & Boutilier 1998, section 5): the best pair of actions, which pays 11,
    is next to the worst."""

    def __init__(self) -> None:
        super().__init__(((11, -30, 0), (-30, 7, 6), (0, 0, 5)))


class Penalty(Matrix):
    """Penalty game (Claus & Boutilier 1998, section 5): two best pairs, which pay 10, and a penalty
    k for mixing them."""

    def __init__(self, k: float = -100.0) -> None:
        super().__init__(((10, 0, k), (0, 2, 0), (k, 0, 10)))


class TwoStep(TeamGame):
    """Two-step game (Rashid et al. 2018, section 6): the first agent's first action selects a
    matrix that always pays 7, or one with 0, 1, 1 and 8. A sum of the agents' values (VDN) cannot
    represent the second, and settles for 7; a monotone state-dependent mixture (QMIX) finds 8."""

    optimum = 8.0
    payoff = (((7.0, 7.0), (7.0, 7.0)), ((0.0, 1.0), (1.0, 8.0)))

    def __init__(self) -> None:
        super().__init__(2, 2, 3)

    def play(self, actions: list[int]) -> tuple[float, bool]:
        if self.place == 0:
            self.place = 1 + actions[0]
            return 0.0, False
        return self.payoff[self.place - 1][actions[0]][actions[1]], True


class Landmarks(TeamGame):
    """Two agents on a line, starting at -0.1 and 0.1, must cover the landmarks -1 and 1 in four
    steps. An action in [-1, 1] moves an agent by at most `reach`. The reward is minus the sum over
    landmarks of the distance to the nearest agent. Each agent should take the landmark on its side:
    at full speed the distances are 0.65, 0.4, 0.15 and 0, which gives the optimum -2.4."""

    optimum = -2.4
    reach = 0.25

    def __init__(self) -> None:
        super().__init__(2, 2, 1)
        self._seen = spaces.Box(-9, 9, (2,), np.float32)
        self._choices = spaces.Box(-1, 1, (1,), np.float32)
        self.at = np.zeros(2)

    def reset(
        self, seed: int | None = None, options: object = None
    ) -> tuple[dict[str, Array], dict[str, Info]]:
        self.at = np.array([-0.1, 0.1])
        return super().reset(seed)

    def step(self, actions: dict[str, Array]) -> Step:
        self.at = self.at + self.reach * np.array([float(actions[a][0]) for a in self.agents])
        self.place += 1
        reward = -float(np.abs(self.at[:, None] - [-1.0, 1.0]).min(0).sum())
        return self._after(reward, self.place == 4)

    def state(self) -> Array:
        """Return the positions of both agents."""
        return self.at.astype(np.float32)


class Leaving(TeamGame):
    """Regardless of actions, the first agent receives 1 in each of three steps; the second receives
    2 in its first step and then leaves. With a discount g, the first's return is 1 + g + g^2, the
    second's 2, and their mean 1.5 + 0.5 (g + g^2)."""

    def __init__(self) -> None:
        super().__init__(2, 2, 4)
        self.optimum = 2.5

    def step(self, actions: dict[str, Array]) -> Step:
        there, self.place = list(self.agents), self.place + 1
        over = self.place == 3
        ends = {a: over or a == "agent_1" for a in there}
        self.agents = [] if over else ["agent_0"]
        return (
            dict.fromkeys(there, self.state()),
            {a: 2.0 if a == "agent_1" else 1.0 for a in there},
            ends,
            dict.fromkeys(there, False),
            {a: {} for a in there},
        )


class Endless(TeamGame):
    """Two agents receive 1 in every step, and a limit truncates the game after three. With a
    discount g its value is 1 / (1 - g) for each, since it would have continued."""

    optimum = 3.0

    def __init__(self) -> None:
        super().__init__(2, 2, 1)
        self.taken = 0

    def reset(
        self, seed: int | None = None, options: object = None
    ) -> tuple[dict[str, Array], dict[str, Info]]:
        self.taken = 0
        return super().reset(seed)

    def step(self, actions: dict[str, Array]) -> Step:
        self.taken += 1
        return self._after(1.0, False, self.taken == 3)
