"""Monte Carlo tree search led by a policy and a value, PUCT (Silver et al. 2017,
doi:10.1038/nature24270, Methods, "Search algorithm"; AlphaZero: Silver et al. 2018,
doi:10.1126/science.aar6404).

A state is whatever the environment says it is; only outcomes have a value, as in those papers:
rewards on the way do not count.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Hashable, Iterable
from typing import Any, ClassVar

import numpy as np

from tandem.errors import EnvironmentFault, NetworkError, SettingError

Priors = Iterable[tuple[Hashable, float]]
PolicyNetwork = Callable[
    [Any], Any
]  # state -> [(action, prior)], or ([(action, prior)], value) where no value network is
ValueNetwork = Callable[[Any], float]


class BaseNode:
    """A state of a game of one player. `value` is the mean of what searches through it found, for
    whoever is to move there."""

    sign: ClassVar[float] = 1.0  # of a child's value in the eyes of who moves here

    def __init__(self, prior: float = 1.0) -> None:
        self.prior, self.visits, self.total = prior, 0, 0.0
        self.state: Any = None
        self.terminal = False
        self.children: dict[Hashable, BaseNode] = {}

    @property
    def value(self) -> float:
        return self.total / self.visits if self.visits else 0.0

    def best(self, c_puct: float) -> tuple[Hashable, BaseNode]:
        """The action, and the child it leads to, with the greatest Q + c_puct P sqrt(N) / (1 + n);
        the first of equal ones. What was not visited has Q = 0."""
        weight = c_puct * math.sqrt(self.visits)

        def score(child: BaseNode) -> float:
            return self.sign * child.value + weight * child.prior / (1 + child.visits)

        return max(self.children.items(), key=lambda item: score(item[1]))

    def expand(self, priors: Priors) -> None:
        """A child for each action."""
        self.children = {action: type(self)(float(prior)) for action, prior in priors}


class Node(BaseNode):
    """A state of a game of two players who move in turn: what is good for the one is bad for the
    other."""

    sign = -1.0


def run_mcts_search(
    node: BaseNode,
    root_state: Any,
    env: Any,
    policy_network: PolicyNetwork,
    value_network: ValueNetwork | None = None,
    num_simulations: int = 100,
    c_puct: float = 1.0,
    *,
    dirichlet: tuple[float, float] | None = None,
    rng: np.random.Generator | None = None,
) -> BaseNode:
    """Searches from `root_state`, and returns `node`, the root, whose children's visits say what
    was found.

    node: a new Node() or BaseNode(), or one of an earlier search, of which what is known is kept.
    env: has `simulate(state, action)`, which gives (next state, whether the game is over); or is an
    environment whose `unwrapped.state` can be written, which is then reset and stepped.
    `get_env_result(state)`, if it has one, is the value of a game that is over, for whoever would
    move next; else that is 0.
    policy_network, value_network: from a state to [(action, prior)] and to a value; without the
      latter the former returns both.
    dirichlet: (alpha, share) of noise mixed into the root's priors, drawn from `rng`, so that every
      move is looked at.

    Raises SettingError for numbers out of range, NetworkError for priors or values that are none,
    EnvironmentFault for an environment that can do neither.
    """
    if (
        not isinstance(num_simulations, (int, np.integer))
        or num_simulations < 1
        or not _number(c_puct)
    ):
        raise SettingError(
            f"num_simulations={num_simulations!r}, c_puct={c_puct!r}.",
            "a whole number, at least 1, and a number from 0 on",
            "try 100 and 1.0.",
        )
    noise = None if dirichlet is None else _pair(dirichlet)
    advance, evaluate = _simulator(env), _Evaluation(policy_network, value_network, env)
    if node.state is None:
        node.state = root_state
        node.visits, node.total = 1, evaluate(node)
    if noise is not None:
        _mix(node, *noise, np.random.default_rng() if rng is None else rng)
    for _ in range(num_simulations):
        path = [node]
        while path[-1].children and not path[-1].terminal:
            action, child = path[-1].best(c_puct)
            if child.state is None:
                child.state, child.terminal = advance(path[-1].state, action)
            path.append(child)
        value = evaluate(path[-1])
        for visited in reversed(path):
            visited.visits += 1
            visited.total += value
            value *= visited.sign
    return node


def visit_shares(root: BaseNode, temperature: float = 1.0) -> dict[Hashable, float]:
    """Each action's share of visits ** (1 / temperature), which a policy is trained towards; at 0
    all is the most visited's."""
    if not root.children or not any(child.visits for child in root.children.values()):
        raise SettingError(
            "the root has no visited children.",
            "the root of a search",
            "run run_mcts_search, in a state that is not terminal.",
        )
    if not _number(temperature):
        raise SettingError(
            f"temperature={temperature!r}.",
            "a number from 0 on",
            "use 1.0, or 0 for the most visited.",
        )
    visits = np.array([child.visits for child in root.children.values()], np.float64)
    if temperature == 0:
        shares = (np.arange(len(visits)) == visits.argmax()).astype(np.float64)
    else:
        with np.errstate(divide="ignore"):
            logs = np.log(visits) / temperature  # of large visits, powers overflow
        shares = np.exp(logs - logs.max())
    return dict(zip(root.children, (shares / shares.sum()).tolist(), strict=True))


def select_action_after_search(
    root: BaseNode, temperature: float = 1.0, rng: np.random.Generator | None = None
) -> Hashable:
    """An action drawn by `visit_shares`; at temperature 0 the most visited."""
    shares = visit_shares(root, temperature)
    rng = np.random.default_rng() if rng is None else rng
    return list(shares)[int(rng.choice(len(shares), p=list(shares.values())))]


class _Evaluation:
    """Says what a node is worth, and gives it its children."""

    def __init__(self, policy: PolicyNetwork, value: ValueNetwork | None, env: Any) -> None:
        self.policy, self.value = policy, value
        self.result = getattr(env, "get_env_result", None) or getattr(
            getattr(env, "unwrapped", env), "get_env_result", None
        )

    def __call__(self, node: BaseNode) -> float:
        if node.terminal:
            return float(self.result(node.state)) if self.result else 0.0
        found = self.policy(node.state)
        given = found if self.value is None else (found, self.value(node.state))
        try:
            priors, value = given
            node.expand(priors)
            value = float(
                value.item() if hasattr(value, "item") else value
            )  # of a network it may be [1] or [1, 1]
        except (TypeError, ValueError, RuntimeError) as error:
            raise NetworkError(
                f"the networks gave {given!r:.200}.",
                "[(action, prior), ...] and a number"
                + ("" if self.value else ", a pair of them where no value network is"),
                "return list(zip(actions, priors)), and one number as the value.",
            ) from error
        sum_ = sum(child.prior for child in node.children.values())
        if not node.children or not np.isfinite(value) or not np.isfinite(sum_):
            raise NetworkError(
                f"the networks gave {len(node.children)} actions with priors of the sum {sum_:g}, "
                f"and the value {value:g}.",
                "at least one action, with finite priors, and a finite value",
                "return [(action, prior), ...] for the moves that are allowed; mark states "
                "without any as the game's end.",
            )
        return value


def _simulator(env: Any) -> Callable[[Any, Hashable], tuple[Any, bool]]:
    """The function from (state, action) to (next state, whether the game is over)."""
    for owner in (env, getattr(env, "unwrapped", env)):
        if simulate := getattr(owner, "simulate", None):
            return lambda state, action: simulate(state, action)
    inner = getattr(env, "unwrapped", env)
    if not hasattr(env, "reset") or not hasattr(inner, "state"):
        raise EnvironmentFault(
            f"{type(inner).__name__} cannot be put into a state.",
            "a method simulate(state, action), or an attribute `unwrapped.state` that says all of "
            "where it is",
            "give the environment a method simulate(state, action) that returns (next state, "
            "whether the game is over).",
        )

    def step(state: Any, action: Hashable) -> tuple[Any, bool]:
        env.reset()  # forgets that a game was over, and how long it took
        inner.state = _copied(state)
        _, _, terminated, *_ = env.step(action)
        return _copied(inner.state), bool(terminated)

    return step


def _copied(state: Any) -> Any:
    """A state that nobody else holds: numbers in a row as an array, anything else as what it is."""
    return np.array(state) if isinstance(state, (np.ndarray, list, tuple)) else copy.deepcopy(state)


def _number(value: Any) -> bool:
    """Whether this is a number from 0 on."""
    return isinstance(value, (int, float, np.number)) and bool(value >= 0)


def _pair(dirichlet: Any) -> tuple[float, float]:
    """(alpha, share) of the noise at the root."""
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
