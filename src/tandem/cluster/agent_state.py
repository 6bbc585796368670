"""State of agents: reading, restoring and storing it for restarts.

An agent of any class is described by its attributes: networks, optimizers and plain values. Objects
are recognized by their methods, so that no framework is imported.
"""

from __future__ import annotations

import contextlib
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tandem.errors import CheckpointError, SettingError, TandemError
from tandem.runs import checkpoint
from tandem.types import AnyArray, Array, JSONDict, State, Tree

T = TypeVar("T")

PLAIN = (bool, int, float, str)
NUMBERS = (np.bool_, np.integer, np.floating)  # such as counters after NumPy arithmetic
NOT_STATE = ("_firing", "sync")  # attributes that define who acts, not learned state


def state_of(agent: Any) -> State:
    """Return an agent's state, from its own `state` method if it has one."""
    return agent.state() if callable(getattr(agent, "state", None)) else attributes_state(agent)


def load_into(agent: Any, data: JSONDict, arrays: dict[str, AnyArray]) -> None:
    """Restore the result of `state_of` in an agent. Raises CheckpointError if it does not fit."""
    try:
        if callable(getattr(agent, "load_state", None)):
            agent.load_state(data, arrays)
        else:
            load_attributes(agent, data, arrays)
    except TandemError:
        raise  # it already explains the problem
    except (KeyError, ValueError, RuntimeError, TypeError) as error:
        raise CheckpointError(
            f"the saved state of {type(agent).__name__} does not fit it ({type(error).__name__}: "
            f"{str(error)[:200]}).",
            "an agent with the same class and hyperparameters as the saved one",
            "use another name or another folder, or define state() and load_state(data, arrays).",
        ) from error


def attributes_state(agent: object) -> State:
    """Return (JSON data, arrays) of an agent's attributes, as copies."""
    data: JSONDict = {"plain": {}, "optimizers": {}}
    arrays: dict[str, AnyArray] = {}
    for name, value in _attributes(agent):
        kind = _kind(value)
        if kind == "plain":
            data["plain"][name] = value.item() if isinstance(value, NUMBERS) else value
        elif kind == "keras":
            arrays |= {f"{name}/{i}": np.array(w) for i, w in enumerate(value.get_weights())}
        elif kind == "module":
            weights = value.state_dict().items()
            arrays |= {f"{name}/{n}": _numpy(w) for n, w in weights if hasattr(w, "detach")}
        elif kind == "optimizer":
            saved = value.state_dict()
            values: dict[str, JSONDict] = {}
            for i, entries in saved["state"].items():
                tensors = {n: x for n, x in entries.items() if hasattr(x, "detach")}
                arrays |= {f"{name}/{i}/{n}": _numpy(x) for n, x in tensors.items()}
                values[str(i)] = {n: x for n, x in entries.items() if _scalar(x)}
            groups = [{n: x for n, x in g.items() if _json(x)} for g in saved["param_groups"]]
            data["optimizers"][name] = {"values": values, "groups": groups}
    return data, arrays


def load_attributes(agent: object, data: JSONDict, arrays: dict[str, AnyArray]) -> None:
    """Restore the result of `attributes_state` in an agent."""
    objects = dict(_attributes(agent))
    for name, value in data["plain"].items():
        if name in vars(agent) and name not in NOT_STATE:
            setattr(agent, name, value)
    for name, value in objects.items():
        own = {n[len(name) + 1 :]: x for n, x in arrays.items() if n.startswith(f"{name}/")}
        kind = _kind(value)
        if kind == "keras" and own:
            value.set_weights([own[str(i)] for i in range(len(own))])
        elif kind == "module":
            weights = {n: w for n, w in value.state_dict().items() if hasattr(w, "detach")}
            if own and set(own) != set(weights):
                raise ValueError(
                    f"{name} has {', '.join(weights)}, but {', '.join(own)} were saved"
                )
            for n, x in own.items():  # these tensors share the parameters' memory
                weights[n].copy_(weights[n].new_tensor(x).reshape(x.shape))
        elif kind == "optimizer" and name in data["optimizers"]:
            _load_optimizer(value, data["optimizers"][name], own)


def _load_optimizer(optimizer: Any, data: JSONDict, arrays: dict[str, AnyArray]) -> None:
    prototype = optimizer.param_groups[0]["params"][0].detach().cpu()
    state: dict[int, JSONDict] = {int(i): dict(values) for i, values in data["values"].items()}
    for name, x in arrays.items():
        i, _, n = name.partition("/")
        state.setdefault(int(i), {})[n] = prototype.new_tensor(x).reshape(x.shape)
    own = optimizer.state_dict()["param_groups"]
    groups = [
        {**now, **{n: tuple(x) if isinstance(now.get(n), tuple) else x for n, x in then.items()}}
        for now, then in zip(own, data["groups"], strict=True)
    ]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _attributes(agent: object) -> Iterator[tuple[str, Any]]:
    """Yield an agent's attributes, and the objects in lists, tuples and dicts with string keys
    among them."""
    for name, value in vars(agent).items():
        if name in NOT_STATE:
            continue
        yield name, value
        entries: list[tuple[object, object]] = []
        if isinstance(value, dict):
            entries = [(k, v) for k, v in value.items() if isinstance(k, str)]
        elif isinstance(value, (list, tuple)):
            entries = list(enumerate(value[:64]))
        yield from ((f"{name}.{k}", v) for k, v in entries if not isinstance(v, PLAIN + NUMBERS))


def _kind(value: object) -> str:
    """Return the type of an attribute: "plain", "keras", "module", "optimizer", or "" for
    others."""

    def can(*methods: str) -> bool:
        return all(callable(getattr(value, name, None)) for name in methods)

    if isinstance(value, PLAIN + NUMBERS):
        return "plain"
    if isinstance(value, type):
        return ""
    with contextlib.suppress(Exception):  # attribute access can raise anything in other libraries
        if can("get_weights", "set_weights", "summary"):
            return "keras"
        if can("load_state_dict", "state_dict"):
            if isinstance(getattr(value, "param_groups", None), list):
                return "optimizer"
            return "module" if can("parameters") else ""
    return ""


def _scalar(value: object) -> bool:
    return isinstance(value, PLAIN) or value is None


def _json(value: object) -> bool:
    return _scalar(value) or (
        isinstance(value, (list, tuple)) and all(isinstance(x, PLAIN) for x in value)
    )


def _numpy(tensor: Array) -> AnyArray:
    x = tensor.detach().cpu()
    return np.array((x.float() if str(x.dtype) == "torch.bfloat16" else x).numpy())


# Copies of values sent to or received from other processes


def on_cpu(param: Tree) -> Tree:
    """Copy parameters: dicts, lists and tuples keep their types, tensors move to the CPU, arrays
    are copied."""
    if isinstance(param, dict):
        entries = ((k, on_cpu(v)) for k, v in param.items())
        return dict(entries) if type(param) is dict else type(param)(entries)
    if isinstance(param, (list, tuple)):
        return _sequence(param, on_cpu)
    if callable(getattr(param, "detach", None)) and callable(getattr(param, "cpu", None)):
        return param.detach().cpu().clone()
    return np.array(param) if isinstance(param, np.ndarray) else param


def copied(value: T) -> T:
    """Return a value with copies of all arrays and tensors in dicts, lists and tuples, since
    environments may overwrite them in the next step."""

    def copy(x: Array) -> Array:
        if isinstance(x, np.ndarray):
            return x.copy()
        tensor = callable(getattr(x, "detach", None)) and callable(getattr(x, "clone", None))
        return x.clone() if tensor else x

    return _mapped(copy, value)


def writable(value: T) -> T:
    """Return a value with copies of the read-only arrays in dicts, lists and tuples, such as those
    from Ray's object store."""

    def copy(x: object) -> object:
        return x.copy() if isinstance(x, np.ndarray) and not x.flags.writeable else x

    return _mapped(copy, value)


def _mapped(function: Callable[[Array], Array], value: Tree) -> Tree:
    if type(value) in (dict, OrderedDict):
        return type(value)((k, _mapped(function, v)) for k, v in value.items())
    if type(value) in (list, tuple) or (isinstance(value, tuple) and _named(value)):
        return _sequence(value, lambda v: _mapped(function, v))
    return function(value)


def _sequence(value: Tree, function: Callable[[Array], Array]) -> Tree:
    parts = [function(v) for v in value]
    return type(value)(*parts) if _named(value) else type(value)(parts)


def _named(value: object) -> bool:
    return hasattr(value, "_fields")


def refuse_other_folder(wanted: str | None, kept: str | None) -> None:
    """Raise SettingError if the existing agents are saved in another folder than this Cluster's. A
    Cluster without a folder accepts any."""
    if wanted not in (None, kept):
        there = f"in {kept!r}" if kept else "in no folder"
        raise SettingError(
            f"folder={wanted!r}, but the agents of this namespace are saved {there}.",
            "one folder for all agents of a namespace",
            "pass it to the first Cluster of the program, or give this one its own namespace.",
        )


class StateStore:
    """Store of the latest state of each agent by key (NAME/NUMBER), and of the runners' ranks.

    folder: where states are also written, as KEY.zip (JSON and safetensors); agents resume from
    existing files.
    """

    def __init__(self, folder: str | None = None) -> None:
        self.folder = None if folder is None else Path(folder)
        self._states: dict[str, JSONDict] = {}  # by agent: "version", "data", "arrays"
        self._ranks: dict[str, dict[str, int]] = {}  # by group and member
        self._next: dict[str, int] = {}  # by group: the first free rank

    def folder_path(self) -> str | None:
        return None if self.folder is None else str(self.folder)

    def put(self, key: str, version: int, data: JSONDict, arrays: dict[str, AnyArray]) -> None:
        """Replace an agent's state, unless the new one is older: an agent and its restarted
        successor may overlap."""
        if key in self._states and self._states[key]["version"] > version:
            return
        # Copy, since arrays from Ray can be in memory of the process that sent them.
        self._states[key] = {
            "version": version,
            "data": copied(data),
            "arrays": {n: np.array(x) for n, x in arrays.items()},
        }
        if self.folder is not None:
            saved = {"version": version, "agent": key, "state": data}
            checkpoint.write(self._file(key), saved, {"state": arrays})

    def get(self, key: str) -> JSONDict | None:
        """Return a copy of an agent's state; None if none is stored. Raises CheckpointError for an
        unreadable file."""
        if key not in self._states and self.folder is not None and self._file(key).is_file():
            saved = checkpoint.read(self._file(key))
            try:
                version, data = int(saved.data["version"]), dict(saved.data["state"])
            except (KeyError, TypeError, ValueError) as error:
                raise checkpoint.damaged(saved.path, error) from error
            arrays = saved.group("state")
            self._states[key] = {"version": version, "data": data, "arrays": arrays}
        return copied(self._states[key]) if key in self._states else None

    def has(self, key: str) -> bool:
        """Return whether a state is in memory: False after a restart, until the agent sends it
        again."""
        return key in self._states

    def rank(self, group: str, member: str, at_least: int = 0, width: int = 1) -> int:
        """Return a member's rank in a group. The first call assigns `width` ranks, starting at the
        next free one that is at least `at_least`; later calls return the same rank."""
        ranks = self._ranks.setdefault(group, {})
        if member not in ranks:
            ranks[member] = max(self._next.get(group, 0), at_least)
            self._next[group] = ranks[member] + width
        return ranks[member]

    def release_rank(self, group: str, member: str) -> None:
        """Free the rank of the member that was added last."""
        ranks = self._ranks.get(group, {})
        if member in ranks and ranks[member] == max(ranks.values()):
            self._next[group] = ranks.pop(member)

    def _file(self, key: str) -> Path:
        assert self.folder is not None
        name = re.sub(r"[^\w.-]", lambda m: f"%{ord(m[0]):x}", key)
        if len(name.encode()) > 200:
            raise CheckpointError(
                f"the agent's name {key!r} is too long for a file.",
                "at most 200 bytes (three for a character other than a letter or digit)",
                "shorten it.",
            )
        return self.folder / f"{name}.zip"
