"""Rules on the engine of KERAS_BACKEND: prints one JSON object of what was found."""

from __future__ import annotations

import json

import keras

from tandem import RL
from tests.agents import rule_cases

found = rule_cases.rules(
    RL,
    lambda w: keras.optimizers.AdamW(0.01, 0.1, 0.9, 0.99, 1e-7),
    lambda w: keras.optimizers.SGD(0.01),
)
print(json.dumps(found))
