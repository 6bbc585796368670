"""Checkpoints of an agent while it trains: what is saved when, and which of the files are kept."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

from tandem.errors import CheckpointError, SettingError, note
from tandem.runs import checkpoint_dir
from tandem.runs.background_writer import BackgroundWriter as BackgroundWriter
from tandem.runs.checkpoint import Groups
from tandem.types import JSONDict


def note_one_file(parallel_dump: bool) -> None:
    """Note that `parallel_dump` has no effect."""
    if parallel_dump:
        note("parallel_dump has no effect: a checkpoint is one file")


@dataclass
class SavePolicy:
    """What is saved, and when. Fields may be changed while it is in use; call `check` after
    that."""

    path: str | Path | None = (
        None  # of the file, or what the names of files begin and end with; None: nothing is saved
    )
    save_freq: int | None = 1  # episodes
    save_freq_: int | None = None  # batches of updates
    max_save_files: int | None = (
        None  # files kept, each with a name of its own; None: one file, written over
    )
    save_best_only: bool = False  # at every best score, whatever save_freq is, and at nothing else
    save_param_only: bool = False
    save_top_k: int | None = None  # files kept, those with the best scores
    save_last: bool = (
        False  # PATH-last as well: every save_freq episodes, and whenever another file is written
    )
    patience: int | None = None  # episodes in a row below the best score, after which to stop
    parallel_dump: bool = False  # earlier versions wrote a folder, with a file for each array

    def check(self) -> None:
        """SettingError for a path that names no file, and numbers that are not whole or below 1."""
        note_one_file(self.parallel_dump)
        if self.path is not None and not (
            isinstance(self.path, str | Path) and Path(self.path).name
        ):
            raise SettingError(
                f"path={self.path!r}.",
                "the path of a file, or None",
                "name a file: path='model.dat'.",
            )
        for name in ("save_freq", "save_freq_", "max_save_files", "save_top_k", "patience"):
            value = getattr(self, name)
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, Integral) or value < 1
            ):
                raise SettingError(
                    f"{name}={value!r}.",
                    "a positive whole number, or None",
                    f"give {name}=None, or {name}=10.",
                )

    def limit(self) -> int | None:
        """How many files are kept, each with a name of its own; None: one file, written over."""
        return min(
            (n for n in (self.max_save_files, self.save_top_k) if n is not None), default=None
        )


class _File(NamedTuple):
    path: Path  # absolute
    score: float | None
    moment: int  # when its state was taken: orders files by age

    @property
    def rank(self) -> float:
        return -math.inf if self.score is None else self.score


class Rotation:
    """Saves by a policy what `snapshot(param_only)` returns: JSON data and copies of arrays.

    Call `episode` and `batch` after each, and `finish` at the end of a call of train(). Each raises
    what went wrong with the writing of an earlier file.
    """

    def __init__(
        self,
        policy: SavePolicy,
        snapshot: Callable[[bool], tuple[dict[str, Any], Groups]],
        writer: BackgroundWriter,
    ) -> None:
        policy.check()
        self.policy, self.snapshot, self.writer = policy, snapshot, writer
        self.best: float | None = None
        self.bad = 0  # episodes in a row with a score below the best
        self._label = ""  # of the last episode or batch
        self._score: float | None = None  # of the last episode
        # episodes and batches so far, and those that the newest whole file has seen
        self._moment = 0
        self._saved = 0
        self._fresh = True  # no episode yet in this call of train()
        # Each list is replaced, never changed, and by one thread alone, so the other may read it.
        self._files: list[
            _File
        ] = []  # with names of their own and whole, oldest first; the writer's
        self._queued: list[
            tuple[str, _File]
        ] = []  # the same, with the slot, when handed over; the caller's

    def episode(self, number: int, score: float | None) -> None:
        """After episode `number`, from 1. `score`: the mean of the last returns, undiscounted; None
        while there is none."""
        self._score = None if score is None or math.isnan(score) else float(score)
        if self._fresh and self._patience_over():
            self.bad = 0  # what stopped the call before does not stop this one too
        self._fresh = False
        improved = self._score is not None and (self.best is None or self._score > self.best)
        if self._score is not None:
            self.bad = 0 if improved or self._score == self.best else self.bad + 1
            self.best = self._score if improved else self.best
        self._label = f"{number}" if self._score is None else f"{number}-{self._score:.4g}"
        self._moment += 1
        due = self.policy.save_freq is not None and number % self.policy.save_freq == 0
        self._save(improved if self.policy.save_best_only else due, due)

    def batch(self, number: int) -> None:
        """After batch `number` of updates, from 1. Among the best files, its score is that of the
        last episode."""
        self._label = f"b{number}"
        self._moment += 1
        due = self.policy.save_freq_ is not None and number % self.policy.save_freq_ == 0
        if due and not self.policy.save_best_only:
            self._save(True, True)

    def finish(self) -> None:
        """At the end of a call of train(): writes the last state, unless only the best are kept,
        and waits for the disk."""
        self._fresh = True
        try:
            self.writer.flush()  # only then it is certain what is written
        except Exception:
            # the disk may have room again; the first error is raised all the same
            self._save_last()
            raise
        self._save_last()

    @property
    def should_stop(self) -> bool:
        """Whether patience has come to its end; read it before `finish`, after which the next call
        may begin."""
        return not self._fresh and self._patience_over()

    def state(self) -> JSONDict:
        """JSON data: the best score, the streak below it, and the files, oldest first, with those
        on their way. Called inside `snapshot`, the one that is being taken is listed too."""
        files = {f.path: f for f in (*self._files, *(f for _, f in self._queued))}
        listed = sorted(files.values(), key=lambda f: f.moment)
        return {
            "best": self.best,
            "bad": self.bad,
            "files": [[str(f.path), f.score] for f in listed],
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Takes back what `state` gave: rotation goes on with the files listed there, where they
        still are."""
        files = state["files"]
        self.best, self.bad, self._fresh, self._queued = state["best"], state["bad"], True, []
        self._files = [
            _File(Path(path), score, i - len(files)) for i, (path, score) in enumerate(files)
        ]

    def _patience_over(self) -> bool:
        return self.policy.patience is not None and self.bad >= self.policy.patience

    def _save_last(self) -> None:
        if self._moment > self._saved:
            self._save(not self.policy.save_best_only, True)
            self.writer.flush()

    def _save(self, rolling: bool, last: bool) -> None:
        policy = self.policy
        if policy.path is None:
            return
        base = Path(policy.path).absolute()
        named = policy.limit() is not None
        file = _File(_beside(base, self._label) if named else base, self._score, self._moment)
        slot = self._slot(base, file) if rolling else None
        last = policy.save_last and (last or rolling)
        if slot is None and not last:
            return
        if slot and named:
            # before the snapshot, which may ask for `state`
            self._queued = [
                *self._queued,
                (slot, file),
            ]
        data, groups = self.snapshot(policy.save_param_only)
        if slot:
            then = partial(self._written, base, file, named)
            self.writer.put(file.path, data, groups, slot, then)
        if last:
            then = partial(self._written, base, file, False)
            self.writer.put(_beside(base, "last"), data, groups, f"{base} last", then)

    def _slot(self, base: Path, file: _File) -> str | None:
        """Where a file may wait; None where it would be deleted at once. The best ones have a slot
        each: a newer file must not take the place of a better one."""
        # asked first: what is written meanwhile is then found among the files
        pending = self.writer.pending()
        self._queued = [(s, f) for s, f in self._queued if f.path in pending]
        if self.policy.save_top_k is None:
            return f"{base} rolling"
        known = {f.path: f.rank for f in (*self._kept(base), *(f for _, f in self._queued))}
        limit = self.policy.limit() or 1
        if sum(rank > file.rank for rank in known.values()) >= limit:
            return None
        taken = {s: (f.rank, f.moment) for s, f in self._queued}
        slots = [f"{base} best {i}" for i in range(limit)]
        return next((s for s in slots if s not in taken), None) or min(
            slots, key=lambda s: taken[s]
        )

    def _kept(self, base: Path) -> list[_File]:
        """The files of this path that are there. A state may come from anywhere: no other name is
        ever deleted by it."""
        ours = re.compile(rf"{re.escape(base.stem)}-b?\d+(-.*)?{re.escape(base.suffix)}")
        return [
            f
            for f in self._files
            if f.path.parent == base.parent and ours.fullmatch(f.path.name) and f.path.exists()
        ]

    def _written(self, base: Path, file: _File, named: bool) -> None:
        """In the writer's thread, once the file is whole: now older ones may go."""
        self._saved = max(self._saved, file.moment)
        if not named:
            return
        others = [f for f in self._files if f.path != file.path and f.path.exists()]
        self._files = sorted([*others, file], key=lambda f: f.moment)
        files, limit = self._kept(base), self.policy.limit()
        if self.policy.save_top_k is not None:
            # which leaves equals in their order: the newer ones stay
            files.sort(key=lambda f: f.rank)
        for old in files[:-limit] if limit else []:
            try:
                checkpoint_dir.remove(old.path)
            except OSError as error:
                raise CheckpointError(
                    f"could not delete {old.path}: {error}.",
                    "a writable folder",
                    "delete it, then continue.",
                ) from error
            self._files = [f for f in self._files if f is not old]


def _beside(base: Path, label: str) -> Path:
    return base.with_name(f"{base.stem}-{label}{base.suffix}")
