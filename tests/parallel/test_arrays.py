"""Shared arrays."""

from __future__ import annotations

import gc
import os

import numpy as np

from tandem.workers.process import Process
from tandem.workers.shared_memory import SharedArrays, shape_dtype

FORMS: dict[str, tuple[tuple[int, ...], str]] = {"a/x": ((3, 5), "<f4"), "a/y": ((), "<i8")}
FORMS |= {"empty": ((0, 2), "<f4"), "flags": ((7,), "|b1")}


class Writer:
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


def test_two_processes_see_the_same(system: str) -> None:
    arrays = SharedArrays.create(FORMS)
    assert not any(arrays[n].any() for n in FORMS)
    arrays["a/x"][:] = 2.0
    process = Process(arrays.handle.inherits, Writer, arrays.handle)
    assert process.answer(60) is None
    process.ask("write", 7.0)
    assert process.answer(60) == [2.0] * 15
    assert (arrays["a/x"] == 7.0).all() and np.flatnonzero(arrays["flags"]).tolist() == [2]
    process.end()


def test_nothing_is_left_in_the_system(system: str) -> None:
    for _ in range(3):  # what earlier tests left
        gc.collect()
    before = len(os.listdir("/dev/fd"))
    arrays = SharedArrays.create({"x": ((3, 5), "<f4")})
    file, view = os.stat(arrays.handle.fd), arrays["x"]
    del arrays
    gc.collect()
    view[:] = 1.0  # the memory goes with its last array
    assert file.st_nlink == 0 and view.sum() == 15  # no folder has a link to it
    del view
    gc.collect()
    assert len(os.listdir("/dev/fd")) == before
