"""Keras on TensorFlow: K updates are a loop inside one XLA-compiled function."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from tandem.backends import no_gpu
from tandem.backends.backend import Guarded, Losses
from tandem.types import Array, Batch, Tree, Variable, tree_map

if TYPE_CHECKING:
    from tandem.backends.keras_tensorflow_layout import TensorFlowLayout


def choose_device(device: str, threads: int) -> str:
    """Return "cpu" or "cuda" for "auto", "cpu" or "cuda", and set the number of threads per
    operation."""
    gpu = bool(tf.config.list_physical_devices("GPU"))
    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
        if gpu and device == "cpu":
            tf.config.set_visible_devices([], "GPU")
    except RuntimeError:
        if gpu and device == "cpu":
            raise
        # TensorFlow has already started and keeps its number of threads
    if device == "cuda" and not gpu:
        raise no_gpu("tensorflow")
    return "cuda" if gpu and device != "cpu" else "cpu"


def close() -> None:
    """Free TensorFlow's cached kernels of deleted variables, as Keras does when it clears a
    session."""
    context.context().clear_kernel_cache()


def compiled_function(
    function: Callable[..., Tree], variables: list[Variable]
) -> Callable[..., Tree]:
    """Compile a function of arrays to a graph without gradients, from NumPy to NumPy."""
    compiled: dict[object, Callable[..., Tree]] = {}

    def run(*xs: Tree) -> Tree:
        key = tuple((x.shape, x.dtype.char) for x in keras.tree.flatten(xs))
        if key not in compiled:
            graph = tf.function(function, autograph=False)
            compiled[key] = graph.get_concrete_function(
                *tree_map(lambda x: tf.TensorSpec(x.shape, x.dtype), xs)
            )
        return tree_map(lambda x: x.numpy(), compiled[key](*tree_map(tf.convert_to_tensor, xs)))

    return run


def forward(model: keras.Model) -> Callable[[Tree], Array]:
    """Compile the model in inference mode."""
    return tf.function(lambda x: model(x, training=False), reduce_retracing=True, autograph=False)


def gradients(
    losses: Losses,
    batch: Batch,
    groups: list[list[Variable]],
    variables: list[Variable],
) -> tuple[list[Array], dict[str, Array], list[list[Array]]]:
    """Return (losses, aux, gradients of each group by its own loss, or by the only one). Other
    variables receive the forward pass's assignments."""
    values = [[v.value for v in group] for group in groups]
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        for v in (v for group in values for v in group):
            tape.watch(v)
        loss_values, aux = losses(batch)
    by = loss_values if len(loss_values) == len(groups) else loss_values * len(groups)
    zero = tf.UnconnectedGradients.ZERO
    taped = [
        # also converts the sparse gradients of Embedding weights
        [tf.convert_to_tensor(g) for g in tape.gradient(x, group, unconnected_gradients=zero)]
        for x, group in zip(by, values, strict=True)
    ]
    return loss_values, aux, taped


def value_and_gradient(f: Callable[[Array], Array], x: Array) -> tuple[Array, Array]:
    """Return f(x) and its gradient."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = f(x)
    return value, tape.gradient(value, x)


def hessian_product(f: Callable[[Array], Array], x: Array, v: Array) -> Array:
    """Return the second derivative of f at x, times v."""
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            value = f(x)
        along = tf.reduce_sum(inner.gradient(value, x) * v)
    return outer.gradient(along, x)


def repeat(count: int, body: Callable[[Tree], Tree], state: Tree) -> Tree:
    """Apply `body` `count` times."""
    return tf.while_loop(
        lambda k, s: k < count, lambda k, s: (k + 1, body(s)), (tf.constant(0), state)
    )[1]


def first(count: int, attempt: Callable[[Array], Tree]) -> Tree:
    """Return (accepted, found) of the first accepted of `count` attempts, or of the last
    attempt."""
    return tf.while_loop(
        lambda k, state: tf.logical_and(k < count, tf.logical_not(state[0])),
        lambda k, state: (k + 1, attempt(k)),
        (tf.constant(1), attempt(tf.constant(0))),
    )[1]


def choose(
    flag: Array, done: Callable[[], Tree], idle: Callable[[], Tree], variables: list[Variable]
) -> Tree:
    """Return `done()` if the flag is true, else `idle()`; only one of them is computed. `done` may
    assign to `variables`."""
    return tf.cond(flag, done, idle)


def many(
    guarded: Guarded,
    late: Callable[[Array], None],
    variables: list[Variable],
    jit: bool = True,
    shared: bool = False,
    layout: TensorFlowLayout | None = None,
) -> Callable[..., Tree]:
    """Return a function of (data, settings [K], rows [K, ...], live [K]), always with the same
    structure, that makes K guarded updates of `variables`, each followed by `late(keep)`.

    Without `jit`, the graph is not compiled by XLA. With a `layout` of several devices, XLA
    compiles only the gradients of their parts, since an XLA program runs on one device.

    The updates are one loop, but one call each if the variables include a convolution kernel (the
    only weights with four axes) and the device is the CPU: inside a loop, XLA makes convolutions
    there about twenty times slower.
    """
    jit = jit and layout is None
    kernels = layout is None and any(len(v.shape) == 4 for v in variables)
    apart = kernels and not tf.config.list_logical_devices("GPU")

    def looped(data: Batch, settings: dict[str, Array], rows: Array, live: Array) -> Tree:
        count = rows.shape[0]

        def one(k: Array, active: Array) -> Tree:
            b = tree_map(lambda x: tf.gather(x, rows[k]), data)._replace(
                settings=tree_map(lambda s: s[k], settings)
            )
            return guarded(b, tf.logical_and(active, live[k]))

        def kept(k: Array, active: Array) -> Tree:
            """Run `one`, and restore the old values unless the update is kept."""
            old = [tf.identity(v.value) for v in variables]
            out, code, keep = one(k, active)
            for v, o in zip(variables, old, strict=True):
                v.assign(tf.where(keep, v.value, o))
            late(keep)
            return out, code, keep

        def body(k: Array, active: Array, arrays: list[tf.TensorArray]) -> Tree:
            out, code, keep = kept(k, active)
            flat = keras.tree.flatten((out, code))
            return k + 1, keep, [a.write(k, x) for a, x in zip(arrays, flat, strict=True)]

        if apart:
            out, code, _ = kept(0, tf.constant(True))
            return keras.tree.map_structure(lambda x: x[None], (out, code))
        # structure and shapes, from tracing an update into a graph that never runs
        trace = tf.function(lambda: one(0, tf.constant(True))[:2], autograph=False)
        spec = trace.get_concrete_function().structured_outputs
        arrays = [
            tf.TensorArray(s.dtype, size=count, element_shape=s.shape)
            for s in keras.tree.flatten(spec)
        ]
        _, _, arrays = tf.while_loop(
            lambda k, a, t: k < count, body, (tf.constant(0), tf.constant(True), arrays)
        )
        return keras.tree.pack_sequence_as(spec, [a.stack() for a in arrays])

    compiled: dict[object, Callable[..., Tree]] = {}

    def alone(data: Batch, settings: dict[str, Array], rows: Array, live: Array) -> Tree:
        outs, active = [], True
        for k, r in enumerate(rows):
            batch, of = (
                tree_map(lambda x, i=i: np.asarray(x)[i][None], tree)
                for i, tree in ((r, data), (k, settings))
            )
            outs.append(
                tree_map(
                    np.asarray,
                    run(batch, of, np.zeros(1, np.int32), np.array([bool(live[k]) and active])),
                )
            )
            active = active and outs[-1][1][0] == 0
        return tree_map(lambda *xs: np.concatenate(xs), *outs)

    def run(*tree: Tree) -> Tree:
        arrays = [np.asarray(x) for x in keras.tree.flatten(tree)]
        key = tuple((x.shape, x.dtype) for x in arrays)
        if key not in compiled:
            compiled[key] = _packed(looped, tree, arrays, jit)
        return compiled[key](arrays)

    return alone if apart else run


SMALL = 2**20  # bytes


def _packed(
    f: Callable[..., Tree], tree: Tree, arrays: list[Array], jit: bool
) -> Callable[[list[Array]], Tree]:
    """Compile `f(*tree)` for the shapes of `arrays`, the leaves of `tree`, as a function of such
    arrays. Small ones are passed concatenated: TensorFlow takes longer to inspect an argument than
    to copy it (10% of a call for one SAC update)."""
    together: dict[object, list[int]] = {}
    for i, x in enumerate(arrays):
        together.setdefault(x.dtype if x.nbytes <= SMALL else i, []).append(i)
    groups = list(together.values())
    sizes = [[arrays[i].size for i in group] for group in groups]
    shapes = [x.shape for x in arrays]

    @tf.function(jit_compile=jit, autograph=False)
    def unpacked(*packs: Array) -> Tree:
        parts = [
            part for pack, size in zip(packs, sizes, strict=True) for part in tf.split(pack, size)
        ]
        by_place = dict(zip((i for group in groups for i in group), parts, strict=True))
        return f(
            *keras.tree.pack_sequence_as(
                tree, [tf.reshape(by_place[i], shape) for i, shape in enumerate(shapes)]
            )
        )

    def pack(arrays: list[Array]) -> list[Array]:
        return [
            tf.convert_to_tensor(np.concatenate([arrays[i].reshape(-1) for i in group]))
            for group in groups
        ]

    call = unpacked.get_concrete_function(*pack(arrays))
    return lambda arrays: call(*pack(arrays))
