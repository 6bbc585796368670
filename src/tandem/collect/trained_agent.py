"""A trained agent: it acts. Where all layers of its networks are known it needs no framework."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from tandem.algorithms import name_of
from tandem.algorithms.base import Algorithm, Forward
from tandem.collect.actor import PolicyActor
from tandem.envs.actions import to_environment
from tandem.envs.wrapped import wrapped
from tandem.errors import NetworkError, SettingError, SpaceError, TandemError
from tandem.spaces import MASK, Leaf, Spec, described, fits
from tandem.types import Array, Tree, leaves, tree_map
from tandem.vector_actions import restored

if TYPE_CHECKING:
    import tandem.reports.animation


class Agent:
    """What training gives back and `tandem.load` reads. `networks` are its forward functions by
    role, without noise on their
    weights: with `deterministic=False` only actions are drawn, as the algorithm explores.
    `env_kwargs` are what its Atari game was made with, {} for other environments; `longest` the
    steps of the longest episode that it was trained in."""

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
        self.wrappers: list[str] = []  # of its environment, by their names
        self.origin: dict[str, str] = {}  # of its environment's id, of one that was loaded
        # raised where names that its file holds would lead to code that nobody vouches for
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
        """For pickles and copies: networks of known layers travel as plans and arrays, without
        code; others travel with the classes of their layers, and SettingError says where something
        in them cannot be pickled."""
        return {n: v for n, v in vars(self).items() if n not in ("actor", "_to_environment")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._bind()

    def __repr__(self) -> str:
        """As in "Agent(ppo CartPole-v1: observation (4,) float32; action discrete 2, …)"."""
        name = self.name or name_of(self.algorithm)
        return f"Agent({name}: {described(self.observation, self.action)})"

    @property
    def trained_in(self) -> str:
        """The id of the environment that it was trained in, or "". CheckpointError where its file
        was written elsewhere and making that environment may run code."""
        if self.distrust is not None:
            raise self.distrust
        env: str = wrapped(self.name.partition(" ")[2], self.wrappers)
        return env

    @property
    def env_kwargs(self) -> dict[str, Any]:
        """The arguments that its environment was made with; errors as of `trained_in`."""
        if self.distrust is not None and self._env_kwargs:
            raise self.distrust
        return self._env_kwargs

    @env_kwargs.setter
    def env_kwargs(self, kwargs: dict[str, Any]) -> None:
        self._env_kwargs = kwargs

    def seed(self, seed: int) -> None:
        """Fixes what `act(..., deterministic=False)` draws from now on."""
        self._rng = np.random.default_rng(seed)

    def act(self, obs: Tree, deterministic: bool = True, action_masks: Any = None) -> Array:
        """The action for one observation, or actions for a batch [B, ...] of them, as the
        environment takes them.

        action_masks: the mask, or masks [B, choices], where it is not an entry of `obs` already.

        Raises SpaceError for observations of another shape than the agent was trained on,
        NetworkError for a recurrent agent, whose actions depend on more than the current
        observation; use `predict`.
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
        """(actions, state), as Stable-Baselines3 calls its policies: `state` is what the call
        before gave back, and is initial where it is None, or where `episode_start` (one or [B]) is
        true. action_masks: as for `act`."""
        if action_masks is not None:
            inner = observation if isinstance(observation, dict) else {"obs": observation}
            observation = {**inner, MASK: np.asarray(action_masks)}
        return self._acted(observation, state, episode_start, None if deterministic else self._rng)

    def move(self, obs: Tree, state: Tree, rng: np.random.Generator) -> tuple[Array, Any]:
        """As `predict`, with what the algorithm explores by drawn from `rng`."""
        return self._acted(obs, state, None, rng)

    def play(
        self,
        env: Any = None,
        episodes: int = 1,
        seed: int = 0,
        max_steps: int = 1000,
        fps: float | None = None,
    ) -> tandem.reports.animation.Animation:
        """Plays episodes and gives back their pictures: a notebook shows them where the cell ends,
        `save("play.gif")` or `save("play.mp4")` writes them.

        env: a Gymnasium id, an environment made with render_mode="rgb_array", or a callable that
        makes one; None is the id that the agent was trained in. episodes, seed, max_steps and fps
        are as `tandem.reports.animation.animate` has them, and so are the errors.
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
        """The state [n, ...] to act on; () for an agent without a memory."""
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
        begun = np.reshape(start, (-1, *[1] * (initial.ndim - 1)))  # a team's state is [B, A, S]
        return np.where(begun, initial, state)


def rows_of(observation: Spec, obs: Tree) -> tuple[Tree, bool]:
    """Observations of that Spec as [B, ...], and whether there was just one. SpaceError for those
    of another shape."""
    if not isinstance(observation, dict):
        return _rows("", obs, observation)
    if MASK in observation and not (isinstance(obs, dict) and MASK in obs):
        raise SpaceError(
            f"the observation has no {MASK}.",
            "the mask of the current state, since the agent was trained with masks",
            "give it, as in agent.act(obs, action_masks=env.get_wrapper_attr('action_masks')()).",
        )
    flat = _flat(obs, observation)
    # texts are left out of a Spec, too
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
    """One dict of all entries, by the names that a Spec gives them; "" may be one."""
    if before in observation or not isinstance(obs, (dict, tuple)):
        return {before or "": obs}
    entries = obs.items() if isinstance(obs, dict) else enumerate(obs)
    start = "" if before is None else f"{before}/"
    return {
        k: v
        for name, inner in entries
        for k, v in _flat(inner, observation, f"{start}{name}").items()
    }
