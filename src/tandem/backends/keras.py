"""The backend interface for Keras 3 on TensorFlow or JAX. K updates are one compiled call: a scan
over a stateless step on JAX, a loop inside one XLA-compiled function on TensorFlow. An update that
must take no effect keeps the old values by a select."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from tandem.backends import backend, devices_of, process
from tandem.backends.keras_networks import (
    ENGINE,
    KerasFreeVariable,
    KerasNetwork,
    KerasScalar,
    Raw,
)
from tandem.backends.keras_optimizers import (
    OPTIMIZERS,
    KerasOptimizer,
    KerasOptimizerCopy,
    KerasOptimizerWrapper,
)
from tandem.backends.malloc import keep_freed
from tandem.backends.variables import host
from tandem.math.optimization import conjugate_gradient, unit_columns
from tandem.networks import keras_bodies
from tandem.networks import keras_layers as models
from tandem.networks.defaults import PlannedNetwork, Source
from tandem.types import AnyArray, Array, Batch, Tree, Update, Variable, tree_map

if TYPE_CHECKING:
    from tandem.backends.keras_jax_traced import Updates

ops = keras.ops


class KerasBackend(backend.AgentBackend):
    """Keras models on the backend that Keras was started with (TensorFlow or JAX)."""

    def __init__(
        self, device: str = "auto", *, threads: int = 1, devices: int = 1, layout: Any = None
    ) -> None:
        """layout: several devices that are already set up."""
        process.begin(self)
        self.framework, self.layout = keras.backend.backend(), layout
        self.devices = devices if layout is None else layout.count
        several = devices_of(self.framework) if devices > 1 and layout is None else None
        if several is not None:
            several.make_host_devices(devices)
        self.device = ENGINE.choose_device(device, threads)
        if several is not None:
            self.layout = several.LAYOUT(self.device, devices)
        self.networks = {}
        # all objects that hold variables, by their names in a checkpoint
        self._owners: dict[
            str, KerasNetwork | KerasScalar | KerasOptimizer | KerasOptimizerWrapper
        ] = {}
        self._optimizers = []
        self._shared = False  # whether a user's agent may also hold the variables' arrays
        self._late: list[
            tuple[backend.Network, backend.Network, Array]
        ] = []  # target updates to make at its end

    # Networks and optimizers

    def network(self, name: str, source: Source) -> KerasNetwork:
        if isinstance(source, PlannedNetwork):
            model, variables = models.build(source.plan, models.symbolic(source.inputs))
            models.write(variables, source.weights)
            net = KerasNetwork(name, model, source.plan, variables)
        else:
            net = KerasNetwork(name, *keras_bodies.given(name, source))
        for variable in self.held(name, net.parts()):
            variable.trainable = False
        if self.layout is not None and not self.layout.divides_rows:
            net.layout = self.layout
        self._owners[f"network/{name}"] = self.networks[name] = net
        if self.device == "cpu" and net.convolves:
            keep_freed()
        return net

    def pair(self, name: str, source: Source) -> tuple[KerasNetwork, KerasNetwork]:
        net, target = self.network(name, source), self.network(f"{name}_target", source)
        backend.keep_apart(name, net.module.variables, target.module.variables)
        target.module.set_weights(net.module.get_weights())
        return net, target

    def scalar(self, name: str, value: float) -> KerasScalar:
        self._owners[f"network/{name}"] = self.networks[name] = scalar = KerasScalar(name, value)
        return scalar

    def optimizer(
        self, name: str, networks: list[Any], kind: str = "adam", **options: float
    ) -> KerasOptimizer:
        trained = [v for n in networks for v in n.module.trainable_variables]
        self.expect_trainable(name, trained)
        self.refuse_decay(options)
        given = kind if self.given_optimizer is None else self.given_optimizer
        optimizer = (
            OPTIMIZERS[given](name, networks, **options)
            if isinstance(given, str)
            else KerasOptimizerCopy(name, networks, given)
        )
        self._owners[f"optimizer/{name}"] = optimizer
        self._optimizers.append(optimizer)
        return optimizer

    # Learning

    def gradient(
        self, optimizers: list[Any], losses: backend.Losses, batch: Batch
    ) -> tuple[list[Array], dict[str, Array], list[backend.Gradient]]:
        groups, layout = [o.trained for o in optimizers], self.layout
        if layout is not None and layout.divides_rows:
            values, aux, grads = layout.gradients(losses, batch, groups, self._in_networks)
        else:
            values, aux, grads = ENGINE.gradients(losses, batch, groups, self.variables)
        return values, aux, [o.vectors(g) for o, g in zip(optimizers, grads, strict=True)]

    def apply(
        self,
        optimizer: Any,
        gradient: backend.Gradient,
        learning_rate: Array | None = None,
        keep: Array = True,
    ) -> None:
        optimizer.apply(gradient, learning_rate, keep)
        for v in optimizer.unit:
            v.assign(unit_columns(v.value))

    def trust_region_step(
        self,
        optimizer: KerasOptimizer,
        objective: backend.Each,
        divergence: backend.Each,
        batch: Batch,
        radius: Array,
        region: backend.Region,
        count: Array,
    ) -> dict[str, Array]:
        trained, values = optimizer.trained, [v.value for v in optimizer.trained]
        trained_ids = {id(v) for v in trained}
        rest = [v for v in self.variables if id(v) not in trained_ids]
        start = ops.concatenate([ops.reshape(x, (-1,)) for x in values])

        def at(each: backend.Each, b: Batch) -> Callable[[Array], Array]:
            def value(flat: Array) -> Array:
                pairs = [(v, v.value) for v in rest]  # values of this device
                pairs += zip(trained, optimizer.parts(flat), strict=True)
                with keras.StatelessScope(pairs):
                    return backend.reduce(each(b), b, count)

            return value

        several = self.parts(batch) > 1

        def whole(of: Callable[[Batch], Tree]) -> Tree:  # sums over samples
            return self.layout.sum(of, batch, self._in_networks) if several else of(batch)

        before, gradient = whole(lambda b: ENGINE.value_and_gradient(at(objective, b), start))

        def product(x: Array) -> Array:
            curved = whole(lambda b: ENGINE.hessian_product(at(divergence, b), start, x))
            return curved + region.damping * x

        x = conjugate_gradient(product, gradient, region.iterations, ENGINE.repeat)
        longest = x * ops.sqrt(2.0 * radius / (ops.sum(x * product(x)) + 1e-10))

        def attempt(k: Array) -> tuple[Array, Tree]:
            flat = start + longest * ops.power(region.shrink, ops.cast(k, "float32"))
            gain, far = whole(lambda b: (at(objective, b)(flat), at(divergence, b)(flat)))
            better = gain - before
            return ops.logical_and(better > 0, far <= radius), (flat, better, far)

        accepted, (flat, better, far) = ENGINE.first(region.backtracks, attempt)
        self._check(optimizer, ops.sum(gradient * gradient) + before)
        for v, x, old in zip(trained, optimizer.parts(flat), values, strict=True):
            v.assign(ops.where(accepted, x, old))
        return {
            "improvement": ops.where(accepted, better, 0.0),
            "divergence": ops.where(accepted, far, 0.0),
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

        metrics, self._code = ENGINE.choose(ops.greater(flag, 0), done, idle, self.variables)
        return dict(zip(names, metrics, strict=True))

    def derivative(self, f: Callable[[Array], Array], x: Array) -> Array:
        return ENGINE.value_and_gradient(f, x)[1]

    def soft_update(
        self,
        source: backend.Network,
        target: backend.Network,
        tau: Array,
        seldom: bool = False,
    ) -> None:
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
            # batch-norm statistics; not the seeds of dropout
            if "float" in s.dtype and id(t) not in noise:
                t.assign(ops.where(tau > 0, s.value, t.value))

    def _track_late(self, keep: Array) -> None:
        """Make the `seldom` target updates if the update is kept."""
        for source, target, tau in self._late:
            variables = [*source.module.variables, *target.module.variables]
            ENGINE.choose(
                ops.logical_and(keep, tau > 0),
                partial(self.soft_update, source, target, tau),
                lambda: None,
                variables,
            )

    def compile(
        self, update: Callable[[Batch], Update], jit: bool = True
    ) -> Callable[..., backend.Outcome]:
        names: list[str] = []
        faults = self.optimizer_names
        guarded = partial(self._guarded, self._placing(update), names)
        layout, divided = self.layout, dict[str, Any]()
        if layout is not None:
            layout.time_first, layout.together = self.time_first, self.together
            divided = {"layout": layout}
        if layout is not None and layout.asynchronous:
            many = layout.many(guarded)
        else:
            variables, late = self.variables, self._track_late
            many = ENGINE.many(guarded, late, variables, jit, self._shared, **divided)
        lengths: set[int] = set()

        def run(batches: Batch, indices: Array | None = None) -> backend.Outcome:
            settings, data = batches.settings, batches._replace(settings={})
            count = len(next(iter(settings.values())))
            known = len(lengths)
            padded = models.padded_length(count, lengths)
            if jit and len(lengths) > known and self.framework != "torch":
                self.on_compile()
            live = np.ones(count, np.bool_)
            rows = (
                np.arange(count, dtype=np.int32)
                if indices is None
                else np.asarray(indices, np.int32)
            )
            if padded != count:
                if indices is None:
                    data = tree_map(lambda x: models.lengthen(x, padded), data)
                rows, settings = tree_map(lambda x: models.lengthen(x, padded), (rows, settings))
                live = np.arange(padded) < count
            with nullcontext() if layout is None else layout.watched():
                (metrics, priority), codes = many(data, settings, rows, live)
            named = dict(zip(names, np.asarray(metrics)[:count].T, strict=True))
            return backend.outcome(
                named,
                tree_map(lambda x: np.asarray(x)[:count], priority),
                np.asarray(codes)[:count].tolist(),
                faults,
            )

        return backend.skip_empty(run)

    def _guarded(
        self, update: Callable[[Batch], Update], names: list[str], b: Batch, active: Array
    ) -> tuple[Tree, Array, Array]:
        """Make one update and return (metrics and priority, status code, whether to keep its
        changes). Metrics are one array, since each output has a transfer cost; `names` receives
        their names."""
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

    def traced(self, update: Callable[[Batch], Update]) -> Updates:
        """Return the updates as a `keras_jax_traced.Updates`, to be traced in a larger function.
        JAX only."""
        kind: type[Updates] = importlib.import_module("tandem.backends.keras_jax_traced").Updates
        names: list[str] = []
        guarded = partial(self._guarded, self._placing(update), names)
        return kind(guarded, self._track_late, self.variables, names)

    # Agents of users

    def joint_gradients(
        self, optimizers: list[KerasOptimizerWrapper], losses: backend.Losses, jit: bool = True
    ) -> Callable[[Batch], AnyArray]:
        reduced = backend.all_reduced(losses)

        def vector(b: Batch) -> Array:
            known = [v for v in self.variables if isinstance(v, keras.Variable)]
            values = [(v, ops.copy(v.value)) for v in known]
            with keras.StatelessScope(values):  # discard what the loss assigns
                groups = [o.trained for o in optimizers]
                gradients = ENGINE.gradients(reduced, b, groups, self.variables)[2]
            flat = [ops.reshape(g, (-1,)) for group in gradients for g in group]
            return ops.concatenate(flat)

        run = (
            ENGINE.compiled_function(vector, self.variables) if jit else partial(self.call, vector)
        )
        return lambda batch: np.asarray(run(batch))

    def adopt(self, modules: dict[str, keras.Layer], variables: dict[str, Variable]) -> None:
        self._shared = True
        for name, module in modules.items():
            self._owners[f"network/{name}"] = self.networks[name] = KerasNetwork(
                name, module, None, {}
            )
        for name, variable in variables.items():
            known = isinstance(variable, keras.Variable)
            # a tf.Variable; code of other backends cannot read it
            if known or self.framework == "tensorflow":
                self._owners[f"network/{name}"] = self.networks[name] = KerasFreeVariable(
                    name, variable if known else Raw(variable)
                )

    def wrap_optimizer(
        self, name: str, optimizer: object, weights: list[Variable]
    ) -> KerasOptimizerWrapper:
        self._owners[f"optimizer/{name}"] = wrapped = KerasOptimizerWrapper(
            name, optimizer, weights, self.layout
        )
        self._optimizers.append(wrapped)
        return wrapped

    def forward(self, function: Callable[..., Array]) -> Callable[..., Tree]:
        return ENGINE.compiled_function(function, self.variables)

    def call(self, function: Callable[..., Tree], *arrays: Tree) -> Tree:
        return tree_map(ops.convert_to_numpy, function(*tree_map(ops.convert_to_tensor, arrays)))

    # State

    @property
    def variables(self) -> list[Variable]:
        return list({id(v): v for o in self._owners.values() for v in o.variables}.values())

    @property
    def _in_networks(self) -> list[Variable]:
        return list({id(v): v for n in self.networks.values() for v in n.variables}.values())

    def _named(self) -> dict[str, Variable]:
        return {
            f"{name}/{i}": v for name, o in self._owners.items() for i, v in enumerate(o.variables)
        }

    def state(self) -> dict[str, AnyArray]:
        return {n: np.array(host(v), copy=True) for n, v in self._named().items()}

    def share(self) -> None:
        """Start all workers with the first worker's networks and optimizers."""
        self.layout.share(v for v in self.variables if isinstance(v, keras.Variable))

    def close(self) -> None:
        if self.framework == "tensorflow":
            ENGINE.close()

    def load_state(self, state: dict[str, AnyArray]) -> None:
        for n, v in self._named().items():
            v.assign(state[n])
