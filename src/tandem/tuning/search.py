"""Short runs side by side, to choose a learning rate, an optimizer, or an algorithm and its
settings by what they come to: what `tandem find` does."""

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
from tandem.parallel.choice import cores
from tandem.reports import plots
from tandem.runs.atomic_files import writing
from tandem.runs.folder import free_folder, new_folder
from tandem.settings import Schedule, as_path, convert, flag, hints_of, whole_number
from tandem.types import JSONDict
from tandem.workers.jobs import FunctionCall, results

SHARE = 10  # of a run's steps that a trial has, unless it is told
LEAST = 5_000  # steps that it has at least, if the run has as many
EVALUATIONS = 10  # in a trial, unless it is told; the second half of them counts
EPISODES = 5  # of each


def second_half(returns: Sequence[float]) -> float:
    """What a run counts for: the mean over the second half of its evaluations. NaN without any."""
    return float(np.mean(returns[len(returns) // 2 :])) if returns else nan


@dataclass(frozen=True)
class Candidate:
    """An algorithm with settings; label: what tells it from the others. without: settings that the
    others share, and that do nothing here."""

    algorithm: str
    settings: JSONDict
    label: str
    line: str = ""  # the line of a picture that it is on
    x: float = nan  # and where on that
    kind: type[Algorithm] | None = None  # the algorithm's class, where a program gave it
    without: frozenset[str] = frozenset()

    def flags(self) -> str:
        """What `tandem train` is to be given."""
        kind = self.kind or (algorithms.get(self.algorithm) if self.algorithm else None)
        return " ".join(as_flag(name, x, kind) for name, x in self.settings.items())


def as_flag(name: str, value: object, kind: type[Algorithm] | None = None) -> str:
    """A setting as `tandem train` takes it. kind: the algorithm's class, which says that text such
    as "true" is of a flag without a value."""
    hints = hints_of(Options) | (hints_of(kind.Settings) if kind else {})
    is_flag = hints.get(name) is bool
    return flag(name, convert(name, value, bool, False) if is_flag else value)


@dataclass
class Trial:
    """What a candidate came to, with each seed."""

    candidate: Candidate
    steps: list[list[int]] = field(default_factory=list)  # of each evaluation
    returns: list[list[float]] = field(default_factory=list)  # their means
    seconds: float = 0.0
    fault: str = ""  # why one of the runs ended early: what was not finite

    @property
    def scores(self) -> list[float]:
        """The mean return over the second half of each run's evaluations."""
        return [second_half(returns) for returns in self.returns]

    @property
    def score(self) -> float:
        """Their mean over the seeds; NaN where there is none, or a run had a fault."""
        return nan if self.fault or not self.returns else float(np.mean(self.scores))

    def __str__(self) -> str:
        """As in "431.5 ± 20.1"."""
        if self.fault:
            return self.fault
        if len(self.scores) > 1:
            return mean_and_std(self.score, float(np.std(self.scores)))
        return figures(self.score)


@dataclass(frozen=True)
class Found:
    """What a search came to. best: the first of equals. edge: "lowest" or "highest" where the best
    learning rate is the last one of those that were tried. folder: that of its files; picture: one
    of them."""

    trials: list[Trial]
    best: Trial
    edge: str = ""
    folder: Path | None = None
    picture: Path | None = None

    @property
    def ties(self) -> list[str]:
        """The labels of the trials with the best score, where several have it."""
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
    """Trains with each of `points` learning rates from start_lr to end_lr, in equal ratios, and
    finds the one with the highest return.

    Each is a run of its own, from the same seeds: in one run whose learning rate grows, a return
    says as much of how long it has learned as of the learning rate. setting: another setting of the
    algorithm's that is a step size. more: see `find_best`.
    """
    return _search(rates(algorithm, env, start_lr, end_lr, points, setting), env, **more)


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
    """Trains with each optimizer (None: those the algorithm knows) and each of `points` learning
    rates, since none is better or worse but with its own, and finds the best of both. more: see
    `find_best`."""
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
    return _search(candidates, env, **more)


def find_best(
    names: Sequence[str | type[Algorithm]],
    env: EnvLike,
    *,
    vary: Mapping[str, Sequence[object]] | None = None,
    **more: Any,
) -> Found:
    """Trains with each of several algorithms, and with each combination of the settings in `vary`
    (values by name), and finds the best.

    more, here and above: steps, of each run (a tenth of what the algorithm's settings say); seeds,
    how many, from `seed` (0) on; framework, env_kwargs and any setting, as for `tandem.train`;
    processes, how many runs at a time (as many as cores); out, a new folder for a picture and
    trials.csv (None: none); begun, a function that is given a line on what is to come, and told,
    one that is given each Trial when it is there.

    Raises what `tandem.train` raises for settings that do not fit, before anything runs;
    WorkerError where processes die too often; NonFiniteError where no trial came to an end.
    """
    vary = dict(vary or {})
    candidates = []
    for algorithm in names:
        kind, name = own.checked(algorithm, trainer.TAKEN), own.name_of(algorithm)
        for values in product(*vary.values()):
            settings = dict(zip(vary, values, strict=True))
            label = _label(name if len(names) > 1 or not settings else "", settings)
            candidates.append(Candidate(name, settings, label, kind=kind))
    return _search(candidates, env, **more)


def _label(name: str, settings: JSONDict) -> str:
    return " ".join([*([name] if name else []), *(f"{n}={v}" for n, v in settings.items())])


def _distinct(
    candidates: Sequence[Candidate], env: EnvLike, shared: Mapping[str, object]
) -> list[Candidate]:
    """The candidates, each without those of its settings and of the shared ones that do nothing in
    it and something in another; once each, where some are the same then. SettingError for a
    setting that varies and has no effect in any."""
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
    """A candidate for each learning rate. Where the algorithm has a schedule there, it keeps its
    form. SettingError for numbers that do not fit."""
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


def _search(
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
    """Runs all candidates, and finds the best. settings: those that all have."""
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
    with noting():  # each note once
        framework = (
            framework or arguments_of(candidates[0], env, steps, None, settings)["framework"]
        )
        arguments = [arguments_of(c, env, steps, framework, settings) for c in candidates]
    if folder is not None:
        with writing(new_folder(folder) / "trials.csv"):  # or it is refused, before hours of trials
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
    """SettingError for an optimizer that is an object: it would keep its own step size."""
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
    """What `train` is given for a candidate, framework included. Raises what it would raise."""
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
    if not isnan(candidate.x):  # a step size: as long as that of a run of these steps
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
    source, config["instance"] = brought(env, kwargs)
    config |= {"framework": framework, "env_kwargs": kwargs}
    chosen = trainer._config(name, source or env, dict(values), seed=0, out=None, **config)
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
    """Trains, in a process of its own, and returns (steps and mean return of each evaluation,
    seconds, what was not finite)."""
    logging.getLogger("tandem").setLevel(logging.ERROR)  # notes of a trial, one after the other
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
    """Draws what trials came to: by learning rate where they differ in that, with a line for each
    optimizer; else by environment step, with a line for each."""
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
    """A row for each evaluation."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["algorithm", "trial", "run", "env_steps", "return_mean"])
        for t in trials:
            for k, (steps, returns) in enumerate(zip(t.steps, t.returns, strict=True)):
                for row in zip(steps, returns, strict=True):
                    rows.writerow([t.candidate.algorithm, t.candidate.label, k, *row])


def default_folder(command: str, names: Sequence[str], env: str) -> Path:
    """runs/find-lr-ppo-CartPole-v1-20250131-120000."""
    place = env.replace("/", "-").replace(":", "-")
    return free_folder(Path("runs") / f"{command}-{'-'.join(names)}-{place}")
