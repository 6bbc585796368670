"""The state of a torch backend by names for a file. For optimizers it contains tensors, Python
numbers and None, including those in dicts and lists; anything else is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch

from tandem.backends import process, torch_generators
from tandem.backends.backend import AgentBackend
from tandem.errors import ResumeError
from tandem.types import AnyArray, Array

MARK = "#"  # separates a name from the type of a value that is not a tensor
NUMBERS: dict[str, Callable[[float], object]] = {"bool": bool, "int": int, "float": float}


def entries(state: Mapping[str, object]) -> Iterator[tuple[str, Array]]:
    """Yield (name, value) of all tensors, numbers and None."""
    for name, x in state.items():
        kind = type(x).__name__
        if isinstance(x, (dict, list, tuple)):
            inner = x if isinstance(x, dict) else {str(i): part for i, part in enumerate(x)}
            found = list(entries(inner))
            yield from ((f"{name}{MARK}{kind}/{n}", part) for n, part in found)
            if not found:
                yield f"{name}{MARK}{kind}", None
        elif isinstance(x, torch.Tensor):
            yield f"{name}{MARK}bfloat16" if x.dtype is torch.bfloat16 else name, x
        elif x is None or kind in NUMBERS:
            yield f"{name}{MARK}{kind}", x


def stored(x: Array) -> AnyArray:
    """Return a value as a NumPy array. NumPy has no bfloat16."""
    if isinstance(x, torch.Tensor):
        x = x.detach().cpu()
        return np.array((x.float() if x.dtype is torch.bfloat16 else x).numpy())
    return np.array(0 if x is None else x)


def restored(arrays: Mapping[str, AnyArray], place: torch.device) -> dict[str, object]:
    """Return the state with these `entries`: vectors and matrices on device `place`, scalars on the
    CPU, as in torch's own optimizers."""
    parts: dict[str, dict[str, AnyArray]] = {}
    for name, x in arrays.items():
        first, _, rest = name.partition("/")
        parts.setdefault(first, {})[rest] = x
    state: dict[str, object] = {}
    for first, inner in parts.items():
        name, _, kind = first.partition(MARK)
        if kind in ("", "bfloat16"):
            x = torch.tensor(inner[""], dtype=torch.bfloat16 if kind else None)
            state[name] = x.to(place) if x.ndim else x
        elif kind in NUMBERS or kind == "NoneType":
            state[name] = NUMBERS[kind](inner[""].item()) if kind in NUMBERS else None
        else:
            nested = restored({n: x for n, x in inner.items() if n}, place)
            sequence = {"list": list, "tuple": tuple}.get(kind)
            in_order = (nested[n] for n in sorted(nested, key=int)) if sequence else ()
            state[name] = sequence(in_order) if sequence else nested
    return state


class Stateful(AgentBackend):
    """Saving and loading of a backend's state: networks, optimizers and generators."""

    _device: torch.device

    def _values(self) -> dict[str, Array]:
        values = {
            f"network/{name}/{i}": t
            for name, net in self.networks.items()
            for i, t in enumerate(net.tensors())
        }
        for o in self._optimizers:
            values |= {f"optimizer/{o.name}/{n}": x for n, x in o.entries().items()}
        return values

    def _tensors(self) -> dict[str, torch.Tensor]:
        return {n: x for n, x in self._values().items() if isinstance(x, torch.Tensor)}

    def state(self) -> dict[str, AnyArray]:
        with process.restored(self):
            values = self._values() | torch_generators.states(self._device)
        others = {} if self.layout is None else self.layout.generators()
        return {n: stored(x) for n, x in values.items()} | others

    @torch.no_grad()
    def load_state(self, state: dict[str, AnyArray]) -> None:
        for o in self._optimizers:
            start = f"optimizer/{o.name}/"
            saved = {n.removeprefix(start): x for n, x in state.items() if n.startswith(start)}
            if saved and o.is_own_class and self.layout is not None:
                raise ResumeError(
                    f"the state of a {type(o.inner).__name__} supports one device only.",
                    "a torch.optim optimizer, whose state can be sent to all processes",
                    "resume with devices=1.",
                )
            o.load(saved)
        for n, t in self._tensors().items():
            if state[n].shape != tuple(t.shape):  # copy_ would broadcast a scalar to a vector
                raise ValueError(f"{n} has shape {state[n].shape}, here {tuple(t.shape)}")
            t.copy_(torch.as_tensor(state[n], device=t.device))
        with process.restored(self):
            torch_generators.restore(state, self._device)
        if self.layout is not None:
            self.layout.set_generators(state)
