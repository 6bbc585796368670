"""The sites of errors that tests name exist."""

from __future__ import annotations

from tandem.errors import TandemError
from tests.advice.net import named, sites


def test_the_tests_name_sites_that_are_there() -> None:
    strangers = sorted(named() - set(sites()))
    assert not strangers


def test_all_errors_are_of_one_module() -> None:
    """Else `sites` would not find those of another."""
    import tandem.trainer  # noqa: F401

    below = [TandemError]
    for kind in below:
        below.extend(kind.__subclasses__())
    assert {kind.__module__ for kind in below} == {"tandem.errors"}
