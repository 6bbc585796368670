"""Optimizers for torch, each over one flat parameter, and their gradients."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from tandem.backends import backend, torch_states
from tandem.backends.torch_own import ELEMENTWISE, UNFIT, begin
from tandem.errors import SettingError
from tandem.math.optimization import rectification
from tandem.types import AnyArray, Array, Batch

PLAIN = (type(None), bool, int, float, str)
OTHERS = ("group/", "self/", "all/")  # name prefixes of values that are not the state of a weight


class Flat:
    """An optimizer of one flat parameter with the required part of the torch.optim interface:
    `param_groups`, `state`, `step()`. Not a torch.optim class, because creating one imports torch's
    compiler, which takes a second, and each step runs hooks."""

    def __init__(self, flat: nn.Parameter, **state: torch.Tensor) -> None:
        self.param_groups: list[dict[str, Any]] = [{"params": [flat], "lr": 0.0}]
        self.state: dict[nn.Parameter, dict[str, torch.Tensor]] = {flat: state}

    @torch.no_grad()
    def step(self) -> None:
        """Make a step with the gradient of the flat parameter."""
        (flat,) = self.param_groups[0]["params"]
        self.move(flat, flat.grad, self.state[flat], self.param_groups[0]["lr"])

    def move(self, flat: Array, gradient: Array, state: dict[str, torch.Tensor], lr: float) -> None:
        """Make the step of the optimizer's type."""
        raise NotImplementedError


class TorchAdam(Flat):
    """Adam, bit-identical to torch.optim.Adam(fused=True); with `weight_decay`, to
    torch.optim.AdamW."""

    def __init__(
        self,
        flat: nn.Parameter,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        zeros = torch.zeros_like(flat.detach())
        step = torch.zeros((), device=flat.device)
        super().__init__(flat, step=step, exp_avg=zeros, exp_avg_sq=zeros.clone())
        self.betas, self.epsilon, self.decay = (beta1, beta2), epsilon, weight_decay
        self.fused = torch._fused_adamw_ if weight_decay else torch._fused_adam_

    def move(self, flat: Array, gradient: Array, state: dict[str, torch.Tensor], lr: float) -> None:
        state["step"] += 1
        self.fused(
            [flat],
            [gradient],
            [state["exp_avg"]],
            [state["exp_avg_sq"]],
            [],
            [state["step"]],
            lr=lr,
            beta1=self.betas[0],
            beta2=self.betas[1],
            weight_decay=self.decay,
            eps=self.epsilon,
            amsgrad=False,
            maximize=False,
        )


class TorchRAdam(TorchAdam):
    """RAdam (Liu et al. 2020, arXiv:1908.03265, algorithm 2)."""

    def move(self, flat: Array, gradient: Array, state: dict[str, torch.Tensor], lr: float) -> None:
        state["step"] += 1
        (beta1, beta2), t = self.betas, int(state["step"])
        mean = state["exp_avg"].lerp_(gradient, 1.0 - beta1)
        square = state["exp_avg_sq"]
        square.mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
        step = lr / (1.0 - beta1**t)
        if factor := float(rectification(t, beta2)):
            root = (square / (1.0 - beta2**t)).sqrt_().add_(self.epsilon)
            flat.addcdiv_(mean, root, value=-step * factor)
        else:
            flat.add_(mean, alpha=-step)


class TorchRMSProp(Flat):
    """RMSProp with epsilon inside the root and a mean square that starts at 1, unlike
    torch.optim's."""

    def __init__(self, flat: nn.Parameter, decay: float = 0.99, epsilon: float = 1e-5) -> None:
        super().__init__(flat, square=torch.ones_like(flat.detach()))
        self.decay, self.epsilon = decay, epsilon

    def move(self, flat: Array, gradient: Array, state: dict[str, torch.Tensor], lr: float) -> None:
        square = state["square"]
        square.mul_(self.decay).addcmul_(gradient, gradient, value=1.0 - self.decay)
        flat.addcdiv_(gradient, (square + self.epsilon).sqrt_(), value=-lr)


class TorchRecorder(Flat):
    """A recorder of the gradient, which changes no weight."""

    def __init__(self, flat: nn.Parameter, **_: float) -> None:
        super().__init__(flat, gradient=torch.zeros_like(flat.detach()))

    def move(self, flat: Array, gradient: Array, state: dict[str, torch.Tensor], lr: float) -> None:
        state["gradient"].copy_(gradient)


class TorchSGD(Flat):
    """Plain gradient descent."""

    def move(self, flat: Array, gradient: Array, state: dict[str, torch.Tensor], lr: float) -> None:
        flat.add_(gradient, alpha=-lr)


OPTIMIZERS: dict[str, Callable[..., Flat]] = {
    "adam": TorchAdam,
    "radam": TorchRAdam,
    "rmsprop": TorchRMSProp,
    "sgd": TorchSGD,
    backend.RECORDER: TorchRecorder,
}


class TorchOptimizer:
    """An optimizer of one flat parameter; the networks' weights are views of it."""

    stateful_forward: Sequence[nn.Module] = ()  # networks that know by themselves if they learn

    def __init__(
        self, name: str, networks: list[Any], kind: Any, options: dict[str, float]
    ) -> None:
        self.name, self.networks, self.given = name, networks, not isinstance(kind, str)
        self.parameters = list(
            {id(p): p for n in networks for p in n.weights if p.requires_grad}.values()
        )
        self.sizes = [p.numel() for p in self.parameters]
        self.size = sum(self.sizes)
        with torch.no_grad():
            flat = torch.cat([p.reshape(-1) for p in self.parameters])
            for p, part in zip(self.parameters, flat.split(self.sizes), strict=True):
                p.data = part.view(p.shape)
        # weights to project after a step; a step that is only recorded changes nothing
        moving = [] if kind == backend.RECORDER else networks
        self.unit = [x for n in moving for x in n.unit]
        self.constrained = [v for n in moving for v in n.constrained]
        self.flat = nn.Parameter(flat)
        self.moved = [self.flat]  # the parameters of the inner optimizer
        self.inner: Any
        # a user-defined class has an unknown state before its first step
        self.is_own_class = self.given and not type(kind).__module__.startswith("torch.optim")
        if self.given:
            if type(kind) not in ELEMENTWISE:  # its step may depend on the shape of weights
                self.moved = self.parameters
            self.inner = _copied(kind, self.moved, begins=not self.is_own_class)
            if not any(n.decays for n in networks):
                self.inner.param_groups[0]["weight_decay"] = 0.0
        else:
            self.inner = OPTIMIZERS[kind](self.flat, **options)
        first = self.parts()
        self._first = {n: copy.deepcopy(first[n]) for n in OTHERS if n in first}

    def parts(self) -> dict[str, dict[str, Any]]:
        """Return everything that its steps may change, by name prefix: the state of each weight;
        for a user's optimizer also the options of its group, numeric attributes, and state under
        text keys, which is shared by all weights."""
        parts = {
            "" if x is self.flat else f"{i}/": self.inner.state.get(x, {})
            for i, x in enumerate(self.moved)
        }
        if self.given:
            group, own = self.inner.param_groups[0].items(), vars(self.inner).items()
            parts["group/"] = {n: x for n, x in group if n != "params"}
            parts["self/"] = {n: x for n, x in own if isinstance(x, (int, float, torch.Tensor))}
            parts["all/"] = {n: x for n, x in self.inner.state.items() if isinstance(n, str)}
        return parts

    def put(self, parts: dict[str, dict[str, Any]]) -> None:
        """Set the parts of a user's optimizer."""
        *states, group, own, common = parts.values()
        for x, state in zip(self.moved, states, strict=True):
            self.inner.state.pop(x, None)  # before its first step it has no state
            if state:
                self.inner.state[x] = state
        self.inner.param_groups[0].update(group)
        vars(self.inner).update(own)
        self.inner.state.update(common)

    def entries(self) -> dict[str, Any]:
        """Return everything that its steps have changed, by name."""
        return {
            f"{start}{name}": x
            for start, part in self.parts().items()
            for name, x in torch_states.entries(
                {
                    n: x
                    for n, x in part.items()
                    if _differ(x, self._first.get(start, {}).get(n, ...))
                }
            )
        }

    def load(self, arrays: dict[str, AnyArray]) -> None:
        """Load the entries that a new optimizer does not have."""
        parts = self.parts() if self.given else {}
        for start in parts:
            if self.is_own_class or start in OTHERS:
                own = {n.removeprefix(start): x for n, x in arrays.items() if n.startswith(start)}
                parts[start] = torch_states.restored(own, self.flat.device)
        if parts:
            self.put(parts)

    @property
    def recorded(self) -> AnyArray:
        """The gradient of the latest update; see `Backend.optimizer`."""
        return np.asarray(self.inner.state[self.flat]["gradient"].cpu().numpy())

    def from_vector(self, gradient: torch.Tensor) -> backend.Gradient:
        """Return a gradient [size] as `step` takes it."""
        return [gradient]

    def step(self, gradient: backend.Gradient, rate: Array = None) -> None:
        """Make a step of the inner optimizer, with its own step size if it is the user's."""
        (flat,) = gradient
        if not self.given:
            self.inner.param_groups[0]["lr"] = float(rate)
        if self.moved is self.parameters:
            for p, part in zip(self.parameters, flat.split(self.sizes), strict=True):
                p.grad = part.view(p.shape)
        else:
            self.flat.grad = flat
        self.inner.step()


def _differ(x: object, y: object) -> bool:
    if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
        return not torch.equal(x, y)
    return type(x) is not type(y) or bool(x != y)


def _copied(
    original: object, weights: list[nn.Parameter], begins: bool = True
) -> torch.optim.Optimizer:
    """Return an optimizer of the same type and options over `weights`, as before its first step; if
    `begins`, with the state that it would create in that step."""
    if (
        not isinstance(original, torch.optim.Optimizer)
        or len(original.param_groups) != 1
        or isinstance(original, UNFIT)
    ):
        raise SettingError(
            f"optimizer= is a {type(original).__name__}.",
            "an optimizer name, or a torch.optim optimizer with one parameter group and no "
            "closure, since the networks are torch modules",
            "give one such as torch.optim.AdamW([torch.zeros(1)], lr=3e-4); only its options are "
            "used.",
        )
    taken = inspect.signature(type(original)).parameters
    (group,) = original.param_groups  # its options take precedence: they may have been changed
    given, options = copy.deepcopy(
        (
            {n: v for n, v in original.defaults.items() if n in taken},
            {n: v for n, v in group.items() if n != "params"},
        )
    )
    try:
        copied: torch.optim.Optimizer = type(original)(weights, **given)
    except Exception as error:  # its class may raise anything
        raise SettingError(
            f"optimizer= is a {type(original).__name__}, which cannot be created for the "
            f"networks' weights: {error}",
            "an optimizer of matrices and vectors, created from weights and the options in its "
            "`defaults`",
            "give one such as torch.optim.AdamW([torch.zeros(1)], lr=3e-4).",
        ) from error
    made = vars(copied)
    made.update({n: x for n, x in vars(original).items() if n in made and isinstance(x, PLAIN)})
    copied.param_groups[0].update(options)
    for weight in weights if begins else ():
        if not copied.state[weight]:
            begin(copied, weight, copied.param_groups[0])
    copied.param_groups[0].update(options)  # undoes step counters in the options
    return copied


def gradients(
    optimizers: list[Any], losses: backend.Losses, batch: Batch
) -> tuple[list[Array], dict[str, Array], list[backend.Gradient]]:
    """Return (losses, aux, gradient of each optimizer's weights as one vector), detached; 0 for
    weights that a loss does not depend on. Each optimizer uses its own loss, or all use the only
    one."""
    stateful = [module for o in optimizers for module in o.stateful_forward]
    for module in stateful:
        module.train()
    with torch.enable_grad():
        values, aux = losses(batch)
        groups = [o.parameters for o in optimizers]
        if len(values) == 1:  # one backward pass for all
            groups = [[p for group in groups for p in group]]
        found = [
            g.reshape(-1)
            for i, (value, group) in enumerate(zip(values, groups, strict=True))
            for g in torch.autograd.grad(
                value, group, retain_graph=i + 1 < len(groups), materialize_grads=True
            )
        ]
    for module in stateful:
        module.eval()
    parts = iter(found)
    vectors = [[torch.cat([next(parts) for _ in o.parameters])] for o in optimizers]
    return [v.detach() for v in values], {k: v.detach() for k, v in aux.items()}, vectors
