"""Learning curves as text, for terminals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tandem.learning.figures import figures
from tandem.types import AnyArray


class Line(NamedTuple):
    """Points [K], ordered by x, with the same mark. joined: marks also fill the gaps between
    them."""

    mark: str
    x: AnyArray
    y: AnyArray
    joined: bool = False


def text_curve(lines: Sequence[Line], width: int, height: int) -> list[str]:
    """Return points as rows of text: `height` rows with values on the left, and one with the steps
    below. Later lines cover earlier ones; non-finite points are skipped. [] if no points are
    left."""
    kept = [_finite(line) for line in lines]
    if not any(len(line.x) for line in kept):
        return []
    xs = np.concatenate([line.x for line in kept])
    ys = np.concatenate([line.y for line in kept])
    low, high, last = float(ys.min()), float(ys.max()), max(float(xs.max()), 1.0)
    if high == low:
        low, high = low - 1.0, high + 1.0
    labels = {0: _number(high), (height - 1) // 2: _number(_at(low, high, height)), height - 1: ""}
    labels[height - 1] = _number(low)
    room = max(map(len, labels.values()))
    cells = [[" "] * max(width - room - 2, 8) for _ in range(height)]
    columns = len(cells[0])
    for mark, x, y, joined in kept:
        if joined and len(x):
            grid = np.linspace(0, last, columns)
            grid = np.union1d(grid[(grid >= x[0]) & (grid <= x[-1])], x)
            x, y = grid, np.interp(grid, x, y)
        across = np.rint(np.clip(x / last, 0, 1) * (columns - 1)).astype(int)
        down = np.rint((high - y) / (high - low) * (height - 1)).astype(int)
        for i, j in zip(down.tolist(), across.tolist(), strict=True):
            cells[i][j] = mark
    rows = [f"{labels.get(i, ''):>{room}} |{''.join(row).rstrip()}" for i, row in enumerate(cells)]
    end = f"{last:,.0f} steps"
    return [*rows, f"{'':>{room}} 0{end:>{columns}}"]


def _finite(line: Line) -> Line:
    known = np.isfinite(line.x) & np.isfinite(line.y)
    return line._replace(x=line.x[known], y=line.y[known])


def _at(low: float, high: float, height: int) -> float:
    """Return the value of the middle row."""
    return high - (high - low) * ((height - 1) // 2) / max(height - 1, 1)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else figures(value)
