"""A Keras model for acting only, with its own copy of the weights. It can be copied and pickled."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import cloudpickle
import keras

from tandem.backends import keras_travel, not_picklable, process, unfrozen
from tandem.errors import EngineError, NetworkError
from tandem.networks import keras_layers as models
from tandem.networks.onnx import entries
from tandem.types import AnyArray, Tree, tree_map

# package with which Keras exports ONNX on each backend, and the extra that installs it
EXPORTERS = {"tensorflow": ("tf2onnx", "onnx"), "jax": ("jax2onnx", "onnx-jax"), "torch": ("", "")}


class FrozenModel:
    """A forward function from NumPy to NumPy. For its pickle see `keras_travel`."""

    def __init__(
        self,
        model: keras.Model,
        weights: list[AnyArray],
        run: Callable[..., AnyArray] | None = None,
    ) -> None:
        """run: an existing `models.frozen(model)`."""
        self.model, self.weights = model, weights
        self._run = run or models.frozen(model)
        self._values = [keras.ops.convert_to_tensor(w) for w in weights]

    def __call__(self, x: Tree) -> AnyArray:
        if process.is_float32():
            return self._run(x, self._values)
        with process.restored():  # new tensors must match the dtype of the weights
            process.use_float32()
            return self._run(x, self._values)

    def onnx(self, obs: Tree) -> tuple[bytes, dict[str, str]]:
        """Export the model as an ONNX graph with Keras's exporter, for observations like `obs` [B,
        ...]. Return it with the `entries` of the observation by input name.

        Raises EngineError if the exporter's package is missing, NetworkError if the exporter does
        not support the model.
        """
        engine = keras.backend.backend()
        package, extra = EXPORTERS[engine]
        if package and importlib.util.find_spec(package) is None:
            raise EngineError(
                f"{package} is not installed.",
                f"the package with which Keras exports ONNX on {engine}",
                f"pip install 'tandem-rl[{extra}]'",
            )
        # names that every exporter accepts
        names = {f"entry_{i}": key for i, key in enumerate(entries(obs))}
        free = iter(names)
        specs = tree_map(lambda x: _spec(next(free), x), obs)
        try:
            with self._in_place(), tempfile.TemporaryDirectory() as folder, _quiet():
                path = Path(folder) / "model.onnx"
                self.model.export(
                    str(path),
                    format="onnx",
                    verbose=False,
                    input_signature=[specs],
                    opset_version=17,  # as in networks.onnx
                )
                return path.read_bytes(), names
        except Exception as error:  # the exporter and the layers may raise anything
            by = package or "torch.onnx.export"
            raise NetworkError(
                f"Keras on {engine} cannot export the network with {by}: "
                f"{str(error).strip()[:300] or type(error).__name__}",
                "a model of operations that the exporter supports",
                "replace the operation named above, or use tandem.load for deployment.",
            ) from error

    @contextlib.contextmanager
    def _in_place(self) -> Iterator[None]:
        """Temporarily give the model, which may have been trained since, the weights stored
        here."""
        variables = {str(i): v for i, v in enumerate(self.model.variables)}
        now = models.read(variables)
        try:
            models.write(variables, {str(i): w for i, w in enumerate(self.weights)})
            yield
        finally:
            models.write(variables, now)

    def __deepcopy__(self, memo: object) -> FrozenModel:
        return self  # immutable

    def __reduce__(self) -> tuple[object, ...]:
        try:
            packed = keras_travel.packed(self.model, self.weights)
        except Exception as error:  # an attribute of a layer may raise anything
            raise not_picklable(error) from error
        # in this order: the backend must be selected before classes are imported
        return unfrozen, (keras_travel.engine(), packed)


def unpacked(packed: bytes) -> FrozenModel:
    """Return the model that `FrozenModel.__reduce__` packed."""
    return FrozenModel(*cloudpickle.loads(packed))


def _spec(name: str, x: AnyArray) -> keras.InputSpec:
    """Return the spec of rows like x, with the backend's dtype."""
    dtype = keras.backend.standardize_dtype(keras.ops.convert_to_tensor(x[:1]).dtype)
    return keras.InputSpec(dtype=dtype, shape=(None, *x.shape[1:]), name=name)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence messages of exporters about versions and traced shapes."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
