"""What several tests of processes share."""

import pytest

from tandem.platforms import POSIX, VARIABLE


@pytest.fixture(params=["", POSIX])
def system(request, monkeypatch) -> str:
    """What runs on Linux runs on any POSIX system."""
    monkeypatch.setenv(VARIABLE, request.param)
    return request.param
