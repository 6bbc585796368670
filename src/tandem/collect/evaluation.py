"""Scoring an actor on whole episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tandem.collect.collector import Actor, reset_ended
from tandem.envs.actions import to_environment
from tandem.envs.factory import EnvLike, environment_name, is_instance, make
from tandem.envs.opening import opening
from tandem.envs.stepped import Stepped
from tandem.envs.vector import Environments, episode_seed
from tandem.envs.vector_source import brought
from tandem.errors import at_least
from tandem.spaces import ActionMode, Leaf, Spec, refuse_others
from tandem.types import AnyArray, Tree

EVALUATION = 2**31  # seeds of evaluation episodes: no environment of a training run has this number


class Played(NamedTuple):
    """What episodes came to, in the order of their numbers."""

    returns: list[float]
    lengths: list[int]
    agents: list[list[float]]  # the returns of each agent of a team; of a single one nothing
    cut: int = 0  # how many episodes the budget ended


class EvaluationStopped(Exception):
    """An evaluation was asked to stop before all its episodes had ended."""


def evaluate(
    actor: Actor,
    env: EnvLike,
    episodes: int = 20,
    seed: int = 0,
    *,
    action_mode: ActionMode = "as_is",
    noise: Callable[[int, int], Tree] | None = None,
    environments: int = 10,
    kwargs: Mapping[str, Any] | None = None,
    spaces: tuple[Spec, Leaf] | None = None,
    max_steps: int = 0,
    longest: int = 0,
    stopped: Callable[[], bool] | None = None,
) -> Played:
    """Undiscounted returns and lengths of exactly `episodes` episodes, in the order of their
    numbers.

    Each episode has its own seed, from (seed, its number); environments take the next number as
    they get free, and every episode that is begun and has a number below `episodes` is finished:
    short ones count no more than long ones, and how many environments there are changes nothing for
    an actor that treats rows alike.

    env: as `make` takes it; an environment object is used itself (see `separate`), alone, and left
      open. Or a vector of environments, or what makes one: it is reset by a seed from `seed`, its
      environments take the next number as they get free, and of those that begin with it at most
      `episodes` count.
    noise: called with (step, n) for the noise [n, ...] of one call of `actor.act`; without it
      actions are deterministic.
    environments: how many to step together at most.
    spaces: of the observations and actions that the actor was made for.
    max_steps: of each episode; one that has not ended by then is cut, and counts with its return so
      far. 0: `default_budget` of the environment and of `longest`, the length of training's longest
      episode.
    stopped: asked after each step; EvaluationStopped where it says yes.

    Raises SettingError for fewer than one episode, SpaceError for an environment of other `spaces`,
    and what `make` and `Environments.step` raise.
    """
    for what, number, least in (
        ("episodes", episodes, 1),
        ("environments", environments, 1),
        ("max_steps", max_steps, 0),
    ):
        at_least(what, number, least)
    from tandem.envs.episode_budget import EpisodeBudget, default_budget
    from tandem.envs.flat_actions import adapted

    vector, made = brought(env, kwargs)
    if vector is not None:
        free = vector.is_sized and "num_envs" not in (kwargs or {})
        n = min(episodes, environments) if free else None
        many = vector.environments(n, episode_seed(seed, EVALUATION, 0), kwargs)
        try:
            if spaces is not None:
                refuse_others(many.name, spaces, (many.observation, many.action))
            budget = max_steps or default_budget(many, longest)
            return _play_vector(actor, many, budget, episodes, action_mode, noise, stopped)
        finally:
            many.close()
    n = 1 if is_instance(env) else min(episodes, environments)
    numbers = np.zeros(n, np.int64)  # of the episode that each environment plays
    begun = 0

    def next_seed(i: int, _: int) -> int:
        nonlocal begun
        numbers[i], begun = begun, begun + 1
        return episode_seed(seed, EVALUATION, int(numbers[i]))

    with opening(episode_seed(seed, EVALUATION, 0), env):
        one = make(env, kwargs) if made is None else make(made)
    budget = max_steps or default_budget(one, longest)
    envs: Environments
    if hasattr(one, "together"):  # functional
        # by the seed: what beginnings are drawn from, where there is a pool of them
        own = episode_seed(seed, EVALUATION, 0)
        envs = one.together(n, own, next_seed=next_seed, budget=budget)
        was_cut = envs.was_cut  # type: ignore[attr-defined]
    else:
        instances = [one, *(make(env, kwargs) for _ in range(n - 1))]
        with opening(episode_seed(seed, EVALUATION, 0)):
            limited = [EpisodeBudget(instance, budget) for instance in adapted(instances)]
        envs = Stepped(environment_name(env), limited, next_seed=next_seed)

        def was_cut(i: int) -> bool:
            return bool(limited[i].cut)

    try:
        if spaces is not None:
            refuse_others(envs.name, spaces, (envs.observation, envs.action))
        return _play(actor, envs, was_cut, numbers, episodes, action_mode, noise, stopped)
    finally:
        if not is_instance(env):
            envs.close()


def _play(
    actor: Actor,
    envs: Environments,
    was_cut: Callable[[int], bool],
    numbers: AnyArray,
    episodes: int,
    action_mode: ActionMode,
    noise: Callable[[int, int], Tree] | None,
    stopped: Callable[[], bool] | None,
) -> Played:
    convert, n = to_environment(envs.action, action_mode), envs.n
    scores, lengths = np.zeros(n), np.zeros(n, np.int64)
    # of agents
    each = (
        np.zeros((n, *envs.extra["rewards"].shape)) if "rewards" in envs.extra else np.zeros((n, 0))
    )
    returns, steps, agents = [0.0] * episodes, [0] * episodes, np.zeros((episodes, each.shape[1]))
    obs, initial, left, t = envs.reset(), actor.initial_state(n), episodes, 0
    state, cut = initial, 0
    while left:
        if stopped is not None and stopped():
            raise EvaluationStopped
        playing = numbers.copy()
        action, _, state = actor.act(obs, state, noise(t, n) if noise else None)
        one = envs.step(convert(np.asarray(action, envs.action.dtype)))
        scores += one.reward
        each += one.extra.get("rewards", 0.0)
        lengths += 1
        for i, _ in one.final:
            if playing[i] < episodes:
                returns[playing[i]], steps[playing[i]], agents[playing[i]] = (
                    float(scores[i]),
                    int(lengths[i]),
                    each[i],
                )
                left -= 1
                cut += was_cut(i)
            scores[i], lengths[i], each[i] = 0.0, 0, 0.0
        state = reset_ended(state, initial, one)
        obs, t = one.obs, t + 1
    return Played(returns, steps, agents.tolist() if agents.size else [], cut)


def _play_vector(
    actor: Actor,
    envs: Environments,
    budget: int,
    episodes: int,
    action_mode: ActionMode,
    noise: Callable[[int, int], Tree] | None,
    stopped: Callable[[], bool] | None,
) -> Played:
    """In environments that reset themselves, or with all others: one whose episode was cut plays on
    for nothing until it ends; where none plays for something, all begin anew."""
    convert, n = to_environment(envs.action, action_mode), envs.n
    returns, steps, cut, left, t = [0.0] * episodes, [0] * episodes, 0, episodes, 0
    numbers = np.arange(n)  # of the episode that each plays; at or above `episodes` it is none
    begun, scores, lengths = n, np.zeros(n), np.zeros(n, np.int64)
    obs, initial = envs.reset(), actor.initial_state(n)
    state = initial
    while left:
        if stopped is not None and stopped():
            raise EvaluationStopped
        action, _, state = actor.act(obs, state, noise(t, n) if noise else None)
        one = envs.step(convert(np.asarray(action, envs.action.dtype)))
        scores += one.reward * one.valid
        lengths += one.valid
        ended = one.terminated | one.truncated
        over = ended | ((lengths >= budget) & (numbers < episodes))
        for i in np.flatnonzero(over).tolist():
            if numbers[i] < episodes:
                returns[numbers[i]], steps[numbers[i]] = float(scores[i]), int(lengths[i])
                left -= 1
                cut += not ended[i]
            numbers[i] = episodes  # of nothing, until it begins the next
            if ended[i]:
                numbers[i], begun = begun, begun + 1
                scores[i], lengths[i] = 0.0, 0
        state, obs, t = reset_ended(state, initial, one), one.obs, t + 1
        if left and not (numbers < episodes).any():
            obs, state = envs.restart(), initial
            numbers, begun = begun + np.arange(n), begun + n
            scores[:], lengths[:] = 0.0, 0
    return Played(returns, steps, [], cut)
