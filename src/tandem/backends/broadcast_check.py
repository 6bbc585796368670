"""Arrays that have the batch twice, [B, B]: what becomes of (B, 1) with (B,), in a loss that then
learns nonsense in silence.

A loss is run (torch) or traced (JAX, TensorFlow) once on a batch with an odd number of rows, and
every array on the way is looked at.
"""

from __future__ import annotations

import linecache
import site
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tandem.types import Array, Batch, tree_map

Frames = Iterable[Any]  # with filename and lineno each, the innermost last
HOUSE = Path(__file__).parents[1]
LIBRARIES = (
    *site.getsitepackages(),
    site.getusersitepackages(),
    sysconfig.get_path("stdlib"),
    str(HOUSE),
)


def square_arrays(
    framework: str, loss: Callable[[Batch], Any], batch: Batch, rows: int
) -> list[str]:
    """Where `loss(batch)`, of NumPy arrays as this framework's own, makes an array with two axes of
    `rows`: "file, line n: what stands there", each once, in order. `rows` should be no other length
    in the loss: a prime that no layer has."""
    traces = {"jax": _jax, "tensorflow": _tensorflow}.get(framework, _torch)(loss, batch, rows)
    return list(dict.fromkeys(_place(frames) for frames in traces))


def _torch(loss: Callable[[Batch], Any], batch: Batch, rows: int) -> list[Frames]:
    import torch
    from torch.overrides import TorchFunctionMode

    frames: list[Frames] = []

    class Watch(TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out = function(*args, **(kwargs or {}))
            several = out if isinstance(out, (tuple, list)) else (out,)
            if any(isinstance(x, torch.Tensor) and _twice(x.shape, rows) for x in several):
                frames.append(traceback.extract_stack())
            return out

    with torch.enable_grad(), Watch():  # it may take gradients of its own
        loss(tree_map(torch.as_tensor, batch))
    return frames


def _jax(loss: Callable[[Batch], Any], batch: Batch, rows: int) -> Iterator[Frames]:
    import jax
    import keras

    def traced(b: Batch) -> Any:
        with keras.StatelessScope():  # what the loss assigns is no one's
            return loss(b)

    def walk(jaxpr: Any) -> Iterator[Frames]:
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


def _tensorflow(loss: Callable[[Batch], Any], batch: Batch, rows: int) -> Iterator[Frames]:
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
    """The innermost line that is the user's own."""
    own = [(f.filename, f.lineno) for f in frames if not f.filename.startswith((*LIBRARIES, "<"))]
    if not own:
        return "in a line that cannot be named"
    file, line = own[-1]
    return f"{file}, line {line}: {linecache.getline(file, line).strip()}"
