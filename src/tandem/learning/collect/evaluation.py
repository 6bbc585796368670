"""Evaluation of an actor on whole episodes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any, NamedTuple

import numpy as np

from tandem.envs.actions import random_actions, to_environment
from tandem.envs.calls import EnvironmentCall, has_methods
from tandem.envs.factory import EnvLike, environment_name, is_instance, make, separate, spare
from tandem.envs.functions import is_functional
from tandem.envs.ids import import_gymnasium
from tandem.envs.occupied import parts
from tandem.envs.opening import opening, reset
from tandem.envs.stepped import Stepped
from tandem.envs.vector import Environments, episode_seed
from tandem.envs.vector_source import VectorSource, brought, named_by
from tandem.errors import SettingError, at_least
from tandem.learning.collect.collector import Actor, reset_ended
from tandem.settings import whole_number
from tandem.spaces import ActionMode, Leaf, Spec, refuse_others
from tandem.types import EnvKwargs, Tree

EVALUATION = 2**31  # environment number for evaluation seeds; training never uses it


class Played(NamedTuple):
    """Results of the evaluation episodes, ordered by episode number."""

    returns: list[float]
    lengths: list[int]
    agents: list[list[float]]  # per-agent returns of a team; empty for a single agent
    cut: int = 0  # number of episodes cut by the step budget
    success: float | None = None  # success rate, if the environment reports success


class EvaluationStopped(BaseException):
    """Raised when an evaluation is stopped early. Like KeyboardInterrupt, it is not an error."""


def side_by_side(env: EnvLike, number: object = "auto") -> int:
    """Return the number of environments that an evaluation steps together. "auto" uses several
    where they are cheap: tandem's own, Gymnasium's classic control, and vector environments."""
    if number != "auto":
        return whole_number("eval_envs", number, 1)
    if isinstance(env, VectorSource) or "num_envs" in named_by(env) or is_functional(env):
        return 10
    spec = import_gymnasium().registry.get(env) if isinstance(env, str) else None
    maker = env if spec is None else spec.entry_point
    module = maker if isinstance(maker, str) else getattr(maker, "__module__", None)
    ours = "tandem.", "tandem/", "gymnasium.envs.classic_control"
    return 10 if str(module).startswith(ours) else 1


def evaluate(
    actor: Actor,
    env: EnvLike,
    episodes: int = 20,
    seed: int = 0,
    *,
    action_mode: ActionMode = "as_is",
    noise: Callable[[int, int], Tree] | None = None,
    environments: int = 10,
    kwargs: EnvKwargs | None = None,
    spaces: tuple[Spec, Leaf] | None = None,
    max_steps: int = 0,
    longest: int = 0,
    stopped: Callable[[], bool] | None = None,
) -> Played:
    """Run `EvaluationEnvs.play` in temporary environments."""
    with closing(EvaluationEnvs(env, environments, kwargs, spaces)) as envs:
        budget = envs.ready(episodes, seed, max_steps, longest)
        return envs.play(actor, episodes, budget, action_mode, noise, stopped)


class EvaluationEnvs:
    """Evaluation environments, created for the first evaluation and reused until `close`.

    Args:
        env: Anything that `make` accepts, a vector environment, or a factory for one. An
            environment object is stepped directly and left open; if a run is stepping it, a copy
            is used instead.
        environments: Maximum number of environments to step together. An object counts as one.
        spaces: Observation and action spaces that the actor expects.
        copies: Copy an environment object for each evaluation, if possible. The copy includes
            state that persists across episodes, such as statistics.

    Raises:
        SettingError: A run is stepping the environment and it cannot be copied.
        SpaceError: The environment's spaces differ from `spaces`.

    Errors from `make` are passed on.
    """

    def __init__(
        self,
        env: EnvLike,
        environments: int = 10,
        kwargs: EnvKwargs | None = None,
        spaces: tuple[Spec, Leaf] | None = None,
        copies: bool = False,
    ) -> None:
        at_least("environments", environments, 1)
        self.environments, self.kwargs, self.spaces = environments, kwargs, spaces
        self.name, self._env, self._is_object = environment_name(env), env, is_instance(env)
        self._copies = copies and self._is_object
        self.source, look = brought(env, kwargs)
        self._look = [] if look is None else [look]  # environment made to inspect a factory
        self._kept: list[Any] = []  # single environments
        self._called: list[int] = []  # number of calls already made on each
        self._owned: list[Any] = []  # environments that `close` closes
        self._envs: Any = None  # the `Environments` that evaluations step
        self._limited: list[Any] = []  # its `EpisodeBudget` wrappers
        self._seed = self._begun = 0

    def ready(self, episodes: int, seed: int, max_steps: int = 0, longest: int = 0) -> int:
        """Create missing environments and return the step budget per episode.

        Args:
            episodes: Number of episodes to evaluate.
            seed: Seed of the evaluation.
            max_steps: Maximum steps per episode. A longer episode is cut and counts with its
                return so far. 0: `default_budget` of the environment and `longest`.
            longest: Length of the longest training episode.
        """
        from tandem.envs.episode_budget import default_budget  # imports Gymnasium

        at_least("episodes", episodes, 1)
        at_least("max_steps", max_steps, 0)
        self._seed, self._begun, n = seed, 0, min(episodes, self.environments)
        if self.source is not None:
            self._vectorize(self.source, n)
            budget = max_steps or default_budget(self._envs, longest)
        else:
            with opening(episode_seed(seed, EVALUATION, 0), None if self._copies else self._env):
                instances = self._instances(n)
                budget = max_steps or default_budget(instances[0], longest)
                self._step_together(instances[:n], n, budget)
        if self.spaces is not None:
            refuse_others(self._envs.name, self.spaces, (self._envs.observation, self._envs.action))
        return budget

    def catch_up(self, calls: list[EnvironmentCall]) -> None:
        """Make the calls that the environments have not received yet. A copy of an object has
        received all of them."""
        if self.source is not None or not self._limited:
            self._envs.make_calls(calls[len(self._envs.calls) :])
        elif not self._copies:
            for i, one in enumerate(self._kept):
                if calls and not self._called[i]:
                    reset(one, seed=0)
                for call in calls[self._called[i] :]:
                    call.on(one, self.name)
                self._called[i] = len(calls)

    def step(self) -> Environments:
        """Start an episode with a random action to check the environments, and return them."""
        envs: Environments = self._envs
        rng = np.random.default_rng(self._seed)
        envs.step(random_actions(envs.action, envs.n, rng, envs.reset()))
        return envs

    def play(
        self,
        actor: Actor,
        episodes: int,
        budget: int,
        action_mode: ActionMode = "as_is",
        noise: Callable[[int, int], Tree] | None = None,
        stopped: Callable[[], bool] | None = None,
    ) -> Played:
        """Play exactly `episodes` episodes and return their undiscounted returns and lengths.

        Each episode has its own seed, derived from (seed, episode number). A free environment
        takes the next number, and every started episode with a number below `episodes` is
        finished. Short episodes therefore count no more than long ones, and the number of
        environments does not change the result of an actor that treats all rows alike.

        A vector environment is reset with a single seed derived from `seed`. Its environments take
        numbers in the same way, and at most `episodes` of the initial ones count. After a cut, an
        environment continues uncounted until its episode ends; when no environment plays a counted
        episode, all restart.

        Args:
            actor: Actor to evaluate.
            episodes: Number of episodes, as passed to `ready`.
            budget: Step budget returned by `ready`.
            action_mode: Conversion from the actor's actions to the environment's.
            noise: Function of (step, n) that returns the noise [n, ...] for one call of
                `actor.act`. None: deterministic actions.
            stopped: Function called before each step; returning true stops the evaluation.

        Raises:
            EvaluationStopped: `stopped` returned true.
        """
        envs, limited, single = self._envs, self._limited, self.source is None
        convert, n = to_environment(envs.action, action_mode), envs.n
        scores, lengths = np.zeros(n), np.zeros(n, np.int64)
        agents = envs.extra["rewards"].shape if "rewards" in envs.extra else (0,)
        each, of_agents = np.zeros((n, *agents)), np.zeros((episodes, *agents))
        returns, steps, successes = [0.0] * episodes, [0] * episodes, list[float | None]()
        numbers = np.arange(n)  # episode number per environment; `episodes` or above: not counted
        obs, initial, begun, cut, left, t = envs.reset(), actor.initial_state(n), n, 0, episodes, 0
        state = initial
        while left:
            if stopped is not None and stopped():
                raise EvaluationStopped
            action, _, state = actor.act(obs, state, noise(t, n) if noise else None)
            one = envs.step(convert(np.asarray(action, envs.action.dtype)))
            scores += one.reward * one.valid
            each += one.extra.get("rewards", 0.0)
            lengths += one.valid
            ended = one.terminated | one.truncated
            for i in np.flatnonzero(ended | ((lengths >= budget) & (numbers < episodes))).tolist():
                if (k := numbers[i]) < episodes:
                    returns[k], steps[k], of_agents[k] = float(scores[i]), int(lengths[i]), each[i]
                    left -= 1
                    if single:
                        cut += bool(limited[i].cut if limited else envs.was_cut(i))
                    else:
                        cut += not ended[i]
                    successes.append(one.success.get(i))
                numbers[i] = episodes  # not counted until the next episode begins
                if ended[i]:
                    numbers[i], begun = begun, begun + 1
                    scores[i], lengths[i], each[i] = 0.0, 0, 0.0
            state, obs, t = reset_ended(state, initial, one), one.obs, t + 1
            if left and not (numbers < episodes).any():
                obs, state = envs.restart(), initial
                numbers, begun = begun + np.arange(n), begun + n
                scores[:], lengths[:] = 0.0, 0
        said = [x for x in successes if x is not None]
        success = float(np.mean(said)) if said else None
        return Played(returns, steps, of_agents.tolist() if of_agents.size else [], cut, success)

    def close(self) -> None:
        """Close the environments created here. Later evaluations recreate them."""
        vectors = [] if self.source is None else [self.source]
        vectors += [] if self.source is None or self._envs is None else [self._envs]
        owned = [*self._look, *self._owned, *vectors]
        self._kept, self._look, self._owned, self._envs = [], [], [], None
        self._called = []
        for one in owned:
            with suppress(Exception):  # the scores are already known
                one.close()

    def _vectorize(self, source: VectorSource, n: int) -> None:
        seed = episode_seed(self._seed, EVALUATION, 0)
        sized = source.is_sized and "num_envs" not in (self.kwargs or {})
        if self._envs is None or source.is_seeded or (sized and self._envs.n != n):
            self.close()
            self._envs = source.environments(n if sized else None, seed, self.kwargs, spare)
        self._envs.begin_at(seed)

    def _instances(self, n: int) -> list[Any]:
        """Return up to n single environments."""
        if self._copies:
            with suppress(SettingError):  # if it cannot be copied now, reuse the previous copy
                fresh = make(separate(self._env))
                self.close()
                self._kept, self._owned = [fresh], [fresh]
        while len(self._kept) < n:
            one = make(self._look.pop()) if self._look else make(self._env, self.kwargs)
            free = spare(one)
            if any(parts(free).keys() & parts(other).keys() for other in self._kept):
                break  # the factory returns the same environment each time
            self._kept.append(free)
            self._called.append(0)
            if free is not one or not self._is_object:
                self._owned.append(free)
            if self._is_object or has_methods(free, "together"):
                break
        return self._kept

    def _step_together(self, instances: list[Any], n: int, budget: int) -> None:
        if has_methods(instances[0], "together"):  # functional
            # the seed also determines the pool of initial states, if the environment has one
            seed = episode_seed(self._seed, EVALUATION, 0)
            next_seed = self._next_seed
            self._envs = instances[0].together(n, seed, next_seed=next_seed, budget=budget)
        elif self._envs is None or self._envs.n != len(instances):
            from tandem.envs import adapted, episode_budget  # import Gymnasium

            self._limited = [
                episode_budget.EpisodeBudget(one, budget) for one in adapted.adapted(instances)
            ]
            self._envs = Stepped(self.name, self._limited, next_seed=self._next_seed)
        for limited in self._limited:
            limited.max_steps = budget

    def _next_seed(self, *_: int) -> int:
        self._begun += 1
        return episode_seed(self._seed, EVALUATION, self._begun - 1)
