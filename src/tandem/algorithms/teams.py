"""Functions for multi-agent algorithms. Environments are those of `collect.team.Team`: arrays have
an axis of A agents, [B, A, ...]. Networks of one agent receive rows, [B * A, ...], in which the
agents of a step are adjacent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tandem import ops
from tandem.algorithms.action_spaces import OF_TEAMS, named, other
from tandem.errors import SettingError, SpaceError
from tandem.math.masks import masked
from tandem.spaces import MASK, Leaf, Spec
from tandem.types import Array, Tree

AGENTS, STATE, ACTIVE = "agents", "state", "active"  # entries of a team's observations


def check(name: str, observation: Spec, action: Leaf, *kinds: str) -> None:
    """Raise SpaceError for single-agent environments, and for action spaces that are not of these
    kinds, which include at least that of Discrete actions."""
    if not (isinstance(observation, dict) and {AGENTS, STATE, ACTIVE} <= set(observation)):
        raise SpaceError(
            f"{name} requires a multi-agent environment.",
            "a PettingZoo environment, or an id such as mpe/simple_spread_v3",
            f"for one agent use {other(action)[:-1]}; pass a team from tandem.envs.team.team.",
        )
    if action.kind not in kinds:
        raise SpaceError(
            f"{name} cannot act in {named(action)}.",
            "Discrete actions for each agent",
            f"use {OF_TEAMS}",
        )


def count(action: Leaf) -> int:
    """Return A, the number of agents."""
    return action.shape[0]


def one(action: Leaf) -> Leaf:
    """Return the action space of one agent."""
    if action.sizes:
        return Leaf("discrete", (), "int64", action.sizes[:1], masked=action.masked)
    wide = action.shape[1]
    return replace(action, shape=(wide,), low=action.low[:wide], high=action.high[:wide])


def seen(observation: Spec) -> Leaf:
    """Return the observation space of one agent's network."""
    assert isinstance(observation, dict)
    both = observation[AGENTS]
    wide = both.shape[1]
    return replace(both, shape=(wide,), low=both.low[:wide], high=both.high[:wide])


def space(inputs: Any) -> Any:
    """Return the Gymnasium space of a network's input, for custom feature extractors."""
    from gymnasium import spaces  # here: see `spaces.gymnasium_space`

    if isinstance(inputs, dict):
        return spaces.Dict({k: space(v) for k, v in inputs.items()})
    low, high = (np.asarray(b, np.float32).reshape(inputs.shape) for b in (inputs.low, inputs.high))
    return spaces.Box(low, high)


def rows(x: Array) -> Array:
    """Reshape [B, A, ...] to [B * A, ...]."""
    return ops.of(x).reshape(x, (-1, *x.shape[2:]))


def by_agent(x: Array, agents: int) -> Array:
    """Reshape [B * A, ...] to [B, A, ...]."""
    return ops.of(x).reshape(x, (-1, agents, *x.shape[1:]))


def masks(obs: Tree, action: Leaf) -> dict[str, Array]:
    """Return each agent's action masks as rows [B * A, C], under their key; empty without
    masks."""
    if not action.masked:
        return {}
    return {MASK: ops.of(obs[MASK]).reshape(obs[MASK], (-1, action.sizes[0]))}


def allowed(out: Array, obs: Tree, action: Leaf) -> Array:
    """Reshape outputs [B * A, C] for each agent's actions to [B, A, C], with invalid actions
    masked."""
    return by_agent(masked(out, masks(obs, action), one(action)), count(action))


def active(obs: Tree) -> Array:
    """Return float [B, A], 1 for active agents."""
    xp = ops.of(obs[ACTIVE])
    return 1.0 - xp.abs(xp.cast(obs[ACTIVE]) - 1.0)


def going(next_obs: Tree) -> Array:
    """Return float [B, A], 1 for agents with a bootstrap value after a step: active agents, and
    those that were truncated in that step."""
    xp = ops.of(next_obs[ACTIVE])
    return xp.clip(xp.cast(next_obs[ACTIVE]), 0.0, 1.0)


def own(obs: Tree) -> Array:
    """Return the one-hot agent identity of each row, float [B, A, A]."""
    agents = obs[AGENTS]
    return agents[..., -agents.shape[1] :]


def of_all(x: Array, obs: Tree) -> Array:
    """Repeat [B], one per step, to [B, A], one per agent."""
    return x[:, None] + 0.0 * active(obs)


def mean(x: Array, obs: Tree) -> Array:
    """Return the mean of x [B, A] over the active agents, [B]; 0 where none is active."""
    xp, here = ops.of(x), active(obs)
    return xp.sum(here * x, -1) / xp.clip(xp.sum(here, -1), 1.0, float(x.shape[-1]))


def check_replay(settings: Any) -> None:
    """Raise SettingError for settings of single steps that replay of sequences does not support."""
    if units := settings.recurrent:
        for name, own, plain in (
            ("prioritized", settings.prioritized, False),
            ("n_step", settings.n_step, 1),
        ):
            if own != plain:
                raise SettingError(
                    f"{name}={own} is not supported with recurrent={units}.",
                    "recurrent=0: recurrent networks sample sequences uniformly and learn from "
                    "1-step targets",
                    f"give recurrent=0, or {name}={plain}.",
                )


def rewards(action: Leaf) -> dict[str, Leaf]:
    """Return the replay buffer's column for the rewards of each agent."""
    agents = count(action)
    return {
        "rewards": Leaf("box", (agents,), "float32", (), (-np.inf,) * agents, (np.inf,) * agents)
    }
