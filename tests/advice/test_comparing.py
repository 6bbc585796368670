"""The advice on comparing runs, and on reports of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tandem.comparison import compare
from tandem.run_report import report
from tests.advice.net import case, follows
from tests.test_comparison import SCORES, TOML, make, seeds


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


BOTH = ["ppo", "far/s0", "far/s1"]


@pytest.mark.parametrize(
    "case",
    [
        case("comparison.py:compare", compared, {"which": "lats"}, "'last'", {"which": "last"}),
        case("comparison.py:compare 2", compared, {"by": "folders"}, "'folder'", {"by": "folder"}),
        case("runs/groups.py:grouped", compared, {"folders": []}, "name them", {"folders": "ppo"}),
        case("runs/groups.py:_expect_alike", compared, {"folders": ["ppo", "slow"]}),
        case(
            "runs/groups.py:_expect_alike 2",
            compared,
            {"folders": ["ppo", "again"]},
            "leave out all but one",
            {"folders": ["ppo/s0", "again"]},
        ),
        case(
            "runs/groups.py:environments_of",
            compared,
            {"folders": ["ppo", "far"], "scores": SCORES},
            "leave out those that are too many",
            {"folders": BOTH},
        ),
        case(
            "comparison.py:_spans",
            compared,
            {"folders": BOTH},
            "scores= (--scores FILE)",
            {"scores": "scores.toml"},
        ),
        case(
            "runs/atomic_files.py:writing",
            report,
            {"folder": "ppo/s0", "out": "ppo/s0/config.json/a.html"},
            "choose another",
            {"out": "reports/a.html"},
        ),
        case(
            "comparison.py:_read",
            compared,
            {"folders": BOTH, "scores": "score.toml"},
            "correct its path",
            {"scores": "scores.toml"},
        ),
    ],
)
def test_advice_on_comparing(case, place) -> None:
    case.follow()


def test_an_environment_without_scores(place) -> None:
    with follows("comparison.py:_spans 2") as advice:
        compared(BOTH, scores="half.toml")
    lines = advice.fix.partition(": ")[2].removesuffix(", each on a line.").split(", ")
    with open("half.toml", "a", encoding="utf-8") as file:
        file.write("\n".join(lines))
    compared(BOTH, scores="half.toml")


def test_a_run_that_is_not_complete(runs) -> None:
    from tandem.cli import main

    with follows("runs/groups.py:_score") as advice:
        compare(runs / "plain", samples=10)
    assert main([*advice.fix.partition("tandem ")[2].split(), "--quiet"]) == 0
    compare(runs / "plain", samples=10)
