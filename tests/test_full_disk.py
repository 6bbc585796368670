"""Every command that writes says on a full disk what it could not, and leaves no half of it."""

import errno
import json
import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tandem
from tandem.cli import main
from tandem.errors import CheckpointError, RunFolderError
from tandem.runs import atomic_files
from tests.helpers import run_python
from tests.runs.shared import CHILD, TANDEM, child
from tests.runs.test_folders import FLAGS, SMALL

COMMANDS = {  # what each cannot write -> the command
    "a.gif": "watch run --out a.gif --max-steps 5",
    "run/animation.gif": "watch run --max-steps 5",
    "a.png": "plot run --out a.png",
    "a.svg": "compare run run --out a.svg",
    "run/report.html": "report run",
    "run/agent.npz": "export run --to numpy",
    "a.onnx": "export run --to onnx --out a.onnx",
    "data": "record run --episodes 1 --out ./data",
    "a.toml": "config ppo CartPole-v1 --out a.toml",
    "found/trials.csv": f"find lr a2c CartPole-v1 --points 2 {FLAGS} --out found",
    "new/config.json": f"train a2c CartPole-v1 {FLAGS} --out new",
    "several/seeds.json": f"train a2c CartPole-v1 {FLAGS} --out several --seeds 2",
    "trials/sweep.json": f"sweep a2c CartPole-v1 --trials 1 {FLAGS} --out trials",
}
# no file may have more than 90 bytes: what a lock says of its process fits
LIMITED = """
import contextlib, io, json, resource, sys
from tandem.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (90, resource.RLIM_INFINITY))
for words in json.load(sys.stdin):
    told = io.StringIO()
    with contextlib.redirect_stderr(told), contextlib.redirect_stdout(io.StringIO()):
        code = main(words)
    print(json.dumps([code, told.getvalue()]), flush=True)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a run in it, to which the paths of commands are relative."""
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    tandem.train("a2c", "CartPole-v1", out="run", **SMALL)
    return tmp_path


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="files have no limit here")
def test_what_a_command_cannot_write_is_named_and_not_left_behind(place: Path) -> None:
    for name in ("onnx", "minari"):
        pytest.importorskip(name)
    commands = json.dumps([shlex.split(command) for command in COMMANDS.values()])
    out, err = child("-c", LIMITED).communicate(commands)
    told = [json.loads(line) for line in out.splitlines()]
    assert len(told) == len(COMMANDS), err
    for name, (code, said) in zip(COMMANDS, told, strict=True):
        said = said.replace(f"{place}{os.sep}", "")
        assert code == 2 and f"tandem: cannot write {name}: File too large; expected" in said, said
        assert "\nFix: free some space" in said and "Traceback" not in said
        if name != "new/config.json":
            assert not Path(name).exists(), name


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no disk is full here")
def test_what_is_printed_to_a_full_disk(place: Path) -> None:
    for words in ("list", "completion bash", "evaluate run --episodes 1"):
        with open("/dev/full", "w", encoding="utf-8") as full:
            ends: Any = {"stdout": full, "stderr": subprocess.PIPE, "text": True}
            done = subprocess.run([*TANDEM, *words.split()], env=CHILD, **ends)
        assert done.returncode == 1
        assert done.stderr.startswith("tandem: cannot write: ") and "Fix: free some" in done.stderr
        assert "Traceback" not in done.stderr and "Exception" not in done.stderr


def fails(name: str, after: int = 0) -> Callable[[Any, Any], None]:
    """os.replace on a disk that is full for a file of this name, after so many times."""
    real, left = os.replace, [after]

    def replace(source: Any, target: Any) -> None:
        if Path(target).name == name:
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(source, target)

    return replace


def test_a_run_whose_result_cannot_be_written_is_there_to_be_scored(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(atomic_files.os, "replace", fails("result.json"))
        code = main(["train", "a2c", "CartPole-v1", *FLAGS.split(), "--out", "a b"])
    told = capsys.readouterr().err
    folder, full = Path.cwd() / "a b", "No space left on device; expected"
    assert code == 2 and f"cannot write {folder}/result.json: {full}" in told
    assert "the run is trained and saved" in told
    again = shlex.split(told.partition(" and tandem ")[2].partition(" (resume=")[0])
    last = Path("a b", "checkpoints", "last.zip")
    assert again == ["train", "--resume", str(folder)] and main([*again, "--quiet"]) == 0
    rows = Path("a b", "progress.csv").read_text(encoding="utf-8").splitlines()
    assert Path("a b", "result.json").is_file() and rows[-1].startswith("64,")
    assert last.is_file() and "64 steps" in capsys.readouterr().out


def test_notes_that_no_longer_fit_into_the_result_leave_the_result(place, monkeypatch) -> None:
    monkeypatch.setattr(atomic_files.os, "replace", fails("result.json", after=1))
    result = tandem.train("a2c", "CartPole-v1", out="a", **{**SMALL, "plots": True})
    assert result.summary["env_steps"] == 64 and Path("a", "result.json").is_file()
    assert any(note.startswith("result.json lacks the notes: cannot") for note in result.notes)


def test_without_a_first_checkpoint_no_advice_is_to_resume(place, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(atomic_files.os, "replace", fails("last.zip"))
        with pytest.raises(CheckpointError, match=r"last\.zip.*No space") as caught:
            tandem.train("a2c", "CartPole-v1", out="a", **SMALL)
    assert "or start again in another folder" in caught.value.fix
    tandem.train("a2c", "CartPole-v1", out="b", **SMALL)
    with monkeypatch.context() as patch:
        patch.setattr(atomic_files.os, "replace", fails("best.zip"))
        with pytest.raises(CheckpointError, match=r"best\.zip.*No space") as caught:
            tandem.train("a2c", "CartPole-v1", out="c", **SMALL)
    assert caught.value.fix == "free some space, then resume."
    assert tandem.train(resume="c").summary["env_steps"] == 64


def test_a_video_that_ffmpeg_could_not_finish(place: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    code = """
import json, resource, signal, sys
from tandem.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (90, resource.RLIM_INFINITY))
print(json.dumps(main(["watch", "run", "--out", "a.mp4", "--max-steps", "5"])))
"""
    assert run_python(code) == [2]
    assert not list(place.glob("*.mp4")) and not list(place.glob(".*.mp4"))


def test_a_folder_that_may_not_be_written_is_named_when_it_is_resumed(place, monkeypatch) -> None:
    real = Path.open

    def open_(self: Path, *given: Any, **more: Any) -> Any:
        if self == Path("run", ".lock").absolute():
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real(self, *given, **more)

    monkeypatch.setattr(Path, "open", open_)
    with pytest.raises(RunFolderError, match=r"cannot write .*/run/\.lock: Read-only") as caught:
        tandem.train(resume="run", steps=128, extend=True)
    assert caught.value.fix == "free some space, or choose another with --out."
    result = tandem.train(resume="run", out="copy", steps=128, extend=True)
    assert result.summary["env_steps"] == 128
