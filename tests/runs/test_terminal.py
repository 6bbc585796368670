"""A run outlives its terminal and the readers of what it prints."""

import io
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tandem.cli import COMMANDS, main
from tandem.runs import checkpoint
from tandem.runs.callbacks import LambdaCallback
from tandem.runs.folder import Run
from tandem.runs.json_log import JsonLog
from tandem.streams import Display
from tandem.testing.environments import InfiniteHorizon
from tests.runs.shared import CHILD, TANDEM, child, rows, wait_for
from tests.test_trainer import small

posix = pytest.mark.skipif(os.name != "posix", reason="needs a POSIX terminal")
SMALL = "--framework torch --no-tensorboard --no-plots --hidden 8 --envs 2 --rollout 32"
SMALL += " --batch-size 64 --epochs 1 --eval-episodes 1 --final-episodes 1 --log-every 64"
LONG = f"{SMALL} --steps 1000000 --compile no --eval-every 200 --checkpoint-seconds 1000"
VECTOR = '--env-kwargs {"id":"CartPole-v1","num_envs":2,"vectorization_mode":"async"}'

# Makes a terminal the one of a process and its children, as a terminal emulator does.
IN_TERMINAL = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def in_terminal(words: Sequence[str], folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """A process in a terminal of its own, and the other end of that."""
    import pty

    ours, theirs = pty.openpty()
    ends: Any = {"stdin": theirs, "stdout": theirs, "stderr": theirs, "start_new_session": True}
    command = [sys.executable, "-c", IN_TERMINAL, *words]
    process = subprocess.Popen(command, cwd=folder, env=CHILD, **ends)
    os.close(theirs)
    return process, ours


@posix
@pytest.mark.parametrize(
    "words",
    [
        "train ppo CartPole-v1",
        pytest.param("train ppo CartPole-v1 --workers 1", marks=pytest.mark.slow),
        pytest.param(f"train ppo --vector gymnasium:make_vec {VECTOR}", marks=pytest.mark.slow),
        pytest.param("train ppo CartPole-v1 --seeds 2", marks=pytest.mark.slow),
        pytest.param("sweep ppo CartPole-v1 --trials 2", marks=pytest.mark.slow),
        pytest.param("train ppo CartPole-v1 --runners 1 --cluster local", marks=pytest.mark.slow),
    ],
    ids=["train", "workers", "vector", "seeds", "sweep", "runners"],
)
def test_a_closed_terminal_ends_a_run_with_a_checkpoint(words, tmp_path) -> None:
    process, ours = in_terminal([*TANDEM, *words.split(), *LONG.split(), "--out", "run"], tmp_path)
    try:
        wait_for(process, tmp_path / "run" / "progress.csv", 2)
        os.close(ours)
        os.killpg(process.pid, signal.SIGHUP)  # as the shell does, besides
        assert process.wait(60) == 128 + signal.SIGHUP
    finally:
        process.kill()
    logged = {t.parent: rows(t.parent) for t in (tmp_path / "run").rglob("progress.csv")}
    assert any(map(len, logged.values()))
    for folder, table in logged.items():  # one of two trials may just have begun
        data = checkpoint.read(folder / "checkpoints" / "last.zip").data
        assert data["collector"]["env_steps"] >= int(table[-1]["env_steps"] if table else 0)


@posix
@pytest.mark.slow
def test_a_command_needs_no_stderr_and_no_reader_of_it(tmp_path) -> None:
    words = f"train ppo CartPole-v1 {SMALL} --steps 4096 --eval-every 64 --out run".split()
    process: Any = child("-m", "tandem", *words, cwd=tmp_path)
    assert process.stderr.readline()
    process.stderr.close()
    out = process.stdout.read()
    assert process.wait(60) == 0 and "last checkpoint" in out
    assert Run(tmp_path / "run").column("env_steps")[-1] == 4096
    words = f"train ppo CartPole-v1 {SMALL} --steps 128 --workers 1 --out none".split()
    command = ["bash", "-c", 'exec "$@" 2>&- >&-', "bash", *TANDEM, *words]
    assert subprocess.run(command, env=CHILD, cwd=tmp_path).returncode == 0
    assert Run(tmp_path / "none").column("env_steps")[-1] == 128


class Loud(InfiniteHorizon):
    def step(self, action):
        print("step", flush=True)
        return super().step(action)


SCRIPT = """
import sys
import tandem
from tests.runs.test_terminal import Loud
settings = {"rollout": 32, "envs": 2, "batch_size": 64, "steps": 512, "eval_every": 64}
settings |= {"tensorboard": False, "plots": False, "eval_episodes": 1, "eval_max_steps": 5}
result = tandem.train("ppo", Loud, framework="torch", workers=1, progress=True, **settings)
sys.exit(0 if result.reason == "steps" else 1)
"""


@posix
@pytest.mark.slow
@pytest.mark.parametrize("how", ["gone", "none"])
def test_what_workers_print_needs_no_reader(how: str, tmp_path: Path) -> None:
    """No stderr, as under pythonw, or one whose reader has gone before the workers start."""
    closes = 'exec "$@" 2>&-' if how == "none" else '"$@" 2> >(exec 0<&-); exit $?'
    command = ["bash", "-c", closes, "bash", sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env=CHILD, stdout=subprocess.DEVNULL, cwd=tmp_path)
    # Python itself fails at its end where it cannot flush stderr
    assert done.returncode in ((0,) if how == "none" else (0, 120))


class Broken(io.StringIO):
    """A stream whose other end has gone."""

    def __init__(self, kind: type[OSError] = OSError) -> None:
        super().__init__()
        self.kind = kind

    def write(self, text: str) -> int:
        raise self.kind(5, "Input/output error")

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("how", ["broken", "closed", "none"])
def test_a_program_trains_without_a_display(how: str, monkeypatch) -> None:
    (closed := io.StringIO()).close()
    stream = {"broken": Broken(), "closed": closed, "none": None}[how]
    monkeypatch.setattr(sys, "stderr", stream)
    assert small(steps=64, progress=True).reason == "steps"
    monkeypatch.setattr(sys, "stdout", stream)
    JsonLog(64).line("row", {"env_steps": 1})


def test_a_reader_of_results_that_has_gone_ends_a_command(monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdout", Broken(BrokenPipeError))
    monkeypatch.setattr(Broken, "fileno", lambda self: os.open(os.devnull, os.O_WRONLY))
    assert main(["list"]) == 141
    monkeypatch.setattr(sys, "stdout", Broken())  # a terminal that has closed
    assert main(["list"]) == 0


@posix
def test_sighup_goes_to_the_handler_that_was_there_or_is_ignored_as_before(tmp_path) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGHUP, lambda number, frame: heard.append(number))
    raises = [LambdaCallback(on_batch_end=lambda event: signal.raise_signal(signal.SIGHUP))]
    twice = raises * 2
    try:
        result = small(steps=128, out=tmp_path / "run", callbacks=twice)
        assert result.reason == "SIGHUP" and heard == [signal.SIGHUP]
        assert (tmp_path / "run" / "checkpoints" / "last.zip").is_file()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup
        assert small(steps=128, callbacks=twice).reason == "steps"
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


class Encoded(io.TextIOWrapper):
    def __init__(self, encoding: str) -> None:
        super().__init__(io.BytesIO(), encoding, write_through=True)

    @property
    def text(self) -> str:
        return self.buffer.getvalue().decode(self.encoding)

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("encoding", ["cp437", "latin-1", "ascii"])
def test_commands_print_in_every_encoding(encoding: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    out, err = Encoded(encoding), Encoded(encoding)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    for command in COMMANDS:
        assert main([command, "--help"]) == 0
    assert main(["train", "ppo", "--help"]) == 0 and main(["list"]) == 0
    assert "runs/..." in out.text
    words = f"train ppo CartPole-v1 {SMALL} --steps 128 --eval-every 64"
    assert main([*words.split(), "--out", "runs/s\u6f220"]) == 0
    assert "128 / 128 steps" in err.text and "runs/s?0:" in out.text
    assert ("±" if encoding != "ascii" else "+-") in out.text
    assert main(["train", "ppo", "CartPole-v\u6f22"]) == 2 and "CartPole-v?" in err.text
    for command in ("compare runs", "watch --live runs/s\u6f220", "evaluate runs/s\u6f220"):
        assert main(command.split()) == 0, err.text
    small(steps=64, progress=True)
    stream = Encoded("ascii")
    print("x ± 1, 2 × τ, 漢", file=Display(stream), end="")
    assert stream.text == "x +- 1, 2 x tau, ?"
