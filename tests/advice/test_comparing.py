"""The advice on comparing runs, and on reports of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tandem.comparison import compare
from tests.advice.net import case
from tests.test_comparison import TOML, make, seeds


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """Runs that can be compared, and some that cannot."""
    monkeypatch.chdir(tmp_path)
    seeds(Path("ppo"), [1.0, 2.0])
    seeds(Path("slow"), [1.0, 2.0], settings={"gamma": 0.9})
    seeds(Path("far"), [-90.0, -80.0, -70.0], env="Acrobot-v1")
    make(Path("again"), 3.0, seed=1)
    Path("scores.toml").write_text(TOML, encoding="utf-8")
    Path("half.toml").write_text(TOML.split('["Acrobot')[0], encoding="utf-8")
    return tmp_path


def compared(folders: Any = "ppo", **given: Any) -> None:
    compare(folders, samples=10, **given)


@pytest.mark.parametrize(
    "case",
    [
        case("comparison.py:compare", compared, {"which": "lats"}, "'last'", {"which": "last"}),
        case("comparison.py:compare 2", compared, {"by": "folders"}, "'folder'", {"by": "folder"}),
    ],
)
def test_advice_on_comparing(case, place) -> None:
    case.follow()
