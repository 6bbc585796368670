"""Trained agents, which choose actions. They need no framework if all their network layers are
known."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from tandem.algorithms import name_of
from tandem.algorithms.base import Algorithm, Forward
from tandem.envs.actions import to_environment
from tandem.envs.wrapped import wrapped
from tandem.errors import NetworkError, SettingError, SpaceError, TandemError
from tandem.learning.collect.actor import PolicyActor
from tandem.spaces import MASK, Leaf, Spec, described, fits
from tandem.types import Array, Tree, leaves, tree_map
from tandem.vector_actions import restored

if TYPE_CHECKING:
    import tandem.reports.animation


class Agent:
    """Trained agent, as returned by training and by `tandem.load`.

    With `deterministic=False` only actions are sampled, as in the algorithm's exploration; the
    weights stay free of noise.

    Args:
        algorithm: Algorithm class.
        settings: Settings of the algorithm.
        observation: Observation spec.
        action: Action spec.
        networks: Forward function per role, without noise on the weights.
        name: Algorithm and environment id, for example "ppo CartPole-v1".
        env_kwargs: Arguments of the Atari game; {} for other environments.
        longest: Length of the longest training episode, in steps.
    """

    def __init__(
        self,
        algorithm: type[Algorithm],
        settings: Any,
        observation: Spec,
        action: Leaf,
        networks: dict[str, Forward],
        name: str = "",
        env_kwargs: dict[str, Any] | None = None,
        longest: int = 0,
    ) -> None:
        self.algorithm = algorithm
        self.settings = settings
        self.observation = observation
        self.action = action
        self.name = name
        self.networks, self._env_kwargs, self.longest = networks, env_kwargs or {}, longest
        self.wrappers: list[str] = []  # names of its environment's wrappers
        self.origin: dict[str, str] = {}  # origin of the environment id, for a loaded agent
        # raised when names in its file would make tandem run untrusted code
        self.distrust: TandemError | None = None
        self._rng = np.random.default_rng()
        self._bind()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if {"choose_action", "update"} & vars(cls).keys():
            raise SettingError(
                f"{cls.__name__} defines choose_action or update, but derives from the trained "
                "agent.",
                "the base class of cluster agents",
                "from tandem.cluster import Agent",
            )

    def _bind(self) -> None:
        self.actor = PolicyActor(self.algorithm, self.settings, self.action, self.networks)
        mode = self.algorithm.action_mode(self.settings, self.action)
        self._to_environment = to_environment(self.action, mode)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickling and copying. Networks of known layers are stored as plans
        and arrays, without code. Others include the classes of their layers, and a SettingError
        names the part that cannot be pickled."""
        return {n: v for n, v in vars(self).items() if n not in ("actor", "_to_environment")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._bind()

    def __repr__(self) -> str:
        """Return, for example, "Agent(ppo CartPole-v1: observation (4,) float32; action …)"."""
        name = self.name or name_of(self.algorithm)
        return f"Agent({name}: {described(self.observation, self.action)})"

    @property
    def trained_in(self) -> str:
        """Id of the training environment, or "". Raises CheckpointError if the agent's file was
        written elsewhere and making that environment could run code."""
        if self.distrust is not None:
            raise self.distrust
        env: str = wrapped(self.name.partition(" ")[2], self.wrappers)
        return env

    @property
    def env_kwargs(self) -> dict[str, Any]:
        """Arguments of the training environment. Raises the same errors as `trained_in`."""
        if self.distrust is not None and self._env_kwargs:
            raise self.distrust
        return self._env_kwargs

    @env_kwargs.setter
    def env_kwargs(self, kwargs: dict[str, Any]) -> None:
        self._env_kwargs = kwargs

    def seed(self, seed: int) -> None:
        """Seed the random generator that samples actions when `deterministic=False`."""
        self._rng = np.random.default_rng(seed)

    def act(self, obs: Tree, deterministic: bool = True, action_masks: Any = None) -> Array:
        """Return the action for one observation, or the actions for a batch.

        Args:
            obs: One observation, or a batch [B, ...].
            deterministic: False samples actions, as in the algorithm's exploration.
            action_masks: Mask [choices] or masks [B, choices], unless `obs` already contains it.

        Returns:
            The action or actions, in the environment's format.

        Raises:
            SpaceError: The observation's shape differs from the training environment's.
            NetworkError: The agent is recurrent, so its actions depend on more than the current
                observation. Use `predict`.
        """
        if self.settings.recurrent:
            raise NetworkError(
                f"{self.name or 'this agent'} is recurrent, but act(obs) has no recurrent state.",
                "the state of the previous step and the observation",
                "action, state = agent.predict(obs, state, episode_start, deterministic=True), "
                "with state=None at first.",
            )
        return self.predict(obs, None, None, deterministic, action_masks)[0]

    def predict(
        self,
        observation: Tree,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
        action_masks: Any = None,
    ) -> tuple[Array, Any]:
        """Return (actions, state), with the signature of Stable-Baselines3 policies.

        Args:
            observation: One observation, or a batch [B, ...].
            state: Recurrent state returned by the previous call; None for the initial state.
            episode_start: Resets the state to the initial one where true; a single value or [B].
            deterministic: False samples actions, as in the algorithm's exploration.
            action_masks: As for `act`.
        """
        if action_masks is not None:
            inner = observation if isinstance(observation, dict) else {"obs": observation}
            observation = {**inner, MASK: np.asarray(action_masks)}
        return self._acted(observation, state, episode_start, None if deterministic else self._rng)

    def move(self, obs: Tree, state: Tree, rng: np.random.Generator) -> tuple[Array, Any]:
        """Act as `predict` does, with exploration noise sampled from `rng`."""
        return self._acted(obs, state, None, rng)

    def play(
        self,
        env: Any = None,
        episodes: int = 1,
        seed: int = 0,
        max_steps: int = 1000,
        fps: float | None = None,
    ) -> tandem.reports.animation.Animation:
        """Play episodes and return them as an animation.

        A notebook displays the animation as a cell's result. `save("play.gif")` or
        `save("play.mp4")` writes it to a file. `episodes`, `seed`, `max_steps`, `fps` and the
        errors are those of `tandem.reports.animation.animate`.

        Args:
            env: Gymnasium id, environment made with render_mode="rgb_array", or a callable that
                makes one. None: the training environment.
        """
        film = import_module("tandem.reports.animation").filmed
        return film(self, env, episodes, seed, max_steps, fps)

    def _acted(
        self, obs: Tree, state: Tree, start: Any, rng: np.random.Generator | None
    ) -> tuple[Array, Any]:
        rows, single = rows_of(self.observation, obs)
        n = len(leaves(rows)[0])
        noise: Tree = None
        if rng is not None:
            drawn = self.algorithm.exploration_noise(
                self.settings, self.action, rng, (1, n), np.ones(1)
            )
            noise = tree_map(lambda x: x[0], drawn)
        acted, _, after = self.actor.act(rows, self._state(n, state, start), noise)
        actions = self._to_environment(np.asarray(acted, self.action.dtype))
        own = restored(self.action)(actions[0] if single else actions)
        return own, (state if isinstance(after, tuple) else after)

    def _state(self, n: int, state: Tree, start: Any) -> Tree:
        """Return the recurrent state [n, ...] to act on; () for an agent without one."""
        initial = self.actor.initial_state(n)
        if isinstance(initial, tuple) or state is None:
            return initial
        if np.shape(state) != initial.shape:
            raise SpaceError(
                f"the state has shape {np.shape(state)} for {n} observations.",
                f"shape {initial.shape}",
                "give the state that the previous call returned, or None at first.",
            )
        if start is None:
            return state
        begun = np.reshape(start, (-1, *[1] * (initial.ndim - 1)))  # teams have states [B, A, S]
        return np.where(begun, initial, state)


def rows_of(observation: Spec, obs: Tree) -> tuple[Tree, bool]:
    """Return observations as a batch [B, ...], and whether it was a single one. Raises SpaceError
    if their shape does not match the spec."""
    if not isinstance(observation, dict):
        return _rows("", obs, observation)
    if MASK in observation and not (isinstance(obs, dict) and MASK in obs):
        raise SpaceError(
            f"the observation has no {MASK}.",
            "the mask of the current state, since the agent was trained with masks",
            "give it, as in agent.act(obs, action_masks=env.get_wrapper_attr('action_masks')()).",
        )
    flat = _flat(obs, observation)
    # a Spec does not contain text entries
    flat = {k: x for k, x in flat.items() if k in observation or np.asarray(x).dtype.kind != "U"}
    if set(flat) != set(observation):
        raise SpaceError(
            f"the observation has the entries {', '.join(sorted(flat))}.",
            ", ".join(observation),
            "give exactly these entries.",
        )
    parts = {k: _rows(k, flat[k], spec) for k, spec in observation.items()}
    rows_by_key = {k: rows for k, (rows, _) in parts.items()}
    singles = {single for _, single in parts.values()}
    counts = {len(rows) for rows in rows_by_key.values()}
    if len(singles) > 1 or len(counts) > 1:
        shapes = ", ".join(f"{k!r}: {np.shape(flat[k])}" for k in parts)
        raise SpaceError(
            f"the entries of the observation have the shapes {shapes}.",
            "entries of one observation, or of batches of equal length",
            "give every entry a batch axis of the same length, or none of them.",
        )
    return rows_by_key, singles.pop()


def _rows(name: str, value: object, spec: Leaf) -> tuple[Array, bool]:
    try:
        given = np.asarray(value)
        if given.dtype.kind in "biuf" and not fits(given, spec.dtype):
            raise ValueError(f"{spec.dtype} cannot hold these numbers")
        x = given.astype(spec.dtype, copy=False)
    except (TypeError, ValueError) as error:
        raise SpaceError(
            f"the observation {name and repr(name) + ' '}is {value!r:.100}: {error}.",
            f"numbers of shape {spec.shape}, or a batch of them",
            "give observations of the environment that the agent was trained on.",
        ) from None
    if x.shape == spec.shape:
        return x[None], True
    if x.shape[1:] == spec.shape and x.ndim == len(spec.shape) + 1:
        return x, False
    raise SpaceError(
        f"the observation {name and repr(name) + ' '}has shape {x.shape}.",
        f"{spec.shape} for one, or (B, {', '.join(map(str, spec.shape))}) for a batch",
        "give observations of the environment that the agent was trained on.",
    )


def _flat(obs: Tree, observation: dict[str, Leaf], before: str | None = None) -> dict[str, Any]:
    """Flatten nested entries into one dict, keyed by their names in the Spec ("" is possible)."""
    if before in observation or not isinstance(obs, (dict, tuple)):
        return {before or "": obs}
    entries = obs.items() if isinstance(obs, dict) else enumerate(obs)
    start = "" if before is None else f"{before}/"
    return {
        k: v
        for name, inner in entries
        for k, v in _flat(inner, observation, f"{start}{name}").items()
    }
