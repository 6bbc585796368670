"""What the AlphaZero examples of both frameworks share: CartPole, its simulator, and the search."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from tandem.planning.mcts import BaseNode, run_mcts_search, visit_shares
from tandem.types import Array


class CartPoleSearch:
    """Acts by a tree search that `evaluate` leads. As the search's environment it has `simulate`
    and `get_env_result`."""

    seed: int

    def __init__(self, num_simulations: int, c_puct: float) -> None:
        super().__init__()
        self.env = gymnasium.make("CartPole-v1")
        self.simulator: Any = gymnasium.make("CartPole-v1").unwrapped
        self.num_simulations, self.c_puct = num_simulations, c_puct
        self.gamma, self.weight_decay = 0.99, 1e-4
        self.rng = np.random.default_rng(self.seed)

    def evaluate(self, state: Array) -> tuple[list[tuple[int, float]], float]:
        """Returns ([(action, its prior)], the state's value)."""
        raise NotImplementedError

    def action(self, s: Any) -> tuple[Array, Array]:
        """Returns (shares of the visits [B, actions], the actions visited most [B])."""
        shares = np.array([self.search(state) for state in np.asarray(s, np.float64)], np.float32)
        return shares, shares.argmax(1)

    def search(self, state: Array) -> list[float]:
        """Each action's share of the visits."""
        root = run_mcts_search(
            BaseNode(),
            state,
            self,
            self.evaluate,
            num_simulations=self.num_simulations,
            c_puct=self.c_puct,
            dirichlet=(0.5, 0.25),
            rng=self.rng,
        )
        return list(visit_shares(root).values())

    def simulate(self, state: Array, action: int) -> tuple[Array, bool]:
        self.simulator.reset()
        self.simulator.state = np.array(state)
        _, _, terminated, *_ = self.simulator.step(action)
        return np.array(self.simulator.state), bool(terminated)

    def get_env_result(self, state: Array) -> float:
        """The value of a state where the pole has fallen."""
        return -1.0

    def update_param(self) -> None:
        """There is one network, which acts as it is."""
