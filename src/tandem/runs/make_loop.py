"""Construction of a run's loop from its Config: with worker processes, actor-learners or
companions, depending on the options."""

from __future__ import annotations

import importlib
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tandem.algorithms.recurrent_replay import TransitionSettings
from tandem.envs import atari
from tandem.envs.factory import EnvLike, is_instance
from tandem.envs.jax import host
from tandem.envs.league import League
from tandem.envs.league_games import LeagueEnvFactory
from tandem.envs.stepped import Stepped
from tandem.envs.vector import Environments, closed_on_error
from tandem.errors import SettingError
from tandem.learning import asynchronous, launch, selfplay
from tandem.learning.actor_learner import LearnerSpec
from tandem.learning.build import Spaces, build, network_there
from tandem.learning.companions import Companions
from tandem.learning.compiled.choice import MODE as COMPILED
from tandem.learning.config import Config
from tandem.learning.goals import goals_of
from tandem.learning.loop import Loop
from tandem.learning.normalization import note_wrappers
from tandem.learning.parallel.env_factory import EnvFactory
from tandem.learning.parallel.pool import WorkerOptions
from tandem.learning.seeds import Generators, derived
from tandem.workers.ray import connect


def make_loop(
    conf: Config,
    env: EnvLike,
    league: League | None,
    folder: Path | None,
    network: Any,
    optimizer: Any,
) -> tuple[Loop, Environments]:
    """Return the loop of a run and the environments in this process: those it collects in, or a
    single one to inspect the spaces if actor-learners have their own. Raises SettingError for
    conflicting options."""
    s, o, needs = conf.settings, conf.options, conf.kind.needs
    host.expect(o.threads, o.devices)
    kwargs = atari.training(env, conf.env_kwargs, o)
    assert isinstance(o.workers, int) and isinstance(o.learners, int), "chosen by now"
    asynchronous.refuse(conf.algorithm, needs, env, o)
    asynchronous.refuse_statistics(o.learners, s)
    selfplay.refuse(conf.algorithm, needs, env, o)
    trained, kwargs = (
        (env, kwargs) if league is None else (LeagueEnvFactory(env, league, kwargs), None)
    )
    seed, is_compiled = derived(conf.seed, "environments"), s.vectorization == COMPILED
    mode = "auto" if is_compiled else s.vectorization
    factory = EnvFactory.of(trained, s.envs * o.learners, seed, mode, kwargs)
    workers = WorkerOptions.of(factory, o, needs == "rollouts", getattr(s, "train_every", 0))
    if workers.cluster or (o.cluster and o.learners > 1):
        connect(o.cluster)  # Ray forks, so connect before a framework starts threads
    first, count = workers.parts(s.envs)[0]
    environments = factory.make(first, max(1, count) if o.learners == 1 else 1)
    with closed_on_error(*([] if is_instance(env) else [environments.close])):
        note_wrappers(environments, conf, is_instance(env), is_scored=not conf.own_eval_env)
        if is_compiled:
            make = importlib.import_module("tandem.learning.compiled.make").make
            return make(conf, environments, network, optimizer), environments
        given = network, optimizer
        others = launch.begin(conf, Spaces.of(environments), *given)  # they start up meanwhile
        # a stored traceback would keep them alive
        with closed_on_error(*([others.kill] if isinstance(others, Companions) else [])):
            loop = _loop(conf, environments, folder, given, (factory, workers), others)
        return loop, environments


def _loop(
    conf: Config,
    environments: Environments,
    folder: Path | None,
    given: tuple[Any, Any],
    workers: tuple[EnvFactory, WorkerOptions],
    others: Any,
) -> Loop:
    """Build the loop. `given`: the user's network and optimizer. `others`: the other processes that
    take part in updates."""
    network, optimizer = given
    generators, (factory, options) = Generators(conf.seed), workers
    algorithm = build(conf, environments, generators, network, optimizer)
    if conf.options.learners != 1:
        spec = LearnerSpec(conf, factory, network)
        learners = asynchronous.ActorLearners(spec, algorithm, environments)
        with closed_on_error(learners.group.end):
            return asynchronous.Asynchronous(learners, algorithm, environments, generators)
    there = partial(network_there, conf, Spaces.of(environments), network)
    goals, s = None, conf.settings
    if isinstance(s, TransitionSettings) and s.hindsight != "no":
        goals = goals_of(factory.env, factory.kwargs, environments.observation, s.copy_info)
        if goals.stored and not isinstance(environments, Stepped):
            raise SettingError(
                f"copy_info=True cannot read the info of {environments.name}, whose copies are "
                "stepped together.",
                fix="give vectorization='plain'.",
            )
        factory = replace(factory, beside=goals.stored)
        environments.extra = {**environments.extra, **goals.stored}
    with closed_on_error(*([] if goals is None else [goals.close])):
        loop = Loop(
            algorithm,
            algorithm.backend,
            environments,
            generators,
            folder,
            workers=(factory, options, there) if options.workers else None,
            goals=goals,
        )
    if others is not None:
        with closed_on_error(*([loop.collector.group.end] if options.workers else [])):
            others.join(algorithm.backend)
    return loop
