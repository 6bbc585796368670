"""`tandem watch --live`: follow a run of another process by the files it writes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.text import Text

from tandem.cli import output
from tandem.cli.text_curve import Line, text_curve
from tandem.errors import SettingError
from tandem.learning.figures import figures, mean_and_std
from tandem.runs import following
from tandem.runs.folder import describe
from tandem.runs.following import Look
from tandem.runs.progress_line import duration

WIDTH, HEIGHT = 76, 12  # of the curve, in characters
MOST = 24  # maximum rows of a table in a terminal: the runs that changed last
MARKS = "0123456789"  # one mark per run


def live(
    folder: Path,
    every: float = 2.0,
    *,
    stream: TextIO | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Show the run or runs in a folder until they are over or Ctrl-C. Return the exit code.

    every: seconds between refreshes. stream: defaults to stdout. A terminal shows one display that
    is updated; otherwise there is a line for each new row and evaluation, then the final display.
    Raises RunFolderError for a folder without a run, SettingError for `every` below 0.1.
    """
    if not every >= 0.1:  # also rejects NaN
        raise SettingError(f"--every {every}.", "at least 0.1 seconds", "try --every 2.")
    out = stream or output.stream()
    looks = _looks(folder, every, sleep)
    try:
        if out.isatty():
            _in_terminal(folder, looks, out)
        else:
            _as_lines(folder, looks, out)
    except KeyboardInterrupt:
        pass
    return 0


def _looks(
    folder: Path, every: float, sleep: Callable[[float], None]
) -> Iterator[tuple[list[Look], bool]]:
    """Yield the current state of the runs repeatedly, and whether it is the final one."""
    while True:
        looks = following.look_at_all(folder)
        over = following.all_over(folder, looks)
        yield looks, over
        if over:
            return
        sleep(every)


def _in_terminal(folder: Path, looks: Iterator[tuple[list[Look], bool]], out: TextIO) -> None:
    console = Console(file=out, force_terminal=True)
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as display:
        for each, _ in looks:
            most = min(WIDTH, console.width - 2)
            text = Text("\n".join(picture(folder, each, most)), no_wrap=True)
            display.update(text, refresh=True)


def _as_lines(folder: Path, looks: Iterator[tuple[list[Look], bool]], out: TextIO) -> None:
    """Print the display at the start and the end, and a line for each new row in between."""
    seen: dict[Path, int] | None = None  # number of printed rows per run
    for each, over in looks:
        if seen is None and not over:
            print(*picture(folder, each), sep="\n", file=out, flush=True)
        for run in each if seen is not None else ():
            name = f"{run.run.folder.name}: " if len(each) > 1 else ""
            for i in range((seen or {}).get(run.run.folder, 0), len(run.run.table["env_steps"])):
                print(name + _row(run, i), file=out, flush=True)
        seen = {run.run.folder: len(run.run.table["env_steps"]) for run in each}
        if over:
            print(*picture(folder, each), sep="\n", file=out, flush=True)


def _row(look: Look, i: int) -> str:
    """Return row i of a run's table as a line."""
    cells = {name: float(look.run.column(name)[i]) for name in ("return_mean", "eval_mean")}
    text = f"{int(float(look.run.table['env_steps'][i])):,} / {look.steps:,} steps"
    if isfinite(cells["return_mean"]):
        text += f" | return {figures(cells['return_mean'])}"
    if isfinite(cells["eval_mean"]):
        std = float(look.run.column("eval_std")[i])
        text += f" | evaluation {mean_and_std(cells['eval_mean'], std)}"
    return text


# --- the display ----------------------------------------------------------------------------------


def picture(folder: Path, looks: Sequence[Look], width: int = WIDTH) -> list[str]:
    """Return the display as lines. One run: a title, its progress, its curve, its latest
    evaluations. Several: a curve with a digit for each run, and a line for each."""
    if len(looks) != 1:
        return _of_several(folder, looks, width)
    (look,) = looks
    lines = [describe(look.run, ("algorithm", "env", "framework", "seed")), _status(look)]
    column = look.run.column
    curve = text_curve(
        [
            Line("·", column("env_steps"), column("return_mean"), joined=True),
            Line("o", column("env_steps"), column("eval_mean")),
        ],
        width,
        HEIGHT,
    )
    if curve:
        lines += ["", *curve, "o evaluation   · return in training"]
    return lines + _evaluations(look)


def _status(look: Look) -> str:
    share = min(1.0, look.env_steps / max(look.steps, 1))
    text = f"{look.state}: {look.env_steps:,} / {look.steps:,} steps ({share:.0%})"
    if look.state == following.TRAINS and (speed := look.speed()) > 0:
        left = (look.steps - look.env_steps) / speed
        text += f", {speed:,.0f} steps/s, {duration(max(0.0, left))} left"
        if look.silent > following.SETTLE:
            text += f", no row for {duration(look.silent)}"
    if (mean := look.result.get("eval_mean")) is not None:
        text += f"; the best checkpoint: {mean_and_std(mean, look.result['eval_std'])}"
    return text


def _evaluations(look: Look, most: int = 6) -> list[str]:
    """Return a table of the latest evaluations."""
    names = ("env_steps", "seconds", "return_mean", "eval_mean", "eval_std")
    table = np.stack([look.run.column(name) for name in names], axis=1)
    table = table[np.isfinite(look.run.column("eval_mean"))]
    if not len(table):
        return []
    best = table[:, 3].max()
    rows = [
        f"{steps:>12,.0f} {duration(seconds):>10} {_cell(score):>10} "
        f"{figures(mean):>12} {figures(std):>9}" + ("  best" if mean == best else "")
        for steps, seconds, score, mean, std in table[-most:]
    ]
    head = f"{'steps':>12} {'time':>10} {'return':>10} {'evaluation':>12} {'deviation':>9}"
    return ["", head, *rows]


def _of_several(folder: Path, looks: Sequence[Look], width: int) -> list[str]:
    counts = {state: sum(look.state == state for look in looks) for state in following.STATES}
    told = ", ".join(f"{n} {state}" for state, n in counts.items() if n)
    curve = text_curve(
        [
            Line(MARKS[i % 10], look.run.column("env_steps"), look.run.column("eval_mean"))
            for i, look in enumerate(looks)
        ],
        width,
        HEIGHT,
    )
    head = (
        f"{'':>2} {'run':<16} {'state':<9} {'steps':>12} {'return':>10} {'latest':>9} {'best':>9}"
    )
    rows = [
        f"{MARKS[i % 10]:>2} {look.run.folder.name:<16} {look.state:<9} {look.env_steps:>12,} "
        f"{_cell(look.latest('return_mean')):>10} {_cell(look.latest('eval_mean')):>9} "
        f"{_cell(look.best()):>9}"
        for i, look in enumerate(looks)
    ]
    if len(rows) > MOST:
        newest = sorted(range(len(looks)), key=lambda i: looks[i].silent)[:MOST]
        rows = [rows[i] for i in sorted(newest)] + [f"   and {len(looks) - MOST} more"]
    shown = ["", *curve, "evaluations of each run"] if curve else []
    if not rows:
        return [f"{folder}: no run has begun yet"]
    return [f"{folder}: {len(looks)} runs, {told}", *shown, "", head, *rows]


def _cell(value: Any) -> str:
    return figures(value) if isfinite(value) else ""
