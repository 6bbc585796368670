"""Returns are shown with digits that say something, on any scale, by one function."""

from __future__ import annotations

import ast
import re

import pytest

from tandem.learning.figures import figures, listed, mean_and_std
from tests.helpers import ROOT


@pytest.mark.parametrize(
    "value, text",
    [
        (0.742, "0.742"),
        (-0.31, "-0.31"),
        (0.74, "0.74"),
        (1.0, "1.0"),
        (0.0, "0.0"),
        (-0.0, "0.0"),
        (0.05049, "0.0505"),
        (2.346, "2.35"),
        (21.44, "21.4"),
        (500.0, "500.0"),
        (-146.93, "-146.9"),
        (8513.62, "8513.6"),
        (2.5e-6, "2.5e-06"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
    ],
)
def test_three_digits_and_one_decimal_at_least(value, text) -> None:
    assert figures(value) == text


@pytest.mark.parametrize(
    "mean, std, text",
    [
        (0.742, 0.4376, "0.742 ± 0.438"),
        (0.742, 0.44, "0.742 ± 0.440"),
        (500.0, 1e-14, "500.0 ± 0.0"),
        (0.0, 0.0, "0.0 ± 0.0"),
        (-0.04, 31.0, "0.0 ± 31.0"),
        (9.3, 0.458, "9.30 ± 0.46"),
        (1.0, float("nan"), "1.0 ± nan"),
    ],
)
def test_what_stands_together_has_as_many_decimals(mean, std, text) -> None:
    assert mean_and_std(mean, std) == text


def test_lists_and_thousands() -> None:
    assert listed(-1.0, 0.25, 1.0) == ["-1.00", "0.25", "1.00"]
    assert figures(8513.62, grouped=True) == "8,513.6"
    assert mean_and_std(8513.62, 0.5, "+/-") == "8513.6 +/- 0.5"


def test_nobody_shows_a_return_otherwise() -> None:
    """No field of an f-string has a return in it and a number of digits beside it."""
    returns = re.compile(
        r"\b(eval_mean|eval_std|return_mean|returns|scores?|mean)\b(?!\()|\.std\b(?!\()"
    )
    kept = {  # names of files; and numbers of another kind than returns of a run
        "runs/autosave.py",
        "testing/contracts.py",
        # the door of agents prints what NumPy would, to be compared with `criterion`
        "agents/train_call.py",
        "tuning/finders.py",
        "tuning/lr_finder.py",
    }
    found = []
    house = ROOT / "src" / "tandem"
    for path in sorted(house.rglob("*.py")):
        place = path.relative_to(house).as_posix()
        if place in kept or place.startswith("examples/"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
                digits = re.search(r"\.?\d*[fg]'?$", ast.unparse(node.format_spec))
                if digits and returns.search(ast.unparse(node.value)):
                    found.append(f"{place}:{node.lineno}: {ast.unparse(node.value)}")
    assert not found
