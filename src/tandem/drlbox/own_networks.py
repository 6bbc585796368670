"""Conversion of networks from a user's `feature_maker` or `model_maker` to `network=`, and models
read from Keras files."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tandem.errors import CheckpointError, NetworkError, needs

KERAS_FILES = (".keras", ".h5", ".hdf5")


def body(network: Any) -> Any:
    """Return the feature extractor, or pair of feature extractors, for (Keras input, feature or
    pair of features), or for a torch module or a pair of modules."""
    if network in ((), []):
        raise _unfit("feature_maker", f"{network}", "a feature, or a pair of features")
    if _keras(network[0] if isinstance(network, (tuple, list)) else network) and not hasattr(
        network, "outputs"
    ):
        keras = sys.modules["keras"]
        if len(network) != 2:
            raise _unfit(
                "feature_maker",
                f"{len(network)} values",
                "(Input, feature) or (Input, (feature, feature))",
            )
        inputs, features = network
        if not isinstance(features, (tuple, list)):
            return keras.Model(inputs, features)
        return tuple(keras.Model(inputs, feature) for feature in features)
    return tuple(network) if isinstance(network, list) else network


def whole(network: Any) -> Any:
    """Return a Keras or torch model with its outputs concatenated."""
    if _keras(network):
        outputs = list(getattr(network, "outputs", []))
        if len(outputs) < 2:
            return network
        return sys.modules["keras"].Model(
            network.inputs[0], sys.modules["keras"].layers.Concatenate()(outputs)
        )
    if hasattr(network, "parameters"):
        from tandem.networks.torch_bodies import Joined  # imports torch

        return Joined(network)
    raise _unfit("model_maker", f"a {type(network).__name__}", "a Keras model or a torch module")


def read(path: str, custom: dict[str, Any] | None) -> Any:
    """Read the model in a .keras or .h5 file, with Keras's own layers and the classes in `custom`.
    No code from the file is executed.

    Raises CheckpointError if it cannot be read, EngineError if Keras is not installed.
    """
    with needs("Keras 3", f"to read {path}", "pip install 'tandem-rl[jax]'"):
        import keras
    try:
        return keras.saving.load_model(path, custom_objects=custom, compile=False, safe_mode=True)
    except Exception as error:  # Keras raises many types
        raise CheckpointError(
            f"{path} could not be read as a Keras model ({type(error).__name__}: "
            f"{str(error)[:200]}).",
            "a Keras 3 file with built-in layers",
            "pass custom classes in load_model_custom={'Name': Class}; Lambda layers contain code "
            "and are not loaded.",
        ) from error


def read_whole(path: str, custom: dict[str, Any] | None) -> Any:
    """Return the model in a .keras or .h5 file, with its outputs concatenated."""
    return whole(read(path, custom))


def forward(model: Any) -> Callable[[Any], Any]:
    """Return the model as a function with NumPy inputs and outputs."""
    from tandem.backends.keras_frozen import FrozenModel  # imports Keras

    return FrozenModel(model, [v.numpy() for v in model.variables])


def _keras(network: Any) -> bool:
    return any(kind.__module__.split(".")[0] == "keras" for kind in type(network).__mro__)


def _unfit(maker: str, got: str, wanted: str) -> NetworkError:
    return NetworkError(f"{maker} returned {got}.", wanted, f"return {wanted} from {maker}.")
