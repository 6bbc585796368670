"""Checkpoints as folders: whole or not at all, and nothing else's files are touched."""

from __future__ import annotations

import errno
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tandem.errors import CheckpointError
from tandem.runs import checkpoint, checkpoint_dir

GROUPS = {"net": {"a/w": np.arange(6.0).reshape(2, 3), "b": np.array(7, np.int64)}, "none": {}}


def files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_a_file_for_each_array_and_all_of_it_comes_back(tmp_path: Path) -> None:
    checkpoint.write(tmp_path / "model", {"n": 1}, GROUPS, folder=True)
    assert files(tmp_path / "model") == [
        "0/net-0.safetensors",
        "0/net-1.safetensors",
        "checkpoint.json",
    ]
    found = checkpoint.read(tmp_path / "model")
    net = found.group("net")
    assert found.data["n"] == 1 and list(net) == ["a/w", "b"] and found.group("none") == {}
    for name, x in GROUPS["net"].items():
        np.testing.assert_array_equal(net[name], x)
        assert net[name].dtype == x.dtype and net[name].shape == x.shape


def test_a_newer_state_takes_the_place_of_the_older(tmp_path: Path) -> None:
    for n in range(3):
        checkpoint.write(tmp_path / "model", {"n": n}, {"net": {"x": np.full(4, n)}}, folder=True)
    assert files(tmp_path / "model") == ["2/net-0.safetensors", "checkpoint.json"]
    assert checkpoint.read(tmp_path / "model").group("net")["x"].tolist() == [2] * 4


@pytest.mark.parametrize("call", range(7))  # two arrays, the folder, the index, and what follows it
def test_a_full_disk_at_any_moment_leaves_the_state_before_or_the_new_one(
    call: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, flush, calls = tmp_path / "model", os.fsync, iter(range(100))
    checkpoint.write(path, {"n": 0}, {"net": {"x": np.zeros(3), "y": np.zeros(3)}}, folder=True)

    def fails(handle: int) -> None:
        if next(calls) == call:
            raise OSError(errno.ENOSPC, "No space left on device")
        flush(handle)

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(CheckpointError, match="No space left") if call < 5 else nullcontext():
        checkpoint.write(path, {"n": 1}, {"net": {"x": np.ones(3), "y": np.ones(3)}}, folder=True)
    monkeypatch.undo()
    found = checkpoint.read(path)
    assert (
        found.group("net")["x"].tolist()
        == found.group("net")["y"].tolist()
        == [float(found.data["n"])] * 3
    )
    assert found.data["n"] == 0 or call >= 4
    checkpoint.write(path, {"n": 2}, {"net": {"x": np.full(3, 2.0)}}, folder=True)
    assert len(files(path)) == 2 and checkpoint.read(path).data["n"] == 2


@pytest.mark.parametrize("damage", ["cut", "altered", "missing", "index"])
def test_damage_is_named(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "model"
    checkpoint.write(path, {}, GROUPS, folder=True)
    one = path / "0" / "net-0.safetensors"
    raw = one.read_bytes()
    if damage == "cut":
        one.write_bytes(raw[:-3])
    elif damage == "altered":
        one.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    elif damage == "missing":
        one.unlink()
    else:
        (path / "checkpoint.json").write_text('{"format": 1, ')
    with pytest.raises(CheckpointError, match="cannot be read"):
        checkpoint.read(path).group("net")


def test_a_file_in_its_place_and_a_folder_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CheckpointError, match="could not write"):
        checkpoint.write(tmp_path / "file", {}, GROUPS, folder=True)
    (tmp_path / "other").mkdir()
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        checkpoint.read(tmp_path / "other")


def test_only_what_it_wrote_is_removed(tmp_path: Path) -> None:
    for name in ("alone", "shared"):
        checkpoint.write(tmp_path / name, {}, GROUPS, folder=True)
    (tmp_path / "shared" / "notes.txt").write_text("mine")
    checkpoint_dir.remove(tmp_path / "alone")
    with pytest.raises(OSError, match="not empty"):
        checkpoint_dir.remove(tmp_path / "shared")
    assert files(tmp_path) == ["shared/notes.txt"]


def test_an_index_cannot_lead_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "model"
    checkpoint.write(path, {}, GROUPS, folder=True)
    index: dict[str, Any] = checkpoint.read(path).data
    found = checkpoint.Checkpoint(path, index | {"part": "../elsewhere"})
    with pytest.raises(CheckpointError, match="cannot be read"):
        found.group("net")
