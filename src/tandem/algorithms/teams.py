"""What algorithms of several agents share. Environments are those of `collect.team.Team`: A agents
are an axis of the arrays, [B, A, ...]; networks of one agent see rows, [B * A, ...], with the
agents of a step side by side."""

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
    """Refuses environments of one agent, and action spaces that are not of these kinds. Those are
    Discrete ones at least."""
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
    """A, the number of agents."""
    return action.shape[0]


def one(action: Leaf) -> Leaf:
    """The actions of one agent."""
    if action.sizes:
        return Leaf("discrete", (), "int64", action.sizes[:1], masked=action.masked)
    wide = action.shape[1]
    return replace(action, shape=(wide,), low=action.low[:wide], high=action.high[:wide])


def seen(observation: Spec) -> Leaf:
    """The observation space of one agent's network."""
    assert isinstance(observation, dict)
    both = observation[AGENTS]
    wide = both.shape[1]
    return replace(both, shape=(wide,), low=both.low[:wide], high=both.high[:wide])


def space(inputs: Any) -> Any:
    """A space of Gymnasium's for what enters a network: a body of the user's is told of it."""
    from gymnasium import spaces

    if isinstance(inputs, dict):
        return spaces.Dict({k: space(v) for k, v in inputs.items()})
    low, high = (np.asarray(b, np.float32).reshape(inputs.shape) for b in (inputs.low, inputs.high))
    return spaces.Box(low, high)


def rows(x: Array) -> Array:
    """[B, A, ...] as [B * A, ...]."""
    return ops.of(x).reshape(x, (-1, *x.shape[2:]))


def by_agent(x: Array, agents: int) -> Array:
    """[B * A, ...] as [B, A, ...]."""
    return ops.of(x).reshape(x, (-1, agents, *x.shape[1:]))


def masks(obs: Tree, action: Leaf) -> dict[str, Array]:
    """The masks of each agent's choices as rows [B * A, C], under their name; none where actions
    have none."""
    if not action.masked:
        return {}
    return {MASK: ops.of(obs[MASK]).reshape(obs[MASK], (-1, action.sizes[0]))}


def allowed(out: Array, obs: Tree, action: Leaf) -> Array:
    """Outputs [B * A, C] for the choices of each agent as [B, A, C], those that are forbidden as
    `masked` has them."""
    return by_agent(masked(out, masks(obs, action), one(action)), count(action))


def active(obs: Tree) -> Array:
    """float [B, A], 1 for agents that take part."""
    xp = ops.of(obs[ACTIVE])
    return 1.0 - xp.abs(xp.cast(obs[ACTIVE]) - 1.0)


def going(next_obs: Tree) -> Array:
    """float [B, A], 1 for agents whose future counts after a step: those that take part, and those
    that a limit took in that step."""
    xp = ops.of(next_obs[ACTIVE])
    return xp.clip(xp.cast(next_obs[ACTIVE]), 0.0, 1.0)


def own(obs: Tree) -> Array:
    """float [B, A, A]: which agent it is that each row is of, as one-hot vectors."""
    agents = obs[AGENTS]
    return agents[..., -agents.shape[1] :]


def of_all(x: Array, obs: Tree) -> Array:
    """[B] of a step as [B, A] of its agents."""
    return x[:, None] + 0.0 * active(obs)


def mean(x: Array, obs: Tree) -> Array:
    """[B]: the mean of x [B, A] over the agents that take part; 0 where none does."""
    xp, here = ops.of(x), active(obs)
    return xp.sum(here * x, -1) / xp.clip(xp.sum(here, -1), 1.0, float(x.shape[-1]))


def check_replay(settings: Any) -> None:
    """Refuses of sequences what only single steps have."""
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
    """The column for what each agent was paid, where a replay buffer keeps it."""
    agents = count(action)
    return {
        "rewards": Leaf("box", (agents,), "float32", (), (-np.inf,) * agents, (np.inf,) * agents)
    }
