"""Advice that a resumed run gives: `resume=` and `--resume` take it."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

import tandem
from tandem import algorithms
from tandem.cli import main
from tandem.learning.config import RESUMABLE, Options
from tandem.runs import verification
from tandem.runs.folder import read_run
from tests.advice.net import follows, sites
from tests.advice.worlds import without
from tests.test_trainer import SMALL, TINY_DQN, small

FLAG = re.compile(r"--[a-z-]+(?: ''| [\w.]+)?")


def altered(folder: Path, **config: Any) -> None:
    """Makes the run in a folder one of another machine: its configuration, and its device."""
    file = folder / "checkpoints" / "last.zip"
    with zipfile.ZipFile(file) as read:
        parts = {name: read.read(name) for name in read.namelist()}
    data = json.loads(parts["checkpoint.json"])
    data["config"] |= config
    data["device"] = config.get("device", data["device"])
    parts["checkpoint.json"] = json.dumps(data).encode()
    with zipfile.ZipFile(file, "w") as written:
        for name, part in parts.items():
            written.writestr(name, part)
    written_config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(written_config | config), encoding="utf-8")


def follow(provoke: Any, key: str, folder: Path) -> None:
    """The error at a site is raised on resuming; what its fix says is taken by a program, and as
    flags by a command on a copy of the run."""
    copy = shutil.copytree(folder, folder.with_name(f"{folder.name}-copy"))
    with provoke(folder):
        with follows(key) as advice:
            tandem.train(resume=folder)
        given = advice.assigned()[-1]
        assert set(given) <= RESUMABLE
        tandem.train(resume=folder, **given)
    with provoke(copy):
        flags = shlex.split(FLAG.search(advice.fix)[0])
        assert main(["train", "--resume", str(copy), *flags, "--quiet"]) == 0
    for each in (folder, copy):
        run = read_run(each)
        found = run.config["options"] | run.config["settings"] | {"device": run.config["device"]}
        assert all(found[n] == (list(x) if x == () else x) for n, x in given.items())
        assert run.column("env_steps")[-1] == run.config["settings"]["steps"]


@contextmanager
def on_machine_without_gpu(folder: Path) -> Iterator[None]:
    altered(folder, device="cuda")
    yield


@contextmanager
def without_tensorboard(folder: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, without(patch, "tensorboard"):
        yield


@pytest.mark.parametrize(
    "provoke, key, algorithm",
    [
        (on_machine_without_gpu, "backends/__init__.py:no_gpu", "ppo"),
        (without_tensorboard, "runs/writers.py:TensorBoardWriter.__init__", "ppo"),
    ],
)
def test_advice_on_another_machine_is_taken_on_resuming(
    provoke, key, algorithm, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    given = SMALL if algorithm == "ppo" else TINY_DQN
    given = {**given, "steps": 64, "tensorboard": "tensorboard" in key.lower()}
    folder = tmp_path / "run"
    tandem.train(algorithm, "CartPole-v1", framework="torch", stop_at=32, out=folder, **given)
    follow(provoke, key, folder)


@pytest.mark.slow
def test_several_seeds_continue_elsewhere(tmp_path: Path) -> None:
    flags = "--framework torch --envs 2 --rollout 16 --batch-size 16 --epochs 1 --hidden 8"
    words = f"train ppo CartPole-v1 --steps 64 --seeds 2 {flags} --no-plots --no-tensorboard"
    here = [*words.split(), "--out", str(tmp_path / "here"), "--stop-at", "32"]
    assert main(here) == 0
    there = ["--out", str(tmp_path / "there"), "--device", "cpu", "--keep", "1"]
    assert main(["train", "--resume", str(tmp_path / "here"), *there]) == 0
    for seed in ("s0", "s1"):
        assert read_run(tmp_path / "here" / seed).column("env_steps")[-1] == 32
        run = read_run(tmp_path / "there" / seed)
        assert run.column("env_steps")[-1] == 64 and run.config["options"]["keep"] == 1


@pytest.mark.parametrize("change", [{"device": "cpu"}, {"threads": 2}])
def test_a_run_that_is_resumed_on_other_hardware_is_not_bit_exact(change, tmp_path) -> None:
    folder = tmp_path / "run"
    small(steps=96, stop_at=32, out=folder)
    if "device" in change:  # of a run with device="auto" on a machine with a GPU, too
        altered(folder, device="cuda")
    before = {"device": "cuda", "threads": 1}
    result = tandem.train(resume=folder, stop_at=64, **change)
    ((name, now),) = change.items()
    assert read_run(folder).config["inexact"] == [f"{name}={now!r} after {name}={before[name]!r}"]
    assert any("no longer bit-exact" in note for note in result.notes)
    tandem.train(resume=folder)  # as it is now: nothing is added
    assert len(read_run(folder).config["inexact"]) == 1
    with follows("runs/verification.py:verify 5") as advice:
        verification.verify(folder)
    assert "verify one that was not resumed on others" in advice.fix


def test_a_run_of_a_gpu_is_verified_where_there_is_one(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    folder = tmp_path / "run"
    small(steps=32, out=folder)
    altered(folder, device="cuda")
    with follows("runs/verification.py:verify 7") as advice:
        verification.verify(folder)
    assert "on the machine that trained it" in advice.fix


ROOMS = ("runs", "learning", "parallel", "backends", "replay", "collect", "compiled", "envs")
ERROR = re.compile(r"\b\w*(?<!Setting)(?<!Space)(?<!Network)Error\(")
# Where a fix names a setting that `resume=` refuses: why no resumed run is given that advice.
NEW_RUNS_ONLY = {
    "backends/__init__.py:choose 4": "its other half: start a process with KERAS_BACKEND",
    "compiled/choice.py:settled": "chooses for a new run",
    "envs/stepped.py:not_resumable": "the seed of an environment's reset",
    "learning/asynchronous.py:ActorLearners.load_state": "a run has its own learners",
    "learning/launch.py:check_launched": "its other half: without the launcher",
    "learning/launch.py:find": "chooses for a new run",
    "parallel/pool.py:Pool.load_state": "a run has its own workers",
    "replay/allocation.py:require": "its other half: out=",
    "runs/verification.py:verify 3": "of verifying",
}


def test_all_advice_of_a_resumed_run_names_what_it_takes() -> None:
    """Settings, spaces and networks that do not fit are refused before a run begins. Those of a
    resumed run do, and what it is given besides is one of `RESUMABLE`."""
    kinds = [Options, *(algorithms.get(name).Settings for name in algorithms.NAMES)]
    known = {f.name for kind in kinds for f in fields(kind)} | {"framework", "seed", "env_kwargs"}
    refused = set()
    for key, site in sites().items():
        lines = site.path.read_text(encoding="utf-8").splitlines()[site.first - 1 : site.last]
        text = "\n".join(lines)
        if key.split("/")[0] not in ROOMS or not ERROR.search(text):
            continue
        named = re.findall(r"\b([a-z_]+)=(?!=)", text) + re.findall(r"--([a-z-]+)", text)
        settings = known & {name.replace("-", "_") for name in named}
        if settings - RESUMABLE - {"steps"}:
            refused.add(key)
    assert refused == NEW_RUNS_ONLY.keys()
