"""Interfaces of gymnax 1.0, brax 0.14, Playground 0.2, pgx 2.6 and Gymnasium; see `here`."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from gymnasium.envs.functional_jax_env import FunctionalJaxEnv
from gymnasium.envs.registration import EnvSpec
from gymnasium.experimental.functional import FuncEnv

# gymnax


def gymnax_box(low: Any, high: Any, shape: Any) -> Any:
    return SimpleNamespace(low=low, high=high, shape=shape, dtype=jnp.float32)


@dataclass(frozen=True)
class Params:
    step: float = 0.5
    max_steps_in_episode: int = 6

    def replace(self, **changed: Any) -> Params:
        return replace(self, **changed)


class GymnaxState(NamedTuple):
    at: Any
    time: Any


class Corridor:
    """To the right until 2; a reset's state has a Python number, its observation a bool."""

    default_params = Params()

    def __init__(self, start: float = 0.0) -> None:
        self.start = start

    def observation_space(self, params: Params) -> Any:
        at = gymnax_box(-9.0, jnp.full(1, 9.0), (1,))
        return SimpleNamespace(spaces={"at": at, "far": gymnax_box(0, 1, ())})

    def action_space(self, params: Params | None = None) -> Any:
        return SimpleNamespace(n=3, shape=(), dtype=jnp.int32)

    def _seen(self, state: Any) -> Any:
        return {"at": state.at[None], "far": state.at > 1}

    def reset_env(self, key: Any, params: Params) -> Any:
        state = GymnaxState(jnp.float32(self.start), 0)
        return self._seen(state), state

    def step_env(self, key: Any, state: Any, action: Any, params: Params) -> Any:
        state = GymnaxState(state.at + params.step * (action - 1), state.time + 1)
        return self._seen(state), state, state.at, state.at >= 2, {}

    def is_truncated(self, state: Any, params: Params) -> Any:
        return jnp.asarray(state.time >= params.max_steps_in_episode)


def _gymnax(name: str, **kwargs: Any) -> Any:
    env = {"Corridor-v0": Corridor}[name](**kwargs)
    return env, env.default_params


# brax and MuJoCo Playground


class BraxState(NamedTuple):
    pipeline_state: Any
    obs: Any
    reward: Any
    done: Any
    metrics: Any


class Slide:
    """A mass on a line, pushed; it is done beyond 3."""

    action_size = 2

    def __init__(self, mass: float = 1.0, parts: bool = False) -> None:
        self.mass, self.parts = mass, parts

    @property
    def observation_size(self) -> Any:
        return {"state": (2,), "privileged_state": 3} if self.parts else 2

    @property
    def unwrapped(self) -> Any:
        return self

    def _state(self, at: Any, reward: Any) -> BraxState:
        obs = {"state": at, "privileged_state": jnp.append(at, 1.0)} if self.parts else at
        done = (jnp.abs(at[0]) > 3).astype(jnp.float32)
        return BraxState({"at": at}, obs, reward, done, {"reward": reward})

    def reset(self, rng: Any) -> BraxState:
        return self._state(jax.random.uniform(rng, (2,)), jnp.zeros(()))

    def step(self, state: BraxState, action: Any) -> BraxState:
        at = state.pipeline_state["at"] + action / self.mass
        return self._state(at, action.sum())


def _load(name: str, config: Any = None, config_overrides: Any = None) -> Any:
    given = {"impl": "warp", "episode_length": 5, **(config_overrides or {})}
    assert given.pop("impl") == "jax" and given.pop("episode_length")
    return Slide(parts=True, **given)


# pgx


class PgxState(NamedTuple):
    current_player: Any
    observation: Any
    rewards: Any
    terminated: Any
    truncated: Any
    legal_action_mask: Any
    left: Any


class Nim:
    """Take up to three; who takes the last wins. `first_out`: who begins may give up, taking 0."""

    num_actions, observation_shape, id = 4, (2, 3), "nim"

    def __init__(self, players: int = 2, stones: int = 7, first_out: bool = False) -> None:
        self.num_players, self.stones, self.first_out = players, stones, first_out

    def _state(self, player: Any, left: Any, rewards: Any, out: Any) -> PgxState:
        over = (left <= 0) | out
        legal = (jnp.arange(4) <= left) & (jnp.arange(4) > 0)
        if self.first_out:
            legal = legal.at[0].set(left == self.stones)
        seen = jnp.zeros((2, 3), bool).at[0, 0].set(left > 3)
        return PgxState(player, seen, rewards, over, jnp.bool_(False), legal | over, left)

    def init(self, key: Any) -> PgxState:
        player = jax.random.randint(key, (), 0, self.num_players)
        rewards = jnp.zeros(self.num_players, jnp.float32)
        return self._state(player, jnp.int32(self.stones), rewards, jnp.bool_(False))

    def step(self, state: PgxState, action: Any, key: Any = None) -> PgxState:
        left, who, n = state.left - action, state.current_player, self.num_players
        illegal, out = ~state.legal_action_mask[action], action == 0
        won = jnp.where(jnp.arange(n) == who, 1.0, -1.0)
        rewards = jnp.where(left <= 0, won, 0.0) if n > 1 else action[None].astype(jnp.float32)
        rewards = jnp.where(illegal | out, -won, rewards)
        after = self._state((who + 1) % n, left, rewards, out | illegal)
        return jax.tree.map(lambda x, y: jnp.where(state.terminated, x, y), state, after)

    def observe(self, state: PgxState, player_id: Any = None) -> Any:
        return state.observation


GAMES = {"nim": Nim, "count": lambda: Nim(1), "crowd": lambda: Nim(3)}


# Gymnasium


class GridState(NamedTuple):
    at: Any
    fell: Any


class Grid(FuncEnv):
    """Five cells; a scalar after a reset is an array later, an action a Box of one whole number."""

    action_space = spaces.Box(0, 2, (1,), np.int32)
    observation_space = spaces.Box(0, 4, (1,), np.int32)
    metadata = {"render_fps": 4}

    def __init__(self, start: int = 1) -> None:
        super().__init__({"start": start})

    def initial(self, rng: Any, params: Any = None) -> Any:
        return GridState(jnp.full(1, self.start), False)

    def transition(self, state: Any, action: Any, rng: Any, params: Any = None) -> Any:
        at = state.at + action - 1
        return GridState(jnp.clip(at, 0, 4), at < 0)

    def observation(self, state: Any, rng: Any, params: Any = None) -> Any:
        return state.at

    def reward(self, state: Any, action: Any, next_state: Any, rng: Any, params: Any = None) -> Any:
        return -1.0 - 9 * next_state.fell[0]

    def terminal(self, state: Any, rng: Any, params: Any = None) -> Any:
        return state.at == 4

    def render_init(self, params: Any = None, **_: Any) -> Any:
        return np.zeros((8, 10, 3), np.uint8)

    def render_image(self, state: Any, render_state: Any, params: Any = None) -> Any:
        picture = render_state.copy()
        picture[:, 2 * int(state.at[0]) :] = 255
        return render_state, picture

    def render_close(self, render_state: Any, params: Any = None) -> None:
        pass


class GridJaxEnv(FunctionalJaxEnv):
    def __init__(self, render_mode: str | None = None, **kwargs: Any) -> None:
        env = Grid(**kwargs)
        env.transform(jax.jit)
        super().__init__(env, metadata={"render_modes": ["rgb_array"]}, render_mode=render_mode)


def here(monkeypatch: Any) -> None:
    """The modules can be imported, and phys2d/Grid-v0 is registered."""
    brax_envs = {"_envs": {"slide": Slide}, "get_environment": lambda _, **kw: Slide(**kw)}
    config = SimpleNamespace(episode_length=5, impl="warp")
    registry = SimpleNamespace(ALL_ENVS=("Slide",), load=_load, get_default_config=lambda _: config)
    pgx = {"available_envs": lambda: tuple(GAMES), "make": lambda name: GAMES[name]()}
    for name, content in (
        ("gymnax", {"registered_envs": ["Corridor-v0"], "make": _gymnax}),
        ("brax.envs", brax_envs),
        ("brax", {"envs": SimpleNamespace(**brax_envs)}),
        ("mujoco_playground", {"registry": registry}),
        ("pgx", pgx),
    ):
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    spec = EnvSpec("phys2d/Grid-v0", entry_point=GridJaxEnv, max_episode_steps=20)
    monkeypatch.setitem(gymnasium.registry, "phys2d/Grid-v0", spec)
