"""Keras 3 behind the seam, on TensorFlow or JAX. K updates are one compiled call: a scan over a
stateless step on JAX, a loop inside one XLA-compiled function on TensorFlow. Where an update must
take no effect, old values are selected over new ones."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import numpy as np

from tandem.backends import backend
from tandem.backends.keras_optimizers import OPTIMIZERS, Given, Optimizer, Own
from tandem.backends.malloc import keep_freed
from tandem.backends.reach import Reached
from tandem.math.optimization import conjugate_gradient
from tandem.networks import keras_bodies
from tandem.networks import keras_layers as models
from tandem.networks.defaults import Drawn, Source
from tandem.networks.noisy import is_noise
from tandem.networks.plan import Plan, Weights
from tandem.types import Array, Batch, Tree, Update, leaves, tree_map

ENGINE = keras.backend.backend()
ops = keras.ops


class KerasNetwork(backend.Network):
    """A Keras model, and its plan where all its layers are known."""

    def __init__(self, name: str, model: Any, plan: Plan | None, variables: dict[str, Any]) -> None:
        self.name, self.module, self.plan, self._named = name, model, plan, variables
        self.noise = {n: v for n, v in variables.items() if is_noise(n)}
        self.learning = False
        self._predict: Any = None
        self._lengths: set[int] = set()  # of batches that `predict` was compiled for

    def __call__(self, x: Tree, training: bool | None = None) -> Array:
        return self.module(x, training=self.learning if training is None else training)

    @property
    def variables(self) -> list[Any]:
        return list(self.module.variables)

    @property
    def _weights(self) -> dict[str, Any]:
        """The variables by the plan's names, else by position."""
        return (
            self._named
            if self.plan is not None
            else {str(i): v for i, v in enumerate(self.variables)}
        )

    def read(self) -> Weights:
        return models.read(self._weights)

    def copy_to(self, weights: Weights) -> None:
        for name, v in self._weights.items():
            np.copyto(weights[name], np.asarray(v._value))  # `value` asks for scopes each time

    def write(self, weights: Weights) -> None:
        models.write(self._weights, weights)

    def place(self, noise: dict[str, Array]) -> None:
        for n, x in noise.items():
            self.noise[n].assign(x)

    def read_noise(self) -> Weights:
        return models.read(self.noise)

    def predict(self, x: Tree) -> np.ndarray[Any, Any]:
        if self._predict is None:
            self._predict = engine().forward(self.module)
        lengths = {len(a) for a in leaves(x)}
        rows = max(lengths)
        padded = (
            _padded(rows, self._lengths) if len(lengths) == 1 else rows
        )  # else they are steps, and states before them
        if padded != rows:
            x = tree_map(lambda a: _lengthen(a, padded), x)
        return np.asarray(self._predict(tree_map(ops.convert_to_tensor, x)))[:rows]

    def frozen(self, weights: Weights) -> Callable[[Tree], np.ndarray[Any, Any]]:
        return models.frozen(self.module, [weights[str(i)] for i in range(len(self.variables))])


class Scalar:
    """One trained number."""

    def __init__(self, name: str, value: float) -> None:
        self.name, self.learning = name, False
        self.variable = keras.Variable(float(value), dtype="float32", name=name)
        self.variables = self.trainable_variables = [self.variable]
        self.module = self

    def __call__(self) -> Array:
        return self.variable.value

    def read(self) -> Weights:
        return {"value": np.array(self.variable.value, copy=True)}


class FreeVariable(Scalar):
    """A variable of a user's agent beside its models."""

    def __init__(self, name: str, variable: Any) -> None:
        self.name, self.learning, self.variable, self.module = name, False, variable, self
        self.variables = self.trainable_variables = [variable]


class Raw:
    """A variable of TensorFlow's, to be read and assigned to as one of Keras's."""

    trainable = False

    def __init__(self, inner: Any) -> None:
        self.inner, self.shape, self.dtype, self.assign = (
            inner,
            inner.shape,
            inner.dtype.name,
            inner.assign,
        )

    @property
    def value(self) -> Any:
        return self.inner.read_value()


class KerasBackend(backend.Backend):
    """Keras models on the engine that Keras was started with (TensorFlow or JAX)."""

    def __init__(self, device: str = "auto", *, threads: int = 1) -> None:
        self.framework = ENGINE
        self.device = engine().choose_device(device, threads)
        self.networks = {}
        self._owners: dict[
            str, Any
        ] = {}  # everything that holds variables, by its name in a checkpoint
        self._optimizers: list[Any] = []
        self._shared = False  # whether others may hold the variables' arrays: a user's agent may
        self._code: Any = None  # while an update is traced: 0, or why it must take no effect
        self._late: list[tuple[Any, Any, Array]] = []  # and what is to be tracked at its end

    # Making

    def network(self, name: str, source: Source) -> KerasNetwork:
        if isinstance(source, Drawn):
            model, variables = models.build(source.plan, models.symbolic(source.inputs))
            models.write(variables, source.weights)
            net = KerasNetwork(name, model, source.plan, variables)
        else:
            net = KerasNetwork(name, *keras_bodies.given(name, source))
        self._owners[f"network/{name}"] = self.networks[name] = net
        if self.device == "cpu" and net.convolves:
            keep_freed()
        return net

    def pair(self, name: str, source: Source) -> tuple[KerasNetwork, KerasNetwork]:
        net, target = self.network(name, source), self.network(f"{name}_target", source)
        target.module.set_weights(net.module.get_weights())
        return net, target

    def scalar(self, name: str, value: float) -> Scalar:
        self._owners[f"network/{name}"] = self.networks[name] = scalar = Scalar(name, value)
        return scalar

    def optimizer(
        self, name: str, networks: list[Any], kind: str = "adam", **options: float
    ) -> Optimizer:
        given, made = self.given_optimizer, OPTIMIZERS["kept" if self.gradients_only else kind]
        made = (
            made(name, networks, **options)
            if given is None or self.gradients_only
            else Given(name, networks, given)
        )
        self._owners[f"optimizer/{name}"] = made
        self._optimizers.append(made)
        return made

    # Learning

    def minimize(
        self,
        optimizer: Optimizer,
        loss: backend.Loss,
        batch: Batch,
        learning_rate: Array,
        clip_norm: Array | None = None,
        count: Array | None = None,
        stop: Callable[[dict[str, Array]], Array] | None = None,
    ) -> tuple[Array, dict[str, Array]]:
        def reduced(b: Batch) -> tuple[Array, dict[str, Array]]:
            each, aux = loss(b)
            return backend.reduce(each, b, count), aux

        for n in optimizer.networks:
            n.learning = True
        try:
            value, aux, grads = engine().gradient(reduced, batch, optimizer.trained, self.variables)
        finally:
            for n in optimizer.networks:
                n.learning = False
        grads = optimizer.vectors(grads)
        norm = ops.sqrt(sum(ops.sum(g * g) for g in grads))
        code = ops.where(ops.isfinite(norm + value), 0, 2 + self._optimizers.index(optimizer))
        if stop is not None:
            code = ops.where(ops.logical_and(ops.equal(code, 0), stop(aux)), 1, code)
        self._code = ops.where(ops.equal(self._code, 0), code, self._code)
        if clip_norm is not None:
            scale = ops.minimum(clip_norm / (norm + 1e-6), 1.0)
            grads = [g * scale for g in grads]
        optimizer.apply(grads, learning_rate)
        return value, aux

    def recorded_gradient(self, optimizer: Optimizer) -> np.ndarray[Any, Any]:
        return np.asarray(optimizer.variables[0].value)

    def step(self, optimizer: Optimizer, gradient: Array, learning_rate: Array) -> None:
        optimizer.apply(optimizer.vectors(optimizer.parts(gradient)), learning_rate)

    def minimize_joint(
        self, optimizers: list[Own], losses: backend.Losses, batch: Batch
    ) -> tuple[list[Array], dict[str, Array]]:
        def all_reduced(b: Batch) -> tuple[list[Array], dict[str, Array]]:
            each, aux = losses(b)
            return [backend.reduced(x, b) for x in each], aux

        groups = [o.trained for o in optimizers]
        values, aux, grads = engine().gradients(all_reduced, batch, groups, self.variables)
        for i, (o, mine) in enumerate(zip(optimizers, grads, strict=True)):
            norm = sum(ops.sum(g * g) for g in mine) + values[min(i, len(values) - 1)]
            code = ops.where(ops.isfinite(norm), 0, 2 + self._optimizers.index(o))
            self._code = ops.where(ops.equal(self._code, 0), code, self._code)
        for o, mine in zip(optimizers, grads, strict=True):
            o.inner.apply(mine, o.trained)
        return values, aux

    def adopt(self, found: Reached) -> None:
        self._shared = True
        for name, module in found.modules.items():
            self._owners[f"network/{name}"] = self.networks[name] = KerasNetwork(
                name, module, None, {}
            )
        for name, variable in found.variables.items():
            if isinstance(variable, keras.Variable):
                self._owners[f"network/{name}"] = self.networks[name] = FreeVariable(name, variable)
            elif (
                ENGINE == "tensorflow"
            ):  # one of TensorFlow's own: another engine's code cannot read it
                self._owners[f"network/{name}"] = self.networks[name] = FreeVariable(
                    name, Raw(variable)
                )

    def wrap_optimizer(self, name: str, optimizer: Any, weights: list[Any]) -> Own:
        self._owners[f"optimizer/{name}"] = made = Own(name, optimizer, weights)
        self._optimizers.append(made)
        return made

    def forward(self, function: Callable[..., Array]) -> Callable[..., Any]:
        made: Callable[..., Any] = engine().forwards(function, self.variables)
        return made

    def call(self, function: Callable[..., Any], *arrays: Tree) -> Any:
        return tree_map(ops.convert_to_numpy, function(*tree_map(ops.convert_to_tensor, arrays)))

    def trust_region_step(
        self,
        optimizer: Optimizer,
        objective: backend.Each,
        divergence: backend.Each,
        batch: Batch,
        radius: Array,
        region: backend.Region,
        count: Array,
    ) -> dict[str, Array]:
        trained, values = optimizer.trained, [v.value for v in optimizer.trained]
        mine = {id(v) for v in trained}
        rest = [(v, v.value) for v in self.variables if id(v) not in mine]
        start = ops.concatenate([ops.reshape(x, (-1,)) for x in values])

        def at(each: backend.Each) -> Callable[[Array], Array]:
            def value(flat: Array) -> Array:
                with keras.StatelessScope(
                    rest + list(zip(trained, optimizer.parts(flat), strict=True))
                ):
                    return backend.reduce(each(batch), batch, count)

            return value

        gain, apart = at(objective), at(divergence)
        before, gradient = engine().value_and_gradient(gain, start)

        def product(x: Array) -> Array:
            return engine().hessian_product(apart, start, x) + region.damping * x

        x = conjugate_gradient(product, gradient, region.iterations, engine().repeat)
        whole = x * ops.sqrt(2.0 * radius / (ops.sum(x * product(x)) + 1e-10))

        def attempt(k: Array) -> tuple[Array, Any]:
            flat = start + whole * ops.power(region.shrink, ops.cast(k, "float32"))
            better, far = gain(flat) - before, apart(flat)
            return ops.logical_and(better > 0, far <= radius), (flat, better, far)

        found, (flat, better, far) = engine().first(region.backtracks, attempt)
        fine = ops.isfinite(ops.sum(gradient * gradient) + before)
        code = ops.where(fine, 0, 2 + self._optimizers.index(optimizer))
        self._code = ops.where(ops.equal(self._code, 0), code, self._code)
        for v, x, old in zip(trained, optimizer.parts(flat), values, strict=True):
            v.assign(ops.where(found, x, old))
        return {
            "improvement": ops.where(found, better, 0.0),
            "divergence": ops.where(found, far, 0.0),
        }

    def cond(
        self, flag: Array, update: Callable[[], dict[str, Array]], names: tuple[str, ...]
    ) -> dict[str, Array]:
        before = self._code

        def done() -> tuple[list[Array], Array]:
            self._code = before  # it may be traced twice
            metrics = update()
            return [ops.cast(metrics[n], "float32") for n in names], ops.cast(self._code, "int32")

        def idle() -> tuple[list[Array], Array]:
            return [ops.convert_to_tensor(np.float32(np.nan))] * len(names), ops.cast(
                before, "int32"
            )

        metrics, self._code = engine().choose(ops.greater(flag, 0), done, idle, self.variables)
        return dict(zip(names, metrics, strict=True))

    def gradient(self, f: Callable[[Array], Array], x: Array) -> Array:
        return engine().value_and_gradient(f, x)[1]

    def soft_update(self, source: Any, target: Any, tau: Array, seldom: bool = False) -> None:
        if seldom:
            self._late.append((source, target, tau))
            return
        for s, t in zip(
            source.module.trainable_variables, target.module.trainable_variables, strict=True
        ):
            t.assign(t.value + tau * (s.value - t.value))
        noise = {id(v) for v in target.noise.values()}
        for s, t in zip(
            source.module.non_trainable_variables,
            target.module.non_trainable_variables,
            strict=True,
        ):
            if (
                "float" in s.dtype and id(t) not in noise
            ):  # batch-norm statistics; not the seeds of dropout
                t.assign(ops.where(tau > 0, s.value, t.value))

    def _track_late(self, keep: Any) -> None:
        """What was to be tracked seldom, where the update is kept."""
        for source, target, tau in self._late:
            variables = [*source.module.variables, *target.module.variables]
            engine().choose(
                ops.logical_and(keep, tau > 0),
                partial(self.soft_update, source, target, tau),
                lambda: None,
                variables,
            )

    def compile(
        self, update: Callable[[Batch], Update], jit: bool = True
    ) -> Callable[..., backend.Outcome]:
        names: list[
            str
            # of the metrics, which come back as one array: each array of its own costs a hand-over
        ] = []

        def guarded(b: Batch, active: Any) -> tuple[Any, Any, Any]:
            """One update; gives (metrics and priority, its code, whether its changes are kept)."""
            self._code, self._late = ops.convert_to_tensor(np.int32(0)), []
            out = update(b)
            names[:] = out.metrics
            metrics = (
                ops.stack([ops.cast(out.metrics[n], "float32") for n in names])
                if names
                else ops.zeros(0)
            )
            code = ops.where(active, ops.cast(self._code, "int32"), -1)
            return (metrics, out.priority), code, ops.equal(code, 0)

        faults, update = [o.name for o in self._optimizers], self._placing(update)
        many = engine().many(guarded, self._track_late, self.variables, jit, not self._shared)
        lengths: set[int] = set()

        def run(batches: Batch, indices: Array | None = None) -> backend.Outcome:
            settings, data = batches.settings, batches._replace(settings={})
            count = len(next(iter(settings.values())))
            padded = _padded(count, lengths)
            live = np.ones(count, np.bool_)
            rows = (
                np.arange(count, dtype=np.int32)
                if indices is None
                else np.asarray(indices, np.int32)
            )
            if padded != count:
                if indices is None:
                    data = tree_map(lambda x: _lengthen(x, padded), data)
                rows, settings = tree_map(lambda x: _lengthen(x, padded), (rows, settings))
                live = np.arange(padded) < count
            (metrics, priority), codes = many(data, settings, rows, live)
            named = dict(zip(names, np.asarray(metrics)[:count].T, strict=True))
            return backend.outcome(
                named,
                tree_map(lambda x: np.asarray(x)[:count], priority),
                np.asarray(codes)[:count].tolist(),
                faults,
            )

        return run

    # State

    @property
    def variables(self) -> list[Any]:
        return list({id(v): v for o in self._owners.values() for v in o.variables}.values())

    def _named(self) -> dict[str, Any]:
        return {
            f"{name}/{i}": v for name, o in self._owners.items() for i, v in enumerate(o.variables)
        }

    def state(self) -> dict[str, np.ndarray[Any, Any]]:
        return {n: np.array(v.value, copy=True) for n, v in self._named().items()}

    def load_state(self, state: dict[str, np.ndarray[Any, Any]]) -> None:
        for n, v in self._named().items():
            v.assign(state[n])


def engine() -> Any:
    """What differs between TensorFlow and JAX; Keras on torch has no such module, and learns as
    torch does."""
    return importlib.import_module(f"tandem.backends.keras_{ENGINE}")


def _padded(count: int, lengths: set[int]) -> int:
    """To how many updates or rows a call of `count` is filled up, so that few lengths are compiled:
    the first two as they come, then a known one less than twice as long, or a power of two. Adds it
    to the known `lengths`."""
    if count not in lengths and len(lengths) >= 2:
        count = min(
            (n for n in lengths if count <= n < 2 * count), default=1 << (count - 1).bit_length()
        )
    lengths.add(count)
    return count


def _lengthen(x: Any, count: int) -> Any:
    """x [K, ...] with its last row repeated up to `count`."""
    return np.concatenate([np.asarray(x), np.repeat(np.asarray(x[-1:]), count - len(x), 0)])
