"""How a user's agent acts: what its `action` gives, with a policy or noise, for all environments at
once."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from tandem.errors import NetworkError, SettingError
from tandem.exploration import Policy, RandomProcess
from tandem.spaces import Leaf
from tandem.types import Array, Tree, leaves

Forward = Callable[[Array], Any]
Explore = Callable[
    [Array, int], Array
]  # of what `action` gave [N, ...] and the number of the step: actions [N, ...]


class AgentActor:
    """Acts in N environments by forward functions, one, or one for each of several agents.

    see: what of an observation `action` is given. explore: for each agent. irl: `action` gives
    (extra, output), and extra is kept with the step.
    """

    def __init__(
        self,
        forwards: list[Forward],
        see: Callable[[Tree], Tree],
        explore: list[Any],
        leaf: Leaf,
        *,
        joint: bool,
        irl: bool,
    ) -> None:
        self.forwards, self.see, self.explore, self.leaf, self.joint, self.irl = (
            forwards,
            see,
            explore,
            leaf,
            joint,
            irl,
        )
        self.steps = 0  # of all environments so far
        bounded = leaf.kind == "box" and leaf.bounded
        self._bounds = list(leaf.bounds) if bounded else []
        self._checked = False

    def act(self, obs: Tree, state: Tree, noise: Tree) -> tuple[Array, dict[str, Array], Tree]:
        found = [self._one(i, part) for i, part in enumerate(self._parts(obs))]
        action = self._together([a for a, _ in found])
        self.steps += len(action)
        if not self._checked:
            self._check(action)
        return action, {"irl": found[0][1]} if self.irl else {}, state

    def best(self, obs: Tree) -> Array:
        """Actions without exploration: the highest output where a policy chooses, else the output
        itself."""
        found = []
        for forward, part, explore in zip(
            self.forwards, self._parts(obs), self.explore, strict=True
        ):
            out = forward(part)
            out = out[1] if self.irl else out
            found.append(out.argmax(-1) if isinstance(explore, Chosen) else out)
        return self._together(found)

    def _parts(self, obs: Tree) -> list[Tree]:
        """What each agent's `action` is given."""
        seen = self.see(obs)
        return [seen[:, i] for i in range(len(self.forwards))] if self.joint else [seen]

    def _together(self, actions: list[Array]) -> Array:
        """The actions of all agents as the environment's, within its bounds."""
        action = np.stack(actions, 1) if self.joint else actions[0]
        return np.clip(action, *self._bounds) if self._bounds else action

    def initial_state(self, n: int) -> Tree:
        return ()

    def restart(self, env: int) -> None:
        """Environment `env` begins an episode."""
        for explore in self.explore:
            explore.restart(env)

    def _one(self, i: int, seen: Tree) -> tuple[Array, Array]:
        out, extra = self.forwards[i](seen), ()
        rows = leaves(seen)[0].shape[0]
        if self.irl:
            extra, out = out
        if out.shape[:1] != (rows,):
            raise NetworkError(
                f"action gave an array of shape {out.shape} for {rows} observations.",
                f"one row for each: ({rows}, ...)",
                "keep the batch axis in `action`: return the network's output as it is.",
            )
        return self.explore[i](out, self.steps), extra

    def _check(self, action: Array) -> None:
        wanted = (len(action), *self.leaf.shape)
        if action.shape != wanted:
            raise NetworkError(
                f"actions came out with shape {action.shape}.",
                f"shape {wanted}, for the environment's actions of shape {self.leaf.shape}",
                "let `action` return one number for each choice where a policy chooses, else the "
                "action itself.",
            )
        self._checked = True

    def state(self) -> dict[str, Any]:
        """As JSON data."""
        return {"steps": self.steps, "explore": [e.state() for e in self.explore]}

    def load_state(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]
        for explore, inner in zip(self.explore, state["explore"], strict=True):
            explore.load_state(inner)


class Chosen:
    """A policy chooses. policies: one, or one for each environment; ours, or any object with
    `select_action(values)` or `select_action(values, step)`."""

    def __init__(self, policies: list[Any], choices: int | None) -> None:
        self.policies, self.choices = policies, choices
        self._asks = [_asks_step(policy) for policy in policies]

    def __call__(self, values: Array, step: int) -> Array:
        if values.ndim != 2 or (self.choices is not None and values.shape[1] != self.choices):
            raise NetworkError(
                f"action gave an array of shape {values.shape}, which the policy has to choose "
                "from.",
                f"shape ({len(values)}, {self.choices or 'number of actions'}): a number for each "
                "action",
                "return action values or probabilities from `action`; or give noise instead of a "
                "policy.",
            )
        if len(self.policies) == 1 and isinstance(self.policies[0], Policy):
            return self.policies[0].choose(values, step)
        each = list(zip(self.policies, self._asks, strict=True)) * (
            len(values) if len(self.policies) == 1 else 1
        )
        return np.array(
            [
                p.select_action(row, *[step] * asks)
                for (p, asks), row in zip(each, values, strict=True)
            ]
        )

    def restart(self, env: int) -> None:
        """Policies do not know episodes."""

    def state(self) -> Any:
        return [p.state() if isinstance(p, Policy) else None for p in self.policies]

    def load_state(self, state: Any) -> None:
        for policy, inner in zip(self.policies, state, strict=True):
            if inner is not None:
                policy.load_state(inner)


class Noisy:
    """Noise is added. processes: one for each environment."""

    def __init__(self, processes: list[Any]) -> None:
        self.processes = processes

    def __call__(self, values: Array, step: int) -> Array:
        noise = np.stack([p.sample() for p in self.processes])
        try:
            return np.asarray(values + np.broadcast_to(noise, values.shape), np.float32)
        except ValueError as error:
            raise SettingError(
                f"noise of shape {noise.shape[1:]} for actions of shape {values.shape[1:]}.",
                "one number, or one for each of an action's",
                f"set size={values.shape[1:]} for the process.",
            ) from error

    def restart(self, env: int) -> None:
        _reset(self.processes[env])

    def state(self) -> Any:
        return [p.state() if isinstance(p, RandomProcess) else None for p in self.processes]

    def load_state(self, state: Any) -> None:
        for process, inner in zip(self.processes, state, strict=True):
            if inner is not None:
                process.load_state(inner)


class AsIs:
    """What `action` gives is the action."""

    def __call__(self, values: Array, step: int) -> Array:
        return values

    def restart(self, env: int) -> None:
        """Nothing to begin."""

    def state(self) -> Any:
        return None

    def load_state(self, state: Any) -> None:
        """Nothing to take back."""


def explorers(
    choices: Any,
    leaf: Leaf,
    envs: int,
    agents: int,
    generator: Callable[[str], np.random.Generator],
) -> list[Any]:
    """For each agent who explores, in `envs` environments. Policies and processes that were not
    seeded take seeds of the run. SettingError for a list of another length."""
    given = choices.explorers()
    if not given:
        return [AsIs() for _ in range(agents)]
    wanted = agents if agents > 1 else envs
    if len(given) not in (1, wanted):
        raise SettingError(
            f"{len(given)} policies or noise processes.",
            f"one, or one for each of {wanted} {'agents' if agents > 1 else 'environments'}",
            "give as many.",
        )
    for i, one in enumerate(given):
        if not getattr(one, "seeded", True):
            one.rng = generator(f"explore/{i}")
    found: list[Any] = []
    for agent in range(agents):
        mine = given if agents == 1 else [given[agent % len(given)]]
        if choices.policy is not None:
            found.append(Chosen(mine, _choices(leaf, agent)))
        else:
            found.append(
                Noisy(_processes(mine, leaf.shape[1:] if agents > 1 else leaf.shape, envs))
            )
    return found


def _choices(leaf: Leaf, agent: int) -> int | None:
    return leaf.sizes[agent if len(leaf.sizes) > 1 else 0] if leaf.sizes else None


def _processes(given: list[Any], shape: tuple[int, ...], envs: int) -> list[Any]:
    """A process for each environment. One of a single number becomes one of as many as an action
    has: else it would explore along a diagonal only."""
    for process in given:
        if getattr(process, "size", None) == 1 and shape not in ((), (1,)):
            process.size = shape
            _reset(process)
    if len(given) == envs:
        return given
    found = [given[0]]
    for rng in given[0].rng.spawn(envs - 1) if hasattr(given[0], "rng") else [None] * (envs - 1):
        found.append(other := copy.copy(given[0]))
        if rng is not None:
            other.rng = rng
    return found


def _reset(process: Any) -> None:
    """An episode begins: a user's own process need not know of it."""
    if callable(reset := getattr(process, "reset_states", None)):
        reset()


def _asks_step(policy: Any) -> bool:
    """Whether it chooses with the number of the step: a user's own need not."""
    takes = inspect.signature(policy.select_action).parameters.values()
    places = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in takes)
    return places > 1 or any(p.kind == p.VAR_POSITIONAL for p in takes)
