"""Short parallel runs to choose a learning rate, an optimizer, or an algorithm and its settings by
their results: the implementation of `tandem find`."""

from __future__ import annotations

import csv
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import isnan, nan
from pathlib import Path
from tempfile import TemporaryFile
from time import perf_counter
from typing import Any, get_args

import numpy as np

from tandem import algorithms, backends, trainer, zoo
from tandem.algorithms import own
from tandem.algorithms.base import Algorithm
from tandem.envs.factory import EnvLike, environment_name, versioned
from tandem.envs.vector_source import brought
from tandem.errors import NonFiniteError, SettingError, UnknownNameError, noting
from tandem.learning.config import Options
from tandem.learning.events import EvaluationEnd
from tandem.learning.figures import figures, mean_and_std
from tandem.learning.parallel.choice import cores
from tandem.reports import plots
from tandem.runs.atomic_files import writing
from tandem.runs.new_folders import free_folder, new_folder
from tandem.settings import Schedule, as_path, convert, flag, hints_of, whole_number
from tandem.types import JSONDict
from tandem.workers.jobs import FunctionCall, results

SHARE = 10  # a trial has this fraction (1/SHARE) of a run's steps by default
LEAST = 5_000  # minimum steps of a trial, if the run has as many
EVALUATIONS = 10  # per trial by default; the second half of them counts
EPISODES = 5  # per evaluation


def second_half(returns: Sequence[float]) -> float:
    """Return the score of a run: the mean over the second half of its evaluations; NaN without
    any."""
    return float(np.mean(returns[len(returns) // 2 :])) if returns else nan


@dataclass(frozen=True)
class Candidate:
    """An algorithm with settings. label: distinguishes it from the others. without: shared settings
    that have no effect on this one."""

    algorithm: str
    settings: JSONDict
    label: str
    line: str = ""  # its line in a plot
    x: float = nan  # its x value on that line
    kind: type[Algorithm] | None = None  # the algorithm's class, if passed from Python
    without: frozenset[str] = frozenset()

    def flags(self) -> str:
        """Return the settings as flags of `tandem train`."""
        kind = self.kind or (algorithms.get(self.algorithm) if self.algorithm else None)
        return " ".join(as_flag(name, x, kind) for name, x in self.settings.items())


def as_flag(name: str, value: object, kind: type[Algorithm] | None = None) -> str:
    """Return a setting as a flag of `tandem train`. kind: the algorithm's class, to recognize
    boolean flags, which take no value such as "true"."""
    hints = hints_of(Options) | (hints_of(kind.Settings) if kind else {})
    is_flag = hints.get(name) is bool
    return flag(name, convert(name, value, bool, False) if is_flag else value)


@dataclass
class Trial:
    """Results of a candidate, with each seed."""

    candidate: Candidate
    steps: list[list[int]] = field(default_factory=list)  # per run, of each evaluation
    returns: list[list[float]] = field(default_factory=list)  # the mean returns at these
    seconds: float = 0.0
    fault: str = ""  # if a run ended early: what was not finite

    @property
    def scores(self) -> list[float]:
        """The mean return over the second half of each run's evaluations."""
        return [second_half(returns) for returns in self.returns]

    @property
    def score(self) -> float:
        """The mean of the scores over the seeds; NaN without a run, or if a run had a fault."""
        return nan if self.fault or not self.returns else float(np.mean(self.scores))

    def __str__(self) -> str:
        """Return for example "431.5 ± 20.1"."""
        if self.fault:
            return self.fault
        if len(self.scores) > 1:
            return mean_and_std(self.score, float(np.std(self.scores)))
        return figures(self.score)


@dataclass(frozen=True)
class Found:
    """Result of a search. best: the first of ties. edge: "lowest" or "highest" if the best learning
    rate is at that end of the tried range. folder: the folder with the files. picture: the plot in
    it."""

    trials: list[Trial]
    best: Trial
    edge: str = ""
    folder: Path | None = None
    picture: Path | None = None

    @property
    def ties(self) -> list[str]:
        """The labels of the trials that share the best score, if there are several."""
        labels = [t.candidate.label for t in self.trials if t.score == self.best.score]
        return labels if len(labels) > 1 else []


def find_lr(
    algorithm: str | type[Algorithm],
    env: EnvLike,
    *,
    start_lr: float = 1e-5,
    end_lr: float = 1e-1,
    points: int = 9,
    setting: str = "learning_rate",
    **more: Any,
) -> Found:
    """Train with `points` learning rates from start_lr to end_lr, geometrically spaced, and find
    the one with the highest return.

    Each is a separate run, from the same seeds: in a single run with a growing learning rate, a
    return depends as much on the time learned as on the learning rate. setting: another step size
    setting of the algorithm. more: see `tandem.tuning.search.find_among`.
    """
    return find_among(rates(algorithm, env, start_lr, end_lr, points, setting), env, **more)


def find_optimizer(
    algorithm: str | type[Algorithm],
    env: EnvLike,
    *,
    optimizers: Sequence[str] | None = None,
    start_lr: float = 1e-4,
    end_lr: float = 1e-1,
    points: int = 4,
    **more: Any,
) -> Found:
    """Train with each optimizer (None: all that the algorithm knows) and each of `points` learning
    rates, and find the best combination: optimizers can only be compared at their own best learning
    rates. more: see `tandem.tuning.search.find_among`."""
    kind, name = own.checked(algorithm, trainer.TAKEN), own.name_of(algorithm)
    hints = hints_of(kind.Settings)
    if "optimizer" not in hints:
        fix = "use find_lr: it has one optimizer."
        raise UnknownNameError(f"setting of {name}", "optimizer", hints, fix)
    known = list(get_args(hints["optimizer"]))
    candidates = []
    for optimizer in known if optimizers is None else optimizers:
        refuse_own_optimizer({"optimizer": optimizer})
        if optimizer not in known:
            raise UnknownNameError(f"optimizer of {name}", optimizer, known)
        for rate in rates(kind, env, start_lr, end_lr, points, "learning_rate"):
            settings = {"optimizer": optimizer, **rate.settings}
            label = f"{optimizer}, {rate.label}"
            candidates.append(Candidate(name, settings, label, optimizer, rate.x, kind))
    return find_among(candidates, env, **more)


def find_best(
    names: Sequence[str | type[Algorithm]],
    env: EnvLike,
    *,
    vary: Mapping[str, Sequence[object]] | None = None,
    **more: Any,
) -> Found:
    """Train with each of several algorithms, and with each combination of the settings in `vary`
    (values by name), and find the best.

    more: see `tandem.tuning.search.find_among`. Raises the errors of `tandem.train` for invalid
    settings, before anything runs; WorkerError if processes die too often; NonFiniteError if no
    trial finished.
    """
    vary = dict(vary or {})
    candidates = []
    for algorithm in names:
        kind, name = own.checked(algorithm, trainer.TAKEN), own.name_of(algorithm)
        for values in product(*vary.values()):
            settings = dict(zip(vary, values, strict=True))
            label = _label(name if len(names) > 1 or not settings else "", settings)
            candidates.append(Candidate(name, settings, label, kind=kind))
    return find_among(candidates, env, **more)


def _label(name: str, settings: JSONDict) -> str:
    return " ".join([*([name] if name else []), *(f"{n}={v}" for n, v in settings.items())])


def _distinct(
    candidates: Sequence[Candidate], env: EnvLike, shared: Mapping[str, object]
) -> list[Candidate]:
    """Return the candidates without the settings (own or shared) that have no effect on them but on
    others, and without the resulting duplicates. Raises SettingError for a varied setting without
    effect in any trial."""
    place, several = environment_name(versioned(env)), len({c.algorithm for c in candidates}) > 1
    given = [(c.kind or c.algorithm, {**shared, **c.settings}) for c in candidates]
    idle = [zoo.without_effect(kind, place, values) for kind, values in given]
    nowhere, found = set.intersection(*map(set, idle)), dict[tuple[object, ...], Candidate]()
    for name in (n for c in candidates for n in c.settings if n in nowhere):
        raise SettingError(
            f"{name} varies but has no effect in any trial without {idle[0][name]}.",
            "a setting that has an effect",
            f"give {idle[0][name]}, or leave {name} out.",
        )
    for c, names in zip(candidates, idle, strict=True):
        left = names.keys() - nowhere
        settings, label = {n: x for n, x in c.settings.items() if n not in left}, c.label
        if settings != c.settings:
            label = _label(c.algorithm if several or not settings else "", settings)
        without = frozenset(left & shared.keys())
        one = replace(c, settings=settings, label=label, without=without)
        found.setdefault((c.algorithm, label, c.line, c.x), one)
    return list(found.values())


def rates(
    algorithm: str | type[Algorithm],
    env: EnvLike,
    start: float,
    end: float,
    points: int,
    setting: str,
) -> list[Candidate]:
    """Return a candidate for each learning rate. A schedule of the algorithm keeps its shape.
    Raises SettingError for invalid numbers."""
    points = whole_number("points", points, 2)
    kind, name = own.checked(algorithm, trainer.TAKEN), own.name_of(algorithm)
    hints = hints_of(kind.Settings)
    known = [name for name in hints if name.endswith("learning_rate")]
    if setting not in known:
        raise UnknownNameError(f"learning rate of {name}", setting, known)
    try:
        start, end = float(start), float(end)
    except (TypeError, ValueError):
        start = end = nan
    if not 0 < start < end < float("inf"):
        raise SettingError(
            f"start_lr={start:g} and end_lr={end:g}.",
            "two learning rates above 0, the lower first",
            "try 1e-5 and 1e-1.",
        )
    given: Schedule = getattr(trainer.resolve(kind, environment_name(env), {})[0], setting)
    found = []
    for x in np.geomspace(start, end, points):
        rate = float(f"{x:.2g}")
        text = str(given.moved(rate))
        label = f"{setting} {text}"
        found.append(Candidate(name, {setting: text}, label, name, rate, kind))
    return found


def find_among(
    candidates: list[Candidate],
    env: EnvLike,
    *,
    steps: int | None = None,
    seeds: int = 1,
    seed: int = 0,
    processes: int | None = None,
    out: str | Path | None = None,
    framework: str | None = None,
    begun: Callable[[str], object] = lambda what: None,
    told: Callable[[Trial], object] = lambda trial: None,
    **settings: Any,
) -> Found:
    """Train all candidates and find the best.

    Args:
        candidates: Algorithms and settings to compare.
        env: The environment.
        steps: Steps of each run. None: a tenth of the algorithm's setting.
        seeds: Number of seeds of each candidate.
        seed: The first of them.
        processes: Number of parallel runs. None: the number of cores.
        out: A new folder for a plot and trials.csv. None: no files.
        framework: As for `tandem.train`.
        begun: Called with a line that describes the search.
        told: Called with each trial when it is complete.
        settings: `env_kwargs` and settings that all candidates share, as for `tandem.train`.
    """
    refuse_own_optimizer(settings)
    folder = None if out is None else as_path("out", out).absolute()
    seeds, seed = whole_number("seeds", seeds, 1), whole_number("seed", seed)
    processes = cores() if processes is None else whole_number("processes", processes, 1)
    if not candidates:
        raise SettingError(
            "there is nothing to compare.", "at least one algorithm", 'give ["ppo", "dqn"].'
        )
    for candidate in candidates:
        for name in candidate.settings.keys() & settings.keys():
            raise SettingError(
                f"{name}={settings[name]} was given, but the trials vary it.",
                "settings that all trials share",
                f"leave {name} out.",
            )
    candidates = _distinct(candidates, env, settings)
    with noting():  # print each note once
        framework = (
            framework or arguments_of(candidates[0], env, steps, None, settings)["framework"]
        )
        arguments = [arguments_of(c, env, steps, framework, settings) for c in candidates]
    if folder is not None:
        with writing(new_folder(folder) / "trials.csv"):  # fail now, not after the trials
            TemporaryFile(dir=folder).close()
    names = [f"the trial of {c.algorithm} with {c.label}" for c in candidates]
    jobs = [(i, s) for s in range(seed, seed + seeds) for i in range(len(candidates))]
    calls = [
        FunctionCall(
            f"{names[i]} and seed {s}", run, (engine_of(framework), {**arguments[i], "seed": s})
        )
        for i, s in jobs
    ]
    counts = ", ".join(sorted({f"{a['steps']:,}" for a in arguments}))
    processes = min(processes, len(calls))
    begun(
        f"{len(candidates)} trials of {counts} steps on {framework}, with {seeds} "
        f"seed{'s' * (seeds > 1)}, in {processes} process{'es' * (processes > 1)}"
    )
    trials, left = [Trial(c) for c in candidates], [seeds] * len(candidates)

    def note(number: int, result: tuple[list[int], list[float], float, str]) -> None:
        i = jobs[number][0]
        trial, (at, returns, seconds, fault) = trials[i], result
        trial.steps.append(at)
        trial.returns.append(returns)
        trial.seconds += seconds
        trial.fault = trial.fault or fault
        left[i] -= 1
        if not left[i]:
            told(trial)

    results(calls, processes, note)
    title = f"{' and '.join(dict.fromkeys(c.algorithm for c in candidates))}, "
    return _conclude(trials, folder, title + environment_name(env))


def refuse_own_optimizer(settings: Mapping[str, object]) -> None:
    """Raise SettingError for an optimizer object: it would keep its own step size."""
    if not isinstance(given := settings.get("optimizer") or "", str):
        raise SettingError(
            f"optimizer={type(given).__name__}(…) is an object with its own learning rate.",
            "the name of an optimizer, so that trials set its learning rate",
            "leave optimizer out, or call tandem.train with each of your optimizers.",
        )


def arguments_of(
    candidate: Candidate,
    env: EnvLike,
    steps: int | None,
    framework: str | None,
    settings: JSONDict,
) -> JSONDict:
    """Return the arguments of `train` for a candidate, including the framework. Raises the same
    errors as `train`."""
    settings = {n: x for n, x in settings.items() if n not in candidate.without}
    kwargs = settings.get("env_kwargs")
    values = {n: v for n, v in settings.items() if n not in ("env_kwargs", "device", "network")}
    values |= candidate.settings
    name = candidate.kind or candidate.algorithm
    env = versioned(env)
    whole = trainer.resolve(name, environment_name(env), values)[0].steps
    values["steps"] = (
        min(whole, max(LEAST, whole // SHARE)) if steps is None else whole_number("steps", steps, 1)
    )
    if not isnan(candidate.x):  # a step size: its schedule has the length of a run of these steps
        other = {n: x for n, x in values.items() if n not in candidate.settings}
        usual = trainer.resolve(name, environment_name(env), other)[0]
        rates = [n for n in candidate.settings if n.endswith("learning_rate")]
        values |= {n: str(getattr(usual, n).moved(candidate.x)) for n in rates}
    values = {
        "eval_every": max(1, values["steps"] // EVALUATIONS),
        "eval_episodes": EPISODES,
        "final_episodes": 1,
        **values,
    }
    places: dict[str, object] = {n: x for n, x in settings.items() if n in ("device", "network")}
    config: JSONDict = {"network": None, "device": "auto", **places}
    if isinstance(config["network"], str):
        config["network"] = backends.named_network(config["network"], framework)
    source, config["instance"] = brought(env, kwargs)
    config |= {"framework": framework, "env_kwargs": kwargs}
    chosen = trainer.configured(name, source or env, dict(values), seed=0, out=None, **config)
    return {
        "algorithm": name,
        "env": env,
        "framework": chosen.framework,
        "env_kwargs": kwargs,
        **places,
        **values,
    }


def engine_of(framework: str) -> backends.Engine | None:
    return None if backends.ENGINES[framework] is None else backends.Engine(framework)


def run(engine: object, arguments: JSONDict) -> tuple[list[int], list[float], float, str]:
    """Train in a separate process and return (steps and mean return of each evaluation, seconds,
    fault)."""
    logging.getLogger("tandem").setLevel(logging.ERROR)  # hide the notes of each trial
    evaluations: list[EvaluationEnd] = []

    def note(event: object) -> None:
        if isinstance(event, EvaluationEnd):
            evaluations.append(event)

    began, fault = perf_counter(), ""
    try:
        trainer.train(**arguments, callbacks=[note], catch_signals=False)
    except NonFiniteError as error:
        fault = error.happened
    means = [e.evaluation.mean for e in evaluations]
    return [e.env_steps for e in evaluations], means, perf_counter() - began, fault


def _conclude(trials: list[Trial], folder: Path | None, title: str) -> Found:
    scores = [trial.score for trial in trials]
    if all(map(isnan, scores)):
        raise NonFiniteError(
            f"no trial finished with an evaluation: {trials[0].fault}".rstrip(": "),
            "at least one trial with finite losses and evaluations",
            "lower the learning rates; leave --eval-episodes out.",
        )
    best = trials[int(np.nanargmax(scores))]
    line = [t for t in trials if t.candidate.line == best.candidate.line]
    edge = ""
    if not isnan(best.candidate.x):
        edge = "lowest" if best is line[0] else "highest" if best is line[-1] else ""
    picture = None
    if folder is not None:
        fix = f"free some space, and search again; the best was {best.candidate.label}: {best}."
        with writing(folder / "trials.csv", fix):
            _table(trials, folder / "trials.csv")
        picture = draw(trials, best, folder / "trials.png", title)
    return Found(trials, best, edge, folder, picture)


def draw(trials: Iterable[Trial], best: Trial, out: Path, title: str) -> Path:
    """Plot the results of trials: by learning rate if they differ in that, with a line per
    optimizer; else by environment step, with a line per trial."""
    trials = [t for t in trials if not isnan(t.score)]
    if isnan(best.candidate.x):
        curves = {
            t.candidate.label: [
                (np.array(x, float), np.array(y))
                for x, y in zip(t.steps, t.returns, strict=True)
                if x
            ]
            for t in trials
        }
        return plots.trial_curves(curves, out, title)
    lines: dict[str, list[Trial]] = {}
    for trial in trials:
        lines.setdefault(trial.candidate.line, []).append(trial)
    points = {
        name: ([t.candidate.x for t in line], [t.scores for t in line])
        for name, line in lines.items()
    }
    return plots.trial_points(points, (best.candidate.x, best.score), out, title)


def _table(trials: list[Trial], path: Path) -> None:
    """Write a row for each evaluation."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["algorithm", "trial", "run", "env_steps", "return_mean"])
        for t in trials:
            for k, (steps, returns) in enumerate(zip(t.steps, t.returns, strict=True)):
                for row in zip(steps, returns, strict=True):
                    rows.writerow([t.candidate.algorithm, t.candidate.label, k, *row])


def default_folder(command: str, names: Sequence[str], env: str) -> Path:
    """Return for example runs/find-lr-ppo-CartPole-v1-20250131-120000."""
    place = env.replace("/", "-").replace(":", "-")
    return free_folder(Path("runs") / f"{command}-{'-'.join(names)}-{place}")
