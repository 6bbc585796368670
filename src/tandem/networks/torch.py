"""Plans as torch modules, and the other way: weights out and in, and modules of known layers recognised."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from tandem.networks import plan as p
from tandem.networks.defaults import Given, fit
from tandem.networks.plan import Plan, Weights
from tandem.networks.recurrent import GRU, Recurrent, unroll

_ACTIVATIONS = {
    "linear": nn.Identity, "tanh": nn.Tanh, "relu": nn.ReLU, "sigmoid": nn.Sigmoid,
    "softplus": nn.Softplus, "elu": nn.ELU, "gelu": nn.GELU, "silu": nn.SiLU,
}  # fmt: skip


class Activated(nn.Module):
    """A layer with weights, and its activation."""

    def __init__(self, layer: nn.Module, activation: str) -> None:
        super().__init__()
        self.layer, self.activation = layer, _ACTIVATIONS[activation]()

    def forward(self, x: Any) -> Any:
        return self.activation(self.layer(x))


class Stateless(nn.Module):
    """A layer without trained weights: its plan's own forward, over torch tensors."""

    def __init__(self, layer: p.Layer) -> None:
        super().__init__()
        self.plan_layer = layer
        for name, value in layer.init(np.random.default_rng(0)).items():
            self.register_buffer(name, torch.as_tensor(value))

    def forward(self, x: Any) -> Any:
        return self.plan_layer.forward(dict(self.named_buffers(recurse=False)), x)


class Image(nn.Module):
    """Bytes to [0, 1], channels first, as torch's convolutions want them."""

    def __init__(self, layer: p.Image) -> None:
        super().__init__()
        self.channels_first = layer.channels_first

    def forward(self, x: Any) -> Any:
        x = x.to(torch.float32) * (1 / 255)
        return x if self.channels_first else x.permute(0, 3, 1, 2)


class FlattenChannelsLast(nn.Module):
    """Flatten in the order that channels-last weights expect."""

    def forward(self, x: Any) -> Any:
        return (x.permute(0, 2, 3, 1) if x.ndim == 4 else x).reshape(x.shape[0], -1)


class Scale(nn.Module):
    """Output beside learned log standard deviations."""

    def __init__(self, layer: p.Scale) -> None:
        super().__init__()
        self.log_std = nn.Parameter(torch.full((layer.width,), float(layer.initial)))

    def forward(self, x: Any) -> Any:
        return torch.cat([x, self.log_std.expand_as(x)], -1)


class Branches(nn.Module):
    """One module for each entry of a dict of inputs."""

    def __init__(self, layer: p.Branches) -> None:
        super().__init__()
        self.names = list(layer.plans)
        self.parts = nn.ModuleList([build(plan) for plan in layer.plans.values()])

    def forward(self, x: Any) -> Any:
        return torch.cat([part(x[name]) for name, part in zip(self.names, self.parts, strict=True)], -1)


class Dueling(nn.Module):
    """Value and advantage streams."""

    def __init__(self, layer: p.Dueling) -> None:
        super().__init__()
        self.value, self.advantage = build(layer.value), build(layer.advantage)

    def forward(self, x: Any) -> Any:
        return p.combine_dueling(self.value(x), self.advantage(x))


class Cell(nn.Module):
    """A GRU, from features, state and starts to the states after each step."""

    def __init__(self, layer: GRU) -> None:
        super().__init__()
        for name, value in layer.init(np.random.default_rng(0)).items():
            self.register_parameter(name, nn.Parameter(torch.as_tensor(value)))

    def forward(self, x: Any, state: Any, start: Any) -> Any:
        w = {"kernel": self.kernel, "recurrent": self.recurrent, "bias": self.bias}
        return unroll(w, x, state, start, state.shape[0])


class Remembering(nn.Module):
    """A body, ours or its user's, a GRU on its features and a head on its states."""

    def __init__(self, body: nn.Module, cell: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.body, self.cell, self.head = body, cell, head

    def forward(self, x: Any) -> Any:
        states = self.cell(self.body(x["obs"]), x["state"], x["start"])
        return torch.cat([self.head(states), states], -1)


def with_memory(body: nn.Module, known: Plan | None, features: int, source: Given) -> tuple[nn.Module, Plan | None]:
    """The user's body with our GRU on its features and our head, and the plan of it all where the body's is known."""
    cell, head, rng = GRU(features, source.units), fit(source.head, source.units), np.random.default_rng(source.seed)
    made = Remembering(nn.Sequential(*chain(body)) if known is not None else body, Cell(cell), build(head))
    with torch.no_grad():
        for name, value in cell.init(rng).items():
            getattr(made.cell, name).copy_(torch.as_tensor(value))
    write(head, made.head, p.init(head, rng))
    plan = None if known is None else (Recurrent(known, features, source.units, head),)
    return made if plan is None else nn.Sequential(made), plan


def build(plan: Plan) -> nn.Sequential:
    """The module of a plan, with weights still to be loaded."""
    return nn.Sequential(*(_layer(layer) for layer in plan))


def _layer(layer: p.Layer) -> nn.Module:
    if isinstance(layer, p.Dense):
        return Activated(nn.Linear(layer.inputs, layer.units), layer.activation)
    if isinstance(layer, p.Conv):
        return Activated(nn.Conv2d(layer.channels, layer.filters, layer.kernel, layer.stride), layer.activation)
    if isinstance(layer, p.LayerNorm):
        return nn.LayerNorm(layer.width, layer.epsilon)
    if isinstance(layer, p.Activation):
        return _ACTIVATIONS[layer.activation]()
    special: dict[type, Any] = {
        p.Image: Image, p.Scale: Scale, p.Branches: Branches, p.Dueling: Dueling, p.Flatten: lambda _: FlattenChannelsLast(),
        GRU: Cell, Recurrent: lambda r: Remembering(build(r.body), Cell(r.cell), build(r.head)),
    }  # fmt: skip
    return special.get(type(layer), Stateless)(layer)


def tensors(plan: Plan, module: Any) -> dict[str, tuple[torch.Tensor, str]]:
    """Every weight of a plan's module by the plan's name for it: (tensor, how it is turned against the plan's layout)."""
    found: dict[str, tuple[torch.Tensor, str]] = {}
    for i, (layer, part) in enumerate(zip(plan, module, strict=True)):
        if isinstance(layer, (p.Dense, p.Conv)):
            inner = part.layer if isinstance(part, Activated) else part
            found[f"{i}/kernel"] = (inner.weight, "dense" if isinstance(layer, p.Dense) else "conv")
            found[f"{i}/bias"] = (inner.bias, "")
        elif isinstance(layer, p.LayerNorm):
            found[f"{i}/scale"], found[f"{i}/bias"] = (part.weight, ""), (part.bias, "")
        elif isinstance(layer, p.Branches):
            for (name, inner_plan), inner in zip(layer.plans.items(), part.parts, strict=True):
                found.update({f"{i}/{name}/{n}": t for n, t in tensors(inner_plan, inner).items()})
        elif isinstance(layer, p.Dueling):
            for name in ("value", "advantage"):
                found.update({f"{i}/{name}/{n}": t for n, t in tensors(getattr(layer, name), getattr(part, name)).items()})
        elif isinstance(layer, Recurrent):
            for name, inner_plan in (("body", layer.body), ("head", layer.head)):
                found.update({f"{i}/{name}/{n}": t for n, t in tensors(inner_plan, getattr(part, name)).items()})
            found.update({f"{i}/cell/{n}": (t, "") for n, t in part.cell.named_parameters()})
        else:
            found.update({f"{i}/{n}": (getattr(part, n), "") for n in layer.init(np.random.default_rng(0))})
    return found


def read(plan: Plan, module: Any) -> Weights:
    """The weights of a plan's module, as NumPy arrays of their own."""
    with torch.no_grad():
        return {
            n: np.array(
                (t.T if turned == "dense" else t.permute(2, 3, 1, 0) if turned == "conv" else t).cpu().numpy(), order="C"
            )
            for n, (t, turned) in tensors(plan, module).items()
        }


def write(plan: Plan, module: Any, weights: Weights) -> None:
    """Puts weights into a plan's module."""
    with torch.no_grad():
        for n, (t, turned) in tensors(plan, module).items():
            value = torch.as_tensor(np.asarray(weights[n]))
            t.copy_(value.T if turned == "dense" else value.permute(3, 2, 0, 1) if turned == "conv" else value)


def recognise(module: Any, features: int) -> Plan | None:
    """The plan of a user's module that is a chain of known layers on `features` numbers; None where it is anything else."""
    by_type = {v: k for k, v in _ACTIVATIONS.items()}
    plan: list[p.Layer] = []
    for part in chain(module):
        if not _plain(part):
            return None
        if type(part) is nn.Linear:
            features = part.out_features
            plan.append(p.Dense(part.in_features, features))
        elif type(part) is nn.LayerNorm:
            plan.append(p.LayerNorm(features, part.eps))
        elif type(part) in by_type:
            plan.append(p.Activation(by_type[type(part)]))
        else:
            return None
    return tuple(plan) if any(isinstance(layer, p.Dense) for layer in plan) else None


def chain(module: Any) -> list[Any]:
    """The modules that `module` calls one after the other: those of a Sequential, else itself alone."""
    return list(module) if type(module) is nn.Sequential else [module]  # a subclass may call them otherwise


def _plain(part: Any) -> bool:
    """Whether a module does just what its plan's layer does: no hooks, no options that a plan cannot express."""
    if part._forward_hooks or part._forward_pre_hooks or any(w.dtype != torch.float32 for w in part.parameters()):
        return False
    if type(part) is nn.Linear:
        return part.bias is not None
    if type(part) is nn.LayerNorm:
        return len(part.normalized_shape) == 1 and bool(part.elementwise_affine) and part.bias is not None
    options = {nn.GELU: ("approximate", "none"), nn.ELU: ("alpha", 1.0), nn.Softplus: ("beta", 1.0)}
    name, wanted = options.get(type(part), ("training", part.training))
    return bool(getattr(part, name) == wanted)
