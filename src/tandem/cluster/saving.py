"""What an agent of any class goes on from after a restart: networks, optimizers and plain values
among its attributes. No framework is imported for it: each is known by what it can do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from tandem.errors import CheckpointError, TandemError
from tandem.types import Array

State = tuple[dict[str, Any], dict[str, Array]]
PLAIN = (bool, int, float, str)
NUMBERS = (np.bool_, np.integer, np.floating)  # as counters become that are added to by NumPy
MADE = (
    "_firing",
    "sync",
)  # attributes that say who else acts, in the program that made the agent: not of what it learned


def state_of(agent: Any) -> State:
    """By the agent's own `state` if it has one."""
    return agent.state() if callable(getattr(agent, "state", None)) else collected(agent)


def load_into(agent: Any, data: dict[str, Any], arrays: dict[str, Array]) -> None:
    """Gives an agent back what `state_of` took. CheckpointError where it does not fit."""
    try:
        if callable(getattr(agent, "load_state", None)):
            agent.load_state(data, arrays)
        else:
            restore(agent, data, arrays)
    except TandemError:
        raise  # it says already what is wrong
    except (KeyError, ValueError, RuntimeError, TypeError) as error:
        raise CheckpointError(
            f"the kept state of {type(agent).__name__} does not fit it ({type(error).__name__}: "
            f"{str(error)[:200]}).",
            "an agent of the class, and with the hyperparameters, that it was kept from",
            "give it another name or another folder, or define state() and load_state(data, "
            "arrays).",
        ) from error


def collected(agent: Any) -> State:
    """(JSON data, arrays) of an agent's attributes; copies."""
    data: dict[str, Any] = {"plain": {}, "optimizers": {}}
    arrays: dict[str, Array] = {}
    for name, value in _attributes(agent):
        kind = _kind(value)
        if kind == "plain":
            data["plain"][name] = value.item() if isinstance(value, NUMBERS) else value
        elif kind == "keras":
            arrays |= {f"{name}/{i}": np.array(w) for i, w in enumerate(value.get_weights())}
        elif kind == "module":
            arrays |= {
                f"{name}/{n}": _numpy(w)
                for n, w in value.state_dict().items()
                if hasattr(w, "detach")
            }
        elif kind == "optimizer":
            told = value.state_dict()
            values: dict[str, dict[str, Any]] = {}
            for i, entries in told["state"].items():
                arrays |= {
                    f"{name}/{i}/{n}": _numpy(x) for n, x in entries.items() if hasattr(x, "detach")
                }
                values[str(i)] = {
                    n: x for n, x in entries.items() if isinstance(x, PLAIN) or x is None
                }
            groups = [{n: x for n, x in g.items() if _json(x)} for g in told["param_groups"]]
            data["optimizers"][name] = {"values": values, "groups": groups}
    return data, arrays


def restore(agent: Any, data: dict[str, Any], arrays: dict[str, Array]) -> None:
    """Gives an agent back what `collected` took."""
    found = dict(_attributes(agent))
    for name, value in data["plain"].items():
        if name in vars(agent) and name not in MADE:
            setattr(agent, name, value)
    for name, value in found.items():
        mine = {n[len(name) + 1 :]: x for n, x in arrays.items() if n.startswith(f"{name}/")}
        kind = _kind(value)
        if kind == "keras" and mine:
            value.set_weights([mine[str(i)] for i in range(len(mine))])
        elif kind == "module":
            for n, w in value.state_dict().items():
                if n in mine:
                    w.copy_(
                        w.new_tensor(mine[n]).reshape(mine[n].shape)
                    )  # shares the parameter's memory
        elif kind == "optimizer" and name in data["optimizers"]:
            _restore_optimizer(value, data["optimizers"][name], mine)


def _restore_optimizer(optimizer: Any, data: dict[str, Any], arrays: dict[str, Array]) -> None:
    prototype = optimizer.param_groups[0]["params"][0].detach().cpu()
    state: dict[int, dict[str, Any]] = {
        int(i): dict(values) for i, values in data["values"].items()
    }
    for name, x in arrays.items():
        i, _, n = name.partition("/")
        state.setdefault(int(i), {})[n] = prototype.new_tensor(x).reshape(x.shape)
    own = optimizer.state_dict()["param_groups"]
    groups = [
        {**now, **{n: tuple(x) if isinstance(now.get(n), tuple) else x for n, x in then.items()}}
        for now, then in zip(own, data["groups"], strict=True)
    ]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _attributes(agent: Any) -> Iterator[tuple[str, Any]]:
    """An agent's attributes, and what stands in those that are lists, tuples or dicts with texts
    for keys."""
    for name, value in vars(agent).items():
        if name in MADE:
            continue
        yield name, value
        if isinstance(value, dict):
            yield from (
                (f"{name}.{k}", v)
                for k, v in value.items()
                if isinstance(k, str) and not isinstance(v, PLAIN + NUMBERS)
            )
        elif isinstance(value, (list, tuple)):
            yield from (
                (f"{name}.{i}", v)
                for i, v in enumerate(value[:64])
                if not isinstance(v, PLAIN + NUMBERS)
            )


def _kind(value: Any) -> str:
    if isinstance(value, PLAIN + NUMBERS):
        return "plain"
    if isinstance(value, type):
        return ""
    with contextlib.suppress(Exception):  # objects of other libraries answer to names as they like
        if all(
            callable(getattr(value, n, None)) for n in ("get_weights", "set_weights", "summary")
        ):
            return "keras"
        if callable(getattr(value, "load_state_dict", None)) and callable(
            getattr(value, "state_dict", None)
        ):
            return "optimizer" if isinstance(getattr(value, "param_groups", None), list) else (
                "module" if callable(getattr(value, "parameters", None)) else ""
            )  # fmt: skip
    return ""


def _json(value: Any) -> bool:
    return isinstance(value, PLAIN) or value is None or (
        isinstance(value, (list, tuple)) and all(isinstance(x, PLAIN) for x in value)
    )  # fmt: skip


def _numpy(tensor: Any) -> Array:
    x = tensor.detach().cpu()
    return np.array((x.float() if str(x.dtype) == "torch.bfloat16" else x).numpy())


def on_cpu(param: Any) -> Any:
    """A copy of parameters: dicts, lists and tuples stay what they are, tensors are on the CPU,
    arrays are copied."""
    if isinstance(param, dict):
        return (
            type(param)((k, on_cpu(v)) for k, v in param.items())
            if type(param) is not dict
            else {k: on_cpu(v) for k, v in param.items()}
        )
    if isinstance(param, (list, tuple)):
        parts = [on_cpu(v) for v in param]
        return type(param)(*parts) if hasattr(param, "_fields") else type(param)(parts)
    if callable(getattr(param, "detach", None)) and callable(getattr(param, "cpu", None)):
        return param.detach().cpu().clone()
    return np.array(param) if isinstance(param, np.ndarray) else param
