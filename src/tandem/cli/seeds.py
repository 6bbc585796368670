"""Several runs of `tandem train` that differ in their seeds, side by side: as many processes as
there are cores for make them, one after the other."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any, TextIO

from tandem.cli import seeds_command
from tandem.cli.agents import names_of
from tandem.cli.output import echo, say
from tandem.cli.seed_worker import Worker
from tandem.cli.seeds_command import FILE, OWN, SeedsCommand, own_class, value_of, without
from tandem.errors import ResumeError, RunFolderError, SettingError, TandemError
from tandem.learning.figures import listed, mean_and_std
from tandem.parallel.choice import cores, cpus_of, has_gpu
from tandem.platforms import is_held, own_cores
from tandem.runs import config_file
from tandem.runs.atomic_files import writing
from tandem.runs.folder import LOCK, copied, locked, new_folder, result_of
from tandem.runs.signals import Signals, exit_code
from tandem.settings import shell_path, whole_number

REPEATED = {"--vector": 1, "--env-kwargs": 1, "--cluster": 1}  # names that --resume may repeat

LOOK = 0.1  # seconds between two looks at the runs


class SeedRun:
    """The run of one seed: its folder, the command that makes it, and its log beside the folder."""

    def __init__(self, seed: int, parent: Path, words: list[str]) -> None:
        self.seed, self.folder = seed, parent / f"s{seed}"
        self.log, self.words = parent / f"s{seed}.log", words
        self.worker: Worker | None = None  # while it is under way
        self.code: int | None = None
        self.latest = "waits"
        self._read, self._held = 0, list[str]()

    def start(self, worker: Worker) -> None:
        """Begins it, in a process."""
        with writing(self.log, "free some space, then resume the runs."):
            self.log.write_bytes(b"")
        self.worker, self.latest = worker, "begins"
        worker.give(self.words, self.log)

    @property
    def has_begun(self) -> bool:
        """Whether there is a checkpoint, to go on from or to keep; or it is complete."""
        return any((self.folder / "checkpoints").glob("*.zip")) or _is_complete(self)

    @property
    def runs(self) -> bool:
        """Whether its process is under way."""
        return self.worker is not None and self.code is None

    @property
    def failure(self) -> str:
        """The end of its log."""
        tail = self.log.read_text(errors="replace").rstrip().splitlines()[-12:]
        return "\n".join(tail)

    @property
    def was_refused(self) -> bool:
        """Whether its command ended, by no signal, before there was a run."""
        return self.code is not None and 0 < self.code < 128 and not self.folder.exists()

    def look(self) -> list[str]:
        """What it has written since the last look, in whole lines; nothing before it has a
        folder, since a command that is refused is told of once."""
        assert self.worker is not None
        self.code = self.worker.code()
        with self.log.open("rb") as log:
            log.seek(self._read)
            text = log.read()
        whole = text[: text.rfind(b"\n") + 1] if self.code is None else text
        self._read += len(whole)
        lines = [line for line in whole.decode(errors="replace").splitlines() if line.strip()]
        self._held += lines
        if not self.folder.exists():
            return []
        lines, self._held = self._held, []
        self.latest = lines[-1] if lines else self.latest
        return lines

    @property
    def result(self) -> dict[str, Any]:
        """What its result.json says; {} where there is none."""
        return result_of(self.folder, 0)


def several(args: argparse.Namespace, words: list[str], parent: Path, count: int) -> int:
    """Trains `count` runs, with the seeds from --seed on; the exit code."""
    first = args.seed or 0
    seeds = list(range(first, first + count))
    if (parent / FILE).exists():  # which says of others, whose folder it would no longer be
        raise RunFolderError(
            f"{parent} has runs of several seeds.",
            "a new folder",
            f"choose another, or go on with them: --resume {shell_path(parent)}",
        )
    for seed in seeds:  # all, before one is trained
        new_folder(parent / f"s{seed}")
    command = SeedsCommand(without(words, OWN), seeds, parent)
    commands = [command.of_seed(seed) for seed in seeds]
    command.save()
    _lock = locked(parent, "the training of several seeds")
    runs = [SeedRun(seed, parent, each) for seed, each in zip(seeds, commands, strict=True)]
    return _trained(command, runs, args, args.quiet, is_new=True)


def resumed(args: argparse.Namespace, words: list[str], parent: Path) -> int:
    """Goes on with those of several runs that are not complete; the exit code."""
    from tandem.cli.train import MAY_CHANGE, arguments

    _lock = locked(parent, "the training of several seeds")
    command, more = seeds_command.read(parent), without(words, {"--resume": 1, "--out": 1})
    command = command.vouched(names_of(args), more)
    new_seeds = command.resumed()
    if given := sorted({w.partition("=")[0] for w in more if w in OWN}):
        raise SettingError(
            f"--resume {parent} was given with {', '.join(given)}.",
            MAY_CHANGE,
            "leave them out: runs go on as they began.",
        )
    runs = [SeedRun(seed, parent, []) for seed in command.seeds]
    for run in runs:
        if is_held(run.folder / LOCK):
            raise ResumeError(
                f"seed {run.seed} in {parent} is being trained by another process.",
                "runs that have come to their end, or were stopped",
                "wait for it, or stop it (Ctrl-C).",
            )
    if (out := value_of("--out", words)) is not None:
        return resumed(args, without(words, {"--out": 1}), copied(parent, Path(out)))
    lengths = {_length(run.folder) for run in runs if run.has_begun}
    steps = value_of("--steps", more)
    if steps is not None and "--extend" not in more and lengths != {whole_number("--steps", steps)}:
        raise SettingError(
            f"--steps was given for the runs in {parent}, which have their length.",
            "that length, or a larger one with --extend",
            "add --extend, or leave --steps out; to end earlier, give --stop-at.",
        )
    new = [run.seed for run in runs if not run.has_begun]
    if new and "--extend" in more:
        raise SettingError(
            f"--extend was given, and seed {new[0]} in {parent} has not begun.",
            "runs that are to be longer than they were",
            f"train them as long as they were to be first: --resume {shell_path(parent)}",
        )
    for run in runs:
        if _is_complete(run) and "--extend" not in more:
            run.code = 0
        elif run.has_begun:
            run.words = [f"--resume={run.folder}", *more]
        else:
            shutil.rmtree(run.folder, ignore_errors=True)
            repeated = {own_class(more), args.algorithm, args.env}
            again = [word for word in without(more, REPEATED) if word not in repeated]
            run.words = new_seeds.of_seed(run.seed, again)
    began = arguments(new_seeds.words)
    return _trained(command, runs, began, args.quiet, is_new=False)


def _is_complete(run: Any) -> bool:
    """Whether all of its steps were made, and what came of them was scored."""
    length = _length(run.folder)
    return length is not None and bool(result_of(run.folder, length))


def _length(folder: Path) -> int | None:
    """The steps of the run in a folder; None where its config.json does not say."""
    try:
        return int(config_file.read(folder)["settings"]["steps"])
    except (ValueError, KeyError, TypeError):
        return None


def at_once(args: argparse.Namespace) -> int:
    """How many runs are made at a time: as many as there are cores for the processes and threads
    of each; one, where each takes a GPU."""
    if args.device == "cuda" or (args.device in (None, "auto") and has_gpu()):
        return 1
    return max(1, cores() // cpus_of(vars(args)))


def _shares(number: int) -> list[list[int]]:
    """The cores of each of so many runs at a time; none where the system does not say."""
    mine = own_cores()
    return [mine[i::number] for i in range(number)]


def _trained(
    command: SeedsCommand,
    runs: list[SeedRun],
    began: argparse.Namespace,
    quiet: bool,
    is_new: bool,
) -> int:
    """began: what the runs were made with. is_new: they are not gone on with."""
    number, name = at_once(began), f"{began.algorithm} on {began.env or began.vector}"
    draws = getattr(began, "plots", True)
    number = min(number, len(runs))
    if not quiet:
        seeds = f"seeds {runs[0].seed} to {runs[-1].seed}"
        echo(f"{name}, {seeds}, {number} at a time\nruns: {command.parent}", flush=True)
    came: list[str] = []

    workers = [Worker(share, sys.stderr.isatty()) for share in _shares(number)]

    def stop(signal_name: str) -> None:
        came.append(signal_name)
        for run in runs:
            if run.runs and run.worker is not None:
                run.worker.stop(signal_name)

    with Signals(stop), _lines(runs, quiet) as show:
        waiting, free = [run for run in runs if run.code is None], list(workers)
        try:
            while waiting or any(run.runs for run in runs):
                while waiting and free and not came:
                    waiting.pop(0).start(free.pop(0))
                if came:
                    waiting.clear()
                for run in [run for run in runs if run.runs]:
                    show(run, run.look())
                    if run.code is None:
                        continue
                    free.append(_next(run.worker, workers))
                    if run.was_refused and not came:
                        came.append("refused")  # as all others would be, at the door
                        stop("SIGTERM")
                time.sleep(LOOK)
        finally:
            busy = [run.worker for run in runs if run.runs]
            for worker in workers:
                worker.end(at_once=worker in busy)
    return _told(command, runs, came, draws, is_new)


def _next(worker: Worker | None, workers: list[Worker]) -> Worker:
    """The process for the next run: the same; another one in its place where it has ended."""
    assert worker is not None
    if worker.process.poll() is None:
        return worker
    worker.end()
    at = workers.index(worker)
    workers[at] = Worker(_shares(len(workers))[at], sys.stderr.isatty())
    return workers[at]


def _told(
    command: SeedsCommand, runs: list[Any], came: list[str], draws: bool, is_new: bool = False
) -> int:
    """Says what came of the runs, and draws their curve; the exit code. is_new: see `_trained`."""
    if "refused" in came:
        first = next(run for run in runs if run.was_refused)
        print(first.log.read_text(errors="replace").rstrip(), file=sys.stderr)
        for run in runs:
            if not run.folder.exists():
                run.log.unlink(missing_ok=True)
        if is_new:  # else it is needed to go on by another command
            command.remove()
        return first.code or 1
    if came:
        echo(f"Stopped by {came[0]} and saved. To go on:\n  {command.again}")
        return exit_code(came[0])
    failed = [run for run in runs if run.code]
    for run in failed:
        told = run.failure.splitlines()
        print(f"seed {run.seed} {_ending(run.code)}:", *told, sep="\n  ", file=sys.stderr)
    scores = [run.result["eval_mean"] for run in runs if run.result.get("eval_mean") is not None]
    if scores:
        mean, low, high = listed(fmean(scores), min(scores), max(scores))
        echo(
            f"mean over {len(scores)} seed{'s' * (len(scores) > 1)}: {mean} "
            f"(lowest {low}, highest {high})"
        )
    if draws:
        _draw(command.parent, runs)
    echo("Next:")
    if failed or not all(map(_is_complete, runs)):
        echo(f"  {command.again}")
    echo(f"  tandem plot {shell_path(command.parent)} --individual")
    code: int = failed[0].code or 1 if failed else 0
    return code if code >= 0 else 128 - code


def _ending(code: int) -> str:
    """How a run ended that did not come to its end, in words."""
    number = -code if code < 0 else code - 128
    if number not in set(signal.Signals):
        return "failed"
    name = signal.Signals(number).name
    memory = ", as the system does where memory is short" if name == "SIGKILL" else ""
    return f"was ended by {name}{memory}"


def _draw(parent: Path, runs: list[Any]) -> None:
    """The curve of all runs that did not fail."""
    from tandem.plots import curve

    try:
        folders = [run.folder for run in runs if not run.code]
        echo(f"curve: {curve(folders, parent / 'curve.png')}")
    except (TandemError, OSError) as error:  # the runs are whole without it
        echo(f"no curve: {str(error).splitlines()[0]}")


class _Show:
    """What is shown of runs that are under way: in a terminal a line for each, which changes; else
    all lines, with their seeds before them."""

    def __init__(self, runs: list[Any], quiet: bool, stream: TextIO) -> None:
        self.runs, self.quiet, self.stream = runs, quiet, stream
        self.live: Any = None
        if not quiet and stream.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(file=stream, force_terminal=True)
            self.live = Live(console=console, auto_refresh=False)

    def __call__(self, run: Any, lines: list[str]) -> None:
        if run.code == 0:
            said = f"seed {run.seed}: {scored(run.result)}"
            run.latest = scored(run.result)
            if self.live is not None:
                self.live.console.print(said, highlight=False, markup=False)
            else:
                say(said)
        elif not self.quiet and self.live is None:
            for line in lines:
                print(f"seed {run.seed}: {line}", file=self.stream, flush=True)
        if self.live is not None:
            from rich.text import Text

            shown = "\n".join(f"seed {r.seed}  {r.latest}" for r in self.runs if r.runs)
            self.live.update(Text(shown, overflow="ellipsis", no_wrap=True), refresh=True)


@contextmanager
def _lines(runs: list[Any], quiet: bool) -> Iterator[_Show]:
    show = _Show(runs, quiet, sys.stderr)
    if show.live is not None:
        with show.live:
            yield show
    else:
        yield show


def scored(result: dict[str, Any]) -> str:
    """What the best agent of a run came to, in words."""
    if result.get("eval_mean") is None:
        return "done"
    text = mean_and_std(result["eval_mean"], result["eval_std"])
    cut = f", {result['eval_cut']} of them cut" if result.get("eval_cut") else ""
    return f"{text} over {result['eval_episodes']} episodes{cut}"
