"""Nothing in the library gives advice that no test has followed."""

from __future__ import annotations

import pytest

from tandem.errors import SettingError, TandemError, at_least
from tandem.exploration import OrnsteinUhlenbeckProcess as Noise
from tests.advice.net import Case, follows, named, sites

ROOMS = sorted({key.partition(":")[0].partition("/")[0] for key in sites()})


@pytest.mark.slow
@pytest.mark.parametrize("room", ROOMS)
def test_every_advice_of_a_room_is_followed(room) -> None:
    mine = {key for key in sites() if key.startswith((f"{room}/", f"{room}:"))}
    unfollowed = sorted(mine - named())
    assert not unfollowed


def test_the_tests_name_sites_that_are_there() -> None:
    strangers = sorted(named() - set(sites()))
    assert not strangers


def test_all_errors_are_of_one_module() -> None:
    """Else the net would not see those of another."""
    import tandem.trainer  # noqa: F401

    below = [TandemError]
    for kind in below:
        below.extend(kind.__subclasses__())
    assert {kind.__module__ for kind in below} == {"tandem.errors"}


def test_an_error_from_elsewhere_is_not_taken_for_that_of_the_site() -> None:
    with pytest.raises(AssertionError, match="came from"), follows("plots.py:curve"):
        at_least("n", 0, 1)
    with pytest.raises(AssertionError, match="is no site"), follows("plots.py:curv"):
        raise SettingError("a", "b", "c")


def test_a_case_fails_where_the_advice_does_not_work() -> None:
    key, says = "exploration/noise.py:OrnsteinUhlenbeckProcess.__init__", "theta=0.15"
    given = {"theta": -1.0, "mu": 0.0, "sigma": 0.1}
    Case(key, Noise, given).follow()
    with pytest.raises(TandemError):
        Case(key, Noise, given, says, {"theta": -2.0}).follow()
    with pytest.raises(AssertionError):
        Case(key, Noise, given, "theta=0.14").follow()
