"""Acting in N functional environments within a traced function."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tandem.envs.actions import to_environment
from tandem.envs.jax import episodes
from tandem.envs.jax.episodes import Episodes, StepResult, where
from tandem.envs.jax.protocol import FunctionalEnv
from tandem.learning.collect.actor import RandomActor
from tandem.learning.compiled.faults import Faults
from tandem.learning.compiled.generator import Keyed
from tandem.spaces import action_leaf, observation_spec
from tandem.types import Array, Cuts, Trajectory, Tree
from tandem.vector_actions import restored, taken_space


class Acting(NamedTuple):
    """State of collection between two steps."""

    episodes: Episodes
    state: Tree  # [N, ...]  recurrent state of the policy; () for none


class BlockEpisodes(NamedTuple):
    """Ends of episodes in a block."""

    last: Array  # bool [T, N]
    terminated: Array  # bool [T, N]
    score: Array  # float32 [T, N]  return of the episode up to that step
    length: Array  # int32 [T, N]
    faults: Array  # int16 [T, N]  fault codes of the environment, see `Faults`


class Collecting:
    """Collector of T steps of N environments with an algorithm's policy; on the host, `Collector`
    does this. name: of the environment."""

    def __init__(
        self, algorithm: Any, env: FunctionalEnv, n: int, name: str = "the environment"
    ) -> None:
        self.faults = Faults(name, env)
        self.algorithm, self.env, self.n = algorithm, env, n
        self.settings = algorithm.settings
        taken = taken_space(env.action_space)
        self.action = action_leaf(taken, observation_spec(env.observation_space))
        self.flatten = self.faults.flatten
        self.steps = self.settings.block
        self._random = RandomActor(self.action)
        mode = algorithm.action_mode(self.settings, self.action)
        converted, own = to_environment(self.action, mode), restored(self.action)
        self._to_environment: Callable[[Array], Any] = lambda action: own(converted(action))
        self._act = partial(algorithm.act, self.settings, self.action)

    def begin(self, key: Array) -> Acting:
        """Return the state before the first step."""
        return Acting(episodes.begin(self.env, key, self.n), self._initial())

    def _initial(self) -> Tree:
        state = self.algorithm.initial_state(self.settings, self.action, self.n)
        return jax.tree.map(jnp.asarray, state)

    def noise(self, key: Array, progress: Array) -> Tree:
        """Sample the exploration noise of a block, at `progress` [T]."""
        shape = (self.steps, self.n)
        return self.algorithm.exploration_noise(
            self.settings, self.action, Keyed(key), shape, progress
        )

    def chance(self, key: Array) -> Tree:
        """Sample random actions for a block; with action masks, the noise to choose them."""
        return self._random.noise(Keyed(key), (self.steps, self.n))  # type: ignore[arg-type]

    def best(
        self, networks: dict[str, Any], acting: Acting, key: Array
    ) -> tuple[Acting, StepResult, Array]:
        """Step with the deterministic policy. Also return the faults [N]."""
        now, initial = acting.episodes, self._initial()
        obs = self.flatten(now.obs)
        action, _, state = self._act(networks, obs, acting.state, None)
        now, outcome = episodes.step(self.env, key, now, self._to_environment(action))
        faults = self.faults.of_steps(obs, outcome)
        return Acting(now, where(outcome.last, initial, state)), outcome, faults

    def collect(
        self, networks: dict[str, Any], acting: Acting, noise: Tree, key: Array, by_chance: Tree
    ) -> tuple[Acting, Trajectory, BlockEpisodes]:
        """Collect the next block. by_chance: (true if actions are random, the random actions), or
        () for never."""
        initial = self._initial()

        def step(acting: Acting, x: Tree) -> Any:
            drawn, random, key = x
            now = acting.episodes
            obs = self.flatten(now.obs)
            action, extra, state = self._act(networks, obs, acting.state, drawn)
            if by_chance:
                chosen, _, _ = self._random.act(obs, (), random)
                action = jnp.where(by_chance[0], chosen, action)
                state = jax.tree.map(lambda a, b: jnp.where(by_chance[0], a, b), initial, state)
            now, outcome = episodes.step(self.env, key, now, self._to_environment(action))
            state = where(outcome.last, initial, state)
            return Acting(now, state), (obs, action, extra, outcome)

        keys = jax.random.split(key, self.steps)
        random = by_chance[1] if by_chance else jnp.zeros(self.steps)
        after, (obs, action, extra, seen) = jax.lax.scan(step, acting, (noise, random, keys))
        gamma = np.float32(self.settings.gamma)
        trajectory = Trajectory(
            obs,
            action,
            seen.reward,
            jnp.where(seen.terminated, np.float32(0), gamma),
            seen.last,
            jnp.ones_like(seen.last),
            Cuts((), (), self.flatten(seen.obs), when),
            self.flatten(after.episodes.obs),
            extra,
            acting.state,
        )
        faults = self.faults.of_steps(obs, seen)
        ended = BlockEpisodes(seen.last, seen.terminated, seen.score, seen.length, faults)
        return after, trajectory, ended


def when(flag: Any, f: Callable[[], Any], otherwise: Any) -> Any:
    """Return f() if the flag is true, computed only then, else `otherwise`."""
    return jax.lax.cond(flag, f, lambda: otherwise)


def forwards(backend: Any, roles: tuple[str, ...]) -> dict[str, Any]:
    """Return the forward functions of the acting and preparing networks, for tracing."""
    return {role: partial(backend.networks[role], training=False) for role in roles}
