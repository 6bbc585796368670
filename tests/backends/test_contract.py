"""The contract of backends on every engine, each in a process of its own."""

from pathlib import Path

import pytest

from tests.helpers import COMPILED_LIGHTLY, run_python

SCRIPT = Path(__file__).parent / "contract.py"
LONG = ("jax", "tensorflow few", "torch graphs")
ENGINES = ["torch"] + [pytest.param(e, marks=pytest.mark.slow) for e in LONG]
ENGINES += [
    pytest.param(e, marks=pytest.mark.thorough)
    for e in ("jax as for users", "tensorflow", "keras-torch")
]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_a_backend_keeps_its_contract(engine) -> None:
    framework, *flags = engine.split()
    light = {} if "users" in flags else COMPILED_LIGHTLY
    checks = run_python(SCRIPT, framework, *flags, engine=framework, timeout=280, env=light)
    assert len(checks) >= 13
    broken = [f"{name}\n{fault}" for name, fault in checks if fault]
    assert not broken, "\n".join(broken)


@pytest.mark.slow
def test_an_embedding_learns_with_an_optimizer_object() -> None:
    code = """
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
    assert run_python(code, engine="tensorflow") == [10.0]
