"""Comparison of algorithms over seeds and environments, with the measures of Agarwal et al. 2021
(arXiv:2108.13264) and stratified bootstrap intervals (`math/statistics.py`)."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isfinite, nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tandem.errors import SettingError, one_of
from tandem.learning.figures import figures, listed
from tandem.math import statistics
from tandem.math.statistics import FEW
from tandem.reports import plots
from tandem.runs import groups
from tandem.runs.groups import WAYS, WHICH, Groups
from tandem.settings import as_path, whole_number
from tandem.types import Array, JSONDict

METRICS: dict[str, Callable[[Array], Array]] = {
    "IQM": statistics.interquartile_mean,
    "mean": statistics.mean_of_tasks,
    "median": statistics.median_of_tasks,
    "optimality gap": statistics.optimality_gap,
}
GAP = "optimality gap"  # for normalized scores only
LEVEL = 0.95
POINTS = 101  # in a performance profile
PROFILE_SAMPLES = 2000  # maximum resamples for a profile, as in rliable

Scores = Mapping[str, Mapping[str, float]]  # per environment, "random" and "reference"


class Estimate(NamedTuple):
    """A measure and the ends of its 95 % interval, NaN if there is none."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        if not isfinite(self.low):
            return figures(self.value)
        value, low, high = listed(*self)
        return f"{value} [{low}, {high}]"


@dataclass(frozen=True)
class Comparison:
    """Result of a comparison.

    environments: the M environments that all groups share. scores: by group, [R, M] for R runs in
    each environment, normalized if `normalized`. metrics: by group, then by name in `METRICS`.
    thresholds: [T]. profiles: by group, the share of runs above each threshold, with its band.
    improvements: by pair of groups (X, Y), the probability that a run of X is better than one of Y.
    notes: cautions for the interpretation.
    """

    environments: tuple[str, ...]
    scores: dict[str, Array]
    normalized: bool
    which: str
    samples: int
    metrics: dict[str, dict[str, Estimate]]
    thresholds: Array
    profiles: dict[str, tuple[Array, Array, Array]]
    improvements: dict[tuple[str, str], Estimate]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        """Return the tables and the notes."""
        lines = [self.title, ""]
        names = list(next(iter(self.metrics.values())))
        rows = [
            (group, str(len(self.scores[group])), *(str(each[name]) for name in names))
            for group, each in self.metrics.items()
        ]
        lines += _columns([("", "runs", *names), *rows])
        if self.improvements:
            pairs = [
                (f"{x} over {y}", str(found), self.verdict(x, y))
                for (x, y), found in self.improvements.items()
            ]
            lines += ["", *_columns([("", "probability of improvement", ""), *pairs])]
        if any(x.low == x.low for each in self.metrics.values() for x in each.values()):
            lines += ["", f"[95 % intervals of {self.samples:,} stratified bootstrap resamples]"]
        return "\n".join([*lines, *(f"Note: {note}" for note in self.notes)])

    @property
    def title(self) -> str:
        """The compared scores on one line."""
        envs = self.environments
        where = envs[0] if len(envs) == 1 else f"{len(envs)} environments"
        return f"{self.score}, {where}, {self.which} checkpoint of each run"

    @property
    def score(self) -> str:
        """The name of a score."""
        return "normalized score" if self.normalized else "return"

    def verdict(self, x: str, y: str) -> str:
        """Return in words what the interval of a pair's probability of improvement shows."""
        found, runs = self.improvements[x, y], (len(self.scores[x]), len(self.scores[y]))
        if is_too_few(*runs, len(self.environments)):
            return "too few runs to tell"
        if found.low > 0.5:
            return f"{x} is better"
        return f"{y} is better" if found.high < 0.5 else "no clear difference"

    def to_json(self) -> JSONDict:
        """Return all results as JSON data; NaN becomes null."""
        profiles = {
            group: dict(zip(("share", "low", "high"), map(_plain, parts), strict=True))
            for group, parts in self.profiles.items()
        }
        return {
            "environments": list(self.environments),
            "score": self.score,
            "which": self.which,
            "samples": self.samples,
            "scores": {group: _plain(scores) for group, scores in self.scores.items()},
            "metrics": {
                group: {name: _plain(found) for name, found in each.items()}
                for group, each in self.metrics.items()
            },
            "thresholds": _plain(self.thresholds),
            "profiles": profiles,
            "improvements": [
                {"x": x, "y": y, "probability": _plain(found), "verdict": self.verdict(x, y)}
                for (x, y), found in self.improvements.items()
            ],
            "notes": list(self.notes),
        }

    def draw(self, out: str | Path) -> Path:
        """Write all results as one figure: .png, .svg or .pdf."""
        names = list(next(iter(self.metrics.values())))
        return plots.comparison(
            {name: {g: each[name] for g, each in self.metrics.items()} for name in names},
            self.thresholds,
            self.profiles,
            {f"{x}\nover {y}": found for (x, y), found in self.improvements.items()},
            plots.as_picture(as_path("out", out)),
            title=self.title,
            score=self.score,
        )


def compare(
    folders: str | Path | Sequence[str | Path],
    against: str | Path | None = None,
    *,
    scores: str | Path | Scores | None = None,
    which: str = "best",
    by: str = "algorithm",
    samples: int = 50_000,
    seed: int = 0,
) -> Comparison:
    """Compare algorithms by the final scores of their runs: interquartile mean, mean, median,
    optimality gap, performance profiles and probability of improvement, as defined by rliable, each
    with a 95 % stratified bootstrap interval.

    Args:
        folders: Runs, folders of seeds, or folders of those.
        against: The same for a baseline, to which each other group is compared; None: compare all
            pairs.
        scores: A TOML file, or a mapping, with a `random` and a `reference` score for each
            environment, which are normalized to 0 and 1; required for several environments.
        which: Score each run by its "best" or its "last" checkpoint, on the episodes that chose
            neither (result.json).
        by: Group the runs of one "algorithm" and framework, or those of one "folder" in `folders`.
        samples: Bootstrap resamples; at most 2,000 for a profile.
        seed: The seed of the bootstrap.

    Raises:
        RunFolderError: A folder is not a run, or the run is incomplete.
        SettingError: The runs cannot be compared; the message gives the reason.
    """
    one_of("which", which, WHICH)
    one_of("by", by, WAYS)
    samples, seed = whole_number("samples", samples, 1), whole_number("seed", seed)
    several = [folders] if isinstance(folders, str | Path) else folders
    places = [as_path("folders", folder) for folder in several]
    base = None if against is None else as_path("against", against)
    grouped = groups.grouped(places, base, by)
    environments = groups.environments_of(grouped)
    spans = _spans(scores, environments)
    matrices = {n: groups.scores(runs, environments, which) for n, runs in grouped.items()}
    if spans is not None:
        matrices = {n: (m - spans[0]) / (spans[1] - spans[0]) for n, m in matrices.items()}
    chosen = {n: f for n, f in METRICS.items() if n != GAP or spans is not None}
    if len(environments) == 1:
        del chosen["median"]  # the median over a single environment is its mean
    metrics = {}
    for name, matrix in matrices.items():
        of_all = [_all_of(chosen)(matrix), *_interval(_all_of(chosen), [matrix], samples, seed)]
        metrics[name] = {
            metric: Estimate(*map(float, each))
            for metric, each in zip(chosen, zip(*of_all, strict=True), strict=True)
        }
    thresholds = _thresholds(matrices, spans is not None)

    def profile(matrix: Array) -> Array:
        return statistics.performance_profile(matrix, thresholds)

    fewer = min(samples, PROFILE_SAMPLES)
    better = statistics.probability_of_improvement
    names = list(matrices)
    pairs = combinations(names, 2) if base is None else ((n, names[-1]) for n in names[:-1])
    improvements = {
        (x, y): Estimate(
            float(better(matrices[x], matrices[y])),
            *map(float, _interval(better, [matrices[x], matrices[y]], samples, seed)),
        )
        for x, y in pairs
    }
    return Comparison(
        environments=environments,
        scores=matrices,
        normalized=spans is not None,
        which=which,
        samples=samples,
        metrics=metrics,
        thresholds=thresholds,
        profiles={
            n: (profile(m), *_interval(profile, [m], fewer, seed)) for n, m in matrices.items()
        },
        improvements=improvements,
        notes=(*_few(matrices, improvements), *_steps(grouped, environments)),
    )


# --- the file of scores ---------------------------------------------------------------------------


def _spans(scores: str | Path | Scores | None, environments: tuple[str, ...]) -> Any:
    """Return the random and the reference score of each environment, [2, M]; None without a
    file."""
    if scores is None:
        if len(environments) > 1:
            raise SettingError(
                f"the returns of {len(environments)} environments have no common scale.",
                "a random and a reference score for each",
                "give them as scores= (--scores FILE); docs/howto/comparing.md describes the "
                "format.",
            )
        return None
    place, held = ("scores", scores) if isinstance(scores, Mapping) else _read(Path(scores))
    spans = []
    for env in environments:
        entry = held.get(env)
        pair = [entry.get(k) for k in ("random", "reference")] if isinstance(entry, Mapping) else []
        numbers = [x for x in pair if isinstance(x, int | float) and isfinite(x)]
        if len(numbers) < 2 or not numbers[0] < numbers[1]:
            raise SettingError(
                f"{place} has no two scores for {env} but {entry!r}.",
                "two numbers, random below reference",
                f'write them there, one per line: ["{env}"], random = 0.0, reference = 100.0.',
            )
        spans.append(numbers)
    return np.array(spans, np.float64).T


def _read(path: Path) -> tuple[str, Mapping[str, Any]]:
    try:
        return str(path), tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingError(
            f"cannot read {path}: {error}.",
            "a TOML file of scores",
            "write one as in docs/howto/comparing.md, or correct the path.",
        ) from error


# --- estimates ------------------------------------------------------------------------------------


def _all_of(metrics: Mapping[str, Callable[[Array], Array]]) -> Callable[[Array], Array]:
    """Return a function [..., R, M] -> [..., K] that computes all metrics on the same resamples."""
    return lambda scores: np.stack([metric(scores) for metric in metrics.values()], axis=-1)


def _interval(
    statistic: Callable[..., Array], matrices: list[Array], samples: int, seed: int
) -> tuple[Array, Array]:
    """Return the 95 % interval; NaN if a group has a single run, since its variation is unknown."""
    if min(len(matrix) for matrix in matrices) == 1:
        none = np.full_like(np.asarray(statistic(*matrices)), nan, dtype=np.float64)
        return none, none
    return statistics.stratified_bootstrap(
        statistic, matrices, level=LEVEL, samples=samples, seed=seed
    )


def _thresholds(matrices: dict[str, Array], normalized: bool) -> Array:
    """Return the thresholds of the profiles: from just below the lowest score, or 0, to the
    highest."""
    every = np.concatenate([matrix.ravel() for matrix in matrices.values()])
    low, high = every.min(), every.max()
    low = min(low, 0.0) if normalized else low
    span = high - low if high > low else 1.0
    return np.linspace(low - span / 50, low + span, POINTS)


# --- notes ----------------------------------------------------------------------------------------


def is_too_few(x: int, y: int, tasks: int) -> bool:
    """Return True if this number of runs of X and Y in each environment cannot show which is
    better: intervals of fewer than five runs are unreliable, and so is any verdict if even a clean
    win is not rare by chance."""
    return min(x, y) < FEW or statistics.chance_of_clean_win(x, y, tasks) > 1 - LEVEL


def _few(matrices: dict[str, Array], pairs: Mapping[tuple[str, str], Estimate]) -> list[str]:
    notes = []
    if single := [name for name, matrix in matrices.items() if len(matrix) == 1]:
        notes.append(
            f"1 run per environment of {', '.join(single)}: the variation between runs is unknown, "
            "and there is no interval."
        )
    for name, matrix in matrices.items():
        if 1 < (runs := len(matrix)) < FEW:
            notes.append(
                f"{name} has {runs} runs per environment, too few for 95 % intervals: even the "
                "range from the lowest to the highest run contains the true median with a "
                f"probability of only {statistics.range_holds_median(runs):.0%}. Train {FEW} or "
                "more."
            )
    for x, y in pairs:
        sizes = (*matrices[x].shape, len(matrices[y]))
        if 1 in (sizes[0], sizes[2]):
            continue  # see the note above
        chance = statistics.chance_of_clean_win(sizes[0], sizes[2], sizes[1])
        if chance > 1 - LEVEL:
            notes.append(
                f"{x} and {y}: with {sizes[0]} and {sizes[2]} runs, two equally good algorithms "
                f"separate completely by chance {chance:.0%} of the time."
            )
    return notes


def _steps(grouped: Groups, environments: tuple[str, ...]) -> list[str]:
    """Return notes on groups that were not trained for the same number of steps."""
    notes = []
    for env in environments:
        steps = {
            name: next(r for r in runs if r.config["env"] == env).result.get("env_steps", 0)
            for name, runs in grouped.items()
        }
        if max(steps.values()) > 1.1 * min(steps.values()):
            shown = ", ".join(f"{name} {count:,}" for name, count in steps.items())
            notes.append(f"in {env} the groups were not trained equally long: {shown} steps.")
    return notes


# --- output ---------------------------------------------------------------------------------------


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the rows of a table as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _plain(numbers: Any) -> Any:
    """Return numbers as lists, with NaN as None."""
    array = np.asarray(numbers, np.float64)
    if array.ndim:
        return [_plain(each) for each in array]
    return float(array) if np.isfinite(array) else None
