"""Torch modules that users make, completed with our heads; those that are chains of a plan's layers
are recognized."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import nn

from tandem.errors import NetworkError
from tandem.networks import plan as p
from tandem.networks.defaults import CustomNetwork, apart, example, fit, remembering, whole_streams
from tandem.networks.implicit import quantile_network
from tandem.networks.plan import Layer, Plan, init
from tandem.networks.torch_layers import (
    ACTIVATIONS,
    TorchCell,
    TorchDueling,
    TorchRecurrent,
    TorchStreams,
    build,
    write,
)
from tandem.networks.users import refuse_precision
from tandem.types import Array, tree_map


class TorchFeatureCritic(nn.Module):
    """The user's body, and our head on its features beside the action."""

    def __init__(self, body: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.body, self.head = body, head

    def forward(self, x: Array) -> Array:
        return self.head(torch.cat([self.body(x["obs"]), x["action"]], -1))


class Joined(nn.Module):
    """A user's whole module; of several outputs, all side by side."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Array) -> Array:
        out = self.inner(x)
        return torch.cat(tuple(out), -1) if isinstance(out, (tuple, list)) else out


def given(name: str, source: CustomNetwork) -> tuple[nn.Module, Plan | None]:
    """The network of a role that stands on what the user makes, and its plan where all its layers
    are known."""
    network = source.make()
    if isinstance(network, tuple):
        return _apart(name, source, network)
    out, plan = _looked_at(name, source, network)
    if not source.head and not source.tail:
        return (nn.Sequential(*chain(network)) if plan is not None else network), plan
    if source.units:
        return _with_memory(network, plan, out, source)
    if source.cosines:
        return _with_fractions(network, plan, out, source)
    head_plan = fit(
        source.head or source.tail,
        out + (source.inputs["action"].width if source.with_action else 0),
    )
    head = _drawn(head_plan, source.seed)
    if source.with_action:
        return TorchFeatureCritic(network, head), None
    return nn.Sequential(*chain(network), *head), plan + head_plan if plan is not None else None


def _looked_at(name: str, source: CustomNetwork, body: nn.Module) -> tuple[int, Plan | None]:
    """How many numbers a module puts out, and its plan if it is known."""
    if not isinstance(body, nn.Module):
        raise NetworkError(
            f"network= returned a {type(body).__name__} for {name!r}.",
            "a torch.nn.Module, since the framework is torch",
            "return a module, or choose your network's framework.",
        )
    for x in (x for x in body.parameters() if x.dtype.is_floating_point):  # lazy ones, too
        refuse_precision(name, "weights", x.dtype, "call .float() on the network.")
    there = next((t.device for t in (*body.parameters(), *body.buffers())), None)
    zeros = tree_map(partial(torch.as_tensor, device=there), example(source.inputs))
    with torch.no_grad():
        out = source.features(
            name,
            lambda: body.eval()(zeros["obs"] if source.head and source.beside else zeros),
            "tandem.networks.torch_sequences.LastStep()",
        )
    fix = "end its forward method with a call of .float()."
    refuse_precision(name, "outputs", out.dtype, fix)
    return int(out.shape[1]), recognize(body)


def _drawn(head: Plan, seed: int) -> nn.Sequential:
    module = build(head)
    write(head, module, init(head, np.random.default_rng(seed)))
    return module


def _apart(
    name: str, source: CustomNetwork, bodies: tuple[nn.Module, ...]
) -> tuple[nn.Module, Plan | None]:
    """Each stream of the head on a body of its own."""
    looks = [_looked_at(name, source, body) for body in bodies]
    heads = [
        fit(plan, out)
        for plan, (out, _) in zip(whole_streams(source.head).values(), looks, strict=True)
    ]
    parts = [
        nn.Sequential(*chain(b), *_drawn(h, source.seed + i))
        for i, (b, h) in enumerate(zip(bodies, heads, strict=True))
    ]
    fork: nn.Module = (
        TorchDueling(*parts)
        if isinstance(source.head[0], p.Dueling)
        else TorchStreams(source.head[0], parts)  # type: ignore[arg-type]
    )
    plans = tuple((plan, out) for out, plan in looks if plan is not None)
    return nn.Sequential(fork), apart(plans, source.head) if len(plans) == len(bodies) else None


def _with_fractions(
    body: nn.Module, known: Plan | None, features: int, source: CustomNetwork
) -> tuple[nn.Module, Plan | None]:
    """The user's body, the fractions' embedding and our head, and the plan of it all where the
    body's is known."""
    head = fit(source.head, features)
    module = _drawn(quantile_network((), features, source.cosines, head), source.seed)
    module[0].parts[0] = nn.Sequential(*chain(body)) if known is not None else body
    if known is None:
        return module, None
    return module, quantile_network(known, features, source.cosines, head)


def _with_memory(
    body: nn.Module, known: Plan | None, features: int, source: CustomNetwork
) -> tuple[nn.Module, Plan | None]:
    """The user's body with our memory of its features and our head, and the plan of it all where
    the body's is known."""
    layer = remembering(source, known or (), features)
    rng = np.random.default_rng(source.seed)
    module = TorchRecurrent(
        nn.Sequential(*chain(body)) if known is not None else body,
        TorchCell(layer.cell),
        build(layer.head),
    )
    with torch.no_grad():
        for name, value in layer.cell.init(rng).items():
            module.cell.get_parameter(name).copy_(torch.as_tensor(value))
    write(layer.head, module.head, init(layer.head, rng))
    return (module, None) if known is None else (nn.Sequential(module), (layer,))


NAMES = {kind: name for name, kind in ACTIVATIONS.items()}
# the options of those whose plan has no others
OPTIONS: dict[type[nn.Module], dict[str, object]] = {
    nn.GELU: {"approximate": "none"},
    nn.ELU: {"alpha": 1.0},
    nn.Softplus: {"beta": 1.0, "threshold": 20.0},
}


def recognize(module: nn.Module) -> Plan | None:
    """The plan of a user's module that is a chain of a plan's layers; None for any other, and for
    one without weights."""
    layers = [known(part) for part in chain(module)]
    plan = tuple(layer for layer in layers if layer is not None)
    return plan if len(plan) == len(layers) and any(True for _ in module.parameters()) else None


def chain(module: nn.Module) -> list[nn.Module]:
    """The modules that `module` calls one after the other: those of a Sequential, and of those in
    it, else itself alone."""
    # a subclass may call them otherwise
    if type(module) is not nn.Sequential or not as_written(module):
        return [module]
    return [inner for part in module for inner in chain(part)]


def as_written(part: nn.Module) -> bool:
    """Whether calling a module is its class's forward, and nothing besides."""
    return not (part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part))


def known(part: nn.Module) -> Layer | None:
    """The layer of a plan that does the same as this module."""
    kind, options = type(part), vars(part)
    if not as_written(part):
        return None
    if isinstance(part, nn.Linear) and kind is nn.Linear and part.bias is not None:
        return p.Dense(part.in_features, part.out_features)
    if isinstance(part, nn.LayerNorm) and kind is nn.LayerNorm and part.bias is not None:
        width, *more = part.normalized_shape
        return None if more else p.LayerNorm(width, part.eps)
    if kind is nn.Flatten and (options["start_dim"], options["end_dim"]) == (1, -1):
        return p.Flatten()
    if kind in NAMES and all(options[n] == x for n, x in OPTIONS.get(kind, {}).items()):
        return p.Activation(NAMES[kind])
    return None
