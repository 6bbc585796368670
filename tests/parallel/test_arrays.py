"""Shared arrays."""

from __future__ import annotations

import numpy as np

from tandem.parallel.process import Process
from tandem.parallel.shared_memory import SharedArrays, shape_dtype
from tests.helpers import run_python

FORMS = {
    "a/x": ((3, 5), "<f4"),
    "a/y": ((), "<i8"),
    "empty": ((0, 2), "<f4"),
    "flags": ((7,), "|b1"),
}


class Writer:
    """In another process."""

    def __init__(self, handle: object) -> None:
        self.arrays = SharedArrays.attach(handle)  # type: ignore[arg-type]

    def write(self, value: float) -> list[float]:
        before: list[float] = self.arrays["a/x"].ravel().tolist()
        self.arrays["a/x"][:] = value
        self.arrays["flags"][2] = True
        return before


def test_they_are_zeros_of_their_shapes_and_apart() -> None:
    arrays = SharedArrays.create(FORMS)
    assert {n: shape_dtype(arrays[n]) for n in FORMS} == FORMS
    assert not any(arrays[n].any() for n in FORMS) and set(arrays.under("a")) == {"x", "y"}
    arrays["a/x"][:] = np.nan
    assert arrays["a/y"] == 0 and not arrays["flags"].any()
    assert all(arrays[n].__array_interface__["data"][0] % 64 == 0 for n in ("a/x", "a/y", "flags"))


def test_two_processes_see_the_same() -> None:
    arrays = SharedArrays.create(FORMS)
    arrays["a/x"][:] = 2.0
    process = Process(arrays.handle.inherits, Writer, arrays.handle)
    assert process.answer(60) is None
    process.ask("write", 7.0)
    assert process.answer(60) == [2.0] * 15
    assert (arrays["a/x"] == 7.0).all() and arrays["flags"].tolist() == [
        False,
        False,
        True,
        False,
        False,
        False,
        False,
    ]
    process.end()


NOTHING_LEFT = """
import gc, json, os
from tandem.parallel.shared_memory import SharedArrays

before = len(os.listdir("/dev/fd"))
arrays = SharedArrays.create({"x": ((3, 5), "<f4")})
file, view = os.stat(arrays.handle.fd), arrays["x"]
del arrays
gc.collect()
view[:] = 1.0  # the memory goes with its last array
total = float(view.sum())
del view
gc.collect()
print(json.dumps([file.st_nlink, total, len(os.listdir("/dev/fd")) - before]))
"""


def test_nothing_is_left_in_the_system() -> None:
    assert run_python(NOTHING_LEFT) == [[0, 15.0, 0]]  # no folder has a link to it
