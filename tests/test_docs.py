"""The pages on algorithms say what the code says."""

from __future__ import annotations

import importlib.util
import re

import pytest

from tandem import algorithms
from tests.helpers import ROOT

SPEC = importlib.util.spec_from_file_location("docs_settings", ROOT / "docs" / "settings.py")
settings = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(settings)


@pytest.mark.parametrize("algorithm", algorithms.NAMES)
def test_the_table_of_settings_is_up_to_date(algorithm) -> None:
    page = (settings.PAGES / f"{algorithm}.md").read_text(encoding="utf-8")
    assert page == settings.renewed(page, algorithm), "run: python docs/settings.py"


@pytest.mark.parametrize("algorithm", algorithms.NAMES)
def test_every_function_beside_an_equation_exists(algorithm) -> None:
    page = (settings.PAGES / f"{algorithm}.md").read_text(encoding="utf-8")
    cells = re.findall(
        r"\| `([\w.]+)`", page[page.index("## Equations") : page.index("## What differs")]
    )
    assert len(cells) >= 4
    kind = algorithms.get(algorithm)
    for name in cells:
        first, _, rest = name.partition(".")
        if first == kind.__name__:
            assert hasattr(kind, rest), name
            continue
        module, found = _module(name)
        for part in found:
            module = getattr(module, part)


def _module(name: str):
    """The longest part of a dotted name that is a module of tandem, and the attributes after it."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        dotted = "tandem." + ".".join(parts[:end])
        try:
            return importlib.import_module(dotted), parts[end:]
        except ModuleNotFoundError:
            continue
    raise AssertionError(f"{name} is nothing in tandem")
