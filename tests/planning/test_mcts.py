from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tandem.errors import EnvironmentFault, NetworkError, SettingError
from tandem.planning import BaseNode, Node, run_mcts_search, visit_shares
from tandem.planning import select_action_after_search as choose

LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]


class TicTacToe:
    """A state is nine marks: 1 for who is to move, -1 for the other."""

    def simulate(self, state: tuple[int, ...], action: int) -> tuple[tuple[int, ...], bool]:
        marks = list(state)
        marks[action] = 1
        after = tuple(-m for m in marks)
        return after, self.lost(after) or 0 not in after

    def lost(self, state: tuple[int, ...]) -> bool:
        return any(all(state[i] == -1 for i in line) for line in LINES)

    def get_env_result(self, state: tuple[int, ...]) -> float:
        return -1.0 if self.lost(state) else 0.0


def evenly(state: tuple[int, ...]) -> list[tuple[int, float]]:
    free = [i for i, mark in enumerate(state) if mark == 0]
    return [(i, 1 / len(free)) for i in free]


def right(state: int) -> Any:
    return [(1, 1.0)]


def zero(state: Any) -> float:
    return 0.0


def search(board: str, simulations: Any = 600, **more: Any) -> Any:
    """The search from a board of "o" (to move), "x" and "."."""
    state = tuple({"o": 1, "x": -1, ".": 0}[c] for c in board)
    given = state, TicTacToe(), evenly, zero, simulations, 1.5
    return run_mcts_search(Node(), *given, **more)


@pytest.mark.parametrize(
    "board, move",
    [
        ("oo.xx....", 2),  # wins at once, though the other threatens too
        ("xx..o....", 2),  # has to be stopped
        ("x.o.x..o.", 8),
    ],
)
def test_it_wins_where_it_can_and_stops_the_other(board: str, move: int) -> None:
    root = search(board)
    assert choose(root, 0) == move
    assert sum(child.visits for child in root.children.values()) == 600 == root.visits - 1


def test_values_are_seen_by_whoever_is_to_move() -> None:
    root = search("oo.xx....", 400)
    assert root.value > 0.6 and root.children[2].value == -1.0 and root.children[2].terminal
    assert search("xx.oo.xx.".replace("o", "."), 400).value < -0.3  # two threats of the other


class Line:
    """A single player's walk over the numbers 0 to 4, which are over at both ends; +1 on the right,
    -1 on the left."""

    def simulate(self, state: int, action: int) -> tuple[int, bool]:
        return state + action, state + action in (0, 4)

    def get_env_result(self, state: int) -> float:
        return 1.0 if state == 4 else -1.0


PRIORS = {1: 0.7, 2: 0.6, 3: 0.2}  # of going left
VALUES = {1: -0.3, 2: 0.1, 3: 0.25}


class Slow:
    """PUCT by the book: statistics of state-action pairs in a dictionary of paths (Silver et al.
    2017, Methods)."""

    def __init__(self, sign: float, c: float) -> None:
        self.n: dict[tuple[int, ...], int] = {}
        self.w: dict[tuple[int, ...], float] = {}
        self.sign, self.c = sign, c

    def simulate(self, path: tuple[int, ...], state: int) -> float:
        self.n[path] = self.n.get(path, 0) + 1
        if state in (0, 4):
            value = 1.0 if state == 4 else -1.0
        elif self.n[path] == 1:
            value = VALUES[state]
        else:
            scores = []
            for action, prior in ((-1, PRIORS[state]), (1, 1 - PRIORS[state])):
                child = (*path, action)
                q = self.sign * self.w[child] / self.n[child] if child in self.n else 0.0
                u = prior * (self.n[path] - 1) ** 0.5 / (1 + self.n.get(child, 0))
                scores.append(q + self.c * u)
            action = (-1, 1)[int(np.argmax(scores))]
            value = self.sign * self.simulate((*path, action), state + action)
        self.w[path] = self.w.get(path, 0.0) + value
        return value


def both(state: int) -> Any:
    """A policy network that gives the value too."""
    return [(-1, PRIORS[state]), (1, 1 - PRIORS[state])], VALUES[state]


@pytest.mark.parametrize("kind", [BaseNode, Node])
@pytest.mark.parametrize("c", [0.5, 2.0])
def test_every_visit_is_that_of_a_slow_search(kind: type[BaseNode], c: float) -> None:
    slow = Slow(kind.sign, c)
    for _ in range(301):
        slow.simulate((), 2)
    root = run_mcts_search(kind(), 2, Line(), both, None, 200, c)
    run_mcts_search(root, 2, Line(), both, None, 100, c)  # goes on from what is known
    stack: list[tuple[tuple[int, ...], BaseNode]] = [((), root)]
    for path, node in stack:
        assert node.visits == slow.n.get(path, 0), path
        if node.visits:
            assert node.total == pytest.approx(slow.w[path]), path
        stack += [((*path, a), child) for a, child in node.children.items()]
    assert len(stack) > 8


def test_cartpole_stands_where_it_is_put_and_keeps_standing() -> None:
    env, simulator = gym.make("CartPole-v1"), gym.Wrapper(gym.make("CartPole-v1"))
    simulator.get_env_result = lambda state: -1.0
    obs, _ = env.reset(seed=3)
    for _ in range(60):
        given = simulator, lambda s: ([(0, 0.5), (1, 0.5)], 0.0), None, 40, 1.0
        root = run_mcts_search(BaseNode(), env.unwrapped.state, *given)
        np.testing.assert_allclose(np.asarray(root.state, np.float32), obs, rtol=1e-6)
        obs, _, terminated, _, _ = env.step(choose(root, 0))
        assert not terminated


def test_temperature() -> None:
    root = BaseNode()
    root.expand([("a", 0.5), ("b", 0.25), ("c", 0.25)])
    for name, visits in (("a", 3), ("b", 1), ("c", 0)):
        root.children[name].visits = visits
    assert visit_shares(root) == {"a": 0.75, "b": 0.25, "c": 0.0}
    assert visit_shares(root, 0.5) == pytest.approx({"a": 0.9, "b": 0.1, "c": 0.0})
    assert visit_shares(root, 0) == {"a": 1.0, "b": 0.0, "c": 0.0}
    rng = np.random.default_rng(0)
    drawn = [choose(root, rng=rng) for _ in range(2000)]
    assert abs(drawn.count("a") / 2000 - 0.75) < 0.05 and "c" not in drawn
    root.children["a"].visits = 10**6
    assert visit_shares(root, 1e-3)["a"] == 1.0  # no overflow


def test_noise_at_the_root_is_drawn_from_the_generator() -> None:
    priors = []
    for seed in (0, 0, 1):
        rng = np.random.default_rng(seed)
        root = search("o...x...o", 1, dirichlet=(0.3, 0.25), rng=rng)
        priors.append([child.prior for child in root.children.values()])
    assert priors[0] == priors[1] != priors[2] and sum(priors[0]) == pytest.approx(1.0)
    expected = 0.75 / 6 + 0.25 * np.random.default_rng(0).dirichlet([0.3] * 6)
    np.testing.assert_allclose(priors[0], expected)


def line(policy: Any, value: Any, simulations: int = 5, c: Any = 1.5) -> Any:
    return run_mcts_search(Node(), 2, Line(), policy, value, simulations, c)


def test_values_come_as_networks_give_them_and_states_may_be_numbers() -> None:
    one, other = line(right, lambda s: 0.5), line(right, lambda s: np.array([[0.5]]))
    assert one.total == other.total
    given = Table(), lambda s: [(0, 0.5), (1, 0.5)], lambda s: float(s == 2), 20
    root = run_mcts_search(BaseNode(), 0, *given)
    assert choose(root, 0) == 1 and root.children[1].state == 2


class Table(gym.Env):  # type: ignore[misc]
    observation_space, action_space, state = gym.spaces.Discrete(4), gym.spaces.Discrete(2), 0
    after = {0: (1, 2), 1: (3, 3), 2: (3, 3)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.state = 0
        return self.state, {}

    def step(self, action: Any) -> Any:
        self.state = self.after[self.state][action]  # a key, as no array is
        return self.state, 0.0, self.state == 3, False, {}


def refused(error: Any, text: str, call: Any, *args: Any, **given: Any) -> None:
    with pytest.raises(error, match=text):
        call(*args, **given)


def test_what_cannot_be_searched_is_named() -> None:
    put, empty = r"cannot be set to a state(.|\n)*simulate", "." * 9
    refused(EnvironmentFault, put, run_mcts_search, Node(), 0, object(), evenly, zero)
    refused(NetworkError, "0 actions", search, "oxoxoxxox", 1)  # a full board, not called over
    refused(NetworkError, "value nan", line, right, lambda s: float("nan"))
    for policy, value in (
        (lambda s: None, None),
        (right, None),  # a value is missing
        (lambda s: np.array([1.0]), zero),  # actions are
        (right, lambda s: np.zeros(2)),
    ):
        refused(NetworkError, "the networks returned", line, policy, value)
    refused(SettingError, r"num_simulations=2\.5", search, empty, 2.5)
    refused(SettingError, "num_simulations=0", search, empty, 0)
    root = search(empty, 5)
    refused(SettingError, "no visited children", choose, Node())
    refused(SettingError, "temperature=-1", choose, root, -1)
    refused(SettingError, "temperature='hot'", choose, root, "hot")
    pair = r"dirichlet=(.|\n)*a pair(.|\n)*try"
    for noise in ((0.0, 0.5), 0.3, (0.3,), (0.3, 0.25, 1), (0.3, None), (np.inf, 0.5)):
        refused(SettingError, pair, search, empty, 5, dirichlet=noise)
    for words in (("a", "b"), "ab"):
        refused(SettingError, pair, search, empty, 5, dirichlet=words)
    for c in ("x", None, -1.0, np.nan):
        refused(SettingError, "c_puct=", line, right, zero, 5, c)
