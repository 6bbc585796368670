"""Parallel runs of `tandem train` with different seeds, by as many processes as the cores allow;
each process makes one run after another."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from statistics import fmean
from typing import Any, TextIO

from tandem.cli import seeds_command
from tandem.cli.agents import names_of
from tandem.cli.output import echo, say
from tandem.cli.seeds_command import FILE, OWN, SeedsCommand, own_class
from tandem.cli.train_arguments import MAY_CHANGE, arguments
from tandem.cli.words import value_of, without
from tandem.errors import ResumeError, RunFolderError, SettingError, TandemError
from tandem.learning.figures import listed, mean_and_std
from tandem.learning.parallel.choice import runs_at_once
from tandem.platforms import is_held, keep_to, own_cores
from tandem.reports.plots import curve
from tandem.runs import config_file, progress_line
from tandem.runs.atomic_files import writing
from tandem.runs.folder import locked, result_of
from tandem.runs.new_folders import LOCK, copied, new_folder
from tandem.runs.signals import Signals, exit_code
from tandem.settings import shell_path, whole_number
from tandem.workers.jobs import Jobs, Processes, Request
from tandem.workers.process import Process, WorkerLost

REPEATED = {"--vector": 1, "--env-kwargs": 1, "--cluster": 1}  # arguments that --resume may repeat

KINDS = {"": "best", "last_": "last"}  # prefixes of scores in result.json -> checkpoints
GRACE = 60.0  # seconds for a run to write a checkpoint after the command has ended
LINE = 0.5  # seconds between two lines of a run shown live


class SeedWorker:
    """Runs in a worker process: trains one run after another with `tandem train`."""

    def __init__(self, cores: list[int], live: bool) -> None:
        """cores: the cores to use; empty for all. live: the terminal shows its latest line."""
        if cores:
            keep_to(cores)
        if live:
            progress_line.LINE = LINE
        self._here = os.getcwd()
        sys.stdout = sys.__stdout__  # `cli.output` separates it from the output of libraries
        sys.stderr.reconfigure(encoding="utf-8")  # type: ignore[union-attr]

    def train(self, words: list[str], log: Path) -> int:
        """Train a run and return the exit code; the log receives the command's stderr."""
        from tandem.cli import main  # circular import

        os.chdir(self._here)  # an environment may have changed directory
        with log.open("ab") as file, open(os.devnull, "wb") as nowhere:
            os.dup2(file.fileno(), 2)
            os.dup2(nowhere.fileno(), 1)  # a run's results are in its folder
        return main(["train", *words])


class SeedWorkers(Processes):
    """`number` worker processes that share the cores."""

    def __init__(self, number: int) -> None:
        super().__init__(SeedWorker)
        mine, self._live = own_cores(), sys.stderr.isatty()
        self._cores = [mine[i::number] for i in range(number)]

    def start(self, place: int) -> Process:
        return Process((), self.make, self._cores[place], self._live, grace=GRACE)


class SeedRun:
    """The run of one seed: its folder, its command, and its log next to the folder."""

    def __init__(self, seed: int, parent: Path, words: list[str]) -> None:
        self.seed, self.folder = seed, parent / f"s{seed}"
        self.log, self.words = parent / f"s{seed}.log", words
        self.code: int | None = None
        self.has_started, self.latest = False, "waits"
        self._read, self._held = 0, list[str]()

    def request(self) -> Request:
        """Return the request that starts the run in a worker, with an empty log."""
        with writing(self.log, "free some space, then resume the runs."):
            self.log.write_bytes(b"")
        self.has_started, self.latest = True, "begins"
        return Request("train", (self.words, self.log.absolute()))

    @property
    def has_begun(self) -> bool:
        """True if there is a checkpoint to resume from or to keep, or the run is complete."""
        return any((self.folder / "checkpoints").glob("*.zip")) or _is_complete(self)

    @property
    def runs(self) -> bool:
        """True while the run is in progress."""
        return self.has_started and self.code is None

    @property
    def failure(self) -> str:
        """The end of the log."""
        tail = self.log.read_text(errors="replace").rstrip().splitlines()[-12:]
        return "\n".join(tail)

    @property
    def was_refused(self) -> bool:
        """True if its command ended before there was a run, and not by a signal."""
        return self.code is not None and 0 < self.code < 128 and not self.folder.exists()

    def look(self) -> list[str]:
        """Return the complete lines written since the last call; none before the run has a folder,
        since the error of a rejected command is printed once for all."""
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
        """The contents of result.json; {} if there is none."""
        return result_of(self.folder, 0)


def several(args: argparse.Namespace, words: list[str], parent: Path, count: int) -> int:
    """Train `count` runs with consecutive seeds from --seed. Return the exit code."""
    first = args.seed or 0
    seeds = list(range(first, first + count))
    if (parent / FILE).exists():  # it lists other runs, and would be overwritten
        raise RunFolderError(
            f"{parent} already has runs of several seeds.",
            "a new folder",
            f"choose another, or resume them: --resume {shell_path(parent)}",
        )
    for seed in seeds:  # check all before training any
        new_folder(parent / f"s{seed}")
    command = SeedsCommand(without(words, OWN), seeds, parent)
    commands = [command.of_seed(seed) for seed in seeds]
    command.save()
    _lock = locked(parent, "the training of several seeds")
    runs = [SeedRun(seed, parent, each) for seed, each in zip(seeds, commands, strict=True)]
    return _trained(command, runs, args, args.quiet, is_new=True)


def resumed(args: argparse.Namespace, words: list[str], parent: Path) -> int:
    """Resume those of several runs that are incomplete. Return the exit code."""
    _lock = locked(parent, "the training of several seeds")
    command, more = seeds_command.read(parent), without(words, {"--resume": 1, "--out": 1})
    command = command.vouched(names_of(args), more)
    new_seeds = command.resumed()
    if given := sorted({w.partition("=")[0] for w in more if w in OWN}):
        raise SettingError(
            f"--resume {parent} was given with {', '.join(given)}.",
            MAY_CHANGE,
            "leave them out: resumed runs keep their settings.",
        )
    runs = [SeedRun(seed, parent, []) for seed in command.seeds]
    for run in runs:
        if is_held(run.folder / LOCK):
            raise ResumeError(
                f"seed {run.seed} in {parent} is being trained by another process.",
                "runs that have ended or were stopped",
                "wait for it, or stop it (Ctrl-C).",
            )
    if (out := value_of("--out", words)) is not None:
        return resumed(args, without(words, {"--out": 1}), copied(parent, Path(out)))
    lengths = {_length(run.folder) for run in runs if run.has_begun}
    steps = value_of("--steps", more)
    if steps is not None and "--extend" not in more and lengths != {whole_number("--steps", steps)}:
        raise SettingError(
            f"--steps differs from the length of the runs in {parent}.",
            "the same length, or a larger one with --extend",
            "add --extend, or leave --steps out; to end earlier, give --stop-at.",
        )
    new = [run.seed for run in runs if not run.has_begun]
    if new and "--extend" in more:
        raise SettingError(
            f"--extend was given, but seed {new[0]} in {parent} has not started.",
            "runs that have all started",
            f"train them to their original length first: --resume {shell_path(parent)}",
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
    """Return True if all steps were made and the result was scored."""
    length = _length(run.folder)
    return length is not None and bool(result_of(run.folder, length))


def _length(folder: Path) -> int | None:
    """Return the steps of the run in a folder; None if its config.json does not have them."""
    try:
        return int(config_file.read(folder)["settings"]["steps"])
    except (ValueError, KeyError, TypeError):
        return None


def _trained(
    command: SeedsCommand,
    runs: list[SeedRun],
    began: argparse.Namespace,
    quiet: bool,
    is_new: bool,
) -> int:
    """Train the waiting runs and report on all. began: the arguments of the original command.
    is_new: the runs are not resumed."""
    number, name = runs_at_once(vars(began)), f"{began.algorithm} on {began.env or began.vector}"
    draws = getattr(began, "plots", True)
    number = min(number, len(runs))
    if not quiet:
        seeds = f"seeds {runs[0].seed} to {runs[-1].seed}"
        echo(f"{name}, {seeds}, {number} at a time\nruns: {command.parent}", flush=True)
    came: list[str] = []
    jobs, waiting = Jobs(SeedWorkers(number), number), [run for run in runs if run.code is None]

    def stop(reason: str) -> None:
        came.append(reason)
        jobs.stop()

    def take() -> tuple[SeedRun, Request] | None:
        return (waiting[0], waiting.pop(0).request()) if waiting else None

    def heard(run: SeedRun, answer: int | WorkerLost) -> None:
        if isinstance(answer, WorkerLost):
            with suppress(OSError), run.log.open("a", encoding="utf-8") as log:
                log.write(answer.trace)
            answer = answer.code or 1  # an environment may exit the process
        run.code = answer
        show(run, run.look())
        if run.was_refused and not came:
            stop("refused")  # the others would be, too

    def look() -> None:
        for run in jobs.running:
            show(run, run.look())

    show = _SeedsDisplay(runs, quiet, sys.stderr)
    with Signals(stop), show.live or nullcontext():
        jobs.run(take, heard, look)
    return _told(command, runs, came, draws, is_new)


def _told(
    command: SeedsCommand, runs: list[Any], came: list[str], draws: bool, is_new: bool = False
) -> int:
    """Report the results of the runs and plot their curve. Return the exit code. is_new: see
    `_trained`."""
    if "refused" in came:
        first = next(run for run in runs if run.was_refused)
        print(first.log.read_text(errors="replace").rstrip(), file=sys.stderr)
        for run in runs:
            if not run.folder.exists():
                run.log.unlink(missing_ok=True)
        if is_new:  # otherwise a later command needs it to resume
            command.remove()
        return first.code or 1
    if came:
        if all(map(_is_complete, runs)):
            echo(f"Stopped by {came[0]} after the last step; the curve may be missing.")
        else:
            echo(f"Stopped by {came[0]} and saved. To resume:\n  {command.again}")
        return exit_code(came[0])
    failed = [run for run in runs if run.code]
    for run in failed:
        told = run.failure.splitlines()
        print(f"seed {run.seed} {_ending(run.code)}:", *told, sep="\n  ", file=sys.stderr)
    for line in means([run.result for run in runs]):
        echo(line)
    if draws:
        _draw(command.parent, runs)
    echo("Next:")
    if failed or not all(map(_is_complete, runs)):
        echo(f"  {command.again}")
    echo(f"  tandem report {shell_path(command.parent)}")
    echo(f"  tandem plot {shell_path(command.parent)} --individual")
    code: int = failed[0].code or 1 if failed else 0
    return code if code >= 0 else 128 - code


def _ending(code: int) -> str:
    """Return a description of how an unfinished run ended."""
    number = -code if code < 0 else code - 128
    if number not in set(signal.Signals):
        return "failed"
    name = signal.Signals(number).name
    memory = ", as the system does where memory is short" if name == "SIGKILL" else ""
    return f"was ended by {name}{memory}"


def _draw(parent: Path, runs: list[Any]) -> None:
    """Plot the curve of all runs that did not fail."""
    try:
        folders = [run.folder for run in runs if not run.code]
        echo(f"curve: {curve(folders, parent / 'curve.png')}")
    except (TandemError, OSError) as error:  # the runs are complete without it
        echo(f"no curve: {str(error).splitlines()[0]}")


class _SeedsDisplay:
    """Display of the runs in progress: in a terminal an updating line for each, otherwise all lines
    prefixed by their seeds."""

    def __init__(self, runs: list[Any], quiet: bool, stream: TextIO) -> None:
        self.runs, self.quiet, self.stream = runs, quiet, stream
        self.live: Any = None
        self.notes = set[str]()  # already printed for one of the seeds
        if not quiet and stream.isatty():
            from tandem.terminal import LiveLines  # imports Rich

            self.live = LiveLines(stream, redirect=True)

    def __call__(self, run: Any, lines: list[str]) -> None:
        if run.code == 0:
            said = f"seed {run.seed}: {scored(run.result)}"
            run.latest = scored(run.result)
            if self.live is not None:
                self.live.print(said)
            else:
                say(said)
        elif not self.quiet and self.live is None:
            for line in lines:
                if line not in self.notes:
                    print(f"seed {run.seed}: {line}", file=self.stream, flush=True)
            self.notes |= {line for line in lines if line.startswith("Note: ")}
        if self.live is not None:
            shown = "\n".join(f"seed {r.seed}  {r.latest}" for r in self.runs if r.runs)
            self.live.draw(shown)


def scored(result: dict[str, Any]) -> str:
    """Return the returns of a run's best and last checkpoints as text."""
    if result.get("eval_mean") is None:
        return "done"
    best, last = (mean_and_std(result[f"{n}eval_mean"], result[f"{n}eval_std"]) for n in KINDS)
    cut = f", {result['eval_cut']} of them cut" if result.get("eval_cut") else ""
    return f"best {best}, last {last} over {result['eval_episodes']} episodes{cut}"


def means(results: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield a line with the mean return over several runs for the best, and for the last
    checkpoints."""
    for prefix, name in KINDS.items():
        each = [x for result in results if (x := result.get(f"{prefix}eval_mean")) is not None]
        if each:
            mean, low, high = listed(fmean(each), min(each), max(each))
            of = f"{len(each)} seed{'s' * (len(each) > 1)}"
            yield f"{name} checkpoints: mean over {of} {mean} (lowest {low}, highest {high})"
