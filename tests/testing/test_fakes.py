from __future__ import annotations

import numpy as np
import pytest

from tandem.spaces import Leaf
from tandem.testing import fakes
from tandem.types import leaves

PICTURE = Leaf("box", (3, 8, 8), "uint8", (), (0.0,) * 192, (255.0,) * 192)
BITS = Leaf("multibinary", (5,), "int8")
SHIFTED = Leaf("discrete", (), "int64", (3,), start=2)


@pytest.mark.parametrize(
    "spec", [fakes.VECTOR, fakes.BOX, fakes.MULTI, PICTURE, BITS, SHIFTED], ids=lambda s: s.kind
)
def test_values_are_elements_of_their_space(spec) -> None:
    x = fakes.values(spec, (50, 4), np.random.default_rng(0))
    assert x.shape == (50, 4, *spec.shape) and x.dtype == spec.dtype
    if spec.low:
        low, high = (np.reshape(b, spec.shape) for b in (spec.low, spec.high))
        assert (x >= low).all() and (x <= high).all()
    elif spec.sizes:
        highest = np.array(spec.sizes) - 1 + spec.start
        assert x.min() == spec.start and (x.reshape(200, -1).max(0) == highest).all()
    else:
        assert set(np.unique(x)) == {0, 1}


@pytest.mark.parametrize(
    "name, action", [("dqn", fakes.DISCRETE), ("ppo", fakes.MULTI), ("sac", fakes.BOX)]
)
def test_batches_feed_an_algorithm(name, action) -> None:
    observation = {"a": fakes.VECTOR, "b": fakes.MULTI}
    algorithm, backend = fakes.build(name, "torch", action, observation, hidden=(8,))
    made = fakes.batches(algorithm, observation, action, 4, 6)
    assert all(x.shape[:2] == (4, 6) for x in leaves(made._replace(settings={})))
    assert all(x.shape == (4,) and x.dtype == np.float32 for x in made.settings.values())
    assert backend.compile(algorithm.update)(fakes.first(made, 3)).applied == 3
