"""Memory that is freed and fetched again: kept by the process once it is told to."""

from __future__ import annotations

import sys

import pytest

from tests.helpers import run_python

SCRIPT = """
import json, resource
import numpy as np
from tandem.backends.malloc import keep_freed

def faults():
    began = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        first, second = np.ones(2**20 * 20, np.uint8), np.ones(2**20 * 12, np.uint8)
        del first, second
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - began

done = keep_freed()
faults()
print(json.dumps([done, faults()]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it is glibc's memory")
@pytest.mark.parametrize("said", [False, True])
def test_freed_blocks_are_kept_unless_the_user_has_said_something(said: bool) -> None:
    ((done, faults),) = run_python(SCRIPT, env={"MALLOC_MMAP_THRESHOLD_": "100000"} if said else {})
    assert done is not said
    assert (faults > 1_000) if said else (faults < 100)
