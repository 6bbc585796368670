"""normalized.png: algorithms over the tasks that they share, from benchmarks/results/learn.csv.

Scores are last policies' mean returns, normalized by references.toml: interquartile means with 95 %
stratified bootstrap intervals over seeds (Agarwal et al. 2021, arXiv:2108.13264)."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from benchmarks.learn_rows import ROWS
from benchmarks.learn_tables import Line
from benchmarks.measure import ROOT
from tandem import algorithms
from tandem.math.statistics import interquartile_mean, stratified_bootstrap
from tandem.types import Array

REFERENCES = ROOT / "benchmarks" / "references.toml"
MUJOCO = ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5", "Swimmer-v5")
# name -> (steps, algorithms, tasks). Rows that an algorithm does not name, such as simba-walker2d,
# do not count, and of unequal numbers of seeds the first ones.
FAMILIES = {
    "on-policy": (1_000_000, ("trpo", "ppo", "a2c"), MUJOCO),
    "off-policy": (300_000, ("tqc", "crossq", "sac"), ("HalfCheetah-v5", "Walker2d-v5")),
}
LEAST = 3  # seeds
Interval = tuple[float, float, float]


def intervals(lines: Iterable[Line]) -> dict[str, dict[str, Interval]]:
    """By family, then by algorithm: the interquartile mean and its interval. Without families of
    which a run is missing."""
    spans = tomllib.loads(REFERENCES.read_text(encoding="utf-8"))
    rows = {row.name: row for row in ROWS}
    scores: dict[tuple[int, str, str], list[float]] = {}
    for line in lines:
        row = rows.get(line["row"])
        if row is not None and row.name.startswith(f"{row.algorithm}-") and row.env in spans:
            low, high = (spans[row.env][name] for name in ("random", "reference"))
            key = (row.steps, row.algorithm, row.env)
            scores.setdefault(key, []).append((float(line["last_mean"]) - low) / (high - low))
    found: dict[str, dict[str, Interval]] = {}
    for family, (steps, compared, tasks) in FAMILIES.items():
        each = {a: [scores.get((steps, a, task), []) for task in tasks] for a in compared}
        seeds = min(len(runs) for columns in each.values() for runs in columns)
        if seeds >= LEAST:
            found[family] = {
                a: _interval(np.array([runs[:seeds] for runs in columns]).T)
                for a, columns in each.items()
            }
    return found


def _interval(scores: Array) -> Interval:
    """Of scores [R, M]."""
    low, high = stratified_bootstrap(interquartile_mean, [scores])
    return float(interquartile_mean(scores)), float(low), float(high)


def draw(found: dict[str, dict[str, Interval]], out: Path) -> None:
    """A panel for each family."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, fields = plt.subplots(
        1, len(found), figsize=(4.6 * len(found), 2.4), layout="constrained", squeeze=False
    )
    for axes, (family, each) in zip(fields[0], found.items(), strict=True):
        steps, _, tasks = FAMILIES[family]
        for i, (value, low, high) in enumerate(each.values()):
            axes.plot([low, high], [i, i], color="tab:blue", linewidth=7, alpha=0.35)
            axes.plot(value, i, "o", color="tab:blue")
        axes.set_yticks(range(len(each)), [algorithms.title(name) for name in each])
        axes.set_ylim(len(each) - 0.5, -0.5)
        axes.set_title(f"{family}, {steps:,} steps, {len(tasks)} tasks", fontsize=11)
        axes.set_xlabel("normalized score (IQM)")
    figure.savefig(out, dpi=100)
    plt.close(figure)
