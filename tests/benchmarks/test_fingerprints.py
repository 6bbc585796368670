from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from benchmarks import fingerprints


@pytest.mark.parametrize("name", ["dqn-torch", "agent-policy-torch"])
def test_a_run_has_one_fingerprint(name: str) -> None:
    """Again, and stopped in the middle and resumed."""
    pytest.importorskip("torch")
    first, second = fingerprints.made(name), fingerprints.made(name)
    assert first == second
    assert first["final"] == first["resumed"] and first["resumed_differs"] == ""


def written(folder: Path, weights: bytes) -> Path:
    """A run's folder, as far as its fingerprint goes."""
    header = {n: {"dtype": "U8", "shape": [2], "data_offsets": at} for n, at in OFFSETS.items()}
    text = json.dumps(header | {"__metadata__": {"format": "np"}}).encode()
    (folder / "checkpoints").mkdir(parents=True)
    with zipfile.ZipFile(folder / "checkpoints" / "last.zip", "w") as archive:
        archive.writestr("engine.safetensors", len(text).to_bytes(8, "little") + text + weights)
    (folder / "progress.csv").write_text(f"seconds,loss\n{len(folder.name)},0.5\n")
    return folder


OFFSETS = {"bias": [0, 2], "kernel": [2, 4]}


def test_a_changed_weight_is_named(tmp_path) -> None:
    first, same, other = (
        fingerprints.run_parts(written(tmp_path / name, weights))
        for name, weights in (("a", b"\0\1\2\3"), ("bb", b"\0\1\2\3"), ("ccc", b"\0\1\2\4"))
    )
    assert list(first) == ["column/loss", "engine/bias", "engine/kernel"]
    assert first == same  # seconds do not count
    assert fingerprints.difference(first, other) == "engine/kernel; 1 of 3 differ"
    assert fingerprints.whole(first) == fingerprints.whole(same) != fingerprints.whole(other)
    lines = [{"name": "ppo-jax", "parts": parts, "resumed": ""} for parts in (first, other)]
    told = fingerprints.compared([{}, lines[0]], [{}, lines[1]])
    assert told == ["ppo-jax: engine/kernel; 1 of 3 differ"]
    assert fingerprints.compared([{}, lines[0]], [{}, lines[0]]) == []


def test_a_run_that_lacks_a_part_or_failed_differs() -> None:
    parts = {"column/loss": "0", "engine/bias": "1"}
    assert fingerprints.difference(parts, {"engine/bias": "1"}).startswith("column/loss (is gone)")
    assert fingerprints.difference({"column/loss": "0"}, parts).startswith("engine/bias (is new)")
    before = {"name": "ppo-jax", "parts": parts, "resumed": ""}
    after = {"name": "ppo-jax", "failed": "Traceback …\nValueError: 3"}
    assert fingerprints.compared([{}, before], [{}, after]) == ["ppo-jax: failed: ValueError: 3"]
