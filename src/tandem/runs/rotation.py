"""Checkpoints of an agent during training: when to save, and which files to keep."""

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
    """Rules for saving checkpoints. Fields may be changed while in use; call `check` afterwards."""

    path: str | Path | None = None  # file, or stem and suffix of several; None: save nothing
    save_freq: int | None = 1  # episodes
    save_freq_: int | None = None  # batches of updates
    max_save_files: int | None = None  # files kept, one name each; None: overwrite a single file
    save_best_only: bool = False  # save only at each best score, regardless of save_freq
    save_param_only: bool = False
    save_top_k: int | None = None  # number of files kept, those with the best scores
    save_last: bool = False  # also PATH-last, every save_freq episodes and with each other file
    patience: int | None = None  # stop after this many consecutive episodes below the best score
    parallel_dump: bool = False  # no effect: earlier versions wrote one file per array

    def check(self) -> None:
        """Raise SettingError for a path without a file name, and for numbers that are not integers
        of at least 1."""
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
        """Return the number of files to keep, each with its own name; None: overwrite a single
        file."""
        return min(
            (n for n in (self.max_save_files, self.save_top_k) if n is not None), default=None
        )


class _File(NamedTuple):
    path: Path  # absolute
    score: float | None
    moment: int  # counter at the snapshot: orders files by age

    @property
    def rank(self) -> float:
        return -math.inf if self.score is None else self.score


class Rotation:
    """Saves the result of `snapshot(param_only)`, JSON data and copies of arrays, according to a
    policy.

    Call `episode` and `batch` after each one, and `finish` at the end of each train() call. Each
    raises the errors from writing earlier files.
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
        self.bad = 0  # consecutive episodes with a score below the best
        self._label = ""  # of the last episode or batch
        self._score: float | None = None  # of the last episode
        # number of episodes and batches so far, and at the snapshot of the newest complete file
        self._moment = 0
        self._saved = 0
        self._fresh = True  # no episode yet in this train() call
        # Each list is replaced by one thread and never mutated, so the other thread may read it.
        self._files: list[_File] = []  # complete named files, oldest first; set by the writer
        self._queued: list[tuple[str, _File]] = []  # slots and queued files; set by the caller

    def episode(self, number: int, score: float | None) -> None:
        """Process episode `number` (from 1). `score`: the mean of the last returns, undiscounted;
        None while there is none."""
        self._score = None if score is None or math.isnan(score) else float(score)
        if self._fresh and self._patience_over():
            self.bad = 0  # the patience that ended the previous call starts again
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
        """Process batch `number` of updates (from 1). For the ranking its score is that of the last
        episode."""
        self._label = f"b{number}"
        self._moment += 1
        due = self.policy.save_freq_ is not None and number % self.policy.save_freq_ == 0
        if due and not self.policy.save_best_only:
            self._save(True, True)

    def finish(self) -> None:
        """End a train() call: write the last state, unless only the best are kept, and wait for the
        disk."""
        self._fresh = True
        try:
            self.writer.flush()  # only then is it certain which files exist
        except Exception:
            # the disk may have space again; the first error is raised anyway
            self._save_last()
            raise
        self._save_last()

    @property
    def should_stop(self) -> bool:
        """True if patience has run out; read it before `finish`, which resets it for the next
        call."""
        return not self._fresh and self._patience_over()

    def state(self) -> JSONDict:
        """Return JSON data: the best score, the streak below it, and the files, oldest first,
        including queued ones. Inside `snapshot` this includes the file being taken."""
        files = {f.path: f for f in (*self._files, *(f for _, f in self._queued))}
        listed = sorted(files.values(), key=lambda f: f.moment)
        return {
            "best": self.best,
            "bad": self.bad,
            "files": [[str(f.path), f.score] for f in listed],
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned: rotation continues with the files listed there that still
        exist."""
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
            # before the snapshot, which may call `state`
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
        """Return the slot of a file; None if it would be deleted at once. Each of the best files
        has its own slot, so that a newer file does not replace a better one."""
        # read first: a file written meanwhile is then in `_files`
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
        """Return the existing files of this path. The state may come from anywhere, so files with
        other names are never deleted."""
        ours = re.compile(rf"{re.escape(base.stem)}-b?\d+(-.*)?{re.escape(base.suffix)}")
        return [
            f
            for f in self._files
            if f.path.parent == base.parent and ours.fullmatch(f.path.name) and f.path.exists()
        ]

    def _written(self, base: Path, file: _File, named: bool) -> None:
        """Delete surplus older files once `file` is complete. Runs in the writer's thread."""
        self._saved = max(self._saved, file.moment)
        if not named:
            return
        others = [f for f in self._files if f.path != file.path and f.path.exists()]
        self._files = sorted([*others, file], key=lambda f: f.moment)
        files, limit = self._kept(base), self.policy.limit()
        if self.policy.save_top_k is not None:
            # the sort is stable: among equal scores the newer ones stay
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
