"""Teams: a PettingZoo environment as a Gymnasium environment whose arrays have an agent axis.
Everything that works with environments (stepping, checkpoints, worker processes) works with teams.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from tandem.envs.checks import outside, raising, storable
from tandem.envs.opening import look, reset
from tandem.envs.pettingzoo import by_id, ids, in_turn, together
from tandem.envs.vector import SUCCESS, success_of
from tandem.errors import EnvironmentFault, SettingError, SpaceError
from tandem.spaces import MASK, Leaf, leaf
from tandem.types import Array, EnvKwargs, Info, Tree


class Team(gymnasium.Env):  # type: ignore[misc]
    """Team of the A agents of an environment with PettingZoo's parallel interface; see `team`.

    Observations are a Dict:
    "agents" float32 [A, O + A]: each agent's observation (one-hot if discrete), padded with zeros
      to the widest, and all zeros for inactive agents; then the agent's index as a one-hot vector,
      so that agents can share a network.
    "state" float32 [S]: the environment's state, or all observations concatenated.
    "active" int8 [A]: 1 for an agent that takes part, or would if a limit had not ended the
      episode; 2 if a limit removed this agent alone in the previous step, so that its last
      observation provides the bootstrap value; otherwise 0.
    `action_mask` int8 [A * C], for C choices each: present if agents have different numbers of
      choices, or if the environment has masks (in infos, or next to "observation").

    Actions are MultiDiscrete [C, ...], or a Box [A, D] with each agent's bounds; an agent with
    fewer axes receives the first of the D. The reward is the mean over all agents, with 0 for
    inactive ones; info["rewards"] float32 [A], described by `rewards_space`, has each agent's. The
    episode terminates when no agent is left; it is truncated if a limit ended it for one of them.

    Raises SpaceError for agents whose spaces cannot be joined.
    """

    masks_are_observed = True

    def __init__(self, env: Any) -> None:
        self.inner, self.names = env, list(env.possible_agents)
        self.metadata = dict(getattr(env, "metadata", None) or {"render_modes": []})
        self.render_mode = getattr(env, "render_mode", None)
        if not (count := len(self.names)):
            raise SpaceError(
                f"{type(env).__name__} has no agents.",
                "names in possible_agents",
                "list all agents that can ever take part.",
            )
        self._nested = {n: isinstance(env.observation_space(n), spaces.Dict) for n in self.names}
        self._specs = [self._leaf(n) for n in self.names]
        self._actions = [leaf(env.action_space(n)) for n in self.names]
        self._width = max(x.width for x in self._specs)
        if {(x.kind, x.dtype) for x in self._actions} not in (
            {("discrete", "int64")},
            {("box", "float32")},
        ):
            raise SpaceError(
                f"the agents' action spaces are {[str(env.action_space(n)) for n in self.names]}.",
                "Discrete for all agents, or a float Box for all agents",
                "wrap it in a pettingzoo.utils.BaseParallelWrapper whose action_space(agent) is "
                "one of these, and whose step converts the actions.",
            )
        self.discrete = self._actions[0].kind == "discrete"
        if self.discrete:
            self.choices = max(x.sizes[0] for x in self._actions)
            self.action_space: spaces.Space = spaces.MultiDiscrete([self.choices] * count)
        else:
            self._axes = max(x.width for x in self._actions)
            low = np.full((count, self._axes), -1.0, np.float32)
            high = np.full((count, self._axes), 1.0, np.float32)
            for i, x in enumerate(self._actions):
                low[i, : x.width], high[i, : x.width] = x.low, x.high
            self.action_space = spaces.Box(low, high)
        with raising(type(env).__name__, 0, 0):
            obs, infos = self._checked(look(env))
        own, self._own = self._state(), False
        self.masked = self.discrete and (
            len({x.sizes for x in self._actions}) > 1
            or any(self._mask(n, obs, infos) is not None for n in self.names)
        )
        self._blank = np.concatenate(
            [np.zeros((count, self._width), np.float32), np.eye(count, dtype=np.float32)], -1
        )
        beside = self._agents(obs)[:, : self._width].ravel()
        # Particle worlds have this same state, so computing it again is unnecessary.
        self._own = own is not None and not np.array_equal(own, beside)
        size = own.size if own is not None and self._own else beside.size
        parts = {
            "agents": spaces.Box(-np.inf, np.inf, (count, self._width + count), np.float32),
            "state": spaces.Box(-np.inf, np.inf, (size,), np.float32),
            "active": spaces.Box(0, 2, (count,), np.int8),
        }
        self.observation_space = spaces.Dict(
            parts | ({MASK: spaces.MultiBinary(count * self.choices)} if self.masked else {})
        )
        self.rewards_space = spaces.Box(-np.inf, np.inf, (count,), np.float32)

    def reset(self, *, seed: int | None = None, **kwargs: object) -> tuple[Tree, Info]:
        super().reset(seed=seed)
        obs, infos = self._checked(reset(self.inner, seed=seed, **kwargs))
        return self._observed(obs, infos, self.inner.agents), {}

    def step(self, action: Array) -> tuple[Tree, float, bool, bool, Info]:
        acting = list(self.inner.agents)
        actions = {n: self._action(i, action[i]) for i, n in enumerate(self.names) if n in acting}
        obs, rewards, terminated, truncated, infos = self.inner.step(actions)
        if missing := [n for n in acting if n not in rewards]:
            raise EnvironmentFault(
                f"{type(self.inner).__name__} returned no reward for {', '.join(missing)}, who "
                "took part in the step.",
                "an observation, reward, termination and truncation for each agent that acted",
                "return them for every agent of the previous step.",
            )
        each = np.array([float(rewards.get(n, 0.0)) for n in self.names], np.float32)
        cut = {n for n in acting if truncated.get(n, False)}
        if staying := [
            n for n in acting if n in self.inner.agents and (n in cut or terminated.get(n, False))
        ]:
            raise EnvironmentFault(
                f"{type(self.inner).__name__} ended for {', '.join(staying)}, but still has them "
                "among its agents.",
                "`agents` to list only those who act in the next step, and to be empty at the end",
                "remove an agent from self.agents in the step that terminates or truncates it.",
            )
        over = not self.inner.agents
        limited = {n for n in cut if not terminated.get(n, False)}
        # An agent truncated at the end of the episode counts as active: it would have continued.
        joint = self._observed(obs, infos, limited if over else {*self.inner.agents, *limited})
        if limited and not over:
            joint["active"][[n in limited for n in self.names]] = 2
        said = [x for info in infos.values() if (x := success_of(info)) is not None]
        info: Info = {"rewards": each} | ({SUCCESS: all(said)} if said else {})
        return joint, float(each.mean()), over and not cut, over and bool(cut), info

    def render(self) -> object:
        return self.inner.render()

    def close(self) -> None:
        self.inner.close()

    def _checked(self, both: Any) -> tuple[dict[str, Tree], dict[str, Info]]:
        """Return the result of a reset, (observations, infos) by agent, after checking its form."""
        pair = isinstance(both, tuple) and len(both) == 2
        if not pair or not all(isinstance(x, dict) for x in both):
            kinds = ", ".join(type(x).__name__ for x in both) if isinstance(both, tuple) else ""
            raise EnvironmentFault(
                f"reset of {type(self.inner).__name__} returned a {type(both).__name__}"
                f"{kinds and ' of '}{kinds}.",
                "(observations, infos), two dicts keyed by agent",
                "return both from reset; infos may be {}.",
            )
        return both[0], both[1]

    def _leaf(self, name: str) -> Leaf:
        space = self.inner.observation_space(name)
        if self._nested[name] and "observation" not in space.spaces:
            raise SpaceError(
                f"{name} observes a Dict of {', '.join(map(repr, space.spaces))}.",
                "one array, or a Dict with the entry 'observation' and, with action masks, "
                f"{MASK!r}",
                "flatten it to one array: gymnasium.spaces.flatten_space(space), and "
                "flatten(space, x) for each observation.",
            )
        return leaf(space["observation"] if self._nested[name] else space)

    def _observed(
        self, obs: dict[str, Tree], infos: dict[str, Info], active: Collection[str]
    ) -> dict[str, Array]:
        agents, here = self._agents(obs), [n in active for n in self.names]
        own = self._state() if self._own else None
        state = agents[:, : self._width].ravel() if own is None else own
        joint = {"agents": agents, "state": state, "active": np.array(here, np.int8)}
        if self.masked:
            joint[MASK] = np.concatenate(
                [self._allowed(i, obs, infos, here[i]) for i in range(len(self.names))]
            )
        return joint

    def _agents(self, obs: dict[str, Tree]) -> Array:
        agents = self._blank.copy()
        for i, (n, x) in enumerate(zip(self.names, self._specs, strict=True)):
            if n in obs:
                own = obs[n]["observation"] if self._nested[n] else obs[n]
                agents[i, : x.width] = _vector(own, x)
        return agents

    def _allowed(self, i: int, obs: dict[str, Tree], infos: dict[str, Info], here: bool) -> Array:
        """Return the valid choices [C] of one agent; all ones for an inactive agent, whose action
        does not count."""
        mask, size = np.zeros(self.choices, np.int8), self._actions[i].sizes[0]
        if not here:
            mask[:] = 1
            return mask
        own = self._mask(self.names[i], obs, infos)
        mask[:size] = 1 if own is None else np.asarray(own) != 0
        return mask

    def _mask(self, name: str, obs: dict[str, Tree], infos: dict[str, Info]) -> Array | None:
        beside = obs[name].get(MASK) if self._nested[name] and name in obs else None
        return beside if beside is not None else infos.get(name, {}).get(MASK)

    def _action(self, i: int, action: Array) -> int | Array:
        x = self._actions[i]
        if self.discrete:
            return int(action) + x.start
        return np.asarray(action, np.float32)[: x.width].reshape(x.shape)

    def _state(self) -> Array | None:
        try:
            return np.array(self.inner.state(), np.float32).ravel()
        except (AttributeError, NotImplementedError):  # raised by PettingZoo if there is none
            return None


def _vector(x: Tree, spec: Leaf) -> Array:
    """Return an agent's observation as a vector; one-hot if it is discrete."""
    if not spec.sizes:
        return np.asarray(x, np.float32).ravel()
    if not storable(x, spec) or len(outside(np.asarray(x)[None], spec)):
        raise ValueError(f"an agent observed {x!r}, which is not in its observation space")
    parts = [
        np.eye(n, dtype=np.float32)[int(k)]
        for n, k in zip(spec.sizes, np.ravel(x) - spec.start, strict=True)
    ]
    return np.concatenate(parts)


def team(env: Any, kwargs: EnvKwargs | None = None) -> Team:
    """Return the team of an environment.

    Args:
        env: Environment with PettingZoo's parallel interface, or its AEC interface (converted by
            PettingZoo); a callable that makes one; or an id FAMILY/NAME, such as
            "mpe/simple_spread_v3" (from the package mpe2) or "sisl/pursuit_v4".
        kwargs: Arguments for an id's environment.

    Raises:
        EngineError: The environment's package is not installed.
        UnknownNameError: The id is unknown.
        SettingError: The object is not a multi-agent environment.
    """
    if isinstance(env, str):
        env = _by_id(env, dict(kwargs or {}))
    if isinstance(env, type) or (callable(env) and not hasattr(env, "possible_agents")):
        env = env()
    if isinstance(env, Team):
        return env
    if not hasattr(env, "possible_agents"):
        raise SettingError(
            f"{type(env).__name__} has no possible_agents.",
            "a PettingZoo environment (parallel or AEC), or a callable that returns one",
            "pass a single-agent environment directly to tandem.train.",
        )
    if in_turn(env):
        if not together(env):
            raise SettingError(
                f"the players of {env} move in turn.",
                "agents that move together",
                "use a parallel interface; for a two-player game in turn, "
                "tandem.envs.versus.Versus(env).",
            )
        from pettingzoo.utils.conversions import aec_to_parallel

        env = aec_to_parallel(env)
    return Team(env)


def _by_id(name: str, kwargs: EnvKwargs) -> Any:
    module = by_id(name, "environment of several agents", ids(*FAMILIES))
    if name.startswith("mpe/"):
        # skips PettingZoo's order and bounds checks, which a team never violates: 1/3 of a step
        return module.raw_env(**kwargs)
    make = getattr(module, "parallel_env", None) or module.env
    return make(**kwargs)


FAMILIES = ("mpe", "sisl", "butterfly")
