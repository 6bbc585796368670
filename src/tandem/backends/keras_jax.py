"""Keras on JAX: K updates are one scan over a stateless step."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from sys import getrefcount

import jax
import keras
import numpy as np
from jax.extend.core import Jaxpr

from tandem.backends import no_gpu
from tandem.backends.backend import Guarded, Losses
from tandem.backends.keras_jax_devices import JaxLayout
from tandem.networks import keras_layers as models
from tandem.types import Array, Batch, Tree, Variable, tree_map

NARROW = 32  # columns
FEWER_COPIES = {"xla_cpu_copy_insertion_use_region_analysis": True}
# use the library for matrix products but not for sums, whose inputs it would write to memory
FUSED_SUMS = {"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_DOT"}
MANY = 2**20  # numbers in a sum

# handing over to its thread takes longer than our updates
jax.config.update("jax_cpu_enable_async_dispatch", False)


def choose_device(device: str, threads: int) -> str:
    """Return "cpu" or "cuda" for "auto", "cpu" or "cuda". (PJRT_NPROC sets the threads.)"""
    gpu = jax.default_backend() in ("gpu", "cuda", "rocm")
    if gpu and device == "cpu":
        jax.config.update("jax_default_device", jax.devices("cpu")[0])
    if device == "cuda" and not gpu:
        raise no_gpu("jax")
    return "cuda" if gpu and device != "cpu" else "cpu"


def compiled(function: Callable[..., Tree], donate: int | tuple[int, ...]) -> Callable[..., Tree]:
    """Compile a function that makes updates, with the `options` for its first call. The arguments
    at the positions `donate` are donated."""
    made: list[Callable[..., Tree]] = []

    def call(*xs: Tree) -> Tree:
        if not made:
            traced = jax.jit(function, donate_argnums=donate).trace(*xs)  # cached for made[0]
            how = options(largest_sum(traced.jaxpr.jaxpr))
            made.append(jax.jit(function, donate_argnums=donate, compiler_options=how))
        return made[0](*xs)

    return call


def largest_sum(program: Jaxpr) -> int:
    """Return the size of the largest array of pairs that a program sums within rows, such as
    [B, N, N] of the errors between the quantiles of B rows."""
    sizes = [
        equation.invars[0].aval.size
        for equation in program.eqns
        if equation.primitive.name == "reduce_sum"
        and equation.invars[0].aval.ndim > 2
        and 0 not in equation.params["axes"]
    ]
    given = jax.tree.leaves([list(equation.params.values()) for equation in program.eqns])
    inner = (getattr(x, "jaxpr", x) for x in given)  # some are closed
    return max([0, *sizes, *(largest_sum(x) for x in inner if isinstance(x, Jaxpr))])


def options(largest: int) -> dict[str, bool | str]:
    """Return compiler options for updates with a `largest_sum`. On CPUs, analyze more closely where
    the scan state is copied (DQN: 10% less time per update), and sum many numbers as they are
    computed instead of in memory (170 quantiles: a third less; with few numbers 5% more)."""
    fused = FUSED_SUMS if largest >= MANY else {}
    return {n: x for n, x in (FEWER_COPIES | fused).items() if _known(n, x)}


@cache
def _known(option: str, value: bool | str) -> bool:
    """True if this version of XLA and the device's compiler support the option."""
    try:
        jax.jit(lambda x: x, compiler_options={option: value}).lower(0).compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True


def compiled_function(
    function: Callable[..., Tree], variables: list[Variable]
) -> Callable[..., Tree]:
    """Compile a function of arrays that reads `variables`, for each structure, shape and dtype of
    its arguments, without gradients, from NumPy to NumPy.

    A call passes only the variables that the function reads: passing all variables of an agent
    takes longer than running a small network.
    """
    compiled: dict[object, Callable[..., Tree]] = {}

    def call(*xs: Tree) -> Tree:
        leaves, structure = jax.tree.flatten(xs)
        key = (structure, *((x.shape, x.dtype) for x in leaves))
        if (run := compiled.get(key)) is None:
            run = compiled[key] = _compiled(function, variables, xs)
        return run(xs)

    return call


def _compiled(
    function: Callable[..., Tree], variables: list[Variable], xs: tuple[Tree, ...]
) -> Callable[..., Tree]:
    """Compile for `compiled_function`. xs: arguments like those of the calls."""

    def stateless(read: list[Variable], values: list[Array], xs: Tree) -> Tree:
        with keras.StatelessScope(list(zip(read, values, strict=True))):
            return function(*xs)

    values = [v._value for v in variables]
    jaxpr = jax.make_jaxpr(partial(stateless, variables))(values, xs).jaxpr
    found = {id(x) for equation in jaxpr.eqns for x in equation.invars}
    found |= {id(x) for x in jaxpr.outvars}
    read = [v for v, x in zip(variables, jaxpr.invars, strict=False) if id(x) in found]
    run = jax.jit(partial(stateless, read))
    # copies: the caller may modify them, and a view of a weight would keep its memory alive
    return lambda xs: tree_map(np.array, run([v._value for v in read], xs))


def forward(model: keras.Model) -> Callable[[Tree], Array]:
    """Compile the model in inference mode."""
    step = jax.jit(partial(models.forward, model))
    return lambda x: step(x, [v.value for v in model.variables])


def gradients(
    losses: Losses,
    batch: Batch,
    groups: list[list[Variable]],
    variables: list[Variable],
) -> tuple[list[Array], dict[str, Array], list[list[Array]]]:
    """Return (losses, aux, gradients of each group by its own loss, or by the only one). Other
    `variables` receive the forward pass's assignments."""
    trained_ids = {id(v) for group in groups for v in group}
    rest = [(v, v.value) for v in variables if id(v) not in trained_ids]

    def f(values: list[list[Array]]) -> Tree:
        pairs = [
            (v, _narrow(x))
            for group, xs in zip(groups, values, strict=True)
            for v, x in zip(group, xs, strict=True)
        ]
        with keras.StatelessScope(rest + pairs) as scope:
            loss_values, aux = losses(batch)
        return loss_values, (aux, [scope.get_current_value(v) for v, _ in rest])

    loss_values, back, (aux, moved) = jax.vjp(
        f, [[v.value for v in group] for group in groups], has_aux=True
    )

    def by(i: int) -> list[list[Array]]:
        return back([jax.numpy.full_like(x, float(k == i)) for k, x in enumerate(loss_values)])[0]

    grads = by(0) if len(loss_values) == 1 else [by(i)[i] for i in range(len(groups))]
    for (v, old), new in zip(rest, moved, strict=True):  # batch-norm statistics, dropout seeds
        if new is not old:
            v.assign(new)
    return loss_values, aux, grads


def _narrow(weight: Array) -> Array:
    """Return the same weight. For a matrix with few columns, the gradient is computed transposed
    and then turned: on CPUs XLA otherwise chooses a form that takes five to ten times longer (5% of
    a DQN update)."""
    if weight.ndim != 2 or not 1 < weight.shape[1] < NARROW <= weight.shape[0]:
        return weight
    return jax.lax.optimization_barrier(weight.T).T


def value_and_gradient(f: Callable[[Array], Array], x: Array) -> tuple[Array, Array]:
    """Return f(x) and its gradient."""
    value, grad = jax.value_and_grad(f)(x)
    return value, grad


def hessian_product(f: Callable[[Array], Array], x: Array, v: Array) -> Array:
    """Return the second derivative of f at x, times v."""
    return jax.jvp(jax.grad(f), (x,), (v,))[1]


def repeat(count: int, body: Callable[[Tree], Tree], state: Tree) -> Tree:
    """Apply `body` `count` times."""
    return jax.lax.fori_loop(0, count, lambda _, s: body(s), state)


def first(count: int, attempt: Callable[[Array], Tree]) -> Tree:
    """Return (accepted, found) of the first accepted of `count` attempts, or of the last
    attempt."""
    return jax.lax.while_loop(
        lambda state: jax.numpy.logical_and(state[0] < count, jax.numpy.logical_not(state[1][0])),
        lambda state: (state[0] + 1, attempt(state[0])),
        (1, attempt(0)),
    )[1]


def choose(
    flag: Array, done: Callable[[], Tree], idle: Callable[[], Tree], variables: list[Variable]
) -> Tree:
    """Return `done()` if the flag is true, else `idle()`; only one of them is computed. `done` may
    assign to `variables`."""
    values = [v.value for v in variables]
    moved: list[int] = []

    def branch() -> Tree:
        with keras.StatelessScope(list(zip(variables, values, strict=True))) as scope:
            out = done()
        after = [scope.get_current_value(v) for v in variables]
        moved[:] = [
            i for i, (new, old) in enumerate(zip(after, values, strict=True)) if new is not old
        ]
        return out, [after[i] for i in moved]

    # find the variables that it changes: the others need not pass through the cond
    jax.eval_shape(branch)
    out, new = jax.lax.cond(flag, branch, lambda: (idle(), [values[i] for i in moved]))
    for i, x in zip(moved, new, strict=True):
        variables[i].assign(x)
    return out


def references(arrays: list[Array]) -> list[int]:
    """Return the number of references to each array of a list."""
    return [getrefcount(x) for x in arrays]


class _Holder:
    def __init__(self, value: object) -> None:
        self._value = value


_holder = _Holder(object())
# count for an array held by one variable only
ALONE = references([_holder._value])[0]


def own(arrays: list[Array]) -> list[Array]:
    """Return the arrays of variables, with copies of those that other code holds too, so that
    donation does not invalidate them. (XLA itself copies arrays whose memory NumPy views.)"""
    counts = references(arrays)
    if max(counts, default=0) <= ALONE:
        return arrays
    return [x.copy() if n > ALONE else x for x, n in zip(arrays, counts, strict=True)]


class Moves(Exception):
    """Raised during tracing if an update changes variables that it was not expected to change."""

    def __init__(self, places: list[int]) -> None:
        super().__init__(places)
        self.places = places


def _same(x: Tree) -> Tree:
    return x


def once(
    guarded: Guarded,
    late: Callable[[Array], None],
    variables: list[Variable],
    values: list[Array],
    batch: Batch,
    active: Array,
) -> tuple[list[Array], list[int], Array, Tree]:
    """Make a guarded update of `variables`, with the given `values`, followed by `late(keep)`.
    Return (new values, places of unchanged ones, whether the update is kept, its results)."""
    with keras.StatelessScope(list(zip(variables, values, strict=True))) as scope:
        before = [v.value for v in variables]
        out, code, keep = guarded(batch, active)
        for v, old in zip(variables, before, strict=True):
            if (new := v.value) is not old:
                v.assign(jax.numpy.where(keep, new, old))
        late(keep)
    after = [scope.get_current_value(v) for v in variables]
    pairs = enumerate(zip(after, before, strict=True))
    return after, [i for i, (x, old) in pairs if x is old], keep, (out, code)


def _in_turn(
    step: Callable[..., Tree],
    layout: JaxLayout | None,
    values: list[Array],
    data: Batch,
    *each: Tree,
) -> tuple[list[Array], Tree]:
    """Make updates with one call each. Return (variables, stacked results)."""
    carry, outs = (values, jax.numpy.asarray(True)), []
    data = data if layout else jax.device_put(data)  # a layout has already placed it
    for k in range(len(each[-1])):
        carry, out = step(carry, data, tree_map(lambda x, k=k: x[k], each))
        outs.append(out)
    return carry[0], tree_map(lambda *xs: jax.numpy.stack(xs), *outs)


def many(
    guarded: Guarded,
    late: Callable[[Array], None],
    variables: list[Variable],
    jit: bool = True,
    shared: bool = False,
    layout: JaxLayout | None = None,
) -> Callable[..., Tree]:
    """Return a function of (data, settings [K], rows [K, ...], live [K]) that makes K guarded
    updates of `variables`, each followed by `late(keep)`.

    Without `jit`, each operation runs separately. The old arrays of changed variables are donated:
    XLA writes into their memory. With `shared`, other code may hold some of them: those are copied
    first, and outside of CPUs none is donated. A `layout` divides each update among devices; then
    arrays that other code may hold are not donated.

    The updates are one scan, but one call each if the variables include a convolution kernel (the
    only weights with four axes) and the device is the CPU: inside a loop, XLA makes convolutions
    there about twenty times slower.
    """
    # variables that an update changes or may change; for a user's update, found by tracing
    moved: list[int] = [] if shared and layout is None else list(range(len(variables)))
    still: list[int] = []  # those that the current trace leaves unchanged

    divide, share = (layout.divide, layout.share) if layout else (_same, _same)

    def one(carry: Tree, data: Batch, k: Tree) -> Tree:
        values, active = carry
        settings, rows, live = k
        b = divide(tree_map(lambda x: x[rows], data))._replace(settings=settings)
        active = jax.numpy.logical_and(active, live)
        new, still[:], keep, given = once(guarded, late, variables, values, b, active)
        return ([share(x) for x in new], keep), given

    def scanned(moving: list[Array], others: list[Array], data: Batch, *each: Tree) -> Tree:
        places, rest = list(moved), iter(others)
        state = [None if i in moved else next(rest) for i in range(len(variables))]

        def body(carry: Tree, k: Tree) -> Tree:
            now, active = carry
            for i, x in zip(places, now, strict=True):
                state[i] = x
            (new, keep), out = one((list(state), active), data, k)
            if more := sorted(set(range(len(variables))) - {*places, *still}):
                raise Moves(more)
            return ([new[i] for i in places], keep), out

        (now, _), outs = jax.lax.scan(body, (moving, jax.numpy.asarray(True)), each)
        return now, outs

    on_cpu = next(iter(variables[0]._value.devices())).platform == "cpu"
    uses_up = not shared or (on_cpu and layout is None)
    scan, step = scanned, one
    if jit:
        scan = compiled(scanned, 0 if uses_up else ())
        step = compiled(one, () if shared else 0)

    def together(data: Batch, *each: Tree) -> Tree:
        held = [variables[i]._value for i in moved]  # `value` looks up scopes each time
        others = [v._value for i, v in enumerate(variables) if i not in moved]
        if shared and uses_up:
            held = own(held)
        return scan(held, others, data, *each)

    apart = not jit or (on_cpu and any(len(v.shape) == 4 for v in variables))

    def run(data: Batch, *each: Tree) -> Tree:
        if layout is not None:
            held, data = layout.read(variables), layout.put(data, each[1])
            if apart:
                values, outs = _in_turn(step, layout, held, data, *each)
            else:
                values, outs = scan(held, [], data, *each)
            layout.write(variables, values)
            return outs
        if apart:
            places: list[int] | range = range(len(variables))
            values, outs = _in_turn(step, None, [v._value for v in variables], data, *each)
        else:
            try:
                values, outs = together(data, *each)
            except Moves as moves:
                moved[:] = sorted({*moved, *moves.places})
                return run(data, *each)
            places = moved
        for i, x in zip(places, values, strict=True):
            variables[i]._value = x  # assign would copy; the old value was donated
        return outs

    return run
