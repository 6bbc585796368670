"""A user's torch optimizer while it trains their agent."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tandem.backends import backend, torch_states
from tandem.errors import SettingError
from tandem.types import AnyArray, Array, JSONDict, Variable

# they treat each number separately, so that many weights can be one vector with one call
ELEMENTWISE = {
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.SGD,
    torch.optim.RMSprop,
    torch.optim.Adagrad,
    torch.optim.Adadelta,
    torch.optim.Adamax,
    torch.optim.NAdam,
    torch.optim.RAdam,
}
ODD = ("capturable", "differentiable", "maximize", "dampening")  # `begin` does not support these
UNFIT = (torch.optim.LBFGS, torch.optim.SparseAdam)
# entries of a group for its weights and its implementation
HOW = {
    "params",
    "fused",
    "foreach",
    "capturable",
    "differentiable",
}
BETAS = ("beta1", "beta2")
FUSED = {torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad}


class TorchOptimizerWrapper:
    """A user's optimizer. During training (`with`), the weights of each of its groups are views of
    one vector, which it optimizes instead if the result is the same; afterwards its weights and
    their state are restored. Weights with fewer steps than others, because they were frozen, form
    another vector with their own step count."""

    unit, constrained = (), ()

    def __init__(self, name: str, optimizer: object, weights: list[Variable]) -> None:
        if not isinstance(optimizer, torch.optim.Optimizer) or isinstance(optimizer, UNFIT):
            raise SettingError(
                f"an optimizer is a {type(optimizer).__name__}.",
                "a torch.optim optimizer of dense gradients that needs no closure, since the "
                "agent's networks are torch modules",
                "give one such as torch.optim.Adam(agent.param).",
            )
        self.name, self.inner = name, optimizer
        self.is_own_class = not type(optimizer).__module__.startswith("torch.optim")
        self.look()
        strangers = {id(p) for p in self.parameters} - {id(p) for p in weights}
        if strangers or not self.parameters:
            what = f"{len(strangers)} tensors that are not in" if strangers else "no weights in"
            raise SettingError(
                f"the optimizer {name} trains {what} agent.param.",
                "the weights in agent.param, or in its entry if there are several optimizers",
                "create it from them: torch.optim.Adam(agent.param), or from agent.param[i] for "
                "the i-th.",
            )
        # trained modules that depend on training mode
        self.stateful_forward: list[nn.Module] = []
        self.flats: list[nn.Parameter] = []
        self._blocks: list[list[Variable]] = []  # the weights of each vector
        self._ages: list[list[int]] = []  # which weights of each group share a vector
        self._saved: list[list[int]] = []  # the same, loaded from a file

    def look(self) -> bool:
        """Find its weights, without those that are currently frozen. Return False: nothing needs to
        be recompiled."""
        self.given = [list(g["params"]) for g in self.inner.param_groups]
        self.groups = [[p for p in g if p.requires_grad] for g in self.given]
        self.parameters = [p for g in self.groups for p in g]
        for p in (p for g in self.given for p in g if not p.requires_grad):
            p.grad = None  # an old gradient would change it again
        return False

    def __enter__(self) -> TorchOptimizerWrapper:
        """Turn the groups into vectors."""
        self.look()
        self._ages = self._saved or [self._ages_of(parameters) for parameters in self.groups]
        self._saved = []
        kind, groups = type(self.inner), self.inner.param_groups
        plain = not any(g.get(n) for g in groups for n in ODD)
        alike = all(len({(p.dtype, p.device) for p in g}) == 1 for g in self.groups)
        if kind not in ELEMENTWISE or not plain or not alike:
            return self
        for group, parameters, age in zip(groups, self.groups, self._ages, strict=True):
            blocks = [
                [p for p, k in zip(parameters, age, strict=True) if k == i]
                for i in range(max(age) + 1)
            ]
            group["params"] = [self._vector(group, block) for block in blocks]
            self._blocks += blocks
        self.parameters = [p for block in self._blocks for p in block]
        return self

    def _ages_of(self, parameters: list[Variable]) -> list[int]:
        """Return numbers from 0 on that are equal for weights with the same number of steps, by
        their counters, and for weights without state."""
        states = [self.inner.state.get(p, {}) for p in parameters]
        keys = [
            (bool(state), *sorted((n, _number(x)) for n, x in state.items() if not _array(x)))
            for state in states
        ]
        kinds = list(dict.fromkeys(keys))
        return [kinds.index(key) for key in keys]

    def _vector(self, group: dict[str, Any], block: list[Variable]) -> nn.Parameter:
        """Turn weights of a group into views of one vector, which takes over their state."""
        with torch.no_grad():
            flat = nn.Parameter(torch.cat([p.reshape(-1) for p in block]))
            for p, part in zip(block, flat.detach().split([p.numel() for p in block]), strict=True):
                p.data = part.view(p.shape)
        states = [self.inner.state.pop(p, {}) for p in block]
        self.flats.append(flat)
        free = group.get("fused") is None and group.get("foreach") is None
        if type(self.inner) in FUSED and free and flat.dtype == torch.float32:
            group["fused"] = True
        if all(states):
            self.inner.state[flat] = {  # scalar counters are kept
                n: torch.cat([s[n].reshape(-1) for s in states]) if _array(x) else x
                for n, x in states[0].items()
            }
        else:
            begin(self.inner, flat, group)
        return flat

    def __exit__(self, *_: object) -> None:
        """Restore its weights."""
        if not self.flats:
            return
        for group, values in zip(self.inner.param_groups, self.given, strict=True):
            group["params"] = values
        for flat, block in zip(self.flats, self._blocks, strict=True):
            state = self.inner.state.pop(flat, {})
            apart = {n: _parted(x, flat, [p.numel() for p in block]) for n, x in state.items()}
            for i, p in enumerate(block):
                if state:
                    self.inner.state[p] = {
                        n: x[i].view(p.shape) if _array(x[i]) else x[i] for n, x in apart.items()
                    }
        self.flats, self._blocks = [], []
        self.look()

    def step(self, gradient: backend.Gradient, rate: None = None) -> None:
        """Make its step against the gradient of `parameters`."""
        moved = self.flats or self.parameters
        parts = gradient[0].split([p.numel() for p in moved])
        for p, part in zip(moved, parts, strict=True):
            p.grad = part.view(p.shape).to(p.dtype)
        self.inner.step()

    def load(self, arrays: dict[str, AnyArray]) -> None:
        """Prepare for loading a state with these names; the state of a user-defined class is loaded
        here."""
        for key, p in self._weights().items() if self.is_own_class else ():
            own = {n.removeprefix(key): x for n, x in arrays.items() if n.startswith(key)}
            self.inner.state[p] = torch_states.restored(own, p.device)
        if arrays and not self.is_own_class:
            self.expect(set(arrays))

    def expect(self, names: set[str]) -> None:
        """Create state that an optimizer normally creates in its first step, as the target for
        loading these names."""
        for key, (group, p) in self._frozen().items():
            if not any(name.startswith(key) for name in names):
                self.inner.state.pop(p, None)
            elif not self.inner.state.get(p):
                begin(self.inner, p, group)
        for group, parameters in zip(self.inner.param_groups, self.groups, strict=True):
            for p in parameters if not self.flats else []:
                if not self.inner.state.get(p):
                    begin(self.inner, p, group)

    def settings(self) -> JSONDict:
        """Return its class, and the numbers of its groups (learning rate, momenta, decay), as JSON
        data."""
        groups = [
            {n: _number(x) for n, x in g.items() if n not in HOW} for g in self.inner.param_groups
        ]
        settings: JSONDict = {
            "kind": type(self.inner).__name__,
            "groups": [{n: x for n, x in g.items() if x is not _NONE} for g in groups],
        }
        if self.is_own_class:
            own = vars(self.inner).items()
            numbers = (bool, int, float)
            settings["own"] = {n: x for n, x in own if isinstance(x, numbers)}
            settings["state"] = {  # shared by all weights
                n: x
                for n, x in self.inner.state.items()
                if isinstance(n, str) and isinstance(x, numbers)
            }
        return settings | ({"ages": self._ages} if self.flats and any(map(any, self._ages)) else {})

    def numbers(self, name: str) -> list[float]:
        """Return its "lr", "weight_decay", "beta1" or "beta2", one for each group that has it."""
        return [float(x) for g in self.inner.param_groups if (x := _of_group(g, name)) is not None]

    def set_numbers(self, name: str, values: list[float]) -> None:
        """Set that value in each group that has it."""
        groups = [g for g in self.inner.param_groups if _of_group(g, name) is not None]
        for group, value in zip(groups, values, strict=True):
            if name in BETAS:
                betas = list(group["betas"])
                betas[BETAS.index(name)] = value
                group["betas"] = tuple(betas)
            elif isinstance(group[name], torch.Tensor):
                group[name].fill_(value)
            else:
                group[name] = value

    def adjust(self, settings: JSONDict) -> None:
        """Set the numbers from `settings`, before it creates state, which depends on some of them.
        Raises ValueError for different weights."""
        self.look()
        self._saved = settings.get("ages") or [[0] * len(g) for g in self.groups]
        if (came := [len(g) for g in self._saved]) != (sizes := [len(g) for g in self.groups]):
            raise ValueError(
                f"its {settings['kind']} has groups of {came} trained weights, this one of {sizes}"
            )
        vars(self.inner).update(settings.get("own", {}))
        self.inner.state.update(settings.get("state", {}))
        for group, saved in zip(self.inner.param_groups, settings["groups"], strict=True):
            for name, value in saved.items():
                now = group.get(name)  # some exist only after the first step
                if isinstance(now, torch.Tensor):  # such as a learning rate set by a scheduler
                    now.fill_(value)
                else:
                    group[name] = tuple(value) if isinstance(value, list) else value

    def entries(self) -> dict[str, Array]:
        """Return its state by name, for the weights that it trains, and for those that it has
        trained and that are now frozen."""
        return {
            f"{key}{n}": x
            for key, p in self._weights().items()
            for n, x in torch_states.entries(self.inner.state.get(p, {}))
        }

    def _weights(self) -> dict[str, Variable]:
        """Return all weights, by the name prefix of their state."""
        weights = {f"{i}/": p for i, p in enumerate(self.flats or self.parameters)}
        return weights | {key: p for key, (_, p) in self._frozen().items()}

    def _frozen(self) -> dict[str, tuple[dict[str, Any], Variable]]:
        """Return (group, weight) of each frozen weight, by the name prefix of its state."""
        groups = zip(self.inner.param_groups, self.given, strict=True)
        everything = [(group, p) for group, parameters in groups for p in parameters]
        return {
            f"frozen/{i}/": (group, p)
            for i, (group, p) in enumerate(everything)
            if not p.requires_grad
        }


def begin(optimizer: torch.optim.Optimizer, weight: torch.Tensor, group: dict[str, Any]) -> None:
    """Create the optimizer's state of `weight`, a member of `group`, as before a first step. Most
    optimizers create it only in that step."""
    before, weight.grad = weight.detach().clone(), torch.zeros_like(weight)
    params, decay = [g["params"] for g in optimizer.param_groups], group.get("weight_decay")
    for g in optimizer.param_groups:
        g["params"] = [weight] if g is group else []
    if decay is not None:
        group["weight_decay"] = 0.0  # it would enter the state as a gradient
    optimizer.step()
    if decay is not None:
        group["weight_decay"] = decay
    for g, before_ in zip(optimizer.param_groups, params, strict=True):
        g["params"] = before_
    with torch.no_grad():
        weight.copy_(before)
    state = optimizer.state.get(weight, {})
    if isinstance(state.get("step"), torch.Tensor):
        state["step"].zero_()
    elif "step" in state:
        state["step"] = 0
    if "mu_product" in state:
        state["mu_product"].fill_(1.0)
    weight.grad = None


def _parted(x: Array, flat: torch.Tensor, sizes: list[int]) -> list[Array]:
    """Split a vector's state into that of each weight; scalar counters are copied."""
    if isinstance(x, torch.Tensor) and x.shape == flat.shape:
        return [part.clone() for part in x.split(sizes)]
    return [x.clone() if isinstance(x, torch.Tensor) else x for _ in sizes]


def _array(x: Array) -> bool:
    return isinstance(x, torch.Tensor) and x.ndim > 0


def _of_group(group: dict[str, Any], name: str) -> Any:
    """Return a number of a group by its name in `numbers`, or None."""
    return (
        group["betas"][BETAS.index(name)] if name in BETAS and "betas" in group else group.get(name)
    )


_NONE = object()  # marks values that are not numbers


def _number(x: Array) -> object:
    """Return a setting as JSON data: a number, several, or None."""
    if getattr(x, "ndim", None) == 0:  # a torch or NumPy scalar
        return x.item()
    if isinstance(x, (tuple, list)):
        parts = [_number(part) for part in x]
        return _NONE if any(part is _NONE for part in parts) else parts
    return x if x is None or isinstance(x, (bool, int, float)) else _NONE
