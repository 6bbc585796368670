"""What `make learn` trains: each row is an algorithm in an environment on one backend, over several
seeds. The rows are data: learn_rows.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tandem import algorithms

# where published figures are from that are marked so
SOURCES = {
    "zoo": "benchmark.md of rl-baselines3-zoo: the last policy of one run, deterministic actions, "
    "mean and standard deviation over the episodes in 150,000 steps"
}


@dataclass(frozen=True)
class Learned:
    """`settings` override the zoo's entry. `threshold` is the least expected mean of the best
    checkpoints over the seeds; `mark` is an evaluation mean whose first step is recorded.
    `published` is a figure of others, with its conditions and source (SOURCES explains some).
    `note` says why a row scores below its threshold, or its last policies below its best ones.
    `minutes` estimates the time of a seed on one core, where no run has measured it."""

    name: str
    algorithm: str
    env: str
    framework: str
    steps: int
    threshold: float | None  # None: it is shown as it comes out
    settings: dict[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0, 1, 2)
    mark: float | None = None
    published: str = ""
    note: str = ""
    minutes: float | None = None

    @property
    def owed(self) -> str:
        """The threshold in words."""
        return "no threshold" if self.threshold is None else f"at least {self.threshold:g}"

    @property
    def line(self) -> str:
        """Its name in the file, without the engine."""
        return self.name.removesuffix(f"-{self.framework}")

    @property
    def title(self) -> str:
        asynchronous = (
            f", {n} actor-learners" if (n := self.settings.get("learners", 1)) > 1 else ""
        )
        return f"{algorithms.title(self.algorithm)} {self.env}, {self.steps:,} steps{asynchronous}"


def _rows() -> tuple[Learned, ...]:
    text = Path(__file__).with_suffix(".toml").read_text("utf-8")
    return tuple(
        row for name, parts in tomllib.loads(text).items() for row in _on_engines(name, **parts)
    )


def _on_engines(
    name: str,
    train: str,
    owed: float | None = None,
    engines: tuple[str, ...] = ("jax",),
    seeds: tuple[int, ...] = Learned.seeds,
    **rest: Any,
) -> list[Learned]:
    """The rows of a line of the file: one for each engine."""
    algorithm, env = train.split()
    shared = {"threshold": None if owed is None else float(owed), "seeds": tuple(seeds), **rest}
    return [Learned(f"{name}-{engine}", algorithm, env, engine, **shared) for engine in engines]


ROWS = _rows()


def find(name: str) -> Learned:
    """The row of that name; SystemExit with the known ones if there is none."""
    for row in ROWS:
        if row.name == name:
            return row
    raise SystemExit(
        f"There is no row {name!r}.\nExpected: one of {', '.join(row.name for row in ROWS)}."
    )
