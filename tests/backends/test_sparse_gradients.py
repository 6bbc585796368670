"""Layers whose gradients TensorFlow keeps sparse."""

from __future__ import annotations

import pytest

from tests.helpers import run_python

EMBEDDED = """
    import json
    import keras
    import tandem

    from tandem.testing.environments import Identity

    def network(space):
        layers = keras.layers
        return keras.Sequential(
            [layers.Input((), dtype="int64"), layers.Embedding(4, 16), layers.Dense(16, "relu")]
        )

    given = {"steps": 2_048, "rollout": 32, "batch_size": 64, "epochs": 4, "seed": 0, "gamma": 0.0}
    adam = keras.optimizers.Adam(1e-2)
    result = tandem.train("ppo", Identity, network=network, optimizer=adam, plots=False, **given)
    print(json.dumps(result.evaluation.mean))
"""


@pytest.mark.slow
def test_an_embedding_learns_with_an_optimizer_object() -> None:
    assert run_python(EMBEDDED, engine="tensorflow") == [10.0]
