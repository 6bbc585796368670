"""A Keras model that only acts, with weights of its own: it can be copied and pickled."""

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

# by which package Keras writes ONNX on each engine, and what extra brings it
EXPORTERS = {"tensorflow": ("tf2onnx", "onnx"), "jax": ("jax2onnx", "onnx-jax"), "torch": ("", "")}


class FrozenModel:
    """A forward function, NumPy in and out. For its pickle see `keras_travel`."""

    def __init__(
        self,
        model: keras.Model,
        weights: list[AnyArray],
        run: Callable[..., AnyArray] | None = None,
    ) -> None:
        """run: `models.frozen(model)`, where there is one already."""
        self.model, self.weights = model, weights
        self._run = run or models.frozen(model)
        self._values = [keras.ops.convert_to_tensor(w) for w in weights]

    def __call__(self, x: Tree) -> AnyArray:
        if process.is_float32():
            return self._run(x, self._values)
        with process.restored():  # what the model creates has to fit its weights
            process.use_float32()
            return self._run(x, self._values)

    def onnx(self, obs: Tree) -> tuple[bytes, dict[str, str]]:
        """The model as an ONNX graph by Keras's own exporter, for observations like `obs` [B, ...];
        and which of their `entries` each of its inputs is.

        EngineError without what the exporter needs, NetworkError where it has no way to write the
        model.
        """
        engine = keras.backend.backend()
        package, extra = EXPORTERS[engine]
        if package and importlib.util.find_spec(package) is None:
            raise EngineError(
                f"{package} is not installed.",
                f"the package with which Keras exports ONNX on {engine}",
                f"pip install 'tandem-rl[{extra}]'",
            )
        # of names that every exporter takes
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
                    opset_version=17,  # that of networks.onnx
                )
                return path.read_bytes(), names
        except Exception as error:  # whatever the exporter and the layers raise
            by = package or "torch.onnx.export"
            raise NetworkError(
                f"Keras on {engine} cannot export the network with {by}: "
                f"{str(error).strip()[:300] or type(error).__name__}",
                "a model of operations that the exporter supports",
                "replace the operation named above, or use tandem.load for deployment.",
            ) from error

    @contextlib.contextmanager
    def _in_place(self) -> Iterator[None]:
        """While this lasts, the model, which may have learned meanwhile, has the weights here."""
        variables = {str(i): v for i, v in enumerate(self.model.variables)}
        now = models.read(variables)
        try:
            models.write(variables, {str(i): w for i, w in enumerate(self.weights)})
            yield
        finally:
            models.write(variables, now)

    def __deepcopy__(self, memo: object) -> FrozenModel:
        return self  # nothing of it changes

    def __reduce__(self) -> tuple[object, ...]:
        try:
            packed = keras_travel.packed(self.model, self.weights)
        except Exception as error:  # whatever an attribute of a layer raises
            raise not_picklable(error) from error
        # in this order: classes are imported when the engine is chosen
        return unfrozen, (keras_travel.engine(), packed)


def unpacked(packed: bytes) -> FrozenModel:
    """The model that `FrozenModel.__reduce__` packed."""
    return FrozenModel(*cloudpickle.loads(packed))


def _spec(name: str, x: AnyArray) -> keras.InputSpec:
    """Of rows like x, as the engine has them."""
    dtype = keras.backend.standardize_dtype(keras.ops.convert_to_tensor(x[:1]).dtype)
    return keras.InputSpec(dtype=dtype, shape=(None, *x.shape[1:]), name=name)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without what exporters say of versions and of shapes that they trace."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
