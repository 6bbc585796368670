"""Trees of JAX in checkpoints: large arrays block by block."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from tandem.compiled.arrays import from_arrays, to_arrays  # noqa: E402
from tandem.replay.array_files import BLOCK, StoredArray  # noqa: E402
from tandem.runs import checkpoint  # noqa: E402


def test_large_arrays_are_written_and_read_without_a_copy_on_the_host(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ring = rng.random((1000, BLOCK // 700 // 4, 2), np.float32)
    tree = {"ring": jax.numpy.array(ring), "key": jax.random.key(3), "at": jax.numpy.int32(5)}
    arrays = to_arrays(tree, "kept")
    assert any(x is tree["ring"] for x in arrays.values())
    checkpoint.write(tmp_path / "last.zip", {}, {"learner": arrays})
    saved = checkpoint.read(tmp_path / "last.zip").group("learner")
    assert sum(isinstance(x, StoredArray) for x in saved.values()) == 1
    again = from_arrays(jax.eval_shape(lambda: tree), "kept", saved)
    assert np.array_equal(again["ring"], ring) and again["at"] == 5
    assert (jax.random.key_data(again["key"]) == jax.random.key_data(tree["key"])).all()
