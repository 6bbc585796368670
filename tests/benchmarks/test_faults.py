"""Faults are found again by their text, and tests by what they import."""

from __future__ import annotations

from pathlib import Path

from benchmarks import faults, mutations

TEXT = "\nclass A:\n    def f(self, x):\n        y = x + 1\n        return y if x < 2 else 0\n"


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


def test_tests_of_a_module_come_in_order(tmp_path):
    for file in ("ops", "replay/__init__", "replay/buffer", "trainer"):
        place(tmp_path, f"src/tandem/{file}.py", "")
    place(tmp_path, "src/tandem/trainer.py", "from tandem.replay import buffer\n")
    place(tmp_path, "tests/test_far.py", "from tandem import trainer\n")
    place(tmp_path, "tests/test_other.py", "from tandem import ops\n")
    place(tmp_path, "tests/test_near.py", "CODE = 'from tandem.replay.buffer import Ring'\n")
    place(tmp_path, "tests/replay/test_buffer.py", "")
    stages = faults.stages("src/tandem/replay/buffer.py", tmp_path)
    quick = [files for files, marks in stages if marks == faults.QUICK]
    names = ["tests/replay/test_buffer.py"], ["tests/test_near.py"], ["tests/test_far.py"]
    assert quick == list(names)
