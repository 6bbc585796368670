"""`python -m benchmarks.learn_page`: docs/results/scores.md, and the curves on the pages of the
algorithms, from benchmarks/results/learn.csv."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from benchmarks import learn_peer, normalized, tables
from benchmarks.learn_rows import ROWS, SOURCES, Learned
from benchmarks.learn_tables import STUDENT, Line, read
from benchmarks.measure import ROOT
from tandem import algorithms
from tandem.learning.figures import figures
from tandem.settings import flag

Families = dict[str, dict[str, normalized.Interval]]
PAGE = ROOT / "docs" / "results" / "scores.md"
README = ROOT / "README.md"
ALGORITHMS = ROOT / "docs" / "algorithms"
RESULTS = ROOT / "benchmarks" / "results"
# title -> how the ids of its environments begin
FAMILIES = {
    "Classic control": ("CartPole", "Pendulum", "Acrobot", "MountainCar", "tandem/"),
    "Box2D": ("LunarLander", "BipedalWalker", "CarRacing"),
    "MuJoCo": ("HalfCheetah", "Hopper", "Walker2d", "Ant", "Swimmer"),
    "Robots with goals": ("Fetch",),
    "Several agents": ("mpe/",),
    "Atari": ("ALE/",),
}
# settings on top of the zoo's entry that say what a row is
SAID = ("entry", "policy", "learners", "body", "memory")

HEAD = """\
# Scores

This page lists the scores of all algorithms by family of environments. A row's name links to its
learning curves. To train a row again, run `make learn ROW=NAME`.

- **best**: mean return of each run's best checkpoint over {episodes} evaluation episodes, averaged
  over the training seeds. The evaluation uses fresh seeds, not those that selected the checkpoint.
  ± is half the width of the 95 % confidence interval over training seeds (Student's t): with three
  seeds, 2.5 standard deviations.
- **last**: the same for the last checkpoint.
- **SB3**: the last policies of Stable-Baselines3 or sb3-contrib with the same settings and steps,
  on the same machine ([conditions](../../benchmarks/results/learn_peer.md)).
- **published**: scores from other sources, with their conditions if they differ ({sources}).
- **minutes**: wall time of one seed on one CPU core.

[learn.csv](../../benchmarks/results/learn.csv) contains every seed with its commit and versions.
[evaluations.csv](../../benchmarks/results/evaluations.csv) contains the evaluations during
training, for seeds trained since 27 November 2026. `python -m benchmarks.learn_page` writes this
page.
"""

NORMALIZED = """
## Algorithms across tasks

Interquartile means of the last policies over the tasks that all algorithms of a panel share, at
equal steps, with 95 % stratified bootstrap intervals over seeds. 0 is the return of random actions
and 1 the best published one of `benchmarks/references.toml`. Overlapping intervals do not order
algorithms.

![Normalized scores](../../benchmarks/results/curves/normalized.png)

{table}"""

HEADING = """\
| row | environment | algorithm | backend | steps | best | last | SB3 | published | minutes |
|---|---|---|---|--:|--:|--:|--:|--:|--:|
"""
CURVE_MARKS = "<!-- curves: written by benchmarks/learn_page.py -->\n", "<!-- end of curves -->\n"
FRONT_MARKS = "<!-- scores: written by benchmarks/learn_page.py -->\n", "<!-- end -->\n"
OVER_CURVES = """\
Curves show the interquartile mean of the seeds' evaluations with a 95 % band. Below each: the mean
score of the best checkpoints in 200 episodes with half of its 95 % interval over seeds, the score
of the last checkpoints, and the command that trains them. [Scores](../results/scores.md) compares
all algorithms by environment.
"""
FRONT = (  # rows of the README's table
    "ppo-halfcheetah-jax",
    "ppo-hopper-jax",
    "trpo-walker2d-jax",
    "trpo-swimmer-jax",
    "sac-halfcheetah-jax",
    "tqc-halfcheetah-jax",
    "crossq-walker2d-jax",
    "rainbow-lunarlander-jax",
)
LOOKING_ON = ("eval_every", "eval_episodes")  # settings that change nothing that is learned


def main() -> int:
    """Writes the pages."""
    lines = read(RESULTS / "learn.csv")
    if found := normalized.intervals(lines):
        normalized.draw(found, RESULTS / "curves" / "normalized.png")
    for path, text in pages(lines, found).items():
        tables.write(path, text)
    print(f"Written: {PAGE}")
    return 0


def pages(lines: list[Line], found: Families) -> dict[Path, str]:
    """The pages as they have to be. found: the normalized scores."""
    written = {PAGE: page(lines, found), README: _renewed(README, front(lines), FRONT_MARKS)}
    for algorithm in algorithms.NAMES:
        path = ALGORITHMS / f"{algorithm}.md"
        written[path] = _renewed(path, curves(algorithm, lines), CURVE_MARKS)
    return written


def _renewed(path: Path, new: str, marks: tuple[str, str]) -> str:
    """A page with another text between its marks."""
    begin, end = marks
    before, rest = path.read_text(encoding="utf-8").split(begin)
    return before + begin + new + end + rest.split(end)[1]


def front(lines: Iterable[Line]) -> str:
    """The README's table: last policies, with half of their 95 % interval over seeds."""
    text = "| |environment|steps|tandem|rl-baselines3-zoo|minutes|\n|---|---|--:|--:|---|--:|\n"
    by_row = _by_row(lines)
    for row in ROWS:
        if row.name in FRONT and (runs := by_row.get(row.name)):
            scored = _minus(_scored([float(x["last_mean"]) for x in runs]))
            minutes = mean(float(x["seconds"]) for x in runs) / 60
            name = "Rainbow" if "entry" in row.settings else algorithms.title(row.algorithm)
            published = row.published.replace(" (zoo)", "")
            cells = (name, row.env, f"{row.steps:,}", scored, published, f"{minutes:.0f}")
            text += f"|{'|'.join(cells)}|\n"
    return text


def curves(algorithm: str, lines: Iterable[Line]) -> str:
    """Each row of an algorithm, on the first of its engines that has been run."""
    by_row, text, seen = _by_row(lines), OVER_CURVES, set[str]()
    for row in ROWS:
        if row.algorithm != algorithm or row.name not in by_row or row.line in seen:
            continue
        seen.add(row.line)
        curve = RESULTS / "curves" / f"{row.name}.png"
        if curve.is_file():
            shown = curve.relative_to(ROOT).as_posix()
            text += f"\n![{row.name}](../../{shown})\n"
        text += f"\n{_told(row, by_row[row.name])}\n"
    return text


def _told(row: Learned, lines: list[Line]) -> str:
    """What a row came to, in a sentence."""
    best, last = ([float(x[name]) for x in lines] for name in ("best_mean", "last_mean"))
    told = {n: x for n, x in row.settings.items() if n not in LOOKING_ON}
    given = " ".join(flag(n, x) for n, x in told.items())
    seeds = ", ".join(sorted(x["seed"] for x in lines))
    return (
        f"{row.env}{given and f' with `{given}`'}: **{_minus(_scored(best))}** after "
        f"{row.steps:,} steps, last {_minus(figures(mean(last), grouped=True))} "
        f"({'seed' if len(lines) == 1 else 'seeds'} {seeds}): `make learn ROW={row.name}`"
    )


def _by_row(lines: Iterable[Line]) -> dict[str, list[Line]]:
    by_row: dict[str, list[Line]] = {}
    for line in lines:
        by_row.setdefault(line["row"], []).append(line)
    return by_row


def page(lines: Iterable[Line], found: Families) -> str:
    """The page: a table for each family of environments."""
    by_row = _by_row(lines)
    known = [row for row in ROWS if row.name in by_row]
    episodes = sorted({line["episodes"] for each in by_row.values() for line in each}) or ["200"]
    sources = "; ".join(f"{name}: {what}" for name, what in SOURCES.items())
    text = HEAD.format(episodes="/".join(episodes), sources=sources)
    if found:
        text += NORMALIZED.format(table=_normalized(found))
    beside = json.loads((RESULTS / "learn_peer.json").read_text(encoding="utf-8"))["rows"]
    for family, beginnings in FAMILIES.items():
        if rows := [row for start in beginnings for row in known if row.env.startswith(start)]:
            text += f"\n## {family}\n\n{HEADING}"
            text += "".join(f"{_line(row, by_row[row.name], beside)}\n" for row in rows)
            if notes := [f"- `{row.name}`: {row.note}\n" for row in rows if row.note]:
                text += "\n" + "".join(notes)
    return text


def _normalized(found: Families) -> str:
    """The figure's numbers."""
    text = "| algorithm | tasks | steps | normalized score |\n|---|---|--:|--:|\n"
    for family, each in found.items():
        steps, _, tasks = normalized.FAMILIES[family]
        names = ", ".join(task.partition("-")[0] for task in tasks)
        for algorithm, (value, low, high) in each.items():
            said = f"{value:.2f} ({low:.2f} to {high:.2f})"
            text += f"| {algorithms.title(algorithm)} | {names} | {steps:,} | {said} |\n"
    return text


def _line(row: Learned, lines: list[Line], beside: dict[str, Any]) -> str:
    curve = f"../../benchmarks/results/curves/{row.name}.png"
    best, last = ([float(x[name]) for x in lines] for name in ("best_mean", "last_mean"))
    cells = [
        f"[`{row.name}`]({curve})" if (PAGE.parent / curve).is_file() else f"`{row.name}`",
        row.env,
        ", ".join([row.algorithm, *(f"{n}={x}" for n, x in row.settings.items() if n in SAID)]),
        row.framework,
        f"{row.steps:,}",
        _minus(_scored(best)) + _unfinished(row, lines),
        _minus(figures(mean(last), grouped=True)),
        _minus(_theirs(row, beside)),
        _minus(row.published),
        f"{mean(float(x['seconds']) for x in lines) / 60:.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def _theirs(row: Learned, beside: dict[str, Any]) -> str:
    """The score of Stable-Baselines3, if it was run as long."""
    compared = {each.name: each for each in learn_peer.ROWS}.get(row.line)
    if compared is None or compared.steps != row.steps:
        return ""
    runs = beside.get(row.line, {}).get("sb3", {}).values()
    return _scored([run["last"] for run in runs]) if runs else ""


def _unfinished(row: Learned, lines: list[Line]) -> str:
    """A note where seeds are missing."""
    missing = len(lines) < len(row.seeds)
    return f" ({len(lines)} of {len(row.seeds)} seeds)" if missing else ""


def _minus(number: str) -> str:
    return re.sub(r"(?<!\w)-(?=\d)", "\N{MINUS SIGN}", number)  # not those of names


def _scored(scores: list[float]) -> str:
    """Their mean and half of its 95 % interval, which one seed has none of."""
    middle = mean(scores)
    if len(scores) < 2:
        return figures(middle, grouped=True)
    half = STUDENT[len(scores) - 1] * stdev(scores) / sqrt(len(scores))
    each = (figures(x, middle, half, grouped=True) for x in (middle, half))
    return " ± ".join(each)


if __name__ == "__main__":
    sys.exit(main())
