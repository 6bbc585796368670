"""Conversion of plans to torch modules, and reading and writing of their weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from tandem.networks import plan as p
from tandem.networks.implicit import Product
from tandem.networks.noisy import NoisyDense, is_noise
from tandem.networks.plan import Plan, Weights
from tandem.networks.recurrent import MEMORIES, Memory, Recurrent, beside
from tandem.networks.renorm import BatchRenorm
from tandem.networks.several import Several
from tandem.networks.simba import RunningNorm
from tandem.networks.torch_products import linear
from tandem.networks.weight_norm import WeightNormConv, normalized
from tandem.types import Array, Tree, Variable

ACTIVATIONS = {
    "linear": nn.Identity, "tanh": nn.Tanh, "relu": nn.ReLU, "sigmoid": nn.Sigmoid,
    "softplus": nn.Softplus, "elu": nn.ELU, "gelu": nn.GELU, "silu": nn.SiLU,
}  # fmt: skip


FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "linear": lambda x: x,
    "tanh": torch.tanh,
    "relu": torch.relu,
}


class Activated(nn.Module):
    """A layer with weights, followed by its activation."""

    def __init__(self, layer: nn.Module, activation: str) -> None:
        super().__init__()
        self.layer, self.activation = layer, ACTIVATIONS[activation]()
        self._dense = isinstance(layer, nn.Linear)
        self._name = activation if activation in FUNCTIONS else ""

    def forward(self, x: Array) -> Array:
        if not self._dense:
            return self.activation(self.layer(x))
        # avoids calls of modules: 3% of an update of small networks
        x = linear(x, self.layer.weight, self.layer.bias)
        return FUNCTIONS[self._name](x) if self._name else self.activation(x)


class Direct(nn.Module):
    """A layer that runs its plan's forward function over torch tensors."""

    def __init__(self, layer: p.Layer) -> None:
        super().__init__()
        self.plan_layer = layer
        first = layer.init(np.random.default_rng(0))
        self.weight_names = tuple(first)  # stored, since sampling weights again may take long
        for name, value in first.items():
            if name in layer.frozen:
                self.register_buffer(name, torch.as_tensor(value))
            else:
                self.register_parameter(name, nn.Parameter(torch.as_tensor(value)))

    def forward(self, x: Array) -> Array:
        return self.plan_layer.forward({**self._parameters, **self._buffers}, x)


class TorchNormalization(Direct):
    """A layer whose statistics change in training mode."""

    plan_layer: BatchRenorm | RunningNorm

    def forward(self, x: Array) -> Array:
        if not self.training:
            return super().forward(x)
        out, moved = self.plan_layer.train({**self._parameters, **self._buffers}, x)
        for name, value in moved.items():
            self._buffers[name].copy_(value)
        return out


class TorchWeightNormConv(Direct):
    """A convolution with weight normalization over channels-first images."""

    plan_layer: WeightNormConv

    def forward(self, x: Array) -> Array:
        w, layer = self._parameters, self.plan_layer
        kernel = normalized(w).permute(3, 2, 0, 1)
        x = nn.functional.conv2d(x, kernel, w["bias"], layer.stride)
        return p.activate(layer.activation, x)


class TorchImage(nn.Module):
    """Scaling of bytes to [0, 1]. Channels are first, as torch's convolutions require, but on CPUs
    last in memory: an update of the Nature CNN takes a quarter less time there, and flattening in
    our order is free."""

    def __init__(self, layer: p.Image) -> None:
        super().__init__()
        self.channels_first = layer.channels_first

    def forward(self, x: Array) -> Array:
        x = x if self.channels_first else x.permute(0, 3, 1, 2)
        if x.device.type == "cpu":
            # converts bytes, a quarter of the size of floats
            x = x.contiguous(memory_format=torch.channels_last)
        return x.to(torch.float32) * (1 / 255)


class ChannelNorm(nn.LayerNorm):
    """Layer normalization of each pixel's channels, which are first here and last in the plan."""

    def forward(self, x: Array) -> Array:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class FlattenChannelsLast(nn.Module):
    """A module that flattens in the order of channels-last weights."""

    def forward(self, x: Array) -> Array:
        return (x.permute(0, 2, 3, 1) if x.ndim == 4 else x).reshape(x.shape[0], -1)


class TorchScale(nn.Module):
    """A module that appends learned log standard deviations."""

    weight_names = ("log_std",)

    def __init__(self, layer: p.Scale) -> None:
        super().__init__()
        self.log_std = nn.Parameter(torch.full((layer.width,), float(layer.initial)))

    def forward(self, x: Array) -> Array:
        return torch.cat([x, self.log_std.expand_as(x)], -1)


class TorchStreams(nn.Module):
    """Modules on one input, or each on its own entry of a dict, with outputs that are usually
    concatenated."""

    def __init__(self, layer: p.Streams, parts: list[nn.Module] | None = None) -> None:
        super().__init__()
        self.part, self.joined, self.names = layer.part, layer.joined, list(layer.plans)
        self.parts = nn.ModuleList(parts or [build(plan) for plan in layer.plans.values()])

    def forward(self, x: Array) -> Array:
        return self.joined(
            [part(self.part(x, name)) for name, part in zip(self.names, self.parts, strict=True)]
        )


class TorchDueling(nn.Module):
    """Value and advantage streams."""

    def __init__(self, value: nn.Module, advantage: nn.Module) -> None:
        super().__init__()
        self.value, self.advantage = value, advantage

    def forward(self, x: Array) -> Array:
        return p.combine_dueling(self.value(x), self.advantage(x))


class TorchCell(nn.Module):
    """A recurrent layer from features, state and starts to the states after each step."""

    def __init__(self, layer: Memory) -> None:
        super().__init__()
        self.plan_layer = layer
        for name, value in layer.init(np.random.default_rng(0)).items():
            self.register_parameter(name, nn.Parameter(torch.as_tensor(value)))

    def forward(self, x: Array, state: Tree, start: Array) -> Array:
        w = {"kernel": self.kernel, "recurrent": self.recurrent, "bias": self.bias}
        return self.plan_layer.unroll(w, x, state, start, state.shape[0])


class TorchRecurrent(nn.Module):
    """A feature extractor, tandem's or the user's, a recurrent layer on its features, and a head on
    the states."""

    def __init__(self, body: nn.Module, cell: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.body, self.cell, self.head = body, cell, head

    def forward(self, x: Array) -> Array:
        states = self.cell(self.body(x["obs"]), x["state"], x["start"])
        return torch.cat([self.head(beside(states, x, self.cell.plan_layer.units)), states], -1)


def build(plan: Plan) -> nn.Sequential:
    """Return the module of a plan, with weights still to be loaded."""
    modules: list[nn.Module] = []
    pictures = False  # whether rows are channels-first images
    for layer in plan:
        if pictures and isinstance(layer, p.LayerNorm):
            modules.append(ChannelNorm(layer.width, layer.epsilon))
        else:
            modules.append(_layer(layer))
        pictures = isinstance(layer, p.Conv) or (pictures and not isinstance(layer, p.Flatten))
    return nn.Sequential(*modules)


def _layer(layer: p.Layer) -> nn.Module:
    if type(layer) is p.Dense:
        return Activated(nn.Linear(layer.inputs, layer.units), layer.activation)
    if type(layer) is p.Conv:
        return Activated(
            nn.Conv2d(layer.channels, layer.filters, layer.kernel, layer.stride), layer.activation
        )
    if isinstance(layer, p.LayerNorm):
        return nn.LayerNorm(layer.width, layer.epsilon)
    if isinstance(layer, p.Activation):
        return ACTIVATIONS[layer.activation]()
    special: dict[type, Callable[..., nn.Module]] = {
        p.Image: TorchImage, p.Scale: TorchScale, p.Flatten: lambda _: FlattenChannelsLast(),
        **dict.fromkeys((p.Streams, p.Branches, Several, Product), TorchStreams),
        **dict.fromkeys((BatchRenorm, RunningNorm), TorchNormalization),
        WeightNormConv: TorchWeightNormConv,
        p.Dueling: lambda d: TorchDueling(build(d.value), build(d.advantage)),
        Recurrent: lambda r: TorchRecurrent(build(r.body), TorchCell(r.cell), build(r.head)),
        **dict.fromkeys(MEMORIES.values(), TorchCell),
    }  # fmt: skip
    return special.get(type(layer), Direct)(layer)


def tensors(plan: Plan, module: nn.Module) -> dict[str, tuple[Variable, str]]:
    """Return every weight of a plan's module by the plan's name, as (tensor, type of its
    transposition relative to the plan's layout)."""
    by_name: dict[str, tuple[Variable, str]] = {}

    def add(place: str, inner_plan: Plan, inner: nn.Module) -> None:
        by_name.update({f"{place}/{n}": t for n, t in tensors(inner_plan, inner).items()})

    for i, (layer, part) in enumerate(zip(plan, module, strict=True)):
        if type(layer) in (p.Dense, p.Conv):
            inner = part.layer if isinstance(part, Activated) else part
            by_name[f"{i}/kernel"] = (
                inner.weight,
                "dense" if isinstance(layer, p.Dense) else "conv",
            )
            by_name[f"{i}/bias"] = (inner.bias, "")
        elif isinstance(layer, p.LayerNorm):
            by_name[f"{i}/scale"], by_name[f"{i}/bias"] = (part.weight, ""), (part.bias, "")
        elif isinstance(layer, p.Streams):
            for (name, inner_plan), inner in zip(layer.plans.items(), part.parts, strict=True):
                add(f"{i}/{name}", inner_plan, inner)
        elif isinstance(layer, p.Dueling):
            add(f"{i}/value", layer.value, part.value)
            add(f"{i}/advantage", layer.advantage, part.advantage)
        elif isinstance(layer, Recurrent):
            add(f"{i}/body", layer.body, part.body)
            add(f"{i}/head", layer.head, part.head)
            by_name.update({f"{i}/cell/{n}": (t, "") for n, t in part.cell.named_parameters()})
        elif isinstance(part, (Direct, TorchScale)):
            by_name.update({f"{i}/{n}": (getattr(part, n), "") for n in part.weight_names})
    return by_name


def noise(module: nn.Module, named: dict[str, Variable]) -> dict[str, torch.Tensor]:
    """Return the noise of a module's noisy layers, by the names in `named` if given."""
    if named:
        return {n: t for n, t in named.items() if is_noise(n)}
    return {
        f"{n.replace('.', '/')}/{name}": m._buffers[name]
        for n, m in module.named_modules()
        if isinstance(m, Direct) and isinstance(m.plan_layer, NoisyDense)
        for name in NoisyDense.frozen
    }


# permutations from a torch weight's axes to the plan's, and back
PLANNED = {"dense": (1, 0), "conv": (2, 3, 1, 0)}
IN_TORCH = {"dense": (1, 0), "conv": (3, 2, 0, 1)}


def read(plan: Plan, module: nn.Module) -> Weights:
    """Return copies of the weights of a plan's module as NumPy arrays."""
    with torch.no_grad():
        return {
            n: np.array((t.permute(PLANNED[turned]) if turned else t).cpu().numpy(), order="C")
            for n, (t, turned) in tensors(plan, module).items()
        }


def write(plan: Plan, module: nn.Module, weights: Weights) -> None:
    """Set the weights of a plan's module."""
    with torch.no_grad():
        for n, (t, turned) in tensors(plan, module).items():
            value = torch.as_tensor(np.asarray(weights[n]), device="cpu")
            t.copy_(value.permute(IN_TORCH[turned]) if turned else value)
