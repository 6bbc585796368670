"""From finished runs to learn.csv (a line for each row and seed) and learn.md (a line for each
row)."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from benchmarks import tables
from benchmarks.learn_rows import ROWS, Learned

COLUMNS = (
    "row",
    "algorithm",
    "env",
    "framework",
    "seed",
    "steps",
    "best_mean",
    "best_std",
    "episodes",
    "last_mean",
    "last_std",
    "mark",
    "mark_step",
    "updates",
    "seconds",
    "commit",
    "versions",
    "date",
)
# the 97.5 % points of Student's t with as many degrees of freedom
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306}
Line = dict[str, str]


def entry(row: Learned, seed: int, folder: Path) -> Line:
    """What a finished run says about itself."""
    from tandem.runs.folder import Run

    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    run = Run(folder)
    step = first_passing(run.column("env_steps"), run.column("eval_mean"), row.mark)
    ended = datetime.fromtimestamp((folder / "result.json").stat().st_mtime, UTC)
    known = {n: v for n, v in result["versions"].items() if n != "platform"}
    cells: dict[str, Any] = {
        "row": row.name,
        "algorithm": result["algorithm"],
        "env": result["env"],
        "framework": result["framework"],
        "seed": seed,
        "steps": result["env_steps"],
        "best_mean": round(result["eval_mean"], 3),
        "best_std": round(result["eval_std"], 3),
        "episodes": result["eval_episodes"],
        "last_mean": round(result["last_eval_mean"], 3),
        "last_std": round(result["last_eval_std"], 3),
        "mark": "" if row.mark is None else f"{row.mark:g}",
        "mark_step": "" if step is None else step,
        "updates": result["updates"],
        "seconds": result["seconds"],
        "commit": str(run.config.get("commit", ""))[:10],
        "versions": " ".join(f"{n}={v}" for n, v in sorted(known.items())),
        "date": ended.strftime("%Y-%m-%d %H:%M UTC"),
    }
    return {name: str(cells[name]) for name in COLUMNS}


def first_passing(steps: Any, means: Any, mark: float | None) -> int | None:
    """The first step whose evaluation mean is at least the mark; None if none is (rows without
    evaluation are NaN)."""
    if mark is None:
        return None
    passed = np.flatnonzero(np.asarray(means, np.float64) >= mark)
    return int(steps[passed[0]]) if len(passed) else None


def read(path: Path) -> list[Line]:
    """The lines of a table such as learn.csv; none where there is no such file."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def merged(old: Iterable[Line], new: Iterable[Line]) -> list[Line]:
    """New lines in the place of all old ones of the same row and seed, in the order of the rows.
    Those of a seed stand together."""
    found = {key: list(lines) for each in (old, new) for key, lines in groupby(each, seed_of)}
    order = {row.name: i for i, row in enumerate(ROWS)}
    keys = sorted(found, key=lambda key: (order.get(key[0], len(order)), *key))
    return [line for key in keys for line in found[key]]


def seed_of(line: Line) -> tuple[str, int]:
    """The row and the seed that a line is of."""
    return line["row"], int(line["seed"])


def measured(row: Learned, lines: Iterable[Line]) -> set[int]:
    """The row's seeds that have a line of its length."""
    return {
        int(line["seed"])
        for line in lines
        if line["row"] == row.name and float(line["steps"] or 0) >= row.steps
    }


def missing(lines: list[Line]) -> str:
    """What of the rows has no line yet, and how long it should take on one core: as long as its
    other seeds took, else as long a step as other rows of its environment."""
    told = []
    for row in ROWS:
        seeds = [seed for seed in row.seeds if seed not in measured(row, lines)]
        if seeds:
            each = expected(row, lines)
            time = f"about {each * len(seeds) / 60:.0f} min" if each else "never timed"
            told.append(
                f"{row.name:28} seed {', '.join(map(str, seeds)):10} {time:14} "
                f"make learn ROW={row.name}"
            )
    return "\n".join(told) if told else "Every row of benchmarks/learn_rows.py has its lines."


def expected(row: Learned, lines: list[Line]) -> float:
    """Seconds that a seed of the row should take; 0 where nothing is known of it."""

    def rate(same: list[Line]) -> float:
        rates = [float(line["seconds"]) / float(line["steps"]) for line in same]
        return median(rates) * row.steps if rates else 0.0

    timed = [line for line in lines if line["seconds"] and line["steps"]]
    near = [line for line in timed if line["env"] == row.env]
    return (
        rate([line for line in near if line["row"] == row.name])
        or rate([line for line in near if line["algorithm"] == row.algorithm])
        or rate(near)
    )


def write(path: Path, report: Path, lines: list[Line], text: str) -> None:
    """Both files, each as a whole or not at all."""
    tables.write(path, text_of(COLUMNS, lines))
    tables.write(report, text)


def text_of(columns: Sequence[str], lines: Iterable[Line]) -> str:
    """Lines as a file of comma-separated values has them."""
    buffer = io.StringIO(newline="")
    writer = csv.DictWriter(buffer, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return buffer.getvalue()


HEAD = """\
# All seeds

`make learn ROW=NAME` trains a row again. learn.csv has every seed, and curves/NAME.png the learning
curves.

- **best**, **last**: mean over the seeds of {episodes} evaluation episodes of the best and the last
  checkpoint, on seeds that were not used to select the checkpoint.
- **seeds**: the best checkpoint's mean for each seed.
- **steps to mark**: for each seed, the number of environment steps at the first evaluation during
  training (10 episodes) whose mean is at least the mark.
- **minutes**: wall time of one seed on one CPU core.

| row | task | backend | best | seeds | last | mark | steps to mark | minutes |
|---|---|---|--:|---|--:|--:|---|--:|
"""


def markdown(lines: list[Line]) -> str:
    """The report: one line for each row of which a seed is finished."""
    body = []
    for row in ROWS:
        mine = [line for line in lines if line["row"] == row.name]
        if mine:
            body.append(_line(row, mine))
    commits = sorted({line["commit"] for line in lines})
    episodes = sorted({line["episodes"] for line in lines}) or ["200"]
    ending = (
        f"\nMeasured at commit{'s' if len(commits) > 1 else ''} {', '.join(commits)}.\n"
        if commits
        else ""
    )
    return HEAD.format(episodes="/".join(episodes)) + "".join(f"{line}\n" for line in body) + ending


def _line(row: Learned, lines: list[Line]) -> str:
    best, last = (mean(float(line[name]) for line in lines) for name in ("best_mean", "last_mean"))
    at = [int(line["mark_step"]) if line["mark_step"] else None for line in lines]
    cells = [
        row.name,
        row.title,
        row.framework,
        f"{best:.1f}",
        ", ".join(f"{float(line['best_mean']):.1f}" for line in lines),
        f"{last:.1f}",
        "" if row.mark is None else f"{row.mark:g}",
        ""
        if row.mark is None
        else ", ".join("never" if step is None else f"{step:,}" for step in at),
        f"{mean(float(line['seconds']) for line in lines) / 60:.1f}",
    ]
    return f"| {' | '.join(cells)} |"
