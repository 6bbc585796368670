"""Custom torch modules completed with tandem's heads. Modules that are chains of a plan's layers
are recognized."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import nn

from tandem.errors import NetworkError
from tandem.networks import plan as p
from tandem.networks.defaults import (
    CustomNetwork,
    apart,
    example,
    fit,
    recurrent_layer,
    whole_streams,
)
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
    """A custom feature extractor, and tandem's head on its features and the action."""

    def __init__(self, body: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.body, self.head = body, head

    def forward(self, x: Array) -> Array:
        return self.head(torch.cat([self.body(x["obs"]), x["action"]], -1))


class Joined(nn.Module):
    """A complete custom module; multiple outputs are concatenated."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Array) -> Array:
        out = self.inner(x)
        return torch.cat(tuple(out), -1) if isinstance(out, (tuple, list)) else out


def given(name: str, source: CustomNetwork) -> tuple[nn.Module, Plan | None]:
    """Return a role's network based on the user's module, and its plan if all layers are known."""
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
    """Check a module. Return its number of outputs, and its plan if it is known."""
    if not isinstance(body, nn.Module):
        raise NetworkError(
            f"network= returned a {type(body).__name__} for {name!r}.",
            "a torch.nn.Module, since the framework is torch",
            "return a module, or choose your network's framework.",
        )
    for x in (x for x in body.parameters() if x.dtype.is_floating_point):  # includes lazy ones
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
    """Give each stream of the head its own feature extractor."""
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
    """Return the custom feature extractor with the fractions' embedding and tandem's head, and the
    whole plan if the feature extractor's is known."""
    head = fit(source.head, features)
    module = _drawn(quantile_network((), features, source.cosines, head), source.seed)
    module[0].parts[0] = nn.Sequential(*chain(body)) if known is not None else body
    if known is None:
        return module, None
    return module, quantile_network(known, features, source.cosines, head)


def _with_memory(
    body: nn.Module, known: Plan | None, features: int, source: CustomNetwork
) -> tuple[nn.Module, Plan | None]:
    """Return the custom feature extractor with tandem's recurrent layer and head, and the whole
    plan if the feature extractor's is known."""
    layer = recurrent_layer(source, known or (), features)
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
# required options of activations that have no options in plans
OPTIONS: dict[type[nn.Module], dict[str, object]] = {
    nn.GELU: {"approximate": "none"},
    nn.ELU: {"alpha": 1.0},
    nn.Softplus: {"beta": 1.0, "threshold": 20.0},
}


def recognize(module: nn.Module) -> Plan | None:
    """Return the plan of a custom module that is a chain of a plan's layers; None for any other
    module, and for one without weights."""
    layers = [known(part) for part in chain(module)]
    plan = tuple(layer for layer in layers if layer is not None)
    return plan if len(plan) == len(layers) and any(True for _ in module.parameters()) else None


def chain(module: nn.Module) -> list[nn.Module]:
    """Return the modules that `module` calls in sequence: those of a Sequential and its nested
    ones, or the module itself."""
    # a subclass may call them differently
    if type(module) is not nn.Sequential or not as_written(module):
        return [module]
    return [inner for part in module for inner in chain(part)]


def as_written(part: nn.Module) -> bool:
    """True if calling a module only runs the forward method of its class."""
    return not (part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part))


def known(part: nn.Module) -> Layer | None:
    """Return the plan's layer equivalent to this module, or None."""
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
