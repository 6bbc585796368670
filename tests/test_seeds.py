"""Folders of several seeds that are gone on with."""

import io
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from tandem.cli import main
from tandem.cli.seeds import _SeedsDisplay
from tandem.cli.seeds_command import SeedsCommand, read, value_of
from tandem.learning.figures import figures, listed
from tests.helpers import held

GIVEN = ["--framework", "torch", "--quiet", "--eval-episodes", "0", "--final-episodes", "1"]
GIVEN += ["--no-tensorboard", "--no-plots", "--hidden", "8", "--rollout", "32", "--envs", "4"]


def config(run: Path) -> Any:
    return json.loads((run / "config.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """Two seeds, 256 steps each."""
    parent = tmp_path_factory.mktemp("seeds") / "both"
    given = ["train", "a2c", "CartPole-v1", *GIVEN, "--steps", "256", "--seeds", "2"]
    assert main([*given, "--out", str(parent)]) == 0
    return parent


@pytest.fixture
def both(trained: Path, tmp_path: Path) -> Path:
    return shutil.copytree(trained, tmp_path / "both")


@pytest.mark.slow
def test_a_report_of_seeds_has_a_line_for_each_and_their_mean(both, capsys) -> None:
    best = [json.loads((both / s / "result.json").read_text())["eval_mean"] for s in ("s0", "s1")]
    mean, low, high = listed(sum(best) / 2, *sorted(best))
    assert main(["report", str(both)]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("A2C, CartPole-v1") and lines[0].split() == [
        "seed",
        "steps",
        "best",
        "last",
    ]
    assert lines[1].split()[0] == "0" and lines[1].split()[2] == figures(best[0])
    assert lines[1].split()[-1] == "complete"
    assert f"best checkpoints: mean over 2 seeds {mean} (lowest {low}, highest {high})" in lines
    (both / "s1" / "result.json").unlink()
    shutil.rmtree(both / "s0")
    assert main(["report", str(both)]) == 0
    shown = capsys.readouterr().out
    assert re.search("\n0 +not started", shown) and "interrupted" in shown
    assert main(["report", str(both), "--out", "a.html"]) == 2


@pytest.mark.slow
def test_a_complete_seed_stays_whatever_became_of_its_last_checkpoint(both, capfd) -> None:
    (both / "s0" / "checkpoints" / "last.zip").unlink()
    (both / "s0" / "notes.txt").write_text("mine")
    before = (both / "s0" / "result.json").read_bytes()
    assert main(["train", "--resume", str(both)]) == 0  # with nothing else
    assert main(["train", "--resume", str(both), "--steps", "256"]) == 0  # which they have
    assert main(["train", "--resume", str(both), "--steps", "512"]) == 2
    assert "add --extend" in capfd.readouterr().err
    assert main(["train", "--resume", str(both), "--steps", "512", "--extend"]) != 0
    assert "seed 0 failed" in capfd.readouterr().err
    assert (both / "s0" / "result.json").read_bytes() == before
    assert (both / "s0" / "notes.txt").is_file()
    assert config(both / "s0")["settings"]["steps"] == 256


@pytest.mark.slow
def test_a_seed_that_is_being_trained_is_left_alone(both, capsys) -> None:
    with held(both / "s1" / ".lock"):
        assert main(["train", "--resume", str(both), "--steps", "512", "--extend"]) == 2
    shown = capsys.readouterr().err
    assert "seed 1" in shown and "being trained by another process" in shown


@pytest.mark.slow
def test_what_has_not_begun_begins_with_the_settings_of_then(tmp_path) -> None:
    file, parent = tmp_path / "my settings.toml", tmp_path / "all"
    file.write_text('algorithm = "a2c"\nenv = "CartPole-v1"\nsettings = {gamma = 0.9, steps = 256}')
    words = ["train", "--config", str(file), *GIVEN, "--seeds", "2", "--stop-at", "128"]
    assert main([*words, "--out", str(parent)]) == 0
    for zipped in (parent / "s1" / "checkpoints").glob("*.zip"):  # as of one that was killed
        zipped.unlink()
    file.write_text(file.read_text().replace("0.9", "0.5"))
    assert main(["train", "--resume", str(parent), "--quiet"]) == 0
    for seed in ("s0", "s1"):
        assert config(parent / seed)["settings"]["gamma"] == 0.9
        result = json.loads((parent / seed / "result.json").read_text(encoding="utf-8"))
        assert result["env_steps"] == 256
    file.unlink()
    assert main(["train", "--resume", str(parent), "--quiet"]) == 0


@pytest.mark.slow
def test_a_command_that_is_refused_leaves_what_the_right_one_needs(both, capfd) -> None:
    shutil.rmtree(both / "s1")  # as of one that had not begun
    file = both / "seeds.json"
    said, log = json.loads(file.read_text(encoding="utf-8")), (both / "s0.log").read_bytes()
    file.write_text(json.dumps(said | {"command": ["a2c", "Nobodys-v0", *GIVEN]}))
    before = file.read_bytes()
    assert main(["train", "--resume", str(both)]) == 2  # as without the --import it needs
    assert "Nobodys-v0" in capfd.readouterr().err
    assert file.read_bytes() == before and (both / "s0.log").read_bytes() == log


def test_the_copy_of_the_settings_leaves_a_file_beside_it_alone(tmp_path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("seed = 1\n")
    command = SeedsCommand(["--config", str(file)], [0], tmp_path)
    command.save()
    (copy,) = tmp_path.glob("*-settings.toml")
    assert command.resumed().words == [f"--config={copy}"]
    command.remove()
    assert file.read_text() == "seed = 1\n" and list(tmp_path.iterdir()) == [file]


def test_the_command_that_goes_on_has_what_no_file_is_trusted_with(tmp_path) -> None:
    values = {"": None, "--quiet": None, "--steps 9": "9", "--quiet --steps=9": "9", "--steps": ""}
    for words, value in values.items():
        assert value_of("--steps", words.split()) == value
    words = ["ppo", "Mine-v0", "--import", "myenvs", "--steps", "9"]
    command = SeedsCommand(words, [0, 1], tmp_path / "my runs")
    command.save()
    assert read(command.parent) == command
    shown = f"tandem train --resume '{tmp_path / 'my runs'}' --import myenvs"
    assert command.again == shown
    assert command.resumed().words == ["ppo", "Mine-v0", "--steps", "9"]
    own = SeedsCommand(["mine:Mine", "CartPole-v1"], [0], tmp_path)
    assert own.again == f"tandem train mine:Mine --resume {tmp_path}"


def test_a_note_of_all_seeds_is_printed_once() -> None:
    runs, stream = [SimpleNamespace(seed=n, code=None, latest="") for n in (0, 1)], io.StringIO()
    show = _SeedsDisplay(runs, False, stream)
    for run in runs:
        show(run, ["Note: the same", "step 8"])
    show(runs[1], ["Note: another", "step 8"])
    lines = ["0: Note: the same", "0: step 8", "1: step 8", "1: Note: another", "1: step 8"]
    assert stream.getvalue().splitlines() == [f"seed {line}" for line in lines]
