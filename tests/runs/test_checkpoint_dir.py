"""Checkpoints as folders, which earlier versions wrote: they are read, and removed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tandem.errors import CheckpointError
from tandem.runs import checkpoint, checkpoint_dir
from tests.helpers import ROOT

WRITTEN = ROOT / "tests" / "data" / "checkpoints" / "folder"  # by the commit before its removal
NET = {"a/w": np.arange(6.0).reshape(2, 3), "b": np.array(7, np.int64)}


def files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_all_arrays_are_read() -> None:
    found = checkpoint.read(WRITTEN)
    net = found.group("net")
    assert found.data["n"] == 1 and list(net) == ["a/w", "b"] and found.group("none") == {}
    for name, x in NET.items():
        np.testing.assert_array_equal(net[name], x)
        assert net[name].dtype == x.dtype and net[name].shape == x.shape
    assert np.asarray(found.group("learner")["ring"]).tolist() == list(range(12))


@pytest.mark.parametrize("damage", ["cut", "altered", "missing", "index"])
def test_damage_is_named(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "model"
    shutil.copytree(WRITTEN, path)
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


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        checkpoint.read(tmp_path / "other")


def test_only_what_it_wrote_is_removed(tmp_path: Path) -> None:
    for name in ("alone", "shared"):
        shutil.copytree(WRITTEN, tmp_path / name)
    (tmp_path / "shared" / "notes.txt").write_text("mine")
    checkpoint_dir.remove(tmp_path / "alone")
    with pytest.raises(OSError, match="not empty"):
        checkpoint_dir.remove(tmp_path / "shared")
    assert files(tmp_path) == ["shared/notes.txt"]


def test_an_index_cannot_lead_elsewhere(tmp_path: Path) -> None:
    path = Path(shutil.copytree(WRITTEN, tmp_path / "model"))
    index: dict[str, Any] = checkpoint.read(path).data
    found = checkpoint.Checkpoint(path, index | {"part": "../elsewhere"})
    with pytest.raises(CheckpointError, match="cannot be read"):
        found.group("net")
