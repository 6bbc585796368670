"""The comparison of what adapts, as short as it can be: runs that were made are not made again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import adaptive


def run(name: str, seed: int, steps: int, reached: bool) -> adaptive.Data:
    curve = [[10.0, steps - 1, 2, 0.5, 64, 100], [20.0, steps, 4, 1.5, 32, 90]]
    return {"name": name, "seed": seed, "reached": reached, "curve": curve, "commit": "abc"}


def test_the_table() -> None:
    name = "DQN, adabatch"
    page = adaptive.table([run(name, 0, 1000, True), run(name, 1, 3000, False)])
    assert "| DQN, adabatch | 1 of 2 | 2,000 | 1,000, 3,000 | 4 | 1.5 | 32, 32 | 90, 90 |" in page
    assert "PPO_pr, all is kept" not in page


@pytest.mark.slow
def test_runs_are_made_once(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    arguments = ["--episodes", "12", "--seeds", "1", "--out", str(tmp_path)]
    only = ["--variant", "DQN, adabatch"]
    assert adaptive.main([*arguments, *only]) == 0
    (first,) = json.loads((tmp_path / "adaptive.json").read_text(encoding="utf-8"))
    assert first["episodes"] == 12 and len(first["curve"]) == 12 and first["curve"][-1][2] > 0
    assert adaptive.main([*arguments, *only, "--variant", "PPO_pr, adjust_window_size"]) == 0
    runs = json.loads((tmp_path / "adaptive.json").read_text(encoding="utf-8"))
    assert runs[0] == first and runs[1]["name"].startswith("PPO_pr")
    assert (tmp_path / "curves" / "adaptive.png").stat().st_size > 1_000
    assert "DQN, adabatch" in (tmp_path / "adaptive.md").read_text(encoding="utf-8")
