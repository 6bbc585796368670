"""Interface of functional environments, which consist of pure functions."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from tandem.types import Array, Tree

State = Any  # any JAX pytree of arrays: a NamedTuple, a dict, a registered dataclass


class TimeStep(NamedTuple):
    """Result of a step of one environment. Scalars are arrays without axes."""

    state: State
    # in observation_space; at the end of an episode its last one, not the first of the next
    obs: Tree
    reward: Array  # float32
    terminated: Array  # bool  the episode ended in a terminal state
    truncated: Array  # bool  the environment truncates the episode here


class FunctionalEnv(Protocol):
    """One environment as pure functions of arrays that JAX can trace.

    These functions do not reset automatically, count steps or sum rewards: the code that steps many
    environments does so for all types (`functional.episodes`).

    Attributes:
        observation_space: Gymnasium observation space.
        action_space: Gymnasium action space; `step` receives actions in its format.
        max_episode_steps: Episodes are truncated after this many steps. 0: never, or if `step`
            truncates them itself.
        reset_pool: 0 or absent: each episode begins with `reset`. If that is expensive (a physics
            engine): the number of initial states that are created once, from which each episode
            takes one.
    """

    observation_space: Any
    action_space: Any
    max_episode_steps: int

    def reset(self, key: Array) -> tuple[State, Tree]:
        """Return the initial (state, observation) of an episode. key: a jax.random key."""

    def step(self, key: Array, state: State, action: Array) -> TimeStep:
        """Return the result of one step."""
