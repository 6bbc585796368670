"""Networks of known layers train as their users' own modules do, bit for bit where nothing that
acts is rounded, and are loaded, exported and resumed without `network=` where that can be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers import run_python
from tests.networks import known_runs
from tests.networks.known_runs import ends

NAMES = (
    "batch norm",
    "group norm",
    "dropout",
    "chains, and a frozen part",
    "pictures",
    "sequences, convolved",
    "embedding",
    "embeddings",
    "lstm",
)
# weights that no gradient changes, nor a forward pass; of every case where they are some
STILL = {"chains, and a frozen part": ["2/kernel", "2/bias"]}


def good(name: str, facts: dict[str, Any]) -> None:
    assert facts["known"] and facts["updates"] > 5
    assert facts["apart"] < 1e-6  # from the same run with layers that nobody knows
    assert facts["twin"] == "Twin" and facts["loaded"] < 1e-5
    assert facts["old"] < 1e-5  # written when its layers were not known yet
    assert facts["resumed"] is True
    assert facts["verified"] is True
    # a convolution's bias before a norm has no gradient but for rounding
    assert sorted(facts["still"]) == sorted(STILL.get(name, [])), facts["still"]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_run_in_torch_is_what_it_was(name, tmp_path) -> None:
    pytest.importorskip("onnxruntime")
    good(name, ends("torch", name, tmp_path))


@pytest.mark.parametrize(
    "engine, names",
    [
        pytest.param(
            "keras-torch", ("batch norm", "chains, and a frozen part"), marks=pytest.mark.slow
        ),
        *(
            pytest.param(engine, names, marks=pytest.mark.thorough)
            for engine in ("keras-torch", "tensorflow", "jax")
            for names in (NAMES[:3], NAMES[3:6], NAMES[6:])  # compiled for a minute each
        ),
    ],
)
def test_a_run_in_keras_is_what_it_was(engine, names, tmp_path) -> None:
    pytest.importorskip("onnxruntime")
    script = Path(known_runs.__file__)
    rows = run_python(script, engine, str(tmp_path), *names, engine=engine, timeout=290)
    assert [name for name, _ in rows] == list(names)
    for name, facts in rows:
        good(name, facts)
