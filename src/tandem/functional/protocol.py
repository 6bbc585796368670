"""What an environment that is pure functions has to have."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from tandem.types import Array, Tree

State = Any  # any tree of arrays, as JAX has them: a NamedTuple, a dict, a registered dataclass


class TimeStep(NamedTuple):
    """The result of a step of one environment. Scalars are arrays without axes."""

    state: State
    obs: (
        Tree  # as observation_space has it: the last one where the episode ends, not the next first
    )
    reward: Array  # float32
    terminated: Array  # bool  the episode is over, and nothing follows
    truncated: Array  # bool  the environment cuts the episode here


class FunctionalEnv(Protocol):
    """One environment, as pure functions of arrays that JAX can trace.

    observation_space, action_space: Gymnasium's; actions are handed over as action_space has them.
    max_episode_steps: episodes are cut (truncated) after so many steps; 0 for never, or where
        `step` says it itself.
    reset_pool: 0 or absent: each episode begins by `reset`. Where that costs much (a physics
        engine), the number of beginnings that are made once, of which each episode takes one.

    No functions but these: nothing resets itself, counts steps or adds up rewards, since whoever
    steps many of them does so for all kinds alike (`functional.episodes`).
    """

    observation_space: Any
    action_space: Any
    max_episode_steps: int

    def reset(self, key: Array) -> tuple[State, Tree]:
        """(state, observation) of an episode's beginning. key: a key of jax.random."""

    def step(self, key: Array, state: State, action: Array) -> TimeStep:
        """One step."""
