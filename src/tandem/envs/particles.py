"""Vectorized particle worlds (Mordatch & Abbeel 2018; Lowe et al. 2017), bit-for-bit identical to
single worlds of mpe2.

Arithmetic is in float64 and in mpe2's order of operations. Spaces, sizes and physical constants are
read from an mpe2 world; the computation is implemented here, for the versions `VERIFIED`.
"""

from __future__ import annotations

from importlib import metadata
from typing import Any

import numpy as np

from tandem.envs.checks import check_finite, raising
from tandem.envs.vector import Arrays, Environments, Step, episode_seed
from tandem.errors import ResumeError, SettingError
from tandem.spaces import leaf
from tandem.types import Array, EnvKwargs, JSONDict, Tree

SENSITIVITY = 5.0  # N for an action of 1
# N, for the actions nothing, left, right, down, up
FORCES = SENSITIVITY * np.array([(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)])
# mpe2 versions with identical arithmetic; the test compares with the installed one
VERIFIED = ("1.1.",)
ARGUMENTS = {
    "mpe/simple_spread_v3": {"N", "local_ratio", "max_cycles", "continuous_actions"},
    "mpe/simple_adversary_v3": {"N", "max_cycles", "continuous_actions"},
}


def chosen(env: Any, mode: str, kwargs: EnvKwargs | None = None) -> bool:
    """Return true if a vector of `env` should use `Particles`: on request (native mode), or in auto
    mode if it is equivalent to plain environments."""
    known = isinstance(env, str) and env in ARGUMENTS
    return known and (mode == "native" or (mode == "auto" and unlike(env, kwargs) is None))


def unlike(name: str, kwargs: EnvKwargs | None = None) -> str | None:
    """Return the reason why `Particles` cannot replace this environment; None if it can."""
    if name not in ARGUMENTS:
        return "it is another environment"
    if others := set(kwargs or {}) - ARGUMENTS[name]:
        return f"it does not accept {', '.join(sorted(others))}"
    try:
        version = metadata.version("mpe2")
    except metadata.PackageNotFoundError:
        return None  # creating the environment reports the missing package
    return None if version.startswith(VERIFIED) else f"it has not been compared with mpe2 {version}"


class Particles(Environments):
    """N worlds of simple_spread_v3 or simple_adversary_v3, equivalent to `Stepped` with `Team`s:
    seeds give bit-for-bit identical observations, rewards and ends.

    Episode k of world i is seeded with `episode_seed(seed, first + i, k)`. Every episode lasts
    `max_cycles` steps, so all N end together.
    """

    def __init__(
        self,
        name: str,
        n: int,
        seed: int = 0,
        kwargs: EnvKwargs | None = None,
        first: int = 0,
    ) -> None:
        if (why := unlike(name, kwargs)) is not None:
            raise SettingError(
                f"{name} has no native vector environment with {dict(kwargs or {})}: {why}.",
                f"{' or '.join(ARGUMENTS)} with some of the arguments "
                f"{', '.join(sorted(set.union(*ARGUMENTS.values())))}",
                "use mode='auto' or mode='plain'.",
            )
        from tandem.envs.team import team  # imports Gymnasium, which `tandem --help` avoids

        one = team(name, kwargs)
        super().__init__(name, n, one.observation_space, one.action_space)
        self.extra = {"rewards": leaf(one.rewards_space)}
        inner = one.inner.unwrapped
        world, self._length = inner.world, inner.max_cycles
        self._discrete, self._seed, self._first = one.discrete, seed, first
        self._agents, self._marks = len(world.agents), len(world.landmarks)
        self._dt, self._kept = world.dt, 1 - world.damping  # s; share of velocity kept per step
        self._stiffness, self._margin = world.contact_force, world.contact_margin  # N/m, m
        # m between the centers of two agents that touch
        self._reach = world.agents[0].size + world.agents[0].size
        self._spread = name == "mpe/simple_spread_v3"
        if self._spread:
            self._shared = 1 - inner.local_ratio
            # indexed by the number of other agents that an agent touches
            self._penalty = -np.arange(self._agents) * inner.local_ratio
        one.close()
        self._lay_out()
        self._steps, self._episode, self._valid = 0, -1, np.ones(n, np.bool_)

    def reset(self) -> Tree:
        self._episode = -1
        self._begin()
        return self._observed(self._look())

    def step(self, actions: Array) -> Step:
        with raising(self.name, step=self._steps + 1):
            force = self._controls(actions)
        self._steps += 1
        if self._spread:
            self._push(force)
        np.add(self._places, self._speeds * self._dt, out=self._places)
        np.multiply(self._speeds, self._kept, out=self._speeds)
        force *= self._dt  # masses are 1
        np.add(self._speeds, force, out=self._speeds)
        agents = self._look()
        rewards = (self._spread_rewards() if self._spread else self._adversary_rewards()).astype(
            np.float32
        )
        reward = np.add.reduce(rewards, axis=1) / np.float32(self._agents)
        ended = self._steps >= self._length
        if ended:  # checked first, so that errors are those of the plain vector
            self._check(agents, "the last observation")
        self._check(reward, "the reward")
        self._check(agents, "the observation")
        obs, final = self._observed(agents), []
        if ended:
            final = [(i, {key: x[i] for key, x in obs.items()}) for i in range(self.n)]
            self._begin()
            obs = self._observed(self._look())
        terminated, truncated = np.zeros(self.n, np.bool_), np.full(self.n, ended)
        return Step(
            obs, reward, terminated, truncated, self._valid.copy(), final, {"rewards": rewards}
        )

    def state(self) -> tuple[JSONDict, Arrays]:
        return {"episode": self._episode, "steps": self._steps}, {"worlds": self._worlds.copy()}

    def load_state(self, data: JSONDict, arrays: Arrays) -> None:
        saved = arrays.get("worlds")
        if saved is None or "episode" not in data:
            raise ResumeError(
                f"the saved state is not from the native vector environment of {self.name}.",
                "the run's original mode",
                "make the environments with mode='plain'.",
            )
        if saved.shape != self._worlds.shape:
            raise ResumeError(
                f"the saved worlds have shape {list(saved.shape)}; these have shape "
                f"{list(self._worlds.shape)}.",
                "the run's original number of environments and arguments",
                f"make {len(saved)} environments with the same arguments.",
            )
        self._episode, self._steps = data["episode"], data["steps"]
        self._worlds[...] = saved
        self._look()

    def close(self) -> None:
        return

    def _lay_out(self) -> None:
        """Allocate the worlds' arrays and select the observed columns.

        Each world is a float64 row: positions (m) of agents and landmarks, and of the goal in
        simple_adversary, then the agents' velocities (m/s), each as x, y; then 0 and 1. Every
        observed number is the difference of two columns.
        """
        count, bodies = self._agents, self._agents + self._marks
        start = 2 * (bodies + (not self._spread))  # of velocities
        zero = start + 2 * count
        self._worlds: Array = np.zeros((self.n, zero + 2))
        self._worlds[:, zero + 1] = 1.0
        self._bodies = self._worlds[:, : 2 * bodies]
        self._goal = self._worlds[:, 2 * bodies : start]
        self._places, self._speeds = self._worlds[:, : 2 * count], self._worlds[:, start:zero]
        width = self.observation["agents"].shape[1]  # type: ignore[index]
        plus, minus = np.full((2, count, width), zero)
        shown: list[int] = []  # the state consists of all observations without padding
        for i in range(count):
            pairs = np.array(self._seen_by(i, start, zero))
            seen = 2 * len(pairs)
            plus[i, :seen], minus[i, :seen] = (
                np.stack([x, x + (x != zero)], -1).ravel() for x in pairs.T
            )
            plus[i, width - count + i] = zero + 1  # one-hot agent index
            shown += range(i * width, i * width + seen)
        self._plus, self._minus, self._shown = plus.ravel(), minus.ravel(), np.array(shown)
        self._sight, self._less = (np.empty((self.n, count * width)) for _ in range(2))
        # vectors (m) from each agent to landmarks, then to other agents; `_look` sets distances
        if self._spread:
            between = self._sight.reshape(self.n, count, width)[:, :, 4 : 4 + 2 * (bodies - 1)]
            self._between = between.reshape(self.n, count, bodies - 1, 2)
            self._distance = np.empty(0)

    def _seen_by(self, i: int, start: int, zero: int) -> list[tuple[int, int]]:
        """Return the observation of agent i in mpe2's order, as pairs of columns to subtract; each
        column is the x of a vector, or 0."""
        count, bodies, me = self._agents, self._agents + self._marks, 2 * i
        pairs = [(2 * j, me) for j in (*range(count, bodies), *(j for j in range(count) if j != i))]
        if self._spread:  # agents are silent: each communicates 0, 0
            return [(start + me, zero), (me, zero), *pairs, *[(zero, zero)] * (count - 1)]
        # the adversary, which is first, does not observe the goal
        return [(2 * bodies, me), *pairs] if i else pairs

    def _begin(self) -> None:
        """Start the next episode of all worlds: agents, then landmarks, uniformly in [-1, 1] m, at
        rest."""
        self._episode, self._steps = self._episode + 1, 0
        draws, goals = np.empty((self.n, self._bodies.shape[1])), [0] * self.n
        for i, row in enumerate(draws):
            seed = episode_seed(self._seed, self._first + i, self._episode)
            rng = np.random.Generator(np.random.PCG64(seed))
            if not self._spread:
                goals[i] = self._agents + int(rng.integers(self._marks))
            rng.random(out=row)
        self._bodies[...] = -1.0 + 2.0 * draws
        if not self._spread:
            self._goal[...] = self._bodies.reshape(self.n, -1, 2)[range(self.n), goals]
        self._speeds[...] = 0.0

    def _controls(self, actions: Array) -> Array:
        """Return the force [n, 2 A] (N) of each agent's action, from actions [n, A] (nothing, left,
        right, down, up) or [n, A, 5]."""
        expected = (self.n, *self.action.shape)
        actions = np.asarray(actions)
        if actions.shape != expected:
            raise ValueError(f"actions have shape {actions.shape}, not {expected}")
        if not self._discrete:
            x = actions.astype(np.float32, copy=False)
            force = np.empty((self.n, self._agents, 2))
            np.subtract(x[..., 2::2], x[..., 1::2], out=force)
            force += 0.0  # no negative zeros, as mpe2 has none
            force *= SENSITIVITY
            return force.reshape(self.n, -1)
        if actions.dtype.kind == "f" and not np.isfinite(actions).all():
            raise ValueError("an action is not finite")
        return FORCES.take(actions.astype(np.intp, copy=False), axis=0, mode="wrap").reshape(
            self.n, -1
        )

    def _push(self, force: Array) -> None:
        """Add the contact forces between agents to `force` [n, 2 A] (N). Contacts are soft: the
        force is never exactly 0, at any distance."""
        apart = self._distance[:, :, self._marks :]
        depth = np.logaddexp(0, (self._reach - apart) / self._margin) * self._margin
        pushes = (
            self._stiffness
            * self._between[:, :, self._marks :]
            / apart[..., None]
            * depth[..., None]
        )
        total = force.reshape(self.n, self._agents, 2)
        for j in range(self._agents - 1):  # sequentially, since the last bit depends on the order
            total -= pushes[:, :, j]

    def _look(self) -> Array:
        """Return the current observations, float32 [n, A, O + A], and update the distances."""
        self._worlds.take(self._plus, axis=1, out=self._sight, mode="clip")
        self._worlds.take(self._minus, axis=1, out=self._less, mode="clip")
        np.subtract(self._sight, self._less, out=self._sight)
        if self._spread:
            square = self._between * self._between
            self._distance = np.sqrt(square[..., 0] + square[..., 1])
        return self._sight.astype(np.float32).reshape(self.n, self._agents, -1)

    def _observed(self, seen: Array) -> dict[str, Array]:
        return {
            "active": np.ones((self.n, self._agents), np.int8),
            "agents": seen,
            "state": seen.reshape(self.n, -1).take(self._shown, axis=1, mode="clip"),
        }

    def _spread_rewards(self) -> Array:
        """Return rewards [n, A]: minus the distances from landmarks to their nearest agents, shared
        by all; and -1 for each other agent touched."""
        nearest = np.minimum.reduce(self._distance[:, :, : self._marks], axis=1)
        shared = -nearest[:, 0]
        # sequentially, since the pairwise `sum` differs in the last bits
        for j in range(1, self._marks):
            shared -= nearest[:, j]
        touched = np.add.reduce(
            self._distance[:, :, self._marks :] < self._reach, axis=2, dtype=np.intp
        )
        return (shared * self._shared)[:, None] + self._penalty.take(touched)

    def _adversary_rewards(self) -> Array:
        """Return rewards [n, A]: minus the adversary's distance from the goal; for the others, that
        distance minus the shortest of theirs."""
        away = self._places.reshape(self.n, self._agents, 2) - self._goal[:, None]
        away *= away
        distance = np.sqrt(away[..., 0] + away[..., 1])
        rewards = np.empty((self.n, self._agents))
        np.negative(distance[:, 0], out=rewards[:, 0])
        rewards[:, 1:] = (distance[:, 0] - distance[:, 1:].min(axis=1))[:, None]
        return rewards

    def _check(self, x: Array, what: str) -> None:
        check_finite(self.name, what, x, lambda _: f"at step {self._steps} of its episode")
