"""evaluations.csv: every evaluation of each finished seed, from which a row's curves are drawn.
So seeds that were trained on other days or other machines come into one picture."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

import numpy as np

from benchmarks.learn_rows import Learned
from benchmarks.learn_tables import Line, seed_of
from tandem.reports.plots import curve_of
from tandem.runs.folder import Run

COLUMNS = ("row", "seed", "env_steps", "eval_mean", "eval_std")


def evaluations(row: Learned, seed: int, folder: Path) -> list[Line]:
    """Those of a finished run, in the order of their steps."""
    run = Run(folder)
    steps, means, stds = (run.column(name) for name in COLUMNS[2:])
    return [
        dict(
            zip(COLUMNS, (row.name, str(seed), f"{step:.0f}", f"{m:.3f}", f"{s:.3f}"), strict=True)
        )
        for step, m, s in zip(steps, means, stds, strict=True)
        if np.isfinite(m)
    ]


def draw(row: Learned, lines: Iterable[Line], out: Path) -> None:
    """The curves of a row's seeds: interquartile mean with its 95 % band. Nothing where none of
    its seeds has a line."""
    runs = []
    for (name, seed), mine in groupby(lines, seed_of):
        if name == row.name:
            told = list(mine)
            config = {"algorithm": row.algorithm, "env": row.env, "framework": row.framework}
            table = {column: [line[column] for line in told] for column in COLUMNS[2:]}
            runs.append(Run.of(Path(name) / f"seed-{seed}", {**config, "seed": seed}, table))
    if runs:
        out.parent.mkdir(parents=True, exist_ok=True)
        curve_of(runs, out)
