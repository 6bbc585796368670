"""Layers whose gradients TensorFlow keeps sparse."""

from __future__ import annotations

import pytest

from tests.helpers import run_python

EMBEDDED = """
    import json
    import gymnasium, keras, numpy as np
    import tandem

    class Answer(gymnasium.Env):
        \"\"\"One of four questions; the right answer to each is its number.\"\"\"

        observation_space = gymnasium.spaces.Discrete(4)
        action_space = gymnasium.spaces.Discrete(4)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.question = int(self.np_random.integers(4))
            return self.question, {}

        def step(self, action):
            return self.question, float(action == self.question), True, False, {}

    def network(space):
        layers = keras.layers
        return keras.Sequential(
            [layers.Input((), dtype="int64"), layers.Embedding(4, 16), layers.Dense(16, "relu")]
        )

    given = {"steps": 2_048, "rollout": 32, "batch_size": 64, "epochs": 4, "seed": 0}
    adam = keras.optimizers.Adam(1e-2)
    result = tandem.train("ppo", Answer, network=network, optimizer=adam, plots=False, **given)
    print(json.dumps(result.evaluation.mean))
"""


@pytest.mark.slow
def test_an_embedding_learns_with_an_optimizer_object() -> None:
    assert run_python(EMBEDDED, engine="tensorflow") == [1.0]
