"""Plans of every kind, with weights. As a script: FRAMEWORK WEIGHTS.npz FOUND.npz."""

import json
import sys
import tempfile
from typing import Any

import numpy as np

from tandem import algorithms, backends
from tandem.networks.defaults import PlannedNetwork, Role, mlp
from tandem.networks.noisy import NoisyDense, noisy
from tandem.networks.plan import Activation, Cast, Dense, Dueling, Flatten, Plan, init
from tandem.networks.several import each
from tandem.spaces import Leaf
from tandem.testing import fakes

LAST = Leaf("box", (36, 44, 2), "uint8")
FIRST = Leaf("box", (2, 44, 36), "uint8")
BITS = Leaf("multibinary", (5,), "int8")
SHIFTED = Leaf("discrete", (), "int64", (3,), start=-1)
MATRIX = Leaf("box", (2, 3), "float32", (), (-9.0,) * 6, (9.0,) * 6)
DICT = {"camera": FIRST, "arm/angles": fakes.VECTOR, "mode": SHIFTED, "switches": fakes.MULTI}
DICT["bits"] = BITS
NOT_SAVED = "torch", "jax"  # Keras writes the same files on each of its backends
SAVED = ("normalize and scale", "batch renorm", "simba", "simbav2", "weight norm", "encoder")
SAVED += ("weight norm, images", "decoder", "noisy dueling", "recurrent", "lstm")
SAVED += ("images, channels first",)


def role(algorithm: str, name: str, inputs: Any, action: Leaf, **settings: Any) -> tuple[Any, Plan]:
    kind = algorithms.get(algorithm)
    found: Role = kind.roles(inputs, action, kind.Settings(**{"hidden": (16, 8), **settings}))[name]
    return found.inputs, found.plan


# with what its settings make of its head
SPHERE: Any = fakes.sources(
    "dqn", fakes.DISCRETE, DICT, body="simbav2", hidden=(8, 8), dueling=True
)["q"]
NORMS = {"weight_norm": True, "layer_norm": True}
NORMAL = {"normalize_observations": True}
# so that in a chain each sees numbers that it bends
EVERY = ("tanh", "elu", "gelu", "silu", "linear", "relu", "sigmoid", "softplus")
CASES: dict[str, tuple[Any, Plan]] = {
    "mlp": role("ppo", "critic", fakes.VECTOR, fakes.DISCRETE),
    "normalize and scale": role("ppo", "actor", fakes.VECTOR, fakes.BOX, **NORMAL),
    "state-dependent noise": role("ppo", "actor", fakes.VECTOR, fakes.BOX, action_noise="gsde"),
    "state-dependent noise, cut": role("sac", "actor", DICT, fakes.BOX, action_noise="gsde"),
    "inputs beside": role("td3", "actor", fakes.VECTOR, fakes.BOX, action_noise="gsde"),
    "dueling": role("dqn", "q", fakes.VECTOR, fakes.DISCRETE, dueling=True),
    "dueling, bare": role("dqn", "q", fakes.VECTOR, fakes.DISCRETE, dueling=True, hidden=()),
    "observation and action": role("sac", "q1", DICT, fakes.BOX),
    "recurrent": role("ppo", "actor", fakes.VECTOR, fakes.BOX, recurrent=5, **NORMAL),
    "recurrent dict": role("a2c", "critic", DICT, fakes.DISCRETE, recurrent=3),
    "lstm": role("ppo", "actor", fakes.VECTOR, fakes.BOX, recurrent=5, memory="lstm"),
    "images, channels last": role("dqn", "q", LAST, fakes.DISCRETE),
    "images, channels first": role("dqn", "q", FIRST, fakes.DISCRETE, dueling=True),
    "dict": role("ppo", "actor", DICT, fakes.MULTI, **NORMAL),
    "discrete": role("dqn", "q", SHIFTED, fakes.DISCRETE),
    "multidiscrete": role("dqn", "q", fakes.MULTI, fakes.DISCRETE),
    "multibinary": role("dqn", "q", BITS, fakes.DISCRETE),
    "matrix": role("dqn", "q", MATRIX, fakes.DISCRETE),
    "batch renorm": role("crossq", "q1", DICT, fakes.BOX),
    "projected": role("crossq", "q1", DICT, fakes.BOX, weight_projection=True),
    "simba": role("sac", "q1", DICT, fakes.BOX, body="simba", hidden=(8, 8)),
    "simbav2": (SPHERE.inputs, SPHERE.plan),
    "weight norm": role("dqn", "q", DICT, fakes.DISCRETE, dueling=True, **NORMS),
    "weight norm, images": role("dqn", "q", FIRST, fakes.DISCRETE, weight_norm=True),
    "layer norm, images": (FIRST, (*mlp(FIRST, (), "relu", layer_norm=True), Dense(512, 3))),
    "layer norm, hidden": (DICT, (*mlp(DICT, (8, 5), "tanh", layer_norm=True), Dense(5, 3))),
    "noisy": (fakes.VECTOR, (Cast(4), Dense(4, 8, "relu"), NoisyDense(8, 3, "gelu"))),
    "noisy dueling": (
        fakes.VECTOR,
        (Cast(4), Dense(4, 8), *noisy((Dueling((Dense(8, 1),), (Dense(8, 5), Dense(5, 3))),))),
    ),
    "several": (fakes.VECTOR, each((Cast(4), Dense(4, 5, "tanh"), Dense(5, 2)), 3)),
    "flatten": (MATRIX, (Flatten(), Dense(6, 2))),
    "encoder": role("mat", "encoder", fakes.TEAM, fakes.TEAM_DISCRETE, embedding=8, heads=2),
    "decoder": role("mat", "actor", fakes.TEAM, fakes.TEAM_BOX, embedding=6, blocks=2),
    "decoder of choices": role("mat", "actor", fakes.TEAM, fakes.TEAM_DISCRETE, embedding=4),
    **{f"dense {a}": (fakes.VECTOR, (Cast(4), Dense(4, 3, a))) for a in EVERY},
    "activations": (fakes.VECTOR, (Cast(4), Dense(4, 3), *map(Activation, EVERY))),
}


def weights(name: str) -> dict[str, np.ndarray]:
    """Weights that hide nothing: no zeros, no ones, nothing symmetric."""
    rng = np.random.default_rng(len(name))
    drawn = init(CASES[name][1], rng)
    return {n: (w + 0.1 + 0.2 * rng.random(w.shape)).astype(np.float32) for n, w in drawn.items()}


def observations(name: str) -> Any:
    return fakes.values(CASES[name][0], (3,), np.random.default_rng(7))


def of_a_file(model: Any, x: Any) -> np.ndarray:
    """What a Keras model puts out after Keras has written it to a file and read it."""
    import keras

    with tempfile.TemporaryDirectory() as folder:
        model.save(file := f"{folder}/model.keras")
        return np.asarray(keras.saving.load_model(file).predict(x, verbose=0))


def main(framework: str, given: str, file: str) -> None:
    backend, stored = backends.make(framework, "cpu"), np.load(given)
    found: dict[str, Any] = {}
    for name, (inputs, plan) in CASES.items():
        w = {n.split(": ", 1)[1]: stored[n] for n in stored.files if n.startswith(f"{name}: ")}
        drawn = PlannedNetwork(plan, init(plan, np.random.default_rng(0)), inputs)
        network = backend.network(name.replace(" ", "_").replace(",", ""), drawn)
        network.write(w)
        found |= {f"{name}: {n}": x for n, x in network.read().items()}
        found[f"{name}: output"] = network.predict(observations(name))
        if framework not in NOT_SAVED and name in SAVED:
            found[f"{name}: output of a file"] = of_a_file(network.module, observations(name))
    np.savez(file, **found)
    print(json.dumps(len(found)))


if __name__ == "__main__":
    main(*sys.argv[1:])
