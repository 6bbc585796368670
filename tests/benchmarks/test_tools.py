"""Mutations that are found again, fingerprints of runs that are compared, and sizes of sources."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from benchmarks import fingerprints, mutations
from benchmarks.size import Size, size_of, table

TEXT = "\nclass A:\n    def f(self, x):\n        y = x + 1\n        return y if x < 2 else 0\n"


@pytest.mark.parametrize("name", ["dqn-torch", "agent-policy-torch"])
def test_a_run_has_one_fingerprint(name: str) -> None:
    """Again, and stopped in the middle and resumed."""
    pytest.importorskip("torch")
    first, second = fingerprints.made(name), fingerprints.made(name)
    assert first == second
    assert first["final"] == first["resumed"] and first["resumed_differs"] == ""


def place(root: Path, file: str, text: str) -> None:
    (root / file).parent.mkdir(parents=True, exist_ok=True)
    (root / file).write_text(text, encoding="utf-8")


def test_a_mutation_is_found_again(tmp_path):
    old, new = "src/tandem/old.py", "src/tandem/room/new.py"
    mutated = {m.kind: m for m in mutations.mutations(old, TEXT)}
    assert "y = x - 1" in mutated["operator"].new
    place(tmp_path, old, TEXT)
    less = mutated["comparison"]
    assert mutations.with_fault(less, tmp_path) == (old, TEXT.replace("<", ">="))
    (tmp_path / old).unlink()
    place(tmp_path, new, f"B = 1\n{TEXT}")  # it has moved
    assert mutations.with_fault(less, tmp_path) == (new, f"B = 1\n{TEXT.replace('<', '>=')}")
    place(tmp_path, new, TEXT * 2)
    assert mutations.with_fault(less, tmp_path) is None


def written(folder: Path, weights: bytes) -> Path:
    """A run's folder, as far as its fingerprint goes."""
    offsets = {"bias": [0, 2], "kernel": [2, 4]}
    header = {n: {"dtype": "U8", "shape": [2], "data_offsets": at} for n, at in offsets.items()}
    text = json.dumps(header | {"__metadata__": {"format": "np"}}).encode()
    (folder / "checkpoints").mkdir(parents=True)
    with zipfile.ZipFile(folder / "checkpoints" / "last.zip", "w") as archive:
        archive.writestr("engine.safetensors", len(text).to_bytes(8, "little") + text + weights)
    (folder / "progress.csv").write_text(f"seconds,loss\n{len(folder.name)},0.5\n")
    return folder


def test_what_differs_is_named(tmp_path) -> None:
    first, same, other = (
        fingerprints.run_parts(written(tmp_path / name, weights))
        for name, weights in (("a", b"\0\1\2\3"), ("bb", b"\0\1\2\3"), ("ccc", b"\0\1\2\4"))
    )
    assert list(first) == ["column/loss", "engine/bias", "engine/kernel"]
    assert first == same  # seconds do not count
    assert fingerprints.whole(first) == fingerprints.whole(same) != fingerprints.whole(other)
    before = {"name": "ppo-jax", "parts": first, "resumed": ""}
    less = {name: parts for name, parts in first.items() if name != "column/loss"}
    for after, told in (
        (before, []),
        (before | {"parts": other}, ["ppo-jax: engine/kernel; 1 of 3 differ"]),
        (
            {"name": "ppo-jax", "failed": "Traceback …\nValueError: 3"},
            ["ppo-jax: failed: ValueError: 3"],
        ),
    ):
        assert fingerprints.compared([{}, before], [{}, after]) == told
    assert fingerprints.difference(first, less).startswith("column/loss (is gone)")
    assert fingerprints.difference(less, first).startswith("column/loss (is new)")


SOURCE = '''"""What the file is for,
in two lines."""
import os  # a comment

def f(x: int) -> str:
    """A docstring."""
    return (
        f"{x} of {os.name!r}"
    )
'''


def test_comments_docstrings_and_layout_are_no_tokens() -> None:
    # import os | def f ( x : int ) -> str : | return ( f"…" )
    assert size_of(SOURCE) == Size(files=1, physical=9, logical=5, tokens=2 + 10 + 4)
    assert size_of("") == Size(files=1)
    assert size_of("x = 'no docstring'; y = 2\n") == Size(1, 1, 1, 7)


def test_each_package_is_counted(tmp_path) -> None:
    for path in ("src/tandem/math/a", "src/tandem/ops", "src/tandem/examples/b", "tests/c", "d"):
        place(tmp_path, f"{path}.py", SOURCE)
    text = table(tmp_path)
    for line in ("**src, without examples** | 2 | 10 | 32 | 3.20", "**src** | 3 | 15 | 48 | 3.20"):
        assert f"| {line} |" in text
    assert "tests: 9 physical lines, 1 files" in text
