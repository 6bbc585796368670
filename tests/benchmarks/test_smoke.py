"""The real thing, as short as it can be."""

from __future__ import annotations

import csv
import json

import pytest

from benchmarks import bench, learn


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
    pytest.importorskip("jax")
    arguments = ["--smoke", "--row", "dqn-cartpole-jax", "--jobs", "2", "--out", str(tmp_path)]
    assert learn.main(arguments) == 0
    with (tmp_path / "learn.csv").open(newline="") as file:
        assert [line["seed"] for line in csv.DictReader(file)] == ["0", "1", "2"]
    results = list(tmp_path.glob("runs/*/seed-*/result.json"))
    written = {path: path.stat().st_mtime_ns for path in results}
    assert len(results) == 3
    assert (tmp_path / "curves" / "dqn-cartpole-jax.png").stat().st_size > 1_000
    assert learn.main(arguments) == 0
    assert {path: path.stat().st_mtime_ns for path in results} == written
