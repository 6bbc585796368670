"""Gymnasium's CartPole-v1 and Pendulum-v1 as functional environments, equal up to rounding (64 bits
in Gymnasium, 32 in JAX). Gymnasium's functional `phys2d/CartPole-v1` is a different task, since its
pole weighs as much as its length and mass added up."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from tandem.envs.jax.pictures import picture
from tandem.envs.jax.protocol import TimeStep
from tandem.types import Array

NO = np.False_


class CartPole:
    """Pole balancing on a cart (Barto, Sutton & Anderson 1983), as in Gymnasium's CartPole-v1.
    State and observation are [position, velocity, angle, angular velocity] in meters, radians and
    seconds; actions push left (0) or right (1); the reward is 1 per step."""

    GRAVITY, FORCE, SECONDS = 9.8, 10.0, 0.02
    POLE_MASS, MASS = 0.1, 1.1  # kg; the latter includes the cart
    HALF_LENGTH = 0.5  # m
    EDGE, FALLEN = 2.4, 12 * 2 * math.pi / 360  # m, radians

    max_episode_steps = 500
    render_fps = 50
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        high = np.array([2 * self.EDGE, np.inf, 2 * self.FALLEN, np.inf], np.float32)
        self.observation_space = spaces.Box(-high, high)

    def reset(self, key: Array) -> tuple[Array, Array]:
        state = jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)
        return state, state

    def step(self, key: Array, state: Array, action: Array) -> TimeStep:
        _, speed, angle, turn = state
        force = jnp.where(action == 1, self.FORCE, -self.FORCE)
        cos, sin = jnp.cos(angle), jnp.sin(angle)
        moment = self.POLE_MASS * self.HALF_LENGTH
        pushed = (force + moment * jnp.square(turn) * sin) / self.MASS
        turning = (self.GRAVITY * sin - cos * pushed) / (
            self.HALF_LENGTH * (4 / 3 - self.POLE_MASS * jnp.square(cos) / self.MASS)
        )
        moving = pushed - moment * turning * cos / self.MASS
        # explicit Euler: positions change by the old velocities
        state = state + self.SECONDS * jnp.stack([speed, moving, turn, turning])
        fell = (jnp.abs(state[0]) > self.EDGE) | (jnp.abs(state[2]) > self.FALLEN)
        return TimeStep(state, state, jnp.float32(1), fell, NO)

    def render(self, state: Array) -> Array:
        return picture("CartPole-v1", state)


class Pendulum:
    """Pendulum swing-up, as in Gymnasium's Pendulum-v1. The state is [angle, angular velocity] in
    radians and seconds, 0 upright; the observation [cos, sin, angular velocity]; the action a
    torque of at most 2 N m; the reward minus a cost of angle, velocity and torque."""

    GRAVITY, SECONDS, MOST_TORQUE, MOST_SPEED = 10.0, 0.05, 2.0, 8.0  # mass 1 kg, length 1 m

    max_episode_steps = 200

    def __init__(self) -> None:
        self.action_space = spaces.Box(-self.MOST_TORQUE, self.MOST_TORQUE, (1,), np.float32)
        high = np.array([1.0, 1.0, self.MOST_SPEED], np.float32)
        self.observation_space = spaces.Box(-high, high)

    def reset(self, key: Array) -> tuple[Array, Array]:
        high = jnp.array([math.pi, 1.0])
        state = jax.random.uniform(key, (2,), minval=-high, maxval=high)
        return state, self._seen(state)

    def step(self, key: Array, state: Array, action: Array) -> TimeStep:
        angle, turn = state
        torque = jnp.clip(action[0], -self.MOST_TORQUE, self.MOST_TORQUE)
        off = (angle + math.pi) % (2 * math.pi) - math.pi  # in [-pi, pi)
        cost = jnp.square(off) + 0.1 * jnp.square(turn) + 0.001 * jnp.square(torque)
        turning = 1.5 * self.GRAVITY * jnp.sin(angle) + 3 * torque
        turn = jnp.clip(turn + turning * self.SECONDS, -self.MOST_SPEED, self.MOST_SPEED)
        state = jnp.stack([angle + turn * self.SECONDS, turn])
        return TimeStep(state, self._seen(state), -cost, jnp.bool_(False), NO)

    def render(self, state: Array) -> Array:
        return picture("Pendulum-v1", state)

    @staticmethod
    def _seen(state: Array) -> Array:
        return jnp.stack([jnp.cos(state[0]), jnp.sin(state[0]), state[1]])
