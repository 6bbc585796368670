"""The trainer door: choose an algorithm for an environment, train, load, evaluate."""

from __future__ import annotations

import json
import re
import shlex
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from tandem import algorithms, backends, spaces, zoo
from tandem.collect.agent import Agent
from tandem.collect.evaluation import evaluate as play
from tandem.envs import atari
from tandem.envs.factory import EnvLike, environment_name, make, spaces_of
from tandem.errors import ResumeError, RunFolderError, SettingError, TandemError, UnknownNameError
from tandem.learning import config, selfplay
from tandem.learning.config import Config, Options
from tandem.learning.events import Evaluation, TrainEnd
from tandem.learning.seeds import Generators
from tandem.parallel import choice
from tandem.parallel.pool import blocks_ahead
from tandem.parallel.share import Source
from tandem.runs import checkpoint, config_file
from tandem.runs.callbacks import Callback
from tandem.runs.loading import load
from tandem.runs.session import Session
from tandem.settings import apply, as_path, whole_number
from tandem.types import tree_map

__all__ = [
    "Agent",
    "Evaluation",
    "Result",
    "Session",
    "complete",
    "evaluate",
    "load",
    "session",
    "train",
]


@dataclass(frozen=True)
class Result:
    """What training came to: the best agent, its run's folder (None without one), and its
    evaluation on fresh seeds.

    summary: what result.json says. reason: why the sitting ended, as in TrainEnd. notes: what could
    not be done, and why. After a signal nothing is scored or drawn any more: `evaluation` is the
    latest that there was, and `summary` is empty.
    """

    agent: Agent
    folder: Path | None
    evaluation: Evaluation
    summary: dict[str, Any] = field(default_factory=dict)
    reason: str = "steps"
    notes: tuple[str, ...] = ()


def train(
    algorithm: str | None = None,
    env: EnvLike = None,
    *,
    framework: str | None = None,
    network: Any = None,
    device: str = "auto",
    steps: int | None = None,
    stop_at: int | None = None,
    seed: int = 0,
    envs: int | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    extend: bool = False,
    callbacks: Iterable[Callback] = (),
    **settings: Any,
) -> Result:
    """Trains an agent and evaluates the best one.

    algorithm, env: a name, and a Gymnasium id, an environment, or a callable that makes one.
    env_kwargs: arguments for an id's environment, JSON data.
    framework: "torch", "tensorflow", "jax" or "keras-torch"; None follows `network`, else takes the
      quickest installed.
    network: None for default networks; or a function of the observation space that returns a body
    or (actor body, critic body); or a dict of whole networks by role.
    steps: the run's length in environment steps and its schedules' horizon; stop_at ends this
      sitting earlier.
    out: the run's folder; None keeps nothing. resume: the folder of a run to go on with, instead of
    algorithm and env; with a larger `steps` only if `extend`, which holds schedules at their ends.
    settings: any setting of the algorithm or of `Options`; `optimizer` may also be one of the
    framework's (keras.optimizers, torch.optim), which then keeps its own step size. What is not
    given comes from the zoo's entry for (algorithm, env) if there is one, else from the algorithm's
    defaults.
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
        out=out,
        resume=resume,
        extend=extend,
        callbacks=callbacks,
        **settings,
    )
    return complete(run, stop_at)


def complete(run: Session, stop_at: int | None = None) -> Result:
    """Goes through a session to the end of its sitting, scores the best and the last agent, and
    draws."""
    reason = "steps"
    with ExitStack() as stack:
        for callback in run.callbacks:
            if hasattr(callback, "__exit__"):
                stack.enter_context(callback)  # type: ignore[arg-type]
        for event in run.events(stop_at):
            if isinstance(event, TrainEnd):
                reason = event.reason
    best = run.restored("best")
    if reason.startswith("SIG"):
        return Result(
            best, run.folder, run.last_evaluation or run.score(best, 1, "final"), reason=reason
        )
    summary = run.result()
    notes = draw(run) if run.folder is not None and run.config.options.plots else ()
    return Result(best, run.folder, run.evaluation, summary, reason, notes)


def session(
    algorithm: str | None = None,
    env: EnvLike = None,
    *,
    framework: str | None = None,
    network: Any = None,
    device: str = "auto",
    steps: int | None = None,
    seed: int = 0,
    envs: int | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    extend: bool = False,
    callbacks: Iterable[Callback] = (),
    **settings: Any,
) -> Session:
    """The run that `train` would make, for those who own their loop: iterate over it for its
    events."""
    own_optimizer = (
        settings.pop("optimizer") if not isinstance(settings.get("optimizer", ""), str) else None
    )
    if resume is not None:
        cluster = settings.pop("cluster", None)
        own = {
            "algorithm": algorithm,
            "framework": framework,
            "envs": envs,
            "env_kwargs": env_kwargs,
            "out": out,
            **settings,
        }
        own |= {
            name: value
            for name, value, usual in (("seed", seed, 0), ("device", device, "auto"))
            if value != usual
        }
        if said := [name for name, value in own.items() if value is not None]:
            raise ResumeError(
                f"resume= was given with {', '.join(said)}.",
                "nothing that the run has in its config.json already",
                "leave these out; a run goes on as it began.",
            )
        given = {"env": env, "network": network, "optimizer": own_optimizer}
        steps = None if steps is None else whole_number("steps", steps)
        return _resumed(as_path("resume", resume), given, steps, extend, callbacks, cluster)
    if algorithm is None or env is None:
        raise SettingError(
            "train() was called without an algorithm or an environment.",
            "both, or resume=",
            "train('ppo', 'CartPole-v1')",
        )
    if extend:
        raise SettingError(
            "extend=True was given without resume=.",
            "a run to extend",
            "give resume=, or leave it out.",
        )
    if (seed := whole_number("seed", seed)) >= 2**63:
        raise SettingError(
            f"seed={seed!r}.", "a whole number below 2 ** 63", "give one, such as 0."
        )
    algorithms.get(algorithm)  # refuses an unknown name before anything is made
    env = _versioned(env)
    given = {**settings, **{n: v for n, v in (("steps", steps), ("envs", envs)) if v is not None}}
    chosen, options, source = settle(algorithm, environment_name(env), given)
    env_kwargs = _plain(env_kwargs) | atari.arguments(env, options)
    space, action = spaces_of(env, env_kwargs)
    leaf = spaces.leaf(action)
    algorithms.get(algorithm).of(leaf, chosen).check(spaces.observation_spec(space), leaf)
    selfplay.refuse(algorithm, algorithms.get(algorithm).needs, env, options)
    config.check_kept(chosen, options, out)
    if options.learners == "auto":
        options = replace(options, learners=choice.cores())
    if options.cluster and not options.runners and options.learners == 1:
        raise SettingError(
            f"cluster={options.cluster!r}, and nothing that is to go there.",
            "runners=N, or learners=N for a3c, acer, impala and nstep_q",
            "say how many, as in runners=2; or leave cluster out.",
        )
    if options.workers == "auto":
        where = Source.of(
            env, chosen.envs, 0, chosen.vectorization, atari.training(env, env_kwargs, options)
        )
        options, source = _with_workers(
            options, source, where, chosen, algorithms.get(algorithm).needs == "rollouts"
        )
    conf = Config(
        algorithm=algorithm,
        env=environment_name(env),
        framework=backends.choose(framework or backends.of_network(network, space)),
        device=device,
        seed=seed,
        settings=chosen,
        options=options,
        source=source,
        versions=config_file.versions(),
        commit=config_file.commit(),
        own_network=network is not None,
        own_env=not isinstance(env, str),
        own_optimizer=own_optimizer is not None,
        env_kwargs=env_kwargs,
    )
    folder = None if out is None else fresh(as_path("out", out))
    return Session(
        conf, env, folder=folder, network=network, optimizer=own_optimizer, callbacks=callbacks
    )


def _plain(env_kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Arguments for an environment as config.json keeps them."""
    try:
        given = dict(env_kwargs or {})
        same = json.loads(json.dumps(given)) == given
    except (TypeError, ValueError):
        same = False
    if not same:
        raise SettingError(
            f"env_kwargs={env_kwargs!r}.",
            "names with JSON data: numbers, text, true or false, lists, dicts",
            "give a callable that makes the environment with what is no such data.",
        )
    return given


def _with_workers(
    options: Options, source: str, where: Source, s: Any, on_policy: bool
) -> tuple[Options, str]:
    """The options with as many workers as a trial says are worth it, and why, after where the
    settings are from."""
    block = s.rollout if hasattr(s, "rollout") else max(1, s.train_every // s.envs)
    number, why = choice.choose(where, block, blocks_ahead(options.ahead, on_policy))
    return replace(options, workers=number), f"{source}; {why}"


def settle(algorithm: str, env: str, given: dict[str, Any]) -> tuple[Any, Options, str]:
    """Settings and options for a run, and where they come from."""
    kind = algorithms.get(algorithm)
    mine, others = {f.name for f in fields(kind.Settings)}, {f.name for f in fields(Options)}
    for name in given:
        if name not in mine | others:
            raise UnknownNameError(f"setting of {algorithm}", name, mine | others)
    entry = zoo.entry(algorithm, env)
    base = apply(kind.Settings(), entry.settings if entry else {})
    chosen = apply(base, {n: v for n, v in given.items() if n in mine})
    options = apply(Options(), {n: v for n, v in given.items() if n in others})
    for part in (chosen, options):
        config.check_ranges(part)
    return chosen, options, entry.source if entry else f"defaults of {algorithm}"


def _resumed(
    folder: Path,
    own: dict[str, Any],
    steps: int | None,
    extend: bool,
    callbacks: Iterable[Callback],
    cluster: str | None = None,
) -> Session:
    saved = checkpoint.read(checkpoint.find(run_folder(folder), "last"))
    conf = config_file.of(saved)
    if (
        cluster is not None
    ):  # where a run lives is the sitting's affair, how many take part in it is its own
        if not conf.options.cluster and not conf.options.runners:
            raise ResumeError(
                f"cluster={cluster!r} was given for the run {folder}, which has no part on a "
                "cluster.",
                "the processes that it began with, since they hold its environments",
                "leave cluster out.",
            )
        conf = replace(conf, options=replace(conf.options, cluster=cluster or "auto"))
    if changed := config.differing(config_file.read(folder), saved.data["config"]):
        warnings.warn(
            f"{folder / 'config.json'} says {', '.join(changed)}; the run goes on as it began, "
            "and the file is written anew.",
            RuntimeWarning,
            stacklevel=4,
        )
    for name, value in own.items():
        if getattr(conf, f"own_{name}") and value is None:
            raise ResumeError(
                f"the run {folder} was trained with {name}= from a program; it cannot be made "
                "again from the folder alone.",
                f"the same {name}=",
                f"tandem.train(resume={str(folder)!r}, {name}=...)",
            )
    if steps is not None and steps != conf.settings.steps:
        if steps < conf.settings.steps or not extend:
            raise ResumeError(
                f"the run {folder} is {conf.settings.steps} steps long, and so are its schedules; "
                f"steps={steps} was asked for.",
                "the same length, or a larger one with extend=True (--extend), which holds "
                "schedules at their end values",
                "leave steps out, use stop_at to end earlier, or extend.",
            )
        conf = _extended(conf, steps)
    env = own.pop("env")
    return Session(
        conf,
        conf.env if env is None else env,
        folder=folder,
        callbacks=callbacks,
        resume=saved,
        **own,
    )


def _extended(conf: Config, steps: int) -> Config:
    """A longer run, whose schedules end where they ended."""
    scale = conf.settings.steps / steps
    held = {
        f.name: replace(v, fraction=v.fraction * scale)
        for f in fields(conf.settings)
        if isinstance(v := getattr(conf.settings, f.name), algorithms.Schedule)
        and v.end is not None
    }
    old, every = conf.settings.steps, conf.options
    hundredth = max(1, old // 100)
    options = replace(
        every,
        eval_every=every.eval_every or max(1, old // 20),
        log_every=every.log_every or hundredth,
        snapshot_every=every.snapshot_every or hundredth,
    )
    longer = replace(conf.settings, steps=steps, **held)
    return replace(conf, settings=longer, options=options, extended_from=conf.extended_from or old)


def evaluate(
    agent: Agent, env: EnvLike, episodes: int = 20, seed: int = 0, deterministic: bool = True
) -> Evaluation:
    """Undiscounted returns of exactly `episodes` episodes, each on its own seed, derived from
    `seed`. The id of an Atari game is made as the agent's was (`atari.Preprocessing`)."""
    if not isinstance(agent, Agent):
        raise SettingError(
            f"agent={agent!r}.", "an agent", "give tandem.load(path), or result.agent of a run."
        )
    episodes, seed = whole_number("episodes", episodes, 1), whole_number("seed", seed)
    noise: Callable[[int, int], Any] | None = None
    if not deterministic:
        rng = Generators(seed)("evaluation")

        def noise(t: int, n: int) -> Any:
            drawn = agent.algorithm.exploration_noise(
                agent.settings, agent.action, rng, (1, n), np.ones(1)
            )
            return tree_map(lambda x: x[0], drawn)

    mode: Any = agent.algorithm.action_mode
    own = atari.is_atari(env) or (isinstance(env, str) and agent.name.endswith(f" {env}"))
    kwargs = agent.env_kwargs if own else None
    of = agent.observation, agent.action
    found = play(
        agent.actor, env, episodes, seed, action_mode=mode, noise=noise, kwargs=kwargs, spaces=of
    )
    return Evaluation.of(*found)


def run_folder(folder: Path) -> Path:
    """The folder, if it is a run's. RunFolderError with the nearest ones otherwise."""
    if (folder / "config.json").is_file() and (folder / "checkpoints").is_dir():
        return folder
    from tandem.runs.folder import suggest

    if folder.is_dir():
        raise RunFolderError(
            f"the folder {folder} is not a run.",
            "a folder that `tandem train` made",
            suggest(folder, ""),
        )
    near = suggest(folder.parent, folder.name)
    raise RunFolderError(
        f"the folder {folder} does not exist.", "a folder that `tandem train` made", near
    )


def default_folder(algorithm: str, env: EnvLike, seed: int | str) -> Path:
    """runs/ppo-CartPole-v1-s0-20250131-120000, or the next free name like it."""
    name = environment_name(env).replace("/", "-").replace(":", "-")
    base = Path("runs") / f"{algorithm}-{name}-s{seed}-{datetime.now():%Y%m%d-%H%M%S}"
    found, n = base, 2
    while found.exists():
        found, n = base.with_name(f"{base.name}-{n}"), n + 1
    return found


def draw(run: Session) -> tuple[str, ...]:
    """curve.png and an animation of the best agent. Gives back what could not be drawn here, and
    why."""
    assert run.folder is not None
    from tandem.animation import film
    from tandem.plots import curve

    notes = []
    try:
        curve([run.folder], run.folder / "curve.png")
    except (TandemError, OSError) as error:
        notes.append(f"no curve: {str(error).splitlines()[0]}")
    try:
        film(
            run.restored("best"),
            run.env,
            run.folder / "animation.gif",
            run.config.env_kwargs,
            seed=run.config.seed,
        )
    except (TandemError, OSError) as error:
        notes.append(f"no animation: {str(error).splitlines()[0]}")
    return tuple(notes)


def fresh(folder: Path) -> Path:
    """The folder, if a run may begin in it: it is empty, or not there yet."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunFolderError(
            f"{folder} exists and is not empty.",
            "a new folder",
            f"choose another, or go on with it: --resume {shlex.quote(str(folder))}",
        )
    return folder


def _versioned(env: EnvLike) -> EnvLike:
    """An id without a version ("CartPole"), which Gymnasium takes for the newest, with it: the
    zoo's entries have one."""
    if not isinstance(env, str) or ":" in env or re.search(r"[-_]v\d+$", env):
        return env
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = make(env)
    made.close()
    return str(made.spec.id) if made.spec is not None else env
