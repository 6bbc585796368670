"""Advice on pools that a file holds, and on what Keras alone can do."""

from __future__ import annotations

from tandem.replay.resized import take_over
from tests.advice.net import excepted, follows
from tests.replay.test_floors import ACTION, OBS, Ring, samplers, step, stored


def test_a_pool_of_other_environments() -> None:
    one = Ring(24, 3, OBS, ACTION)
    sampler = samplers(one)[1]
    for t in range(5):
        sampler.add(step(t))
    data, arrays = stored(one, sampler)
    fewer = Ring(24, 2, OBS, ACTION)
    with follows("replay/resized.py:take_over") as advice:
        take_over(fewer, samplers(fewer)[1], 0.5, data, arrays)
    assert "for the same environments" in advice.fix
    same = Ring(12, 3, OBS, ACTION)
    take_over(same, samplers(same)[1], 0.5, data, arrays)
    assert len(same) == 12


excepted(
    "backends/keras_frozen.py:FrozenModel.onnx 2",
    because="tests/test_onnx_export.py::test_a_missing_exporter_and_one_that_fails_are_named makes "
    "them in a child; what is missing is installed by pip",
)
excepted(
    "onnx_export.py:_compare",
    because="tests/test_onnx_export.py::test_a_graph_that_onnxruntime_refuses_is_a_named_error "
    "makes it; tandem.load of a run is tried by many",
)
excepted(
    "onnx_export.py:_network 3",
    because="tests/test_onnx_export.py::test_a_network_that_nobody_can_write_is_refused makes it, "
    "of a function; modules and models are exported there",
)
