"""A user's `action` on JAX, as it is called at every step of an environment: traced by JAX, and run
by NumPy where that knows each operation of the trace.

Handing one observation to XLA and its output back takes several times as long as the few products
of a small network. What was traced is the function itself, with what it does to the outputs of its
networks, so nothing has to be recognised. An operation, or a parameter of one, that is not in
`keras_jax_operations` leaves the whole function to XLA's compiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from weakref import ref

import jax
import jax.extend
import keras
import numpy as np

from tandem.backends.keras_jax_operations import OPERATIONS, copied, repeats, shape_of
from tandem.types import AnyArray, Array, Tree, Variable, tree_map

CALLS = {  # operations that call a traced function, by the name of the parameter that is it
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}
DTYPES = {"float32", "int32", "uint8", "bool"}
WARN = {"div", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "integer_pow", "sin", "cos"}


class Action:
    """A function of arrays that reads `variables`, without gradients; NumPy in and out. It is
    traced once for each kind of arguments, their structure, shapes and dtypes, and sees the
    variables' values of now. on_host: NumPy may run it."""

    def __init__(
        self, function: Callable[..., Any], variables: list[Variable], on_host: bool = True
    ) -> None:
        self._function, self._variables, self._on_host = function, variables, on_host
        self._runs: dict[Any, tuple[Callable[..., list[AnyArray]], Any]] = {}

    def __call__(self, *xs: Any) -> Tree:
        key: Any
        if len(xs) == 1 and isinstance(xs[0], np.ndarray):  # most often, and quicker
            leaves, key = xs, (xs[0].shape, xs[0].dtype)
        else:
            leaves, kind = jax.tree.flatten(xs)
            key = (kind, *((x.shape, x.dtype) for x in leaves))
        if (made := self._runs.get(key)) is None:
            made = self._runs[key] = self._made(xs)
        run, out = made
        return tree_map(np.asarray, out.unflatten(run(leaves)))

    def _made(self, xs: tuple[Any, ...]) -> tuple[Callable[..., list[AnyArray]], Any]:
        """Returns (a function of the leaves of arguments like `xs`, the structure of what it
        gives)."""

        def stateless(values: list[Array], xs: Any) -> Tree:
            with keras.StatelessScope(list(zip(self._variables, values, strict=True))):
                return self._function(*xs)

        values = [v._value for v in self._variables]
        traced, out = jax.make_jaxpr(stateless, return_shape=True)(values, xs)
        program = translated(traced, len(values)) if self._on_host else None
        made: Compiled | InNumPy = (
            Compiled(traced, self._variables)
            if program is None
            else InNumPy(program, [self._variables[i] for i in program.weights])
        )
        return made, jax.tree.structure(out)


class Compiled:
    """A trace run by XLA, which is given those variables that it reads and no others."""

    def __init__(self, traced: Any, variables: list[Variable]) -> None:
        count, used = len(variables), set()
        for equation in traced.jaxpr.eqns:
            used |= {id(x) for x in equation.invars}
        used |= {id(x) for x in traced.jaxpr.outvars}
        places = [i for i, x in enumerate(traced.jaxpr.invars[:count]) if id(x) in used]
        function = jax.extend.core.jaxpr_as_fun(traced)

        def stateless(values: list[Array], leaves: list[Array]) -> list[Array]:
            every: list[Any] = [0.0] * count
            for i, x in zip(places, values, strict=True):
                every[i] = x
            outputs: list[Array] = function(*every, *leaves)
            return outputs

        self.variables, self._step = [variables[i] for i in places], jax.jit(stateless)

    def __call__(self, leaves: Sequence[Array]) -> list[AnyArray]:
        return [np.asarray(x) for x in self._step([v._value for v in self.variables], list(leaves))]


class Step(NamedTuple):
    """An operation of NumPy's: which values it takes and which one it makes, by number."""

    function: Callable[..., Any]
    takes: tuple[int, ...]
    makes: int


class Program(NamedTuple):
    """A trace as operations of NumPy's on numbered values."""

    values: list[Any]  # those that are constant
    weights: list[int]  # which of the variables it reads...
    places: list[int]  # ...and which values they are
    inputs: list[int]  # which values the arguments are
    dtypes: list[Any]  # and as what they enter
    prepared: list[Step]  # of weights alone: for each new weights
    steps: list[Step]
    outputs: list[int]
    warns: bool  # whether NumPy warns of some numbers, which XLA does not


class InNumPy:
    """A program, with the values of its variables as they are whenever it is called. JAX's arrays
    do not change, so those that are the same need not be looked at again; they are not held, for
    then an update could not write into their memory."""

    def __init__(self, program: Program, variables: list[Variable]) -> None:
        self.program, self.variables = program, variables
        self._values = list(program.values)
        self._seen: list[Callable[[], Any]] = [lambda: None] * len(variables)

    def __call__(self, leaves: Sequence[Array]) -> list[AnyArray]:
        if not self.program.warns:
            return self._run(leaves)
        with np.errstate(all="ignore"):
            return self._run(leaves)

    def _run(self, leaves: Sequence[Array]) -> list[AnyArray]:
        program = self.program
        for v, seen in zip(self.variables, self._seen, strict=True):
            if seen() is not v._value:
                self._load()
                break
        values = self._values.copy()
        for i, x, dtype in zip(program.inputs, leaves, program.dtypes, strict=True):
            values[i] = x if x.dtype == dtype else x.astype(dtype)
        _take(program.steps, values)
        return [values[i] for i in program.outputs]

    def _load(self) -> None:
        """Copies what has changed."""
        values = self._values
        for k, (i, v) in enumerate(zip(self.program.places, self.variables, strict=True)):
            now = v._value
            if self._seen[k]() is now:
                continue
            if values[i] is None:
                values[i] = np.array(now)
            else:
                np.copyto(values[i], now)
            self._seen[k] = ref(now)
        _take(self.program.prepared, values)


def _take(steps: list[Step], values: list[Any]) -> None:
    for function, takes, makes in steps:
        if len(takes) == 2:  # most often
            a, b = takes
            values[makes] = function(values[a], values[b])
        else:
            values[makes] = function(*[values[i] for i in takes])


def translated(traced: Any, weights: int) -> Program | None:
    """Returns a trace, whose first `weights` inputs are variables and the others arguments, as a
    program; None where an operation is not known."""
    if traced.effects:
        return None
    translation = Translation()
    inputs = [translation.value(x.aval) for x in traced.jaxpr.invars]
    outputs = translation.call(traced, inputs)
    if outputs is None:
        return None
    outputs = translation.own(outputs, set(inputs[weights:]))
    needed, live = set(outputs), list[Step]()
    for step in reversed(translation.steps):
        if step.makes in needed:
            needed.update(step.takes)
            live.insert(0, step)
    if any(translation.dtypes[i] not in DTYPES for i in needed):
        return None
    read = [i for i in range(weights) if inputs[i] in needed]
    values, prepared, steps = translation.values, list[Step](), list[Step]()
    moving = set(inputs[weights:])
    for step in live:
        if step.makes in outputs or moving.intersection(step.takes):
            moving.add(step.makes)
            steps.append(step)
        elif all(values[i] is not None for i in step.takes):
            with np.errstate(all="ignore"):
                _take([step], values)
        else:
            prepared.append(step)
    return Program(
        values,
        read,
        [inputs[i] for i in read],
        inputs[weights:],
        [x.aval.dtype for x in traced.jaxpr.invars[weights:]],
        prepared,
        steps,
        outputs,
        translation.warns,
    )


class Translation:
    """Collects the steps of a trace."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.dtypes: dict[int, str] = {}
        self.steps: list[Step] = []
        self.warns = False
        # of values that are others, repeated along new first axes: which ones
        self.repeats: dict[int, int] = {}

    def value(self, aval: Any, constant: Any = None) -> int:
        """Returns the number of a new value."""
        self.values.append(constant)
        number = len(self.values) - 1
        self.dtypes[number] = str(getattr(aval, "dtype", ""))
        return number

    def step(self, function: Callable[..., Any], takes: tuple[int, ...], aval: Any) -> int:
        """Adds an operation; returns the number of what it makes."""
        makes = self.value(aval)
        self.steps.append(Step(function, takes, makes))
        return makes

    def own(self, outputs: list[int], moving: set[int]) -> list[int]:
        """Adds copies of those outputs that are not arrays of the caller's own: what is given in,
        weights, and views of them. moving: the numbers of the arguments."""
        fresh = set()
        for step in self.steps:
            if moving.intersection(step.takes):
                moving = moving | {step.makes}
                if isinstance(step.function, np.ufunc) or step.function is np.dot:
                    fresh.add(step.makes)
        own = []
        for i in outputs:
            if i not in fresh:
                self.steps.append(Step(copied, (i,), self.value(None)))
                self.dtypes[len(self.values) - 1] = self.dtypes[i]
            own.append(i if i in fresh else len(self.values) - 1)
        return own

    def call(self, traced: Any, arguments: Sequence[int]) -> list[int] | None:
        """Adds the steps of a trace on these values; returns the numbers of what it gives, None
        where it does what is not known."""
        jaxpr = traced.jaxpr
        numbers = dict(zip(jaxpr.invars, arguments, strict=True))
        for variable, constant in zip(jaxpr.constvars, traced.consts, strict=True):
            numbers[variable] = self.value(variable.aval, np.asarray(constant))

        def number(x: Any) -> int:
            if isinstance(x, jax.extend.core.Literal):
                return self.value(x.aval, np.asarray(x.val, x.aval.dtype)[()])
            place: int = numbers[x]
            return place

        for equation in jaxpr.eqns:
            takes = tuple(number(x) for x in equation.invars)
            if (name := CALLS.get(equation.primitive.name)) is not None:
                made = self.call(equation.params[name], takes)
                if made is None:
                    return None
                numbers.update(zip(equation.outvars, made, strict=True))
                continue
            self.warns = self.warns or equation.primitive.name in WARN
            make = OPERATIONS.get(equation.primitive.name)
            function = None if make is None else make(equation)
            if function is None or len(equation.outvars) != 1:
                return None
            (out,) = equation.outvars
            if isinstance(function, np.ufunc) and len(takes) == 2:
                takes = self._unrepeated(takes, equation)
            numbers[out] = self.step(function, takes, out.aval)
            if equation.primitive.name == "broadcast_in_dim" and repeats(equation):
                self.repeats[numbers[out]] = takes[0]
        return [number(x) for x in jaxpr.outvars]

    def _unrepeated(self, takes: tuple[int, ...], equation: Any) -> tuple[int, ...]:
        """Returns what an operation on two values takes where NumPy repeats one by itself."""
        shape = shape_of(equation)
        a, b = (x.aval.shape == shape for x in equation.invars)
        if a:
            return takes[0], self.repeats.get(takes[1], takes[1])
        return (self.repeats.get(takes[0], takes[0]), takes[1]) if b else takes
