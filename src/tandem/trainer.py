"""The trainer API: train an agent with an algorithm in an environment, load it and evaluate it."""

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
from tandem.envs import atari, functions
from tandem.envs.factory import EnvLike, environment_name, episode_seed, spaces_of, versioned
from tandem.envs.jax import host
from tandem.envs.opening import opening
from tandem.envs.vector import close, closed_on_error
from tandem.envs.vector_source import VectorSource, brought
from tandem.envs.wrapped import wrapped
from tandem.errors import ResumeError, SettingError, attempt, note, noting
from tandem.learning import config, fits, one_env, selfplay, vectors
from tandem.learning.collect.evaluation import EvaluationStopped, side_by_side
from tandem.learning.collect.evaluation import evaluate as play
from tandem.learning.collect.trained_agent import Agent
from tandem.learning.compiled import choice as compiled
from tandem.learning.config import Config, Options
from tandem.learning.events import Evaluation, TrainEnd
from tandem.learning.parallel import choice
from tandem.learning.parallel.env_factory import EnvFactory
from tandem.learning.parallel.pool import blocks_ahead
from tandem.learning.seeds import Generators, derived
from tandem.reports.plots import curve
from tandem.runs import config_file, plugin_writers, start
from tandem.runs.callbacks import CallbackLike
from tandem.runs.callbacks import listed as callbacks_of
from tandem.runs.loading import load
from tandem.runs.new_folders import new_folder
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
    """Train an agent and evaluate its best checkpoint.

    Settings that are not given come from the zoo's entry for (algorithm, env) if there is one, else
    from the algorithm's defaults.

    Args:
        algorithm: A name, or a class derived from `tandem.Algorithm` (docs/advanced/extending.md).
        env: A Gymnasium id, an environment, or a callable that creates one; or a vector of
            environments (gymnasium.vector.VectorEnv), a callable that creates one, or an EnvPool id
            ("envpool/Pong-v5"). docs/howto/environments.md lists all forms.
        framework: "torch", "tensorflow", "jax" or "keras-torch". None follows `network`, else uses
            the fastest one installed.
        network: None for default networks; a function of the observation space that returns a
            feature extractor or (actor's, critic's), or its name, module:function; or a dict of one
            network per role.
        device: "auto" (the default: a GPU if there is one), "cpu" or "cuda".
        steps: Length of the run in environment steps, and the horizon of its schedules.
        stop_at: Step at which to end this call earlier; the run can be resumed.
        seed: Random seed.
        envs: Number of environments.
        env_kwargs: Arguments for the environment of an id, or for the callable of a vector, as JSON
            data.
        wrappers: Wrappers for an environment given by name, as module:Class or module:Class:{JSON};
            the last is outermost.
        eval_env: Environment for evaluation, in any form of `env`, if it differs from `env`.
        out: Folder of the run. None saves nothing.
        resume: Folder of a run to resume, instead of env and an algorithm name (a custom class must
            be given again). Settings for where and how a run is executed, such as `device`, may
            change. With `out`, the run continues in a copy there.
        extend: Allow `resume` with a larger `steps`; schedules end at the same step as before.
        trust: With `resume`, allow the names in the folder that may run code (environment, vector,
            env_kwargs) although they may have been written elsewhere, instead of repeating them as
            arguments.
        start_from: Start from what another run has learned: its folder, a checkpoint, or an agent.
        which: Checkpoint of the `start_from` folder: "best", "last" or the name of a numbered
            checkpoint.
        load: Parts to load from `start_from`, as a tuple or separated by commas: "networks"
            (including targets and critics), "normalization", "optimizer" (of the same framework)
            and "replay" (with which="last"). "matching" loads everything of the same shape, and a
            note lists what it left out (docs/howto/fine-tune.md).
        callbacks: `tandem.runs.callbacks.Callback`s, or functions called with each event.
        catch_signals: Let SIGINT, SIGTERM and SIGHUP (unless ignored, as under nohup) end the run
            with a checkpoint, and raise them again afterwards: SIGINT as KeyboardInterrupt, whose
            `result` is the Result so far, the others to their previous handlers. False keeps their
            usual immediate effect. Only the main thread receives signals.
        progress: Show a live progress line and evaluation results on stderr.
        settings: Any setting of the algorithm or of `Options`. `optimizer` can also be a
            framework's optimizer (keras.optimizers, torch.optim) with its own step size;
            learning_rate is then an error.
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


# names that settings of a custom algorithm cannot have
TAKEN = frozenset((*ARGUMENTS, *(f.name for f in fields(Options))))


def complete(run: Session, stop_at: int | None = None, draws: bool = True) -> Result:
    """Run a session to its end, score the best and the last agent, and draw the plots unless
    another process does so later."""
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
    """Return the run that `train` would execute, for programs with their own loop: iterate over it
    to receive its events. A signal that ended it is raised again after the last event, as in
    `train`."""
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
        names = Names(
            env, vector, env_kwargs, given_name or None, cluster, trust, wrappers, algorithm
        )
        course = own_objects, steps, extend, told, changes
        run = resumed(folder, *course, out=out, names=names)
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
            conf = configured(
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
    """Return the algorithm of a new run, checked before anything is created."""
    if algorithm is None or env is None:
        raise SettingError(
            "train() was called without an algorithm or an environment.",
            "both, or resume=",
            "train('ppo', 'CartPole-v1')",
        )
    return own.checked(algorithm, TAKEN)


def _changes(given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that a resumed run may change. Raises ResumeError for any others."""
    given = {name: value for name, value in given.items() if value is not None}
    if named := [name for name in given if name not in config.RESUMABLE]:
        raise ResumeError(
            f"resume= was given with {', '.join(named)}.",
            "only arguments that do not change its results",
            "leave these out; a resumed run keeps the settings in its config.json.",
        )
    return given


def _noted(run: Session, catch_signals: bool) -> Session:
    """Return the session, with a note if it makes few updates."""
    c, run.train_loop.catch_signals = run.config, catch_signals
    fits.note_few(c.settings, int(c.options.learners))
    return run


def configured(
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
    """Return the configuration of a new run. Rejects settings, spaces and options that do not fit
    together, then resolves "auto" and selects the framework. instance: an environment that a
    callable `env` has already created."""
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
    # again, since an object or a vector determines the number of environments
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
    if options.workers == "auto":  # by a trial; the reason is logged with the settings' source
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
    """Return environment arguments as stored in config.json. Raises SettingError for anything that
    JSON does not restore unchanged."""
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
    """Evaluate an agent for exactly `episodes` episodes. Return their undiscounted returns.

    Args:
        agent: The agent to evaluate.
        env: The environment. The id of an Atari game is created with the agent's preprocessing
            (`atari.Preprocessing`).
        episodes: Number of episodes, each with its own seed.
        seed: Seed from which the episodes' seeds are derived.
        deterministic: Act without exploration noise.
        max_steps: Step limit after which an episode is cut and counts with its return so far. 0 is
            twice the environment's own limit, at least 5,000. `Evaluation.cut` counts such
            episodes.
        eval_envs: Number of environments to step together, as in `train`.
        env_kwargs: Arguments of the environment. In the agent's own environment they are added to
            its arguments.
    """
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
    """Write curve.png and an animation of the best agent. Notes explain what could not be drawn."""
    assert run.folder is not None
    from tandem.reports.animation import film  # imports Gymnasium

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
