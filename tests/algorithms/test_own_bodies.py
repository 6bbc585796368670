"""Custom bodies, of known layers or not, get memories and the fractions of quantiles."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers import run_python

OWN = """
    import json, sys
    import numpy as np
    from tandem.errors import NetworkError
    from tandem.networks.plan import Twin
    from tandem.spaces import Leaf
    from tandem.testing import fakes
    from tandem.testing.fakes import BOX, DISCRETE

    framework = sys.argv[1]
    IMAGE = Leaf("box", (12, 12, 3), "uint8", (), (0.0,) * 432, (255.0,) * 432)


    def body(kind):
        if framework == "torch":
            from torch import nn

            class Own(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.inner = nn.Linear(4, 7) if kind == "own" else nn.Conv2d(3, 4, 3, stride=2)

                def forward(self, x):
                    if kind == "own":
                        return self.inner(x).tanh()
                    return self.inner(x.permute(0, 3, 1, 2).float() / 255).relu().flatten(1)

            return nn.Sequential(nn.Linear(4, 7), nn.Tanh()) if kind == "known" else Own()
        import keras

        if kind == "known":
            return keras.Sequential([keras.Input((4,)), keras.layers.Dense(7, "tanh")])
        if kind == "image":
            x = keras.Input((12, 12, 3))
            h = keras.layers.Conv2D(4, 3, 2, activation="relu")(keras.layers.Rescaling(1 / 255)(x))
            return keras.Model(x, keras.layers.Flatten()(h))
        x = keras.Input((4,))
        return keras.Model(x, keras.ops.tanh(keras.layers.Dense(7)(x)))


    IMPLICIT = {"values": "implicit", "fractions": 5, "target_fractions": 4, "acting_fractions": 6}
    MEMORY = {"recurrent": 5, "sequence": 4}
    found = []
    for name, action, kind, given, shape in (
        ("ppo", BOX, "known", {**MEMORY, "memory": "lstm"}, (14,)),
        ("ppo", BOX, "own", {**MEMORY, "memory": "gru"}, (9,)),
        ("dqn", DISCRETE, "known", {**IMPLICIT, "dueling": True}, (6, 2)),
        ("dqn", DISCRETE, "own", IMPLICIT, (6, 2)),
        ("dqn", DISCRETE, "image", IMPLICIT, (6, 2)),
    ):
        spec = IMAGE if kind == "image" else fakes.VECTOR
        make = lambda _: body(kind)
        algorithm, backend = fakes.build(name, framework, action, spec, make, **given)
        network = algorithm.actor if name == "ppo" else algorithm.q
        before = network.read()
        batch = fakes.batches(algorithm, spec, action, 2, 8)
        done = backend.compile(algorithm.update)(batch)
        weights, gap = network.read(), 0.0
        moved = min(float(np.abs(x - before[n]).max()) for n, x in weights.items())
        for count in (8, 4, 2):
            if name == "ppo":
                x = {"obs": batch.obs[0].reshape(8, 4)[:count]}
                x["start"] = batch.extra["start"][0].reshape(8)[:count]
                x["state"] = batch.extra["actor_state"][0]
            else:
                x = algorithm.values.entering(batch.obs[0][: count - 1])
            out = network.predict(x)
            same = Twin(network.plan, weights) if network.plan else network.frozen(weights)
            assert out.shape == (count - (name == "dqn"), *shape), out.shape
            gap = max(gap, float(np.abs(out - same(x)).max()))
        found.append([done.applied, network.plan is not None, gap, moved])
    for name, action, roles, given in (
        ("ppo", BOX, ("actor", "critic"), {"recurrent": 5}),
        ("dqn", DISCRETE, ("q",), {"values": "implicit"}),
    ):
        try:
            whole = {role: body("known") for role in roles}
            fakes.build(name, framework, action, network=whole, **given)
        except NetworkError as error:
            found.append(str(error))
    print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "engine",
    [
        "torch",
        "jax",
        *(pytest.param(e, marks=pytest.mark.thorough) for e in ("tensorflow", "keras-torch")),
    ],
)
def test_bodies_of_ones_own_get_memories_and_fractions(engine: Any) -> None:
    ((*made, memory, fractions),) = run_python(OWN, engine, engine=engine)
    assert [known for _, known, *_ in made[:4]] == [True, False, True, False] and len(made) == 5
    for applied, _, gap, moved in made:
        assert applied == 2 and gap < 2e-6 and moved > 0
    assert "gives complete networks, but recurrent=5" in memory
    assert "values='implicit' puts fractions between feature extractor and head" in fractions
