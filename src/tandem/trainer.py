"""The trainer API: choose an algorithm for an environment, train, load, evaluate."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from tandem import algorithms, backends, spaces
from tandem.algorithms import bodies, own
from tandem.algorithms.base import Algorithm
from tandem.backends import process
from tandem.collect.evaluation import EvaluationStopped, side_by_side
from tandem.collect.evaluation import evaluate as play
from tandem.collect.trained_agent import Agent
from tandem.compiled import choice as compiled
from tandem.envs import atari, functions
from tandem.envs.factory import EnvLike, environment_name, episode_seed, spaces_of, versioned
from tandem.envs.opening import opening
from tandem.envs.vector import close, closed_on_error
from tandem.envs.vector_source import VectorSource, brought
from tandem.envs.wrapped import wrapped
from tandem.errors import ResumeError, SettingError, attempt, note, noting
from tandem.functional import host
from tandem.learning import config, fits, one_env, selfplay, vectors
from tandem.learning.config import Config, Options
from tandem.learning.events import Evaluation, TrainEnd
from tandem.learning.seeds import Generators, derived
from tandem.parallel import choice
from tandem.parallel.env_factory import EnvFactory
from tandem.parallel.pool import blocks_ahead
from tandem.reports.plots import curve
from tandem.runs import config_file, plugin_writers, start
from tandem.runs.callbacks import CallbackLike
from tandem.runs.callbacks import listed as callbacks_of
from tandem.runs.folder import new_folder
from tandem.runs.loading import load
from tandem.runs.notebook import progress as live_progress
from tandem.runs.result import Result
from tandem.runs.resume import resumed
from tandem.runs.session import Session
from tandem.runs.signals import raise_again
from tandem.runs.trust import Names
from tandem.settings import as_path, convert, whole_number
from tandem.types import EnvKwargs, JSONDict, tree_map
from tandem.zoo import note_short, resolve
from tandem.zoo.other_names import ARGUMENTS

__all__ = [
    "Agent",
    "Evaluation",
    "Result",
    "Session",
    "complete",
    "evaluate",
    "load",
    "resolve",
    "session",
    "train",
]


def train(
    algorithm: str | type[Algorithm] | None = None,
    env: EnvLike = None,
    *,
    framework: str | None = None,
    network: Any = None,
    device: str | None = None,
    steps: int | None = None,
    stop_at: int | None = None,
    seed: int = 0,
    envs: int | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[str] | None = None,
    eval_env: EnvLike = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    extend: bool = False,
    trust: bool = False,
    start_from: str | Path | Agent | None = None,
    which: str = "best",
    load: str | Sequence[str] = start.USUAL,
    callbacks: Iterable[CallbackLike] = (),
    catch_signals: bool = True,
    progress: bool = False,
    **settings: Any,
) -> Result:
    """Trains an agent and evaluates the best one.

    algorithm: a name, or a class that derives from `tandem.Algorithm` (docs/advanced/extending.md).
    env: a Gymnasium id, an environment, or a callable that makes one; or a vector of environments
    (gymnasium.vector.VectorEnv), a callable that makes one, or an id of EnvPool's
    ("envpool/Pong-v5"). docs/howto/environments.md has all ways.
    env_kwargs: arguments for an id's environment, or for the callable of a vector, JSON data.
    wrappers: of an environment by name, as module:Class or module:Class:{JSON}, the last outermost.
    eval_env: what to evaluate in, as `env`, where that is not `env`.
    framework: "torch", "tensorflow", "jax" or "keras-torch"; None follows `network`, else takes the
      quickest installed.
    network: None for default networks; or a function of the observation space that returns a body
    or (actor body, critic body), or its name, module:function; or a dict of whole networks by role.
    steps: the run's length in environment steps and its schedules' horizon; stop_at ends this
      sitting earlier.
    device: "auto" (the default: a GPU if there is one), "cpu" or "cuda".
    out: the run's folder; None keeps nothing. resume: the folder of a run to go on with, instead of
    env and an algorithm's name (a class of one's own is given again); with a larger `steps` only if
    `extend`, where schedules end at the same step as before. Settings that say where and how a run
    is executed, such as `device`, may be others then; with `out`, it continues in a copy there.
    start_from: start with what another run has learned: its folder, a checkpoint, or an agent.
    which: of a folder, "best", "last" or the name of a numbered checkpoint. load: of "networks"
      (targets and critics too), "normalization", "optimizer" (of the same framework) and "replay"
      (with which="last"), in a tuple or with commas between; "matching" loads what has the same
      shapes, and a note says what it left out (docs/howto/fine-tune.md).
    trust: with `resume`, allow the names in the folder that may run code (environment, vector,
    env_kwargs), which were written elsewhere; instead of repeating them as arguments.
    callbacks: `tandem.runs.callbacks.Callback`s, or functions that are given each event.
    progress: show a live line, and what evaluations come to, on stderr.
    catch_signals: SIGINT, SIGTERM and SIGHUP (unless it is ignored, as by nohup) end the run with a
    checkpoint, and are then raised again: SIGINT as KeyboardInterrupt, whose `result` is what there
    was of the Result, the others to the handlers that they had before. False lets them do at once
    what they do. Only a main thread gets signals.
    settings: any setting of the algorithm or of `Options`; `optimizer` may also be one of the
    framework's (keras.optimizers, torch.optim), which keeps its own step size: learning_rate is
    refused beside it. What is not given comes from the zoo's entry for (algorithm, env) if there is
    one, else from the algorithm's defaults.
    """
    stop_at = None if stop_at is None else whole_number("stop_at", stop_at)
    run = session(
        algorithm,
        env,
        framework=framework,
        network=network,
        device=device,
        steps=steps,
        seed=seed,
        envs=envs,
        env_kwargs=env_kwargs,
        wrappers=wrappers,
        eval_env=eval_env,
        out=out,
        resume=resume,
        extend=extend,
        trust=trust,
        start_from=start_from,
        which=which,
        load=load,
        callbacks=callbacks,
        catch_signals=catch_signals,
        progress=progress,
        **settings,
    )
    result = complete(run, stop_at)
    if run.signal is not None:
        raise_again(run.signal, result)
    return result


# what settings of a program's own algorithm cannot be called
TAKEN = frozenset((*ARGUMENTS, *(f.name for f in fields(Options))))


def complete(run: Session, stop_at: int | None = None, draws: bool = True) -> Result:
    """Goes through a session to the end of its sitting, scores the best and the last agent, and
    draws, unless another does so later."""
    reason = "steps"
    summary: dict[str, Any] = {}
    with ExitStack() as stack:
        stack.enter_context(process.restored(run.backend))
        stack.callback(run.close)
        stack.enter_context(run.catching())
        stack.enter_context(noting(run.notes))
        for event in run.events(stop_at):
            if isinstance(event, TrainEnd):
                reason = event.reason
        evaluation = run.last_evaluation or Evaluation.of([], [])
        best = run.restored("best")
        if run.signal is None:
            with suppress(EvaluationStopped):
                summary = run.result()
                evaluation = run.evaluation
                if draws and run.folder is not None and run.config.options.plots:
                    draw(run)
                    with attempt("result.json lacks the notes"):
                        config_file.save_result(run.folder, summary)
    history = tuple(run.evaluations.history)
    notes = tuple(run.notes)
    return Result(best, run.folder, evaluation, summary, run.signal or reason, notes, history)


@process.restored()
@noting()
def session(
    algorithm: str | type[Algorithm] | None = None,
    env: EnvLike = None,
    *,
    framework: str | None = None,
    network: Any = None,
    device: str | None = None,
    steps: int | None = None,
    seed: int = 0,
    envs: int | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[str] | None = None,
    eval_env: EnvLike = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    extend: bool = False,
    trust: bool = False,
    start_from: str | Path | Agent | None = None,
    which: str = "best",
    load: str | Sequence[str] = start.USUAL,
    callbacks: Iterable[CallbackLike] = (),
    catch_signals: bool = True,
    progress: bool = False,
    **settings: Any,
) -> Session:
    """The run that `train` would make, for those who own their loop: iterate over it for its
    events. A signal that ended it is raised again after the last one, as by `train`."""
    shows = convert("progress", progress, bool, False)
    told = [*callbacks_of(callbacks), *([live_progress()] if shows else [])]
    out = None if out is None else as_path("out", out).absolute()
    eval_env = one_env.evaluated_in(env, eval_env)
    given_name = network if isinstance(network, str) else ""
    optimizer = (
        settings.pop("optimizer") if not isinstance(settings.get("optimizer", ""), str) else None
    )
    if resume is not None:
        settings |= {"framework": framework, "envs": envs, "start_from": start_from}
        changes = _changes({**settings, "seed": seed or None, "device": device})
        own_objects = {"env": env, "eval_env": eval_env, "network": network, "optimizer": optimizer}
        steps = None if steps is None else whole_number("steps", steps)
        folder = as_path("resume", resume).absolute()
        vector = (env.path or None) if isinstance(env, VectorSource) else None
        cluster = changes.get("cluster")
        names = Names(env, vector, env_kwargs, given_name or None, cluster, trust, wrappers)
        course = own_objects, steps, extend, told, changes
        run = resumed(folder, *course, out=out, algorithm=algorithm, names=names)
        return _noted(run, catch_signals)
    algorithm = _algorithm_of_new(algorithm, env)
    if extend or trust:
        note(f"{'extend' if extend else 'trust'} has no effect without resume.")
    if (seed := whole_number("seed", seed)) >= 2**63:
        raise SettingError(f"seed={seed!r}.", "a whole number below 2 ** 63", "try seed=0.")
    network = backends.named_network(given_name, framework) if given_name else network
    begin = start.opened(start_from, which, load)
    if optimizer is not None:
        config.refuse_beside_own_optimizer(algorithms.get(algorithm).Settings, settings)
    env = wrapped(versioned(env), wrappers)
    settings |= {n: v for n, v in (("steps", steps), ("envs", envs)) if v is not None}
    source, instance = brought(env, env_kwargs)
    with (
        closed_on_error(*([] if source is None else [source.close])),
        opening(episode_seed(derived(seed, "environments"), 0, 0), env),
    ):
        try:
            conf = _config(
                algorithm,
                source or env,
                settings,
                framework=framework,
                network=network,
                device=device or "auto",
                seed=seed,
                env_kwargs=env_kwargs,
                eval_env=eval_env,
                out=out,
                instance=instance,
            )
        finally:
            close(environment_name(env), [] if instance is None else [instance])
        run = Session(
            replace(
                conf,
                network=given_name,
                own_network=network is not None and not given_name,
                own_optimizer=optimizer is not None,
                optimizer_class="" if optimizer is None else type(optimizer).__name__,
                own_eval_env=eval_env is not None,
                start={} if begin is None else begin.record,
            ),
            source or env,
            folder=None if out is None else new_folder(out),
            network=network,
            optimizer=optimizer,
            callbacks=told,
            eval_env=eval_env,
            start=begin,
        )
    if network is not None:
        of = run.observation, run.action
        bodies.note_ignored(run.kind, settings, network, of, run.config.settings)
    note_short(algorithm, conf.env, conf.options.entry, conf.settings, settings)
    return _noted(run, catch_signals)


def _algorithm_of_new(algorithm: Any, env: EnvLike) -> Any:
    """The algorithm of a new run, checked before anything is made."""
    if algorithm is None or env is None:
        raise SettingError(
            "train() was called without an algorithm or an environment.",
            "both, or resume=",
            "train('ppo', 'CartPole-v1')",
        )
    return own.checked(algorithm, TAKEN)


def _changes(given: dict[str, Any]) -> dict[str, Any]:
    """What of the arguments a resumed run may change. ResumeError where others were given."""
    given = {name: value for name, value in given.items() if value is not None}
    if named := [name for name in given if name not in config.RESUMABLE]:
        raise ResumeError(
            f"resume= was given with {', '.join(named)}.",
            "only arguments that do not change its results",
            "leave these out; a resumed run keeps the settings in its config.json.",
        )
    return given


def _noted(run: Session, catch_signals: bool) -> Session:
    """The session, with notes on its length."""
    c, run.train_loop.catch_signals = run.config, catch_signals
    fits.note_few(c.settings, int(c.options.learners))
    return run


def _config(
    algorithm: str | type[Algorithm],
    env: EnvLike,
    values: dict[str, Any],
    *,
    framework: str | None,
    network: Any,
    device: str,
    seed: int,
    env_kwargs: Mapping[str, Any] | None,
    out: str | Path | None,
    eval_env: EnvLike = None,
    instance: Any = None,
) -> Config:
    """Everything that a new run is made of. Refuses settings, spaces and options that do not fit
    together; then makes the choices that "auto" leaves open, and chooses the framework. instance:
    an environment that a callable `env` has made already."""
    *resolved, notes = resolve(algorithm, environment_name(env), values)
    note(*notes)
    chosen, options, source = one_env.settled(env, values, *resolved)
    host.expect(options.threads, options.devices)
    kwargs = _as_json(env_kwargs) | atari.arguments(env, options)
    if isinstance(env, VectorSource):
        vectors.refuse(env, values, options)
        at = derived(seed, "environments")
        chosen, options, envs = vectors.settled(env, values, chosen, options, at, kwargs)
        space, action_space = envs.observation_space, envs.action_space
    else:
        space, action_space = spaces_of(env, kwargs, instance)
    given = {*values, "envs"}
    needs = algorithms.get(algorithm).needs
    # once more, since an object or a vector says how many environments there are
    chosen, changed = fits.fitted(needs, chosen, options.devices, given)
    note(*changed)
    observation, called = spaces.observation_spec(space), own.name_of(algorithm)
    action = spaces.action_leaf(action_space, observation)
    kind = algorithms.get(algorithm, action)
    kind.check(observation, action, chosen)
    if network is not None:
        chosen = bodies.beside_custom(chosen, values, network)
    chosen = fits.to_actions(action, chosen, values)
    own.check_roles(kind, observation, action, chosen)
    selfplay.refuse(called, kind.needs, env, options)
    config.check_kept(chosen, options, out)
    plugin_writers.check(options.writer)
    if options.learners == "auto":
        options = replace(options, learners=choice.cores())
    backends.prepare(options.devices)
    wanted = framework
    if framework is None or (framework == backends.running() == "torch" and network is not None):
        wanted = backends.of_network(network, space) or framework
    if wanted != framework is not None:
        note(f"the network is a Keras model: framework={framework!r} becomes {wanted!r}.")
    if chosen.vectorization == compiled.MODE and wanted is None:
        wanted = "jax"
    framework = backends.choose(wanted)
    config.check_compile(options, framework)
    functional, name = functions.is_functional(env), environment_name(env)
    chosen, options = compiled.settled(
        name, functional, kind, chosen, options, (observation, action), framework, device
    )
    many = side_by_side(env if eval_env is None else eval_env, options.eval_envs)
    options = replace(options, eval_envs=many)
    if options.workers == "auto":  # by a trial, whose outcome is told with the settings' source
        train_kwargs = atari.training(env, kwargs, options)
        environments = EnvFactory.of(env, chosen.envs, 0, chosen.vectorization, train_kwargs)
        ahead = blocks_ahead(options.ahead, kind.needs == "rollouts")
        workers, why = choice.choose(environments, chosen.block, ahead)
        options, source = replace(options, workers=workers), f"{source}; {why}"
    return Config(
        algorithm=called,
        own_algorithm=None if own.is_known(called) else kind,
        env=name,
        framework=framework,
        device=device,
        seed=seed,
        settings=chosen,
        options=options,
        source=source,
        **config_file.made_with(called, env, options),
        own_env=vectors.kept_as(env) == "own" or not isinstance(env, (str, VectorSource)),
        vector=vectors.kept_as(env),
        env_kwargs=kwargs,
        wrappers=list(getattr(env, "wrappers", ())) if isinstance(env, str) else [],
    )


def _as_json(env_kwargs: Mapping[str, Any] | None) -> JSONDict:
    """Arguments for an environment as config.json stores them. SettingError for what JSON does not
    give back as it was."""
    try:
        kwargs = dict(env_kwargs or {})
        same = json.loads(json.dumps(kwargs)) == kwargs
    except (TypeError, ValueError):
        same = False
    if not same:
        raise SettingError(
            f"env_kwargs={env_kwargs!r}.",
            "a dict of JSON data: numbers, text, true or false, lists, dicts",
            "for other values, give a callable that makes the environment.",
        )
    return kwargs


def evaluate(
    agent: Agent,
    env: EnvLike,
    episodes: int = 20,
    seed: int = 0,
    deterministic: bool = True,
    max_steps: int = 0,
    eval_envs: int | str = "auto",
    env_kwargs: EnvKwargs | None = None,
) -> Evaluation:
    """Undiscounted returns of exactly `episodes` episodes, each on its own seed, derived from
    `seed`.

    eval_envs: environments to step together, as the option of `train`.
    max_steps: an episode that has not ended by then is cut, and counts with its return so far; 0 is
    twice the environment's own limit, 5,000 at least. `Evaluation.cut` says how many were.
    env_kwargs: arguments of the environment; in the agent's own they are added to its arguments.
    The id of an Atari game is made as the agent's was (`atari.Preprocessing`)."""
    if not isinstance(agent, Agent):
        raise SettingError(
            f"agent={agent!r}.", "an agent", "give tandem.load(path), or result.agent of a run."
        )
    episodes, seed = whole_number("episodes", episodes, 1), whole_number("seed", seed)
    max_steps = whole_number("max_steps", max_steps)
    noise: Callable[[int, int], Any] | None = None
    if not deterministic:
        rng = Generators(seed)("evaluation")

        def noise(t: int, n: int) -> Any:
            drawn = agent.algorithm.exploration_noise(
                agent.settings, agent.action, rng, (1, n), np.ones(1)
            )
            return tree_map(lambda x: x[0], drawn)

    mode: Any = agent.algorithm.action_mode(agent.settings, agent.action)
    same = isinstance(env, (str, VectorSource)) and agent.name.endswith(f" {environment_name(env)}")
    env = agent.trained_in if same and agent.wrappers else env
    kwargs = {**(agent.env_kwargs if same or atari.is_atari(env) else {}), **(env_kwargs or {})}
    of = agent.observation, agent.action
    played = play(
        agent.actor,
        env,
        episodes,
        seed,
        action_mode=mode,
        noise=noise,
        environments=side_by_side(env, eval_envs),
        kwargs=kwargs,
        spaces=of,
        max_steps=max_steps,
        longest=agent.longest,
    )
    return Evaluation.of(*played)


def draw(run: Session) -> None:
    """Write curve.png and an animation of the best agent. A note says what could not be drawn here,
    and why."""
    assert run.folder is not None
    from tandem.reports.animation import film

    with attempt("no curve"):
        curve([run.folder], run.folder / "curve.png")
    with attempt("no animation"):
        film(
            run.restored("best"),
            run.env,
            run.folder / "animation.gif",
            run.config.env_kwargs,
            seed=run.config.seed,
            stopped=lambda: run.signal is not None,
        )
