"""Plots of runs. Learning curves use Matplotlib objects only, without pyplot, global state or a
display; plots of agents' episodes are pyplot figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from tandem.errors import RunFolderError, SettingError, one_of
from tandem.math.statistics import FEW, bootstrap_band, iqm
from tandem.runs.atomic_files import writing
from tandem.runs.folder import Run, describe
from tandem.runs.groups import comparable
from tandem.types import AnyArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# color-blind safe palette of Okabe and Ito, 2008
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
KEYS = ("algorithm", "env", "framework")  # runs with equal values, and equal settings, form a group
SUFFIXES = (".png", ".svg", ".pdf")
SCALES = ("linear", "log")
LABEL = 60  # maximum characters per line of a legend
POINTS = 200  # on the common grid to which runs are interpolated


@contextmanager
def _on_white() -> Iterator[None]:
    """Draw in Matplotlib's default style, regardless of the program's: dark text on white is
    readable on dark pages, too."""
    from matplotlib import style  # here and below: Matplotlib is slow to import

    with style.context("default"):
        yield


def curve(
    folders: Sequence[Path], out: Path, *, individual: bool = False, title: str | None = None
) -> Path:
    """Plot the learning curve of one run, or of several together, and write it in the format of the
    suffix of `out` (png, svg, pdf).

    One run: the evaluations with a band of one standard deviation, and the return of the training
    episodes. Several: for each group of runs with the same algorithm, environment, framework and
    settings, the interquartile mean over runs with its 95 % bootstrap band (`math/statistics.py`),
    or with fewer than five runs the range from lowest to highest, on a common grid of environment
    steps; `individual=True` plots each run separately instead. Raises SettingError for another
    suffix, RunFolderError for a folder that is not a run or has nothing to plot yet.
    """
    if not folders:
        raise SettingError(
            "no folder was given.", "the folder of at least one run", "name one, such as runs/ppo."
        )
    out = as_picture(out)  # check before reading anything
    return curve_of([Run(x) for x in folders], out, individual=individual, title=title)


@_on_white()
def curve_of(
    runs: Sequence[Run], out: Path, *, individual: bool = False, title: str | None = None
) -> Path:
    """Plot `curve` for runs that are already loaded; `out` must have the suffix of a figure."""
    figure, axes = _axes()
    heading = (
        _draw_one(axes, runs[0]) if len(runs) == 1 else _draw_several(axes, list(runs), individual)
    )
    axes.set_title(
        heading if title is None else title, loc="left", fontsize=13, fontweight="bold", pad=10
    )
    axes.margins(x=0.01)
    axes.set_xlim(left=0)
    band = f"interquartile mean, 95 % band (under {FEW} runs: lowest to highest)"
    _legend(axes, None if individual or len(runs) == 1 else band)
    return _saved(figure, out)


def as_picture(out: Path) -> Path:
    """Return the path of a figure. Raises SettingError for an unsupported suffix."""
    out = Path(out)
    # without a suffix, Matplotlib would append one and write a different file
    if out.suffix.lower() not in SUFFIXES:
        raise SettingError(
            f"cannot write {out.name!r}.",
            "a name that ends in .png, .svg or .pdf",
            f"name it {out.stem or 'curve'}.png, for example.",
        )
    return out


def _saved(figure: Figure, out: Path) -> Path:
    """Write a figure. Raises RunFolderError on failure."""
    with writing(out):
        figure.savefig(out, dpi=200)
    return out


Interval = tuple[float, float, float]  # value, low, high


@_on_white()
def comparison(
    metrics: Mapping[str, Mapping[str, Interval]],
    thresholds: AnyArray,
    profiles: Mapping[str, tuple[AnyArray, AnyArray, AnyArray]],
    improvements: Mapping[str, Interval],
    out: Path,
    *,
    title: str,
    score: str,
) -> Path:
    """Plot algorithms side by side, as rliable does (Agarwal et al. 2021): a panel for each metric
    with the interval of each algorithm; performance profiles with bands; and, if there are pairs,
    probabilities of improvement. Ends that are NaN are not plotted.

    metrics: by metric, then by algorithm. profiles: [T] by algorithm. improvements: by pair. score:
    the name of the scores, for the axes.
    """
    fields_of: dict[str, tuple[str, Mapping[str, Interval]]] = {}  # equal metrics share a panel
    for name, each in metrics.items():
        before = fields_of.get(key := str(dict(each)))
        fields_of[key] = f"{before[0]}, {name}" if before else name, each
    rows = max(len(profiles), 2)
    figure: Any = _figure(10.5, 5.2 + 0.32 * rows)
    above, below = figure.subfigures(2, 1, height_ratios=(1.4 + 0.32 * rows, 3.8))
    fields = above.subplots(1, len(fields_of), squeeze=False)[0]
    for i, (axes, (name, each)) in enumerate(zip(fields, fields_of.values(), strict=True)):
        _intervals(axes, each, labeled=i == 0)
        axes.set_title(name, fontsize=11.5)
    ratios = (7, 5) if improvements else (1,)
    left, *others = below.subplots(1, len(ratios), width_ratios=ratios, squeeze=False)[0]
    for i, (name, (values, low, high)) in enumerate(profiles.items()):
        color = COLORS[i % len(COLORS)]
        left.step(thresholds, values, where="post", color=color, linewidth=2.0, label=name)
        left.fill_between(thresholds, low, high, step="post", color=color, alpha=0.18, linewidth=0)
    left.set(xlabel=f"{score} τ", ylabel="share of runs above τ", ylim=(-0.02, 1.02))
    _plain(left)
    _legend(left, None)
    for right in others:
        _intervals(right, improvements, labeled=True, colors=["#444444"])
        right.axvline(0.5, color="#888888", linewidth=1.0, linestyle="--")
        right.set_xlim(-0.02, 1.02)
        right.set_title("probability of improvement", fontsize=11.5)
    above.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
    return _saved(figure, out)


def _intervals(
    axes: Axes, each: Mapping[str, Interval], labeled: bool, colors: Sequence[str] = COLORS
) -> None:
    """Plot values with their intervals, one below another."""
    for i, (value, low, high) in enumerate(each.values()):
        color = colors[i % len(colors)]
        axes.plot([low, high], [i, i], color=color, linewidth=7, alpha=0.35, solid_capstyle="butt")
        axes.plot(value, i, "o", color=color, markersize=6)
    axes.set_yticks(range(len(each)), list(each) if labeled else [""] * len(each))
    axes.set_ylim(len(each) - 0.5, -0.5)
    _plain(axes)


def _bare(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, color="#e6e6e6", linewidth=0.8)


def _plain(axes: Axes) -> None:
    _bare(axes)
    axes.spines[["left", "bottom"]].set_color("#888888")
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=10.5, color="#888888")


def episodes(series: Mapping[str, Sequence[float]]) -> Figure:
    """Return a matplotlib figure of values per episode, with one panel per named series; shown if
    there is a display. It is pyplot's current figure, so that `plt.savefig` writes it."""
    figure, shown = _current_figure(0.6 + 3.2 * len(series))
    for i, (name, values) in enumerate(series.items()):
        axes = figure.add_subplot(len(series), 1, i + 1)
        axes.plot(
            np.arange(1, len(values) + 1),
            np.asarray(values, float),
            color=COLORS[i],
            linewidth=1.4,
        )
        axes.set_ylabel(name)
        _bare(axes)
    axes.set_xlabel("episode")
    if shown:
        figure.show()
    return figure


_unseen: list[Figure] = []  # the latest figure created without a display


def _current_figure(height: float) -> tuple[Figure, bool]:
    """Return a new figure, which is pyplot's current one, and whether there is a display for it."""
    from matplotlib import pyplot as plt

    # imported here because it imports environments, which `tandem --help` does not need
    from tandem.reports.animation import has_display

    shown = has_display()
    while _unseen and not shown:  # release pyplot's reference to the previous one
        plt.close(_unseen.pop())
    figure = plt.figure(figsize=(7.2, height), layout="constrained")
    if not shown:
        _unseen.append(figure)
    return figure, shown


def series(
    x: Sequence[float] | AnyArray,
    y: Sequence[float] | AnyArray,
    x_label: str,
    y_label: str,
    x_scale: str = "linear",
    y_lim: tuple[float, float] | None = None,
) -> Figure:
    """Return a matplotlib figure of y over x, with points joined by lines; shown if there is a
    display. It is pyplot's current figure, as in `episodes`."""
    one_of("x_scale", x_scale, SCALES)
    figure, shown = _current_figure(3.8)
    axes = figure.add_subplot()
    axes.plot(np.asarray(x, float), np.asarray(y, float), ".-", color=COLORS[0], linewidth=1.4)
    axes.set(xlabel=x_label, ylabel=y_label, xscale=x_scale)
    if y_lim is not None:
        axes.set_ylim(*y_lim)
    if x_scale == "linear":
        axes.locator_params(axis="x", integer=True)
    _bare(axes)
    if shown:
        figure.show()
    return figure


Curves = list[tuple[AnyArray, AnyArray]]  # (steps, returns) of each run


@_on_white()
def trial_curves(curves: Mapping[str, Curves], out: Path, title: str) -> Path:
    """Plot the learning curves of trials by name, as the interquartile mean over the runs of each
    with its band, and write the figure."""
    figure, axes = _axes()
    for i, (label, runs) in enumerate(curves.items()):
        _draw_group(axes, runs, COLORS[i % len(COLORS)], label)
    axes.set_ylabel("evaluation return", fontsize=11.5)
    return _written(figure, axes, out, title)


@_on_white()
def trial_points(
    lines: Mapping[str, tuple[list[float], list[list[float]]]],
    best: tuple[float, float],
    out: Path,
    title: str,
) -> Path:
    """Plot scores by learning rate on a logarithmic axis and write the figure. lines: by name,
    (rates, scores per rate with each seed), plotted as the mean with a band from lowest to highest.
    `best` is marked."""
    figure, axes = _axes()
    axes.set_xscale("log")
    for i, (label, (x, scores)) in enumerate(lines.items()):
        color, each = COLORS[i % len(COLORS)], np.array(scores, float)
        axes.fill_between(x, each.min(1), each.max(1), color=color, alpha=0.18, linewidth=0)
        axes.plot(x, each.mean(1), "o-", color=color, linewidth=2.2, markersize=4, label=label)
    axes.plot(*best, "o", markersize=11, fillstyle="none", color="#000000", label="best")
    axes.set(xlabel="learning rate", ylabel="evaluation return, second half")
    return _written(figure, axes, out, title)


@_on_white()
def importances(shares: Mapping[str, float], out: Path, title: str) -> Path:
    """Plot the importance of each setting, as shares of 1, as horizontal bars with the longest on
    top."""
    figure, axes = _axes()
    figure.set_figheight(1.2 + 0.32 * len(shares))
    names, each = list(shares)[::-1], list(shares.values())[::-1]
    bars = axes.barh(range(len(names)), each, color=COLORS[0], height=0.65)
    axes.bar_label(bars, [f"{share:.0%}" for share in each], padding=3, fontsize=10.5)
    axes.set_yticks(range(len(names)), names)
    axes.grid(False, axis="y")
    axes.xaxis.set_major_formatter("{x:.0%}")
    axes.set(xlabel="share of what decided whether a trial was among the best", ylabel="")
    axes.set_xlim(0, 1.12 * max(each))
    return _written(figure, axes, out, title, legend=False)


def _written(figure: Figure, axes: Axes, out: Path, title: str, legend: bool = True) -> Path:
    axes.set_title(title, loc="left", fontsize=13, fontweight="bold", pad=10)
    if legend:
        axes.margins(x=0.02)
        _legend(axes, None)
    return _saved(figure, out)


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _axes() -> tuple[Figure, Axes]:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    figure = _figure(7.2, 4.2)
    axes = figure.add_subplot()
    _plain(axes)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlabel("environment steps", fontsize=11.5)
    axes.set_ylabel("episode return", fontsize=11.5)
    return figure, axes


def _legend(axes: Axes, title: str | None) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure: Any = axes.get_figure()
    lines = sum(label.count("\n") + 1 for label in labels)
    if hasattr(figure, "set_figheight"):  # not a part of a figure: keep the axes' height
        figure.set_figheight(figure.get_figheight() + 0.24 * max(0, lines - 3))
    legend = figure.legend(
        handles,
        labels,
        title=title,
        loc="outside lower left",
        ncols=1 if max(map(len, labels)) > LABEL // 2 else min(len(labels), 3),
        edgecolor="none",
        fontsize=10.5,
        title_fontsize=10.5,
        alignment="left",
    )
    for handle in legend.legend_handles:
        handle.set_linewidth(min(handle.get_linewidth(), 3.0))


def _draw_one(axes: Axes, run: Run) -> str:
    steps = run.column("env_steps")
    trained, mean, std = (run.column(name) for name in ("return_mean", "eval_mean", "eval_std"))
    seen, tested = np.isfinite(trained), np.isfinite(mean)
    if not (seen.any() or tested.any()):
        raise _nothing(run)
    if seen.any():
        axes.plot(
            steps[seen], trained[seen], color="#999999", linewidth=1.3, label="training episodes"
        )
    if tested.any():
        x, y, s = steps[tested], mean[tested], np.nan_to_num(std[tested])
        axes.fill_between(x, y - s, y + s, color=COLORS[0], alpha=0.18, linewidth=0)
        axes.plot(
            x,
            y,
            color=COLORS[0],
            linewidth=2.2,
            marker="o",
            markersize=3.5,
            label="evaluation, mean ± std",
        )
    return describe(run, (*KEYS, "seed"))


def _draw_several(axes: Axes, runs: list[Run], individual: bool) -> str:
    shared = [
        key for key in (*KEYS, "seed") if len({str(run.config.get(key)) for run in runs}) == 1
    ]
    differ = [key for key in KEYS if key not in shared]
    metric = (
        "eval_mean"
        if all(np.isfinite(run.column("eval_mean")).any() for run in runs)
        else "return_mean"
    )
    lines = {
        label: [_points(run, metric) for run in members]
        for label, members in _groups(runs, differ).items()
    }
    if individual:
        _draw_individual(axes, lines, [describe(run, ["seed"]) for run in runs])
    else:
        for i, (label, curves) in enumerate(lines.items()):
            _draw_group(axes, curves, COLORS[i % len(COLORS)], label)
    axes.set_ylabel(
        "evaluation return" if metric == "eval_mean" else "return of training episodes",
        fontsize=11.5,
    )
    return describe(runs[0], shared)


def _groups(runs: list[Run], differ: list[str]) -> dict[str, list[Run]]:
    """Group runs that differ only in their seeds, by a label of what distinguishes them: `differ`,
    and the settings that differ among runs of one algorithm, environment and framework."""
    kinds: dict[tuple[object, ...], list[Run]] = {}
    for run in runs:
        kinds.setdefault(tuple(run.config.get(key) for key in KEYS), []).append(run)
    found: dict[str, list[Run]] = {}
    for members in kinds.values():
        parts = [comparable(run.config) for run in members]
        each = [{**part["settings"], **part["options"]} for part in parts]
        first = each[0]
        names = [n for n in first if any(one.get(n, first[n]) != first[n] for one in each)]
        for run, one in zip(members, each, strict=True):
            words = [describe(run, differ), *(f"{n}={one.get(n, first[n])}" for n in names)]
            label = fill(", ".join(filter(None, words)), LABEL)
            found.setdefault(label, []).append(run)
    return found


def _draw_group(axes: Axes, curves: Curves, color: str, label: str) -> None:
    start = max(x[0] for x, _ in curves)  # restrict to steps that all runs of the group cover
    end = min(x[-1] for x, _ in curves)
    grid = np.linspace(start, max(start, end), POINTS)
    scores = np.stack([np.interp(grid, x, y) for x, y in curves])
    runs = f"{len(curves)} runs" if len(curves) > 1 else "1 run"
    if len(curves) > 1:
        few = len(curves) < FEW
        band = (scores.min(0), scores.max(0)) if few else bootstrap_band(scores)
        axes.fill_between(grid, *band, color=color, alpha=0.18, linewidth=0)
    axes.plot(
        grid, iqm(scores), color=color, linewidth=2.2, label=f"{label}, {runs}" if label else runs
    )


def _draw_individual(axes: Axes, lines: dict[str, Curves], seeds: list[str]) -> None:
    """Plot one line per run. If each group has a single run, later lines are thinner, so that
    identical curves remain visible."""
    if len(lines) == 1:
        named = list(zip(seeds, next(iter(lines.values())), strict=True))
    else:
        named = [(label, curve) for label, curves in lines.items() for curve in curves]
    colors = {label: COLORS[i % len(COLORS)] for i, label in enumerate(dict(named))}
    nested = len(lines) == len(named)
    for i, (label, (x, y)) in enumerate(named):
        first = label not in [earlier for earlier, _ in named[:i]]
        width = 2.0 + 2.5 * (len(named) - 1 - i) if nested else 1.5
        axes.plot(
            x,
            y,
            color=colors[label],
            linewidth=min(width, 7.0),
            label=label if first else None,
            solid_joinstyle="round",
        )


def _points(run: Run, metric: str) -> tuple[AnyArray, AnyArray]:
    """Return the rows of a run that have this metric: (steps, values)."""
    steps, values = run.column("env_steps"), run.column(metric)
    there = np.isfinite(values)
    if not there.any():
        raise _nothing(run)
    return steps[there], values[there]


def _nothing(run: Run) -> RunFolderError:
    return RunFolderError(
        f"the run {run.folder} has no return to plot yet.",
        "a finished episode or evaluation",
        "train it for a while.",
    )
