"""A Keras model that only acts, with weights of its own: it can be copied and pickled."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import keras

from tandem.backends import ENGINES, Engine, unfrozen
from tandem.errors import SettingError
from tandem.networks import keras_layers as models
from tandem.types import AnyArray, Tree


class FrozenModel:
    """A forward function, NumPy in and out. Its pickle holds the model as Keras saves it, without
    code: own layers are found by their import path where it is read."""

    def __init__(self, model: Any, weights: list[AnyArray]) -> None:
        self.model, self.weights = model, weights
        self._forward = models.frozen(model, weights)

    def __call__(self, x: Tree) -> AnyArray:
        return self._forward(x)

    def __deepcopy__(self, memo: object) -> FrozenModel:
        return self  # nothing of it changes

    def __reduce__(self) -> tuple[Any, ...]:
        engine = keras.backend.backend()
        framework = next(name for name, keras_backend in ENGINES.items() if keras_backend == engine)
        try:
            own = _own_classes(self.model)
            data = saved(self.model)
            restored(data, own)
        except Exception as error:  # Keras has one for each kind of layer
            raise SettingError(
                f"the agent's network cannot go into a pickle: {str(error).strip()[:300]}",
                "layers that Keras can save and load: classes that can be imported, with a "
                "get_config() where their __init__ takes arguments, and no Lambda",
                "define them so at the top of a module; or pass the run's folder on and call "
                "tandem.load(folder, network=...) there.",
            ) from error
        # in this order: classes are imported when the engine is chosen
        return unfrozen, (Engine(framework), own, data, self.weights)


def _own_classes(model: Any) -> list[type]:
    """The classes of a model's layers that neither Keras nor tandem has. TypeError for one that
    cannot be imported."""
    own = []
    for layer in model._flatten_layers():
        kind = type(layer)
        if kind.__module__.split(".")[0] in ("keras", "tandem") or kind in own:
            continue
        if getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is not kind:
            raise TypeError(f"{kind.__module__}.{kind.__qualname__} cannot be imported")
        own.append(kind)
    return own


def saved(model: Any) -> bytes:
    """A model as the bytes of a .keras file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        model.save(path)
        return path.read_bytes()


def restored(data: bytes, own: list[type]) -> Any:
    """The model that `saved` wrote; `own` are those classes of its layers that Keras has not."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        path.write_bytes(data)
        by_name = {kind.__name__: kind for kind in own}
        return keras.saving.load_model(path, custom_objects=by_name, compile=False)
