"""Memory: of freed blocks, and what TensorFlow keeps of a run."""

from __future__ import annotations

import platform
import sys

import pytest

from tests.helpers import run_python

GROWTH = """
import ctypes, gc, json, statistics, sys

class Used(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

library = ctypes.CDLL(None)
library.mallinfo2.restype = Used

import tandem, tensorflow as tf
from tandem.backends import keras_tensorflow

packed, bare = keras_tensorflow._packed, []

def also_bare(f, tree, arrays, jit):
    if bare:  # a tf.function of the same updates that nothing holds on to
        packed(f, tree, arrays, jit)(arrays)
    return packed(f, tree, arrays, jit)

keras_tensorflow._packed = also_bare

def mebibytes():
    gc.collect()
    used = library.mallinfo2()
    return (used.uordblks + used.hblkhd) / 2**20

def growth(runs):
    grown = []
    for seed in range(runs):
        before = mebibytes()
        tandem.train("dqn", "CartPole-v1", framework="tensorflow", steps=240, learning_starts=200,
                     hidden=(8,), envs=4, eval_episodes=0, final_episodes=1, eval_max_steps=5,
                     plots=False, seed=seed)
        grown.append(mebibytes() - before)
    return statistics.median(grown)  # now and then TensorFlow takes 10 MiB at once

growth(2)
alone = growth(int(sys.argv[1]))
bare.append(True)
both = growth(int(sys.argv[1]))
print(json.dumps([alone, both - alone]))
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="asks glibc what is in use")
@pytest.mark.parametrize("runs", [3, pytest.param(20, marks=pytest.mark.thorough)])
def test_runs_keep_no_more_than_bare_compiled_functions(runs: int) -> None:
    """A `tf.function` that nothing holds on to says what TensorFlow keeps of the same updates."""
    one_arena = {"MALLOC_ARENA_MAX": "1"}  # glibc tells what is in use of the first arena alone
    ((ours, bare),) = run_python(GROWTH, str(runs), engine="tensorflow", env=one_arena)
    assert bare > 1  # MiB, for each run
    assert ours < bare + 0.25, (ours, bare)


FREED = """
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
    ((done, faults),) = run_python(FREED, env={"MALLOC_MMAP_THRESHOLD_": "100000"} if said else {})
    assert done is not said
    assert (faults > 1_000) if said else (faults < 100)
