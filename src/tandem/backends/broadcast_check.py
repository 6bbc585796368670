"""Detection of losses that would silently learn nothing, or nonsense: losses that depend on no
trained weight, and losses with arrays [B, B] from broadcasting (B, 1) with (B,).

The loss is run (torch) or traced (JAX, TensorFlow) once on a batch with an odd number of rows, and
every intermediate array is inspected.
"""

from __future__ import annotations

import linecache
import site
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np

from tandem.backends.backend import Losses, Network
from tandem.errors import NetworkError
from tandem.types import Array, Batch, Tree, Variable, leaves, tree_map

Loss = Callable[[Batch], Tree]  # the loss of one optimizer, or the losses of all
Frames = Iterable[Any]  # each with filename and lineno, innermost last
HOUSE = Path(__file__).parents[1]
LIBRARIES = (
    *site.getsitepackages(),
    site.getusersitepackages(),
    sysconfig.get_path("stdlib"),
    str(HOUSE),
)


def check_losses(losses: Losses, backend: Any, optimizers: list[Any], batch: Batch) -> None:
    """Check the losses on a batch of one row repeated B times, where no other axis has length B.
    Raises their own exceptions, and NetworkError for an array of shape [B, B] from broadcasting (B,
    1) with (B,), or for a loss that depends on no weight of its optimizer. Changes nothing."""
    rows = unused_prime(axis_lengths(backend.networks.values(), batch))
    repeated = tree_map(lambda x: np.repeat(x, rows, 0), batch)
    repeated = repeated._replace(weight=np.ones(rows, np.float32))
    if backend.framework == "torch":
        repeated = backend.to_device(repeated)
    before, values = backend.state(), list[Array]()

    def computed(b: Batch) -> list[Array]:
        values[:] = losses(b)[0]
        return list(values)

    def depends(i: int, o: Any) -> bool:
        k = min(i, len(values) - 1)
        if backend.framework == "torch":
            return _torch_depends(values[k], o.parameters)
        find = _jax_depends if backend.framework == "jax" else _tensorflow_depends
        return find(lambda b: losses(b)[0][k], repeated, o.trained)

    try:
        lines = square_arrays(backend.framework, computed, repeated, rows)
        idle = [i for i, o in enumerate(optimizers) if not (lines or depends(i, o))]
    finally:
        backend.load_state(before)
    if lines:
        raise NetworkError(
            f"the loss of {rows} samples makes an array of shape ({rows}, {rows}) by "
            f"broadcasting, in {lines[0]}",
            "arrays with one number per sample: (B,), or (B, 1) with (B, 1)",
            "squeeze the axis of length 1 before combining arrays of shapes (B, 1) and (B,).",
        )
    if idle:
        which = f"the loss of optimizer {idle[0]}" if len(optimizers) > 1 else "the loss"
        raise NetworkError(
            f"{which} depends on no trained weight: all its gradients are zero.",
            "a loss computed from the outputs of the networks in agent.param",
            "compute it from those networks, outside no_grad, detach and stop_gradient.",
        )


# Checks for a gradient path from a loss to any of the weights, regardless of the values.


def _torch_depends(value: Array, weights: list[Variable]) -> bool:
    ids, seen, nodes = {id(w) for w in weights}, set[object](), [value.grad_fn]
    while nodes:
        node = nodes.pop()
        if node is not None and node not in seen:
            seen.add(node)
            nodes += [following for following, _ in node.next_functions]
    return bool({id(value), *(id(getattr(node, "variable", None)) for node in seen)} & ids)


def _jax_depends(loss: Loss, batch: Batch, weights: list[Variable]) -> bool:
    import jax  # here and below: the agent's framework
    import keras

    def gradients(scale: Array) -> Tree:
        def scaled(values: list[Array]) -> Array:
            with keras.StatelessScope(list(zip(weights, values, strict=True))):
                return (loss(batch).sum() * scale).astype("float32")

        return jax.vjp(scaled, [w.value for w in weights])[1](np.float32(1))

    jaxpr = jax.make_jaxpr(gradients)(np.float32(1)).jaxpr
    scaled = {id(v) for v in jaxpr.invars}  # depend on the scale, as nonzero gradients do
    for step in jaxpr.eqns:
        if any(id(v) in scaled for v in step.invars):
            scaled |= {id(v) for v in step.outvars}
    return any(id(v) in scaled for v in jaxpr.outvars)


def _tensorflow_depends(loss: Loss, batch: Batch, weights: list[Variable]) -> bool:
    import keras
    import tensorflow as tf

    found: list[bool] = []

    def traced(b: Batch) -> Array:
        values = [tf.identity(w.value) for w in weights]  # not distributed variables
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(values)
            with keras.StatelessScope(list(zip(weights, values, strict=True))):
                value = loss(b)
        found.append(any(g is not None for g in tape.gradient(value, values)))
        return value

    tf.function(traced, autograph=False).get_concrete_function(
        tree_map(tf.convert_to_tensor, batch)
    )
    return found[-1]


def unused_prime(lengths: set[int]) -> int:
    """Return the first prime from 11 on that is not in `lengths`."""
    return next(
        n
        for n in count(11, 2)
        if n not in lengths and all(n % d for d in range(3, isqrt(n) + 1, 2))
    )


def axis_lengths(networks: Iterable[Network], batch: Batch) -> set[int]:
    """Return the lengths of all axes of weights and of arrays in a batch."""
    weights = [x for network in networks for x in network.read().values()]
    return {n for x in weights + leaves(batch) for n in np.shape(x)}


def square_arrays(framework: str, loss: Loss, batch: Batch, rows: int) -> list[str]:
    """Return the lines where `loss(batch)` creates an array with two axes of length `rows`, as
    "file, line n: source", without repetition and in order. Converts NumPy arrays to the framework.
    `rows` should be a prime that no other axis in the loss has."""
    traces = {"jax": _jax, "tensorflow": _tensorflow}.get(framework, _torch)(loss, batch, rows)
    return list(dict.fromkeys(_place(frames) for frames in traces))


def _torch(loss: Loss, batch: Batch, rows: int) -> list[Frames]:
    import torch  # the agent's framework

    frames: list[Frames] = []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self,
            function: Callable[..., Tree],
            types: object,
            args: tuple[object, ...] = (),
            kwargs: dict[str, object] | None = None,
        ) -> Tree:
            out = function(*args, **(kwargs or {}))
            several = out if isinstance(out, (tuple, list)) else (out,)
            if any(isinstance(x, torch.Tensor) and _twice(x.shape, rows) for x in several):
                frames.append(traceback.extract_stack())
            return out

    # tensors stay on their device: `as_tensor` would move them to the user's default device
    batch = tree_map(lambda x: x if isinstance(x, torch.Tensor) else torch.as_tensor(x), batch)
    with torch.enable_grad(), Watch():  # the loss may compute gradients itself
        loss(batch)
    return frames


def _jax(loss: Loss, batch: Batch, rows: int) -> Iterator[Frames]:
    import jax
    import keras

    def traced(b: Batch) -> Tree:
        with keras.StatelessScope():  # discard what the loss assigns
            return loss(b)

    def walk(jaxpr: Array) -> Iterator[Frames]:
        for step in jaxpr.eqns:
            inner = [
                x
                for p in step.params.values()
                for x in (p if isinstance(p, (tuple, list)) else (p,))
            ]
            for part in (getattr(x, "jaxpr", x) for x in inner):
                if hasattr(part, "eqns"):
                    yield from walk(part)
            if any(_twice(getattr(v.aval, "shape", ()), rows) for v in step.outvars):
                where = step.source_info.traceback
                yield traceback.extract_tb(where.as_python_traceback()) if where is not None else []

    return walk(jax.make_jaxpr(traced)(batch).jaxpr)


def _tensorflow(loss: Loss, batch: Batch, rows: int) -> Iterator[Frames]:
    import tensorflow as tf

    traced = tf.function(loss, autograph=False).get_concrete_function(
        tree_map(tf.convert_to_tensor, batch)
    )
    for operation in traced.graph.get_operations():
        if any(x.shape.rank and _twice(x.shape.as_list(), rows) for x in operation.outputs):
            yield operation.traceback


def _twice(shape: Array, rows: int) -> bool:
    return list(shape).count(rows) > 1


def _place(frames: Frames) -> str:
    """Return the innermost line of the user's code."""
    own = [(f.filename, f.lineno) for f in frames if not f.filename.startswith((*LIBRARIES, "<"))]
    if not own:
        return "in a line that cannot be named"
    file, line = own[-1]
    return f"{file}, line {line}: {linecache.getline(file, line).strip()}"
