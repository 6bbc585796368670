"""A trained agent: it acts. Where all layers of its networks are known it needs no framework."""

from __future__ import annotations

from typing import Any

import numpy as np

from tandem.algorithms.base import Algorithm, Forward
from tandem.collect.actions import to_environment
from tandem.collect.actor import PolicyActor
from tandem.errors import SpaceError
from tandem.spaces import Leaf, Spec
from tandem.types import Array, Tree, leaves, tree_map


class Agent:
    """What training gives back and `tandem.load` reads. `networks` are its forward functions by role, without noise on their
    weights: with `deterministic=False` only actions are drawn, as the algorithm explores. `env_kwargs` are what its Atari game
    was made with, {} for other environments."""

    def __init__(
        self,
        algorithm: type[Algorithm],
        settings: Any,
        observation: Spec,
        action: Leaf,
        networks: dict[str, Forward],
        name: str = "",
        env_kwargs: dict[str, Any] | None = None,
    ) -> None:
        self.algorithm, self.settings, self.observation, self.action, self.name = algorithm, settings, observation, action, name
        self.networks, self.env_kwargs = networks, env_kwargs or {}
        self.actor = PolicyActor(algorithm, action, networks)
        self._to_environment = to_environment(action, algorithm.action_mode)  # type: ignore[arg-type]
        self._rng = np.random.default_rng()

    def seed(self, seed: int) -> None:
        """Fixes what `act(..., deterministic=False)` draws from now on."""
        self._rng = np.random.default_rng(seed)

    def act(self, obs: Tree, deterministic: bool = True) -> Array:
        """The action for one observation, or actions for a batch [B, ...] of them, as the environment takes them.

        Raises SpaceError for observations of another shape than the agent was trained on.
        """
        rows, single = self._rows(obs)
        n = len(leaves(rows)[0])
        noise: Tree = ()
        if not deterministic:
            drawn = self.algorithm.act_noise(self.settings, self.action, self._rng, (1, n), np.ones(1))
            noise = tree_map(lambda x: x[0], drawn)
        actions = self._to_environment(np.asarray(self.actor.act(rows, (), noise)[0], self.action.dtype))
        return actions[0] if single else actions

    def predict(
        self, observation: Tree, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[Array, Any]:
        """(actions, state), as Stable-Baselines3 calls its policies."""
        return self.act(observation, deterministic), state

    def _rows(self, obs: Tree) -> tuple[Tree, bool]:
        """Observations as [B, ...], and whether there was just one."""
        if not isinstance(self.observation, dict):
            return _rows("", obs, self.observation)
        flat = _flat(obs)
        if set(flat) != set(self.observation):
            raise SpaceError(
                f"the observation has the entries {', '.join(sorted(flat))}.",
                ", ".join(self.observation),
                "give exactly these.",
            )
        parts = {k: _rows(k, flat[k], spec) for k, spec in self.observation.items()}
        found = {k: rows for k, (rows, _) in parts.items()}
        singles, counts = {single for _, single in parts.values()}, {len(rows) for rows in found.values()}
        if len(singles) > 1 or len(counts) > 1:
            shapes = ", ".join(f"{k!r}: {np.shape(flat[k])}" for k in parts)
            raise SpaceError(
                f"the entries of the observation have the shapes {shapes}.",
                "all of one observation, or all of a batch of equal length",
                "give them alike.",
            )
        return found, singles.pop()


def _rows(name: str, value: Any, spec: Leaf) -> tuple[Array, bool]:
    x = np.asarray(value).astype(spec.dtype, copy=False)
    if x.shape == spec.shape:
        return x[None], True
    if x.shape[1:] == spec.shape and x.ndim == len(spec.shape) + 1:
        return x, False
    raise SpaceError(
        f"the observation {name and repr(name) + ' '}has shape {x.shape}.",
        f"{spec.shape} for one, or (B, {', '.join(map(str, spec.shape))}) for a batch",
        "give observations of the environment that the agent was trained on.",
    )


def _flat(obs: Any, before: str = "") -> dict[str, Any]:
    if not isinstance(obs, dict):
        return {before: obs}
    return {k: v for name, inner in obs.items() for k, v in _flat(inner, f"{before}/{name}" if before else str(name)).items()}
