"""The real thing, as short as it can be."""

import json
from pathlib import Path

import pytest

from benchmarks import adaptive, bench, learn, learn_tables
from tests.helpers import expect_installed


@pytest.mark.slow
def test_us_beside_a_peer(tmp_path) -> None:
    """Both make the updates that the settings ask for: the bench refuses to compare otherwise."""
    expect_installed("stable_baselines3")  # which imports Keras, by TensorBoard
    words = ["--quick", "--row", "dqn", "--contestants", "jax,sb3", "--out", str(tmp_path)]
    assert bench.main(words) == 0
    found = json.loads((tmp_path / "speed.json").read_text(encoding="utf-8"))["rows"]["dqn"]
    jax, sb3 = (found["contestants"][name]["pairs"][0]["long"] for name in ("jax", "sb3"))
    assert jax["steps"] == sb3["steps"] and jax["updates"] == sb3["updates"] > 0
    assert found["limit"]["environment"] > 0 and found["limit"]["products"] > 0
    assert "| tandem, jax |" in (tmp_path / "speed.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_row_is_learned_once(tmp_path) -> None:
    pytest.importorskip("torch")
    arguments = ["--smoke", "--row", "ppo-cartpole-torch", "--jobs", "2", "--out", str(tmp_path)]
    assert learn.main(arguments) == 0
    assert [x["seed"] for x in learn_tables.read(tmp_path / "learn.csv")] == ["0", "1", "2"]
    written = {x: x.stat().st_mtime_ns for x in tmp_path.glob("runs/*/seed-*/result.json")}
    assert len(written) == 3 and learn.main(arguments) == 0
    assert {path: path.stat().st_mtime_ns for path in written} == written


@pytest.mark.slow
def test_the_table_of_what_adapts(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    arguments = ["--episodes", "12", "--seeds", "1", "--variant", "DQN, adabatch"]
    assert adaptive.main([*arguments, "--out", str(tmp_path)]) == 0
    (first,) = json.loads((tmp_path / "adaptive.json").read_text(encoding="utf-8"))
    assert first["episodes"] == 12 and len(first["curve"]) == 12 and first["curve"][-1][2] > 0

    def run(seed: int, steps: int, reached: bool) -> adaptive.Data:
        curve = [[10.0, steps - 1, 2, 0.5, 64, 100], [20.0, steps, 4, 1.5, 32, 90]]
        return first | {"seed": seed, "reached": reached, "curve": curve}

    page = adaptive.table([run(0, 1000, True), run(1, 3000, False)])
    assert "| DQN, adabatch | 1 of 2 | 2,000 | 1,000, 3,000 | 4 | 1.5 | 32, 32 | 90, 90 |" in page
