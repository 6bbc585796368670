"""Mutations, fingerprints of runs, sizes of sources; values of games of known best play."""

import json
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import fingerprints, mutations, tabular
from benchmarks.size import Size, size_of, table
from tandem.spaces import Leaf

TEXT = "\nclass A:\n    def f(self, x):\n        y = x + 1\n        return y if x < 2 else 0\n"


@pytest.mark.parametrize("name", ["dqn-torch", "agent-policy-torch"])
def test_a_run_has_one_fingerprint_again_and_resumed(name: str) -> None:
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
    runs = {"a": b"\0\1\2\3", "bb": b"\0\1\2\3", "ccc": b"\0\1\2\4"}.items()
    first, same, other = (fingerprints.run_parts(written(tmp_path / n, x)) for n, x in runs)
    assert list(first) == ["column/loss", "engine/bias", "engine/kernel"]
    assert first == same  # seconds do not count
    assert fingerprints.whole(first) == fingerprints.whole(same) != fingerprints.whole(other)
    before = {"name": "ppo-jax", "parts": first, "resumed": ""}
    less = {name: parts for name, parts in first.items() if name != "column/loss"}
    for after, told in (
        (before, []),
        (before | {"parts": other}, ["ppo-jax: engine/kernel; 1 of 3 differ"]),
        ({"name": "ppo-jax", "failed": "…\nValueError: 3"}, ["ppo-jax: failed: ValueError: 3"]),
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


def test_comments_docstrings_and_layout_are_no_tokens_and_each_package_is_counted(tmp_path) -> None:
    # import os | def f ( x : int ) -> str : | return ( f"…" )
    assert size_of(SOURCE) == Size(files=1, physical=9, logical=5, tokens=2 + 10 + 4)
    assert size_of("") == Size(files=1)
    assert size_of("x = 'no docstring'; y = 2\n") == Size(1, 1, 1, 7)
    for path in ("src/tandem/math/a", "src/tandem/ops", "src/tandem/examples/b", "tests/c", "d"):
        place(tmp_path, f"{path}.py", SOURCE)
    text = table(tmp_path)
    for line in ("**src, without examples** | 2 | 10 | 32 | 3.20", "**src** | 3 | 15 | 48 | 3.20"):
        assert f"| {line} |" in text
    assert "tests: 9 physical lines, 1 files" in text


STATES = Leaf("discrete", (), "int64", (48,))


def agent_of(policy):
    return SimpleNamespace(act=lambda s: policy[int(s)], observation=STATES)


def test_the_best_path_along_the_cliff_and_what_counts_as_reached() -> None:
    policy = np.full(48, 1)  # right
    policy[36], policy[35] = 0, 2  # up at the start, down at the end
    value, best = tabular.exact("CliffWalking-v1", agent_of(policy), 1.0)
    assert value == pytest.approx(-13, abs=1e-5) and best == pytest.approx(-13)
    assert tabular.exact("CliffWalking-v1", agent_of(np.zeros(48)), 1.0)[0] < -1e6
    discounted, of = tabular.exact("CliffWalking-v1", agent_of(policy), 0.9)
    assert discounted == pytest.approx(of) == pytest.approx(-(1 - 0.9**13) / 0.1)
    assert tabular._reached("CliffWalking-v1", {"value": -13.0, "best": -13.0})
    assert not tabular._reached("CliffWalking-v1", {"value": -14.0, "best": -13.0})
    assert tabular._reached("Taxi-v4", {"value": 7.85, "best": 8.0})
    assert not tabular._reached("Taxi-v4", {"value": 7.8, "best": 8.0})
    assert not tabular._reached("Blackjack-v1", {"value": -0.07, "best": None})
