"""The real thing, as short as it can be."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from benchmarks import adaptive, bench, learn


@pytest.mark.slow
@pytest.mark.parametrize("row", ["dqn", pytest.param("sac", marks=pytest.mark.thorough)])
def test_us_beside_a_peer(tmp_path, row: str) -> None:
    """Both make the updates that the settings ask for: the bench refuses to compare otherwise."""
    pytest.importorskip("stable_baselines3")
    words = ["--quick", "--row", row, "--contestants", "jax,sb3", "--out", str(tmp_path)]
    assert bench.main(words) == 0
    found = json.loads((tmp_path / "speed.json").read_text(encoding="utf-8"))["rows"][row]
    jax, sb3 = (found["contestants"][name]["pairs"][0]["long"] for name in ("jax", "sb3"))
    assert jax["steps"] == sb3["steps"] and jax["updates"] == sb3["updates"] > 0
    assert found["limit"]["environment"] > 0 and found["limit"]["products"] > 0
    assert "| tandem, jax |" in (tmp_path / "speed.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_row_is_learned_once(tmp_path) -> None:
    pytest.importorskip("torch")
    arguments = ["--smoke", "--row", "dqn-cartpole-torch", "--jobs", "2", "--out", str(tmp_path)]
    assert learn.main(arguments) == 0
    with (tmp_path / "learn.csv").open(newline="") as file:
        assert [line["seed"] for line in csv.DictReader(file)] == ["0", "1", "2"]
    results = list(tmp_path.glob("runs/*/seed-*/result.json"))
    written = {path: path.stat().st_mtime_ns for path in results}
    assert len(results) == 3
    assert (tmp_path / "curves" / "dqn-cartpole-torch.png").stat().st_size > 1_000
    assert learn.main(arguments) == 0
    assert {path: path.stat().st_mtime_ns for path in results} == written


def run(name: str, seed: int, steps: int, reached: bool) -> adaptive.Data:
    curve = [[10.0, steps - 1, 2, 0.5, 64, 100], [20.0, steps, 4, 1.5, 32, 90]]
    return {"name": name, "seed": seed, "reached": reached, "curve": curve, "commit": "abc"}


def test_the_table_of_what_adapts() -> None:
    name = "DQN, adabatch"
    page = adaptive.table([run(name, 0, 1000, True), run(name, 1, 3000, False)])
    assert "| DQN, adabatch | 1 of 2 | 2,000 | 1,000, 3,000 | 4 | 1.5 | 32, 32 | 90, 90 |" in page
    assert "PPO_pr, all is kept" not in page


@pytest.mark.slow
def test_runs_of_what_adapts_are_made_once(tmp_path: Path) -> None:
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
