"""Plans as torch modules, and the other way: weights out and in, and modules of known layers recognised."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from tandem.errors import NetworkError
from tandem.networks import plan as p
from tandem.networks.defaults import Given, apart, example, fit, vector, whole_streams
from tandem.networks.noisy import NoisyDense, is_noise
from tandem.networks.plan import Plan, Weights, init
from tandem.types import tree_map

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


class Direct(nn.Module):
    """A layer that computes its plan's own forward, over torch tensors."""

    def __init__(self, layer: p.Layer) -> None:
        super().__init__()
        self.plan_layer = layer
        for name, value in layer.init(np.random.default_rng(0)).items():
            if name in layer.frozen:
                self.register_buffer(name, torch.as_tensor(value))
            else:
                self.register_parameter(name, nn.Parameter(torch.as_tensor(value)))

    def forward(self, x: Any) -> Any:
        return self.plan_layer.forward({**self._parameters, **self._buffers}, x)


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


class Streams(nn.Module):
    """Modules whose outputs stand side by side: on one input, or each on its own entry of a dict."""

    def __init__(self, layer: p.Streams, parts: list[nn.Module] | None = None) -> None:
        super().__init__()
        self.part, self.names = layer.part, list(layer.plans)
        self.parts = nn.ModuleList(parts or [build(plan) for plan in layer.plans.values()])

    def forward(self, x: Any) -> Any:
        return torch.cat([part(self.part(x, name)) for name, part in zip(self.names, self.parts, strict=True)], -1)


class Dueling(nn.Module):
    """Value and advantage streams."""

    def __init__(self, value: nn.Module, advantage: nn.Module) -> None:
        super().__init__()
        self.value, self.advantage = value, advantage

    def forward(self, x: Any) -> Any:
        return p.combine_dueling(self.value(x), self.advantage(x))


class OnFeatures(nn.Module):
    """The user's body, and our head on its features beside the action."""

    def __init__(self, body: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.body, self.head = body, head

    def forward(self, x: Any) -> Any:
        return self.head(torch.cat([self.body(x["obs"]), x["action"]], -1))


class Joined(nn.Module):
    """A user's whole module; of several outputs, all side by side."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        out = self.inner(x)
        return torch.cat(tuple(out), -1) if isinstance(out, (tuple, list)) else out


def build(plan: Plan) -> nn.Sequential:
    """The module of a plan, with weights still to be loaded."""
    return nn.Sequential(*(_layer(layer) for layer in plan))


def _layer(layer: p.Layer) -> nn.Module:
    if type(layer) is p.Dense:
        return Activated(nn.Linear(layer.inputs, layer.units), layer.activation)
    if isinstance(layer, p.Conv):
        return Activated(nn.Conv2d(layer.channels, layer.filters, layer.kernel, layer.stride), layer.activation)
    if isinstance(layer, p.LayerNorm):
        return nn.LayerNorm(layer.width, layer.epsilon)
    if isinstance(layer, p.Activation):
        return _ACTIVATIONS[layer.activation]()
    special: dict[type, Any] = {
        p.Image: Image, p.Scale: Scale, p.Streams: Streams, p.Branches: Streams, p.Flatten: lambda _: FlattenChannelsLast(),
        p.Dueling: lambda d: Dueling(build(d.value), build(d.advantage)),
    }  # fmt: skip
    return special.get(type(layer), Direct)(layer)


def tensors(plan: Plan, module: Any) -> dict[str, tuple[torch.Tensor, str]]:
    """Every weight of a plan's module by the plan's name for it: (tensor, how it is turned against the plan's layout)."""
    found: dict[str, tuple[torch.Tensor, str]] = {}
    for i, (layer, part) in enumerate(zip(plan, module, strict=True)):
        if type(layer) in (p.Dense, p.Conv):
            inner = part.layer if isinstance(part, Activated) else part
            found[f"{i}/kernel"] = (inner.weight, "dense" if isinstance(layer, p.Dense) else "conv")
            found[f"{i}/bias"] = (inner.bias, "")
        elif isinstance(layer, p.LayerNorm):
            found[f"{i}/scale"], found[f"{i}/bias"] = (part.weight, ""), (part.bias, "")
        elif isinstance(layer, p.Streams):
            for (name, inner_plan), inner in zip(layer.plans.items(), part.parts, strict=True):
                found.update({f"{i}/{name}/{n}": t for n, t in tensors(inner_plan, inner).items()})
        elif isinstance(layer, p.Dueling):
            for name in ("value", "advantage"):
                found.update({f"{i}/{name}/{n}": t for n, t in tensors(getattr(layer, name), getattr(part, name)).items()})
        else:
            found.update({f"{i}/{n}": (getattr(part, n), "") for n in layer.init(np.random.default_rng(0))})
    return found


def noise(module: Any, plan: Plan | None) -> dict[str, torch.Tensor]:
    """The noise of a module's noisy layers, by the plan's names if there is one."""
    if plan is not None:
        return {n: t for n, (t, _) in tensors(plan, module).items() if is_noise(n)}
    layers = {n: m for n, m in module.named_modules() if isinstance(m, Direct) and isinstance(m.plan_layer, NoisyDense)}
    return {f"{n.replace('.', '/')}/{name}": getattr(m, name) for n, m in layers.items() for name in NoisyDense.frozen}


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


# --- what users give ---------------------------------------------------------------------------------------------------


def given(name: str, source: Given) -> tuple[nn.Module, Plan | None]:
    """The network of a role that stands on what the user makes, and its plan where all its layers are known."""
    made = source.make()
    if isinstance(made, tuple):
        return _apart(name, source, made)
    out, plan = _looked_at(name, source, made)
    if not source.head:
        return (nn.Sequential(*chain(made)) if plan is not None else made), plan
    head_plan = fit(source.head, out + (source.inputs["action"].width if source.with_action else 0))
    head = _drawn(head_plan, source.seed)
    if source.with_action:
        return OnFeatures(made, head), None
    return nn.Sequential(*chain(made), *head), plan + head_plan if plan is not None else None


def _looked_at(name: str, source: Given, body: Any) -> tuple[int, Plan | None]:
    """How many numbers a module puts out, and its plan if it is known."""
    if not isinstance(body, nn.Module):
        raise NetworkError(
            f"network= gave a {type(body).__name__} for {name!r}.",
            "a torch.nn.Module, since the framework is torch",
            "return a module, or choose the framework your network is made with.",
        )
    zeros = tree_map(torch.as_tensor, example(source.inputs))
    with torch.no_grad():
        out = source.features(name, lambda: body.eval()(zeros["obs"] if source.head and source.with_action else zeros))
    return int(out.shape[1]), recognise(body, source.inputs.shape[0]) if vector(source.inputs) else None


def _drawn(head: Plan, seed: int) -> nn.Sequential:
    module = build(head)
    write(head, module, init(head, np.random.default_rng(seed)))
    return module


def _apart(name: str, source: Given, bodies: tuple[Any, ...]) -> tuple[nn.Module, Plan | None]:
    """Each stream of the head on a body of its own."""
    looks = [_looked_at(name, source, body) for body in bodies]
    heads = [fit(plan, out) for plan, (out, _) in zip(whole_streams(source.head).values(), looks, strict=True)]
    parts = [nn.Sequential(*chain(b), *_drawn(h, source.seed + i)) for i, (b, h) in enumerate(zip(bodies, heads, strict=True))]
    fork = Dueling(*parts) if isinstance(source.head[0], p.Dueling) else Streams(source.head[0], parts)  # type: ignore[arg-type]
    plans = tuple(plan for _, plan in looks if plan is not None)
    return nn.Sequential(fork), apart(plans, source.head) if len(plans) == len(bodies) else None
