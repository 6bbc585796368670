"""Returns are shown with digits that say something, on any scale, by one function."""

import ast
import re

from tandem.learning.figures import figures, listed, mean_and_std
from tests.helpers import ROOT


def test_three_digits_and_one_decimal_at_least() -> None:
    small = (0.742, -0.31, 0.74, 1.0, 0.0, -0.0, 0.05049, 2.346, 21.44)
    assert " ".join(map(figures, small)) == "0.742 -0.31 0.74 1.0 0.0 0.0 0.0505 2.35 21.4"
    others = (500.0, -146.93, 8513.62, 2.5e-6, float("nan"), float("-inf"))
    assert " ".join(map(figures, others)) == "500.0 -146.9 8513.6 2.5e-06 nan -inf"


def test_what_stands_together_has_as_many_decimals() -> None:
    for mean, std, text in (
        (0.742, 0.4376, "0.742 ± 0.438"),
        (0.742, 0.44, "0.742 ± 0.440"),
        (500.0, 1e-14, "500.0 ± 0.0"),
        (0.0, 0.0, "0.0 ± 0.0"),
        (-0.04, 31.0, "0.0 ± 31.0"),
        (9.3, 0.458, "9.30 ± 0.46"),
        (1.0, float("nan"), "1.0 ± nan"),
    ):
        assert mean_and_std(mean, std) == text


def test_lists_and_thousands() -> None:
    assert listed(-1.0, 0.25, 1.0) == ["-1.00", "0.25", "1.00"]
    assert figures(8513.62, grouped=True) == "8,513.6"
    assert mean_and_std(8513.62, 0.5, "+/-") == "8513.6 +/- 0.5"


def test_nobody_shows_a_return_otherwise() -> None:
    returns = r"\b(eval_mean|eval_std|return_mean|returns|scores?|mean)\b(?!\()|\.std\b(?!\()"
    # names of files; and numbers of another kind than returns of a run
    kept = {"runs/rotation.py", "testing/contracts.py"}
    # the door of agents prints what NumPy would, to be compared with `criterion`
    kept |= {"agents/train_call.py", "tuning/finders.py", "tuning/lr_finder.py"}
    found = []
    house = ROOT / "src" / "tandem"
    for path in sorted(house.rglob("*.py")):
        place = path.relative_to(house).as_posix()
        if place in kept or place.startswith("examples/"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
                digits = re.search(r"\.?\d*[fg]'?$", ast.unparse(node.format_spec))
                if digits and re.search(returns, ast.unparse(node.value)):
                    found.append(f"{place}:{node.lineno}: {ast.unparse(node.value)}")
    assert not found
