"""The measurement of what collecting costs, as short as it can be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import collect


def test_the_table_and_the_bars() -> None:
    found = {
        "cartpole": {"blocks": [[30.0, 10.0, 24.0]] * 2, "commit": "abc"},
        "pong-8": {"blocks": [[500.0, 500.0, 101.0]], "commit": "abc"},
    }
    assert collect.within("cartpole", found["cartpole"])
    assert not collect.within("pong-8", found["pong-8"])
    page = collect.table(found)
    assert "| CartPole-v1 × 64, gymnasium.make_vec | 30 | 10 | 24.0 | 60.0% |" in page
    assert "| Pong × 8, EnvPool | 500 | 500 | 101.0 | 10.1% |" in page
    assert "Not measured: HalfCheetah-v4 × 64, EnvPool;" in page


@pytest.mark.slow
def test_a_row_is_measured(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    collect.main(["--quick", "--row", "cartpole", "--out", str(tmp_path)])
    found = json.loads((tmp_path / "collect.json").read_text(encoding="utf-8"))["cartpole"]
    assert found["envs"] == 64 and len(found["blocks"]) >= 2
    assert "CartPole-v1 × 64" in (tmp_path / "collect.md").read_text(encoding="utf-8")
