"""HTML fragments for notebooks: tables, images and small curves, without external resources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from tandem.learning.figures import figures
from tandem.types import AnyArray

WIDTH, HEIGHT = 480, 200  # size of a curve in pixels
EDGE = 46  # pixels at the left for the numbers


def table(rows: Mapping[str, str]) -> str:
    """Return a table of names and their texts, one row each."""
    cells = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(text)}</td></tr>"
        for name, text in rows.items()
    )
    return f"<table>{cells}</table>"


def picture(kind: str, base64: str, text: str, width: int) -> str:
    """Return an embedded image. kind: the subtype in image/png; base64: its encoded bytes."""
    source = f"data:image/{kind};base64,{base64}"
    return f"<img src='{source}' alt='{escape(text)}' width='{width}'>"


def curve(points: Sequence[tuple[float, float, float]]) -> str:
    """Return an SVG of evaluations (x, mean, standard deviation) as a line with a band; "" if fewer
    than two are finite."""
    known = np.array([p for p in points if np.isfinite(p).all()], np.float64).reshape(-1, 3)
    if len(known) < 2:
        return ""
    x, mean, std = known.T
    low, high = float((mean - std).min()), float((mean + std).max())
    span = high - low or 1.0
    right = EDGE + (WIDTH - EDGE - 8) * x / max(x.max(), 1.0)

    def down(values: Any) -> Any:
        return 12 + (HEIGHT - 36) * (high - values) / span

    def path(xs: AnyArray, ys: AnyArray) -> str:
        return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(xs, ys, strict=True))

    around = path(
        np.concatenate([right, right[::-1]]),
        np.concatenate([down(mean + std), down(mean - std)[::-1]]),
    )
    words = [(EDGE - 4, float(down(v)) + 4, "end", figures(v, low, high)) for v in (low, high)]
    words += [(WIDTH - 8, HEIGHT - 6, "end", f"{x.max():,.0f} steps")]
    texts = "".join(
        f"<text x='{a}' y='{b:.1f}' text-anchor='{anchor}' font-size='11' fill='#777'>{word}</text>"
        for a, b, anchor, word in words
    )
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{HEIGHT}'>"
        f"<polygon points='{around}' fill='#0072B2' fill-opacity='0.18'/>"
        f"<polyline points='{path(right, down(mean))}' fill='none' stroke='#0072B2' "
        f"stroke-width='2'/>{texts}</svg>"
    )
