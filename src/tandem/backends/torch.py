"""The backend interface for PyTorch.

The weights of an optimizer are views of a single flat parameter, so that all of them take one fused
Adam step, one copy and one mixing operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from tandem import ops
from tandem.backends import backend, process, torch_calls, torch_generators, torch_traced
from tandem.backends.malloc import keep_freed
from tandem.backends.torch_devices import TorchLayout, kind_of, own_device
from tandem.backends.torch_networks import TorchFreeVariable, TorchNetwork, TorchScalar, bind
from tandem.backends.torch_optimizers import TorchOptimizer, gradients
from tandem.backends.torch_own import TorchOptimizerWrapper
from tandem.backends.torch_states import Stateful, stored
from tandem.errors import NetworkError
from tandem.math.optimization import conjugate_gradient, unit_columns
from tandem.networks import torch_bodies
from tandem.networks import torch_layers as modules
from tandem.networks.defaults import CustomNetwork, Source
from tandem.types import AnyArray, Array, Batch, Tree, Update, Variable, tree_map


class TorchBackend(Stateful):
    """PyTorch, eager or compiled: see `torch_calls`. updates: the number of updates of the run."""

    framework = "torch"

    def __init__(
        self,
        device: str = "auto",
        *,
        seed: int = 0,
        threads: int = 1,
        compile: str = "no",
        updates: float = 0.0,
        compile_cache: bool = True,
        devices: int = 1,
        rank: int = 0,
    ) -> None:
        device = kind_of(device)
        if device == "cuda":
            torch.cuda.init()  # needed to read its generator
        self._threads = threads
        self._generators: dict[str, torch.Tensor] = {}  # the run's states while other code runs
        for kind in (torch.zeros(()), nn.Parameter(torch.zeros(()))):
            ops.of(kind)  # looked up before tracing
        self.device, self.devices = device, devices
        self.compiling, self.updates, self.keeps_programs = compile, updates, compile_cache
        several = devices > 1
        self._device = own_device(device, rank, devices) if several else torch.device(device)
        process.begin(self)
        self.enter_process()
        torch_generators.seed(seed, self._device)
        self.layout = TorchLayout(rank, devices, self._device) if several else None
        self.networks = {}
        self._optimizers = []
        # while an update is traced: the tensors that it changes
        self.tracing: list[torch.Tensor] = []
        self._dirty = False  # whether this update has changed anything

    def enter_process(self) -> None:
        torch.set_num_threads(self._threads)
        torch.set_flush_denormal(True)  # denormal Adam moments of dead units would slow every step
        super().enter_process()
        torch_generators.restore(self._generators, self._device)

    def leave_process(self) -> None:
        self._generators = torch_generators.states(self._device)

    # Networks and optimizers

    def network(self, name: str, source: Source) -> TorchNetwork:
        self.networks[name] = net = self._new_network(name, source)
        for weight in self.held(name, net.parts()):
            weight.requires_grad_(False)
        if self._device.type == "cpu" and net.convolves:
            keep_freed()
        return net

    def _new_network(self, name: str, source: Source) -> TorchNetwork:
        if isinstance(source, CustomNetwork):
            return TorchNetwork(name, *torch_bodies.given(name, source), self._device)
        with self._device:
            module = modules.build(source.plan)
        net = TorchNetwork(name, module, source.plan, self._device)
        net.write(source.weights)
        return net

    def pair(self, name: str, source: Source) -> tuple[TorchNetwork, TorchNetwork]:
        net, target = self.network(name, source), self.network(f"{name}_target", source)
        backend.keep_apart(name, net.weights, target.weights)
        with torch.no_grad():
            for t, s in zip(target.tensors(), net.tensors(), strict=True):
                t.copy_(s)
        for p in target.weights:
            p.requires_grad_(False)
        return net, target

    def scalar(self, name: str, value: float) -> TorchScalar:
        self.networks[name] = scalar = TorchScalar(name, value, self._device)
        return scalar

    def optimizer(
        self, name: str, networks: list[Any], kind: str = "adam", **options: float
    ) -> TorchOptimizer:
        owners = {id(p): n.name for n in networks for p in n.weights}
        for other in self._optimizers:
            if shared := [owners[id(p)] for p in other.parameters if id(p) in owners]:
                raise NetworkError(
                    f"the network {shared[0]!r} has weights that the optimizer {other.name!r} "
                    "already trains.",
                    "one optimizer for each weight",
                    "give networks that share no layers.",
                )
        self.expect_trainable(name, [p for n in networks for p in n.weights if p.requires_grad])
        self.refuse_decay(options)
        chosen = kind if self.given_optimizer is None else self.given_optimizer
        self._optimizers.append(optimizer := TorchOptimizer(name, networks, chosen, options))
        return optimizer

    # Learning

    def gradient(
        self, optimizers: list[Any], losses: backend.Losses, batch: Batch
    ) -> tuple[list[Array], dict[str, Array], list[backend.Gradient]]:
        if self.layout is None:
            return gradients(optimizers, losses, batch)
        take, kind = partial(gradients, optimizers, losses), " ".join(o.name for o in optimizers)
        return self.layout.gradient(take, batch, list(self.networks.values()), kind)

    def apply(
        self,
        optimizer: Any,
        gradient: backend.Gradient,
        learning_rate: Array | None = None,
        keep: Array = True,
    ) -> None:
        if self.tracing:
            inner, (state,) = optimizer.inner, optimizer.inner.state.values()
            move = torch_traced.STEPS[type(inner)]
            move(inner, optimizer.flat, *gradient, state, learning_rate)
        elif keep:
            optimizer.step(gradient, learning_rate)
        else:
            return
        for weight in optimizer.unit:
            weight.copy_(unit_columns(weight))
        for v in optimizer.constrained:
            v.value.copy_(v.constraint(v.value))
        self._dirty = True

    def _norm(self, gradient: backend.Gradient) -> Array:
        return torch.linalg.vector_norm(*gradient)

    def _at_most_one(self, number: Array) -> Array:
        number = torch.clamp(number, max=1.0)
        return torch_traced.once(number) if self.tracing else number

    def trust_region_step(
        self,
        optimizer: TorchOptimizer,
        objective: backend.Each,
        divergence: backend.Each,
        batch: Batch,
        radius: Array,
        region: backend.Region,
        count: Array,
    ) -> dict[str, Array]:
        if self.tracing:
            raise torch_traced.Uncapturable("a step within a trust region is searched for")
        parameters, flat, layout = optimizer.parameters, optimizer.flat.detach(), self.layout
        even = layout is not None and layout.divides(batch)
        mine = layout.part(batch) if layout is not None and even else batch

        def at(each: backend.Each) -> torch.Tensor:
            return backend.reduce(each(mine), mine, count)

        def whole(*parts: torch.Tensor) -> Sequence[torch.Tensor]:
            return parts if layout is None else layout.sums(parts, even, optimizer.name)

        def gradient(value: torch.Tensor, **options: bool) -> torch.Tensor:
            grads = torch.autograd.grad(value, parameters, materialize_grads=True, **options)
            return torch.cat([g.reshape(-1) for g in grads])

        with torch.enable_grad():
            objective_here = at(objective)
            slope = gradient(objective_here)
            changing = gradient(at(divergence), create_graph=True)

        slope, before = whole(slope, objective_here.detach())

        def product(x: torch.Tensor) -> torch.Tensor:
            with torch.enable_grad():
                along = (changing * x).sum()
            (curved,) = whole(gradient(along, retain_graph=True))
            return curved + region.damping * x

        none = torch.zeros((), device=self._device)
        if not self._check(optimizer, (slope * slope).sum() + before):
            return {"improvement": none, "divergence": none}
        x = conjugate_gradient(product, slope, region.iterations, _repeat)
        longest = x * torch.sqrt(2.0 * radius / ((x * product(x)).sum() + 1e-10))
        start = flat.clone()
        for k in range(region.backtracks):
            torch.add(start, longest, alpha=region.shrink**k, out=flat)
            gain, far = whole(at(objective), at(divergence))
            better = gain - before
            if better > 0 and far <= radius:
                self._dirty = True
                return {"improvement": better.detach(), "divergence": far.detach()}
        flat.copy_(start)
        return {"improvement": none, "divergence": none}

    def cond(
        self, flag: Array, update: Callable[[], dict[str, Array]], names: tuple[str, ...]
    ) -> dict[str, Array]:
        if self.tracing:
            return torch_traced.cond(self, flag, update)
        return (
            update()
            if float(flag)
            else {n: torch.tensor(torch.nan, device=self._device) for n in names}
        )

    def derivative(self, f: Callable[[Array], Array], x: Array) -> Array:
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            return torch.autograd.grad(f(leaf), leaf)[0]

    def soft_update(self, source: Any, target: Any, tau: Array, seldom: bool = False) -> None:
        if self.tracing:
            for s, t in zip(source.weights, target.weights, strict=True):
                t.lerp_(s.detach(), tau)
        elif self._code or (mix := float(tau)) == 0.0:
            return
        else:
            self._dirty = True
            torch._foreach_lerp_(target.weights, source.weights, mix)
        for s, t in zip(source.statistics, target.statistics, strict=True):
            if s.shape == t.shape:
                t.copy_(s)  # copy batch-norm statistics instead of mixing them

    def compile(
        self, update: Callable[[Batch], Update], jit: bool = True
    ) -> Callable[..., backend.Outcome]:
        faults, update = self.optimizer_names, self._placing(update)
        if self.layout is not None:
            self.layout.together = self.together
        # if True, a forward pass changes statistics and generators
        stateful_forward = any(n.stateful_forward for n in self.networks.values())
        rebinding = [n for n in self.networks.values() if n.rebinds]
        custom = [o for o in self._optimizers if isinstance(o, TorchOptimizer) and o.is_own_class]
        # if True, the user may change any of them
        shared = any(isinstance(o, TorchOptimizerWrapper) for o in self._optimizers)
        fixed = None if rebinding or shared else list(self._tensors().values())

        def changing() -> list[torch.Tensor]:
            """Return the tensors to restore if an update is rejected. They are looked up each time,
            since a user's weights become views of vectors when training begins, and modules may
            rebind buffers. `minimize_joint` makes no partial changes."""
            return (
                fixed
                if fixed is not None
                else list(self._tensors().values())
                if stateful_forward
                else []
            )

        def one(batches: Batch, settings: dict[str, Array], rows: Array) -> Update:
            self._code, self._dirty = 0, False
            # index_select is many times faster than x[rows]
            several = isinstance(rows, torch.Tensor)
            batch = tree_map(
                lambda x: x.index_select(0, rows) if several else x[rows], batches
            )._replace(settings=settings)
            return update(batch)

        def several(batches: Batch, indices: Array | None) -> backend.Outcome:
            # scalars per update stay on the CPU, where they are read; noise is larger
            settings = {
                n: torch.as_tensor(x, device="cpu") if x.ndim == 1 else self._there(x)
                for n, x in batches.settings.items()
            }
            # noisy updates change weights from the start
            noisy = any(n.startswith(backend.NOISE) for n in settings)
            batches, rows = self.to_device(
                (batches._replace(settings={}), () if indices is None else indices)
            )
            columns = zip(*(x.unbind() for x in settings.values()), strict=True)
            each = [dict(zip(settings, row, strict=True)) for row in columns]
            rows = range(len(each)) if indices is None else rows
            live, bound = changing(), [n.bound() for n in rebinding]
            before = [x.clone() for x in live]
            generators = torch_generators.states(self._device) if stateful_forward else {}
            steps = [deepcopy(o.parts()) for o in custom]
            outs: list[Update] = []
            for k, s in enumerate(each):
                outs.append(one(batches, s, rows[k]))
                if self._code:
                    break
            code = self._code
            good = len(outs) - bool(code)
            # an update was interrupted: restore the start and repeat the good ones
            if code and (self._dirty or stateful_forward or noisy):
                for net in bound:
                    bind(net)
                torch._foreach_copy_(live, before)
                for o, parts in zip(custom, steps, strict=True):
                    o.put(parts)
                torch_generators.restore(generators, self._device)
                for k in range(good):
                    one(batches, each[k], rows[k])
            host = self.to_host(tree_map(lambda *xs: torch.stack(xs), *self.to_device(tuple(outs))))
            return backend.outcome(
                host.metrics, host.priority, [0] * good + [code] * (len(each) - good), faults
            )

        def run(batches: Batch, indices: Array | None = None) -> backend.Outcome:
            with torch.no_grad():
                return several(batches, indices)

        live = (lambda: list(self._tensors().values())) if shared else changing
        if self.layout is not None:
            return backend.skip_empty(self.layout.repeated(run, live))
        return backend.skip_empty(run if shared else torch_calls.Calls(self, update, run, faults))

    # Transfers

    def to_device(self, tree: Tree) -> Tree:
        return tree_map(self._there, tree)

    def _there(self, x: Array) -> torch.Tensor:
        here = x if isinstance(x, torch.Tensor) else torch.as_tensor(x, device="cpu")
        # copies from pinned memory are asynchronous
        pinned = here.device.type == "cpu" and self._device.type != "cpu"
        return (here.pin_memory() if pinned else here).to(self._device, non_blocking=True)

    def to_host(self, tree: Tree) -> Tree:
        return tree_map(lambda x: x.cpu().numpy(), tree)

    # Agents of users

    def joint_gradients(
        self, optimizers: list[TorchOptimizerWrapper], losses: backend.Losses, jit: bool = True
    ) -> Callable[[Batch], AnyArray]:
        reduced = backend.all_reduced(losses)

        def run(batch: Batch) -> AnyArray:
            # a forward pass may change statistics and generators
            before = self.state() if any(o.stateful_forward for o in optimizers) else None
            try:
                found = gradients(optimizers, reduced, self.to_device(batch))[2]
            finally:
                if before is not None:
                    self.load_state(before)
            return np.asarray(torch.cat([x for vectors in found for x in vectors]).cpu().numpy())

        return run

    def adopt(self, modules: dict[str, nn.Module], variables: dict[str, Variable]) -> None:
        for name, module in modules.items():
            self.networks[name] = TorchNetwork(name, module, None, self._device)
        for name, x in variables.items():
            self.networks[name] = TorchFreeVariable(name, x)

    def wrap_optimizer(
        self, name: str, optimizer: object, weights: list[Variable]
    ) -> TorchOptimizerWrapper:
        self._optimizers.append(wrapped := TorchOptimizerWrapper(name, optimizer, weights))
        parameter_ids = {id(p) for p in wrapped.parameters}
        wrapped.stateful_forward = [
            n.module
            for n in self.networks.values()
            if n.stateful_forward and any(id(p) in parameter_ids for p in n.weights)
        ]
        return wrapped

    def forward(self, function: Callable[..., Array]) -> Callable[..., Tree]:
        return lambda *xs: self.call(function, *xs)

    def call(self, function: Callable[..., Tree], *arrays: Tree) -> Tree:
        with torch.inference_mode():
            out = function(*self.to_device(arrays))
        return tree_map(lambda a: stored(a) if isinstance(a, torch.Tensor) else np.asarray(a), out)

    # The processes of several devices

    @property
    def usable(self) -> bool:  # type: ignore[override]
        return self.layout is None or self.layout.group.joined

    def close(self) -> None:
        if self.layout is not None:
            self.layout.close()


def _repeat(count: int, body: Callable[[Tree], Tree], state: Tree) -> Tree:
    for _ in range(count):
        state = body(state)
    return state


BACKEND = TorchBackend  # looked up by `backends.make`
