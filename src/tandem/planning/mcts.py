"""Monte Carlo tree search guided by a policy and a value, PUCT (Silver et al. 2017,
doi:10.1038/nature24270, Methods, "Search algorithm"; AlphaZero: Silver et al. 2018,
doi:10.1126/science.aar6404).

As in those papers, only final outcomes count: intermediate rewards are ignored.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Hashable, Iterable
from typing import Any, ClassVar

import numpy as np

from tandem.errors import EnvironmentFault, NetworkError, SettingError

Priors = Iterable[tuple[Hashable, float]]
State = Any  # state of a game, in the environment's own format
# state -> [(action, prior), ...], or a pair of this list and the value without a value network
PolicyNetwork = Callable[[State], Any]
ValueNetwork = Callable[[State], float]


class BaseNode:
    """Node for a state of a single-player game."""

    sign: ClassVar[float] = 1.0  # of a child's value, for the player to move here

    def __init__(self, prior: float = 1.0) -> None:
        self.prior, self.visits, self.total = prior, 0, 0.0
        self.state: State = None
        self.terminal = False
        self.children: dict[Hashable, BaseNode] = {}

    @property
    def value(self) -> float:
        """Mean value of the searches through this state, for the player to move here."""
        return self.total / self.visits if self.visits else 0.0

    def best(self, c_puct: float) -> tuple[Hashable, BaseNode]:
        """Return (action, its child) with the largest Q + c_puct P sqrt(N) / (1 + n); the first of
        equal ones. Q of an unvisited child is 0."""
        weight = c_puct * math.sqrt(self.visits)

        def score(child: BaseNode) -> float:
            return self.sign * child.value + weight * child.prior / (1 + child.visits)

        return max(self.children.items(), key=lambda item: score(item[1]))

    def expand(self, priors: Priors) -> None:
        """Create a child for each action."""
        self.children = {action: type(self)(float(prior)) for action, prior in priors}


class Node(BaseNode):
    """Node for a state of a two-player zero-sum game with alternating moves."""

    sign = -1.0


def run_mcts_search(
    node: BaseNode,
    root_state: State,
    env: Any,
    policy_network: PolicyNetwork,
    value_network: ValueNetwork | None = None,
    num_simulations: int = 100,
    c_puct: float = 1.0,
    *,
    dirichlet: tuple[float, float] | None = None,
    rng: np.random.Generator | None = None,
) -> BaseNode:
    """Search from `root_state` and return the root, whose children's visits are the search's
    result.

    Args:
        node: A new Node() or BaseNode(), or one from an earlier search to continue.
        root_state: The state to search from.
        env: Has `simulate(state, action)`, which returns (next state, whether the game is over); or
            is an environment with a writable `unwrapped.state`, which is then reset and stepped.
            Its `get_env_result(state)`, if it has one, is the value of a finished game, for the
            player who would move next; otherwise that value is 0.
        policy_network: state -> [(action, prior), ...]; without value_network -> (this list,
            value).
        value_network: state -> the value for the player to move.
        num_simulations: Number of times to follow a path from the root to a new state.
        c_puct: Weight of exploration.
        dirichlet: (alpha, share) of noise mixed into the root's priors, so that every move is
            tried.
        rng: Generator of that noise.

    Raises:
        SettingError: for numbers out of range.
        NetworkError: for invalid priors or values.
        EnvironmentFault: if the environment cannot be set to a state.
    """
    if (
        not isinstance(num_simulations, (int, np.integer))
        or num_simulations < 1
        or not _number(c_puct)
    ):
        raise SettingError(
            f"num_simulations={num_simulations!r}, c_puct={c_puct!r}.",
            "a whole number of at least 1, and a number of at least 0",
            "try num_simulations=100, c_puct=1.0.",
        )
    noise = None if dirichlet is None else _pair(dirichlet)
    advance, evaluate = _simulator(env), _Evaluation(policy_network, value_network, env)
    if node.state is None:
        node.state = _own(root_state)
        node.visits, node.total = 1, evaluate(node)
    if noise is not None:
        _mix(node, *noise, np.random.default_rng() if rng is None else rng)
    for _ in range(num_simulations):
        # Select: follow the best actions to a state without children.
        path = [node]
        while path[-1].children and not path[-1].terminal:
            action, child = path[-1].best(c_puct)
            if child.state is None:
                child.state, child.terminal = advance(path[-1].state, action)
            path.append(child)
        # Expand and evaluate this state, and add its value to every state on the path.
        value = evaluate(path[-1])
        for visited in reversed(path):
            visited.visits += 1
            visited.total += value
            value *= visited.sign
    return node


def visit_shares(root: BaseNode, temperature: float = 1.0) -> dict[Hashable, float]:
    """Return each action's share of visits ** (1 / temperature), the training target of the policy.
    At temperature 0 the most visited action gets 1."""
    if not root.children or not any(child.visits for child in root.children.values()):
        raise SettingError(
            "the root has no visited children.",
            "the root after a search",
            "call run_mcts_search in a state that is not terminal.",
        )
    if not _number(temperature):
        raise SettingError(
            f"temperature={temperature!r}.",
            "a number of at least 0",
            "try temperature=1.0, or temperature=0 for the most visited.",
        )
    visits = np.array([child.visits for child in root.children.values()], np.float64)
    if temperature == 0:
        shares = (np.arange(len(visits)) == visits.argmax()).astype(np.float64)
    else:
        with np.errstate(divide="ignore"):
            logs = np.log(visits) / temperature  # powers of many visits overflow
        shares = np.exp(logs - logs.max())
    return dict(zip(root.children, (shares / shares.sum()).tolist(), strict=True))


def select_action_after_search(
    root: BaseNode, temperature: float = 1.0, rng: np.random.Generator | None = None
) -> Hashable:
    """Return an action sampled by `visit_shares`; at temperature 0 the most visited one."""
    shares = visit_shares(root, temperature)
    rng = np.random.default_rng() if rng is None else rng
    return list(shares)[int(rng.choice(len(shares), p=list(shares.values())))]


class _Evaluation:
    """Function that expands a node and returns its value."""

    def __init__(self, policy: PolicyNetwork, value: ValueNetwork | None, env: Any) -> None:
        self.policy, self.value = policy, value
        self.result = _method(env, "get_env_result")

    def __call__(self, node: BaseNode) -> float:
        if node.terminal:
            return float(self.result(node.state)) if self.result else 0.0
        outputs = self.policy(node.state)
        if self.value is not None:
            outputs = outputs, self.value(node.state)
        try:
            priors, value = outputs
            node.expand(priors)
            # a network's value may be an array [1] or [1, 1]
            value = float(value.item() if hasattr(value, "item") else value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise NetworkError(
                f"the networks returned {outputs!r:.200}.",
                "[(action, prior), ...] and a number"
                + ("" if self.value else ", as a pair if there is no value network"),
                "return list(zip(actions, priors)), and one number as the value.",
            ) from error
        total = sum(child.prior for child in node.children.values())
        if not node.children or not np.isfinite(value) or not np.isfinite(total):
            raise NetworkError(
                f"the networks returned {len(node.children)} actions with priors that sum to "
                f"{total:g}, and the value {value:g}.",
                "at least one action, with finite priors, and a finite value",
                "return [(action, prior), ...] for the valid moves; mark states without any as "
                "terminal.",
            )
        return value


def _method(env: object, name: str) -> Callable[..., Any] | None:
    # of the environment or the one it wraps
    return getattr(env, name, None) or getattr(getattr(env, "unwrapped", env), name, None)


def _simulator(env: Any) -> Callable[[State, Hashable], tuple[State, bool]]:
    """Return a function from (state, action) to (next state, whether the game is over)."""
    if simulate := _method(env, "simulate"):

        def simulated(state: State, action: Hashable) -> tuple[State, bool]:
            # it may modify the state, or return the same array each time
            after, over = simulate(_own(state), action)
            return _own(after), over

        return simulated
    inner = getattr(env, "unwrapped", env)
    if not hasattr(env, "reset") or not hasattr(inner, "state"):
        raise EnvironmentFault(
            f"{type(inner).__name__} cannot be set to a state.",
            "a method simulate(state, action), or an attribute `unwrapped.state` with the full "
            "state",
            "give the environment a method simulate(state, action) that returns (next state, "
            "whether the game is over).",
        )

    def step(state: State, action: Hashable) -> tuple[State, bool]:
        env.reset()  # clears the end of an episode and its step count
        inner.state = _copied(state)
        _, _, terminated, *_ = env.step(action)
        return _copied(inner.state), bool(terminated)

    return step


def _copied(state: State) -> State:
    """Return a copy of a state; lists and tuples become arrays."""
    return np.array(state) if isinstance(state, (np.ndarray, list, tuple)) else copy.deepcopy(state)


def _own(state: State) -> State:
    """Return a copy of arrays and containers; return other objects unchanged."""
    containers = (np.ndarray, list, tuple, dict)
    return copy.deepcopy(state) if isinstance(state, containers) else state


def _number(value: object) -> bool:
    """Return whether the value is a number of at least 0."""
    return isinstance(value, (int, float, np.number)) and bool(value >= 0)


def _pair(dirichlet: Any) -> tuple[float, float]:
    """Return (alpha, share) of the root's noise."""
    try:
        alpha, share = map(float, dirichlet)
    except (TypeError, ValueError):
        alpha = share = math.nan
    if not 0 < alpha < math.inf or not 0 <= share <= 1:
        raise SettingError(
            f"dirichlet={dirichlet!r}.",
            "a pair: alpha above 0, and a share from 0 to 1",
            "try dirichlet=(0.3, 0.25).",
        )
    return alpha, share


def _mix(root: BaseNode, alpha: float, share: float, rng: np.random.Generator) -> None:
    for child, noise in zip(
        root.children.values(), rng.dirichlet([alpha] * len(root.children)), strict=True
    ):
        child.prior = (1 - share) * child.prior + share * float(noise)
