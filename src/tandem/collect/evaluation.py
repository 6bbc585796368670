"""Scoring an actor on whole episodes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any, NamedTuple

import numpy as np

from tandem.collect.collector import Actor, reset_ended
from tandem.envs.actions import to_environment
from tandem.envs.calls import EnvironmentCall, has_methods
from tandem.envs.factory import (
    EnvLike,
    environment_name,
    is_instance,
    make,
    random_actions,
    separate,
    spare,
)
from tandem.envs.functions import is_functional
from tandem.envs.ids import import_gymnasium
from tandem.envs.occupied import parts
from tandem.envs.opening import opening, reset
from tandem.envs.stepped import Stepped
from tandem.envs.vector import Environments, episode_seed
from tandem.envs.vector_source import VectorSource, brought, named_by
from tandem.errors import SettingError, at_least
from tandem.settings import whole_number
from tandem.spaces import ActionMode, Leaf, Spec, refuse_others
from tandem.types import EnvKwargs, Tree

EVALUATION = 2**31  # seeds of evaluation episodes: no environment of a training run has this number


class Played(NamedTuple):
    """Results of episodes, in the order of their numbers."""

    returns: list[float]
    lengths: list[int]
    agents: list[list[float]]  # the returns of each agent of a team; of a single one nothing
    cut: int = 0  # how many episodes the budget ended
    success: float | None = None  # share of the successful ones, where the environment says it


class EvaluationStopped(BaseException):
    """An evaluation was asked to stop before all its episodes had ended: no fault, as Ctrl-C is
    none."""


def side_by_side(env: EnvLike, number: object = "auto") -> int:
    """How many environments an evaluation steps together. auto: several where they cost little:
    ours, Gymnasium's classic control, and the parts of a vector."""
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
    """`EvaluationEnvs.play` in environments that are made for it and closed afterwards."""
    with closing(EvaluationEnvs(env, environments, kwargs, spaces)) as envs:
        budget = envs.ready(episodes, seed, max_steps, longest)
        return envs.play(actor, episodes, budget, action_mode, noise, stopped)


class EvaluationEnvs:
    """The environments that evaluations step: made for the first one, kept, closed by `close`.

    env: as `make` takes it, or a vector of environments or what makes one. An object is stepped
      itself and left open; a copy of it if a run steps it now.
    environments: how many to step together at most; an object is one.
    spaces: of the observations and actions that the actor was made for.
    copies: copy an object for each evaluation, if possible. The copy has what the object keeps
      from one episode to the next, such as statistics.

    Raises what `make` raises; SettingError for an environment that a run steps now and that cannot
    be copied, SpaceError for one of other `spaces`.
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
        self._look = [] if look is None else [look]  # which shows what a function makes
        self._kept: list[Any] = []  # single environments
        self._called: list[int] = []  # how many calls each has had
        self._owned: list[Any] = []  # what `close` closes
        self._envs: Any = None  # the `Environments` that evaluations step
        self._limited: list[Any] = []  # the `EpisodeBudget`s in it
        self._seed = self._begun = 0

    def ready(self, episodes: int, seed: int, max_steps: int = 0, longest: int = 0) -> int:
        """Makes the environments for `episodes` episodes, unless they are there, and returns the
        most steps of each.

        max_steps: of each episode; one that has not ended by then is cut, and counts with its
          return so far. 0: `default_budget` of the environment and of `longest`, the length of
          training's longest episode."""
        from tandem.envs.episode_budget import default_budget  # brings Gymnasium

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
        """Makes those of these calls that the environments have not had. A copy of an object has
        had them all."""
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
        """Begins an episode with a random action, to see that there is one, and returns what was
        stepped."""
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
        """Undiscounted returns and lengths of exactly the `episodes` episodes that it is `ready`
        for, in the order of their numbers; budget: what `ready` returned.

        Each episode has its own seed, from (seed, its number); environments take the next number as
        they get free, and every episode that is begun and has a number below `episodes` is
        finished: short ones count no more than long ones, and how many environments there are
        changes nothing for an actor that treats rows alike. A vector is reset by a seed from
        `seed`; its environments take the next number as they get free, and of those that begin
        with it at most `episodes` count. One whose episode was cut plays on for nothing until it
        ends; where none plays for something, all begin anew.

        noise: called with (step, n) for the noise [n, ...] of one call of `actor.act`; without it
          actions are deterministic.
        stopped: asked after each step; EvaluationStopped where it says yes.
        """
        envs, limited, single = self._envs, self._limited, self.source is None
        convert, n = to_environment(envs.action, action_mode), envs.n
        scores, lengths = np.zeros(n), np.zeros(n, np.int64)
        agents = envs.extra["rewards"].shape if "rewards" in envs.extra else (0,)
        each, of_agents = np.zeros((n, *agents)), np.zeros((episodes, *agents))
        returns, steps, successes = [0.0] * episodes, [0] * episodes, list[float | None]()
        numbers = np.arange(n)  # of the episode that each plays; at or above `episodes` it is none
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
                numbers[i] = episodes  # of nothing, until it begins the next
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
        """Closes what was made. It is made again when needed."""
        vectors = [] if self.source is None else [self.source]
        vectors += [] if self.source is None or self._envs is None else [self._envs]
        owned = [*self._look, *self._owned, *vectors]
        self._kept, self._look, self._owned, self._envs = [], [], [], None
        self._called = []
        for one in owned:
            with suppress(Exception):  # the scores are there
                one.close()

    def _vectorize(self, source: VectorSource, n: int) -> None:
        seed = episode_seed(self._seed, EVALUATION, 0)
        sized = source.is_sized and "num_envs" not in (self.kwargs or {})
        if self._envs is None or source.is_seeded or (sized and self._envs.n != n):
            self.close()
            self._envs = source.environments(n if sized else None, seed, self.kwargs, spare)
        self._envs.begin_at(seed)

    def _instances(self, n: int) -> list[Any]:
        """Single environments, up to n of them."""
        if self._copies:
            with suppress(SettingError):  # else the copy before serves
                fresh = make(separate(self._env))
                self.close()
                self._kept, self._owned = [fresh], [fresh]
        while len(self._kept) < n:
            one = make(self._look.pop()) if self._look else make(self._env, self.kwargs)
            free = spare(one)
            if any(parts(free).keys() & parts(other).keys() for other in self._kept):
                break  # a function that returns the same one each time
            self._kept.append(free)
            self._called.append(0)
            if free is not one or not self._is_object:
                self._owned.append(free)
            if self._is_object or has_methods(free, "together"):
                break
        return self._kept

    def _step_together(self, instances: list[Any], n: int, budget: int) -> None:
        if has_methods(instances[0], "together"):  # functional
            # by the seed: what beginnings are drawn from, where there is a pool of them
            seed = episode_seed(self._seed, EVALUATION, 0)
            next_seed = self._next_seed
            self._envs = instances[0].together(n, seed, next_seed=next_seed, budget=budget)
        elif self._envs is None or self._envs.n != len(instances):
            from tandem.envs.episode_budget import EpisodeBudget
            from tandem.envs.flat_actions import adapted

            self._limited = [EpisodeBudget(one, budget) for one in adapted(instances)]
            self._envs = Stepped(self.name, self._limited, next_seed=self._next_seed)
        for limited in self._limited:
            limited.max_steps = budget

    def _next_seed(self, *_: int) -> int:
        self._begun += 1
        return episode_seed(self._seed, EVALUATION, self._begun - 1)
