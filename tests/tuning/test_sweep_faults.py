"""A failure that is not the trial's stops a sweep; the resumed sweep repeats the trial."""

from __future__ import annotations

import csv
import errno
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import tandem
from tandem import errors
from tandem.cli import main
from tandem.errors import TandemError
from tandem.platforms import FULL
from tandem.runs import atomic_files
from tandem.tuning import sweep_run as at
from tandem.tuning import sweep_study
from tandem.tuning.sweep_run import Answer
from tests.tuning.test_sweep import GAMES, SMALL, Walk

pytest.importorskip("optuna")
FLAGS = "--framework torch --steps 1000 --pruner none"
WHERE: dict[str, Any] = {**SMALL, "parallel": 1, "trials": 4}


class Ends:
    """Ends as the file `ends` says: lines of a trial, how, and after how many evaluations."""

    def begin_trial(self, engine: Any, arguments: Any, out: Path, resume: Any) -> Answer:
        self.number, self.k = int(out.name), 0
        lines = (out.parents[2] / "ends").read_text(encoding="utf-8").splitlines()
        ends = {int(line.split()[0]): line.split()[1:] for line in lines}
        self.how, count = ends.get(self.number, ("", "0"))
        self.count = int(count)
        (out / "checkpoints").mkdir(parents=True, exist_ok=True)
        (out / "checkpoints" / "last.zip").touch()
        with (out / "begun").open("a") as file:
            file.write(f"{resume is not None}\n")
        return self.go_on()

    def go_on(self) -> Answer:
        if self.k == self.count and self.how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.k == self.count and self.how == at.BLOCKED:
            return Answer(at.BLOCKED, why="cannot write a.zip: no space; expected some.\nFix: it")
        self.k += 1
        return Answer(at.EVALUATED if self.k <= 10 else at.COMPLETE, 100 * min(self.k, 10), 1.0)

    def leave(self) -> None:
        pass


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(at, "TrialRun", Ends)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ends").write_text("")
    return tmp_path


def states(folder: Path) -> list[str]:
    with (folder / "trials.csv").open() as file:
        return [row["state"] for row in csv.DictReader(file)]


@pytest.mark.slow
def test_a_disk_that_is_full_ends_the_sweep_and_no_trial(place, capsys) -> None:
    (place / "ends").write_text("1 blocked 3\n3 blocked 0")
    flags = f"{FLAGS} --trials 4 --parallel 2 --out=-s".split()
    assert main(["sweep", *GAMES, *flags]) == 1
    told = capsys.readouterr().err
    assert "Traceback" not in told and "a.zip: no space; " in told and "Fix: it" not in told
    again = told.partition("then resume: tandem ")[2].split()
    assert again == ["sweep", "--resume", "./-s"] and not (place / "-s" / "trials.csv").exists()
    assert main(again) == 1  # for trial 3 too, unless it was that which ended the first
    (place / "ends").write_text("")
    assert main(again) == 0
    assert states(place / "-s") == ["complete"] * 4


@pytest.mark.slow
def test_a_trial_survives_the_loss_of_its_process_once(place: Path) -> None:
    (place / "ends").write_text("2 killed 4")
    found = tandem.sweep(*GAMES, **WHERE, pruner="none", out=place / "s")
    assert [t.state for t in found.trials] == ["complete", "complete", "failed", "complete"]
    assert "SIGKILL" in found.trials[2].why
    files = sorted((place / "s" / "trials").glob("*/begun"))
    begun = [file.read_text(encoding="utf-8").split() for file in files]
    assert begun == [["False"], ["False"], ["False", "True"], ["False"]]


class Dies:
    def __init__(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_processes_that_cannot_begin_end_the_sweep(place, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(at, "TrialRun", Dies)
        with pytest.raises(
            errors.WorkerError, match=r"trial 0: .*SIGKILL.* before it began"
        ) as caught:
            tandem.sweep(*GAMES, **WHERE, out=place / "s")
    assert caught.value.fix.endswith(f"tandem sweep --resume {place / 's'}")
    found = tandem.sweep(resume=place / "s", parallel=1)
    assert [t.state for t in found.trials] == ["complete"] * 4


WRITERS = {
    "journal.log": "optuna.storages.journal.JournalFileBackend.append_logs",
    "trials.csv": "tandem.tuning.sweep_report.write_table",
    "entry.toml": "tandem.tuning.sweep_report.Path.write_text",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_files_of_the_sweep_that_cannot_be_written(name, place, monkeypatch, capsys) -> None:
    def no_space(*_: Any) -> None:
        raise full()

    flags = f"{FLAGS} --trials 2 --parallel 1 --out s".split()
    with monkeypatch.context() as patch:
        patch.setattr(WRITERS[name], no_space)
        assert main(["sweep", *GAMES, *flags]) == 2
    told = capsys.readouterr().err
    assert f"cannot write s/{name}: No space left on device; expected" in told
    assert main(told.rstrip().rpartition("tandem ")[2].split()) == 0
    assert states(place / "s") == ["complete"] * 2
    assert (place / "s" / "entry.toml").is_file()


def full(code: int = errno.ENOSPC) -> OSError:
    return OSError(code, os.strerror(code))


def caused(error: TandemError, cause: Exception) -> TandemError:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error, kind",
    [
        *((full(code), at.BLOCKED) for code in FULL),
        (full(errno.EACCES), at.FAILED),  # of an environment, say
        (caused(errors.RunFolderError("a"), full(errno.EACCES)), at.BLOCKED),
        (caused(errors.CheckpointError("a"), full(errno.EACCES)), at.BLOCKED),
        (caused(errors.CheckpointError("damaged"), ValueError("a")), at.FAILED),
        (caused(errors.EnvironmentFault("a"), full()), at.BLOCKED),
        (errors.ResumeError("under way in another process"), at.BLOCKED),
        (errors.UnrepeatableError("a"), at.FAILED),
    ],
    ids=repr,
)
def test_which_failures_are_no_trials(error: Exception, kind: str) -> None:
    assert at._kind(error) == kind


def test_a_run_whose_checkpoint_does_not_fit_says_so_and_goes_on_with_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Walk(tmp_path / "whole")
    real, count = os.replace, [0]

    def replace(source: Any, target: Any) -> None:
        count[0] += str(target).endswith("best.zip")
        if count[0] == 2:
            raise full()
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(atomic_files.os, "replace", replace)
        part = Walk(tmp_path / "part")
    assert part.answers[-1].what == at.BLOCKED and "No space left" in part.answers[-1].why
    again = Walk(tmp_path / "part", {})
    assert again.answers[-1].what == at.COMPLETE
    assert part.means() | again.means() == whole.means()


def test_the_advice_has_what_a_program_and_a_module_bring(monkeypatch, tmp_path) -> None:
    made = tandem.tuning.sweep.Sweep(*GAMES, **WHERE, out=tmp_path)
    assert made.plan.to_resume(tmp_path) == "free some space, or choose another with --out."
    made.plan.save(tmp_path)  # before, there is nothing to resume
    monkeypatch.setattr(sweep_study, "IMPORTED", ["mine"])
    assert made.plan.to_resume(tmp_path).endswith(f"--resume {tmp_path} --import mine")
    made.plan.own.append("env")
    assert made.plan.to_resume(tmp_path).endswith(f"sweep(resume={str(tmp_path)!r}, env=...)")
