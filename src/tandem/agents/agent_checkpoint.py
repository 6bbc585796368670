"""Files of an agent: its parameters alone, or everything needed to resume training."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, fields
from numbers import Real
from os import PathLike as AnyPath
from pathlib import Path
from typing import Any

import numpy as np

from tandem import exploration
from tandem.agents.adaptive.methods import AdaptiveMethods
from tandem.agents.assembly import Assembly
from tandem.agents.contract import Adjusted, AgentMembers, SetArguments, as_list, param_variables
from tandem.agents.reach import held, reach
from tandem.backends import variables
from tandem.errors import CheckpointError, ResumeError, SettingError
from tandem.learning.loop import broken_off
from tandem.runs import checkpoint
from tandem.runs.rotation import Rotation, note_one_file
from tandem.types import AnyArray, JSONDict

PathLike = str | Path
Contents = tuple[JSONDict, checkpoint.Groups]  # of a file: JSON data, and arrays by group and name

PARAM, WHOLE = "param", "agent"  # contents of a file
TRAINING = ("engine", "collector", "learner")  # groups of a file that includes training
EXPLORERS = ("policy", "noise")  # arguments of `set` that are objects
RECORDS = ("total_episode", "total_time", "loss_list", "reward_list", "noise_scale_list")
PICKLES = tuple(b"\x80" + bytes([protocol]) for protocol in (2, 3, 4, 5))  # first bytes


def parameters(agent: AgentMembers) -> Contents:
    """Return the contents of a parameter file: the arrays of `agent.param` in order, and their
    nesting."""
    arrays = variables.read(param_variables(agent))
    data = {"holds": PARAM, "nesting": _nesting(agent.param)}
    return data, {"param": {str(i): x for i, x in enumerate(arrays)}}


def whole(agent: AgentMembers, assembly: Assembly | None, pools: bool) -> Contents:
    """Return the contents of an agent file: parameters and records; after training also networks,
    optimizers, counters, generators, and with `pools` the transitions, as views."""
    data, groups = parameters(agent)
    records = {name: getattr(agent, name) for name in RECORDS}
    data |= {"holds": WHOLE, "records": records | {"loss": agent._loss}}
    # pairs, since JSON keys cannot be numbers or None
    data["sizes"] = list(agent._sample_sizes.items())
    data["adjusted"] = asdict(agent._adjusted) | {"start_size": agent._start_size()}
    data["unrecorded"] = list(agent._unrecorded)
    if agent._arguments is not None:
        data["arguments"] = arguments_data(agent._arguments)
    if assembly is not None:
        loop, arrays = assembly.loop.state(pools)
        data |= {
            "loop": loop,
            "actor": assembly.actor.state(),
            "losses": list(assembly.learner.losses),
            "pools": pools,
            "processes": assembly.processes,
            "beside": assembly.beside,
            "optimizers": [o.settings() for o in assembly.optimizers],
        }
        live, rest = checkpoint.parted(arrays)
        groups |= live
        groups |= {name: {n: x.copy() for n, x in group.items()} for name, group in rest.items()}
    return data, groups


def arguments_data(arguments: SetArguments) -> JSONDict:
    """Return the arguments of `set` as JSON data."""
    data = {f.name: _plain(getattr(arguments, f.name)) for f in fields(SetArguments)}
    explorers = {name: _described(getattr(arguments, name)) for name in EXPLORERS}
    return data | explorers


def arguments_of(data: JSONDict) -> SetArguments:
    """Return the arguments of `set` from a file. Raises SettingError for policies or noise
    processes of classes outside tandem: files never create such objects."""
    own = {
        name: list(dict.fromkeys(one["own"] for one in as_list(data[name]) if "own" in one))
        for name in EXPLORERS
    }
    if any(own.values()):
        given = [f"{name}={kinds[0]}(...)" for name, kinds in own.items() if kinds]
        given += [
            f"{f.name}={data[f.name]!r}"
            for f in fields(SetArguments)
            if f.name not in EXPLORERS and f.name in data and data[f.name] != f.default
        ]
        raise SettingError(
            f"the saved agent uses {' and '.join(k for kinds in own.values() for k in kinds)}, a "
            "class that is not part of tandem.",
            "an instance of it, which the file does not contain",
            f"call agent.set({', '.join(given)}), then train.",
        )
    known = {f.name for f in fields(SetArguments)}
    numbers = {n: x for n, x in data.items() if n in known and n not in EXPLORERS}
    return SetArguments(**numbers, **{name: _explorers(data[name]) for name in EXPLORERS})


def _described(sources: Any) -> Any:
    """Return policies or noise processes as JSON data: a class of tandem with its constructor
    arguments, and the indices of sources that are the same object or share a generator."""
    rows: list[JSONDict] = []
    each = as_list(sources)
    for i, source in enumerate(each):
        kind = type(source)
        if same := [j for j in range(i) if each[j] is source]:
            rows.append({"same": same[0]})
        elif kind is not getattr(exploration, kind.__name__, None):
            rows.append({"own": kind.__name__})
        else:
            names = [n for n in inspect.signature(kind).parameters if n != "seed"]
            values = {name: _plain(getattr(source, name)) for name in names}
            row = {"kind": kind.__name__, "values": values, "seeded": source.seeded}
            shared = [j for j in range(i) if getattr(each[j], "rng", None) is source.rng]
            rows.append(row | ({"rng": shared[0]} if shared else {}))
    return rows if isinstance(sources, (list, tuple)) or not rows else rows[0]


def _explorers(described: Any) -> Any:
    """Return the inverse of `_described`, in the initial state."""
    made: list[Any] = []
    for row in as_list(described):
        if "same" in row:
            made.append(made[row["same"]])
            continue
        values = {
            name: (tuple(x) if name in ("size", "clip") else np.array(x))
            if isinstance(x, list)
            else x
            for name, x in row["values"].items()
        }
        if row["kind"] not in exploration.__all__:
            raise ValueError(f"unknown exploration class {row['kind']!r}")
        made.append(getattr(exploration, row["kind"])(**values))
        made[-1].seeded = row["seeded"]
        if "rng" in row:
            made[-1].rng = made[row["rng"]].rng
    return made if isinstance(described, list) and made else made[0] if made else None


def _plain(value: object) -> object:
    """Return a number, a string or a sequence in its JSON form."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, Real) and not isinstance(value, int):  # such as a fraction
        return float(value)
    return list(value) if isinstance(value, tuple) else value


def whole_untrained(agent: AgentMembers, restored: checkpoint.Checkpoint) -> Contents:
    """Return the file contents of an agent that was restored from a file and not trained since: the
    same training."""
    data, groups = whole(agent, None, True)
    return {**restored.data, **data}, {
        **{name: restored.group(name) for name in TRAINING},
        **groups,
    }


def as_path(path: object) -> Path:
    """Return the path of a file. Raises SettingError for an invalid one."""
    if not isinstance(path, (str, AnyPath)) or not Path(path).name:
        raise SettingError(
            f"the agent's file is {path!r}.",
            "a path (str or Path)",
            'give a path such as "agent.dat".',
        )
    return Path(path)


def read(path: str | Path, holds: str | None = None) -> checkpoint.Checkpoint:
    """Read a file of either type, or of the type `holds`. Raises CheckpointError for anything else,
    with an explanation for pickles."""
    path = as_path(path)
    if path.is_file():
        with path.open("rb") as opened:
            first = opened.read(2)
        if first in PICKLES:
            raise CheckpointError(
                f"{path} is a pickle.",
                "a file written by save or save_param; reading a pickle can run any code in it, "
                "so tandem never reads one",
                "open it in the program that wrote it, extract the arrays, and assign them to the "
                "agent's variables one by one.",
            )
    file = checkpoint.read(path)
    kind = file.data.get("holds")
    if kind not in (PARAM, WHOLE) or (holds is not None and kind != holds):
        raise CheckpointError(
            f"{path} contains "
            f"{'only parameters' if kind == PARAM else 'another type of checkpoint'}.",
            "a file written by agent.save"
            if holds == WHOLE
            else "a file written by agent.save or agent.save_param",
            "use agent.restore_param for parameters, tandem.load for a run folder.",
        )
    return file


def restore_param(path: str | Path) -> Any:
    """Return the parameters in a file of `save_param` or `save` as NumPy arrays, in lists nested
    like `agent.param`."""
    file = read(path)
    arrays = iter(_in_order(file.group("param")))

    def nested(nesting: Any) -> Any:
        return next(arrays) if nesting is None else [nested(part) for part in nesting]

    return nested(file.data["nesting"])


def load_param(agent: AgentMembers, arrays: dict[str, AnyArray], path: str | Path) -> None:
    """Load these values into the agent's parameters. Raises CheckpointError if they do not fit."""
    own, values = param_variables(agent), _in_order(arrays)
    own_shapes, shapes = ([tuple(x.shape) for x in xs] for xs in (own, values))
    if own_shapes != shapes:
        raise CheckpointError(
            f"{path} contains parameters of shapes {shapes}.",
            f"the shapes of agent.param: {own_shapes}",
            "restore into an agent created with the same arguments.",
        )
    variables.write(own, values)


def load_networks(agent: AgentMembers, arrays: dict[str, AnyArray]) -> list[str]:
    """Load a file's values into the agent's networks, including those outside `param`, and return
    their names. Networks that do not exist yet or do not fit are left to the resumed training."""
    own = {
        name: variable
        for name, variable in held(reach(agent)).items()
        if name in arrays and tuple(variable.shape) == arrays[name].shape
    }
    variables.write(own.values(), [arrays[name] for name in own])
    return list(own)


def present(agent: AgentMembers, names: Sequence[str]) -> dict[str, AnyArray]:
    """Return the current values of the networks with these names."""
    now = held(reach(agent))
    here = [name for name in names if name in now]
    return dict(zip(here, variables.read(now[n] for n in here), strict=True))


def load_training(
    assembly: Assembly, saved: checkpoint.Checkpoint, loaded: dict[str, AnyArray], anew: bool
) -> None:
    """Restore the state of a training.

    loaded: networks with the file's values, or values assigned since, from before the assembly was
    created, which advances dropout seeds. anew: whether `set` was called after `restore`, so that
    only the state that fits the new arguments is kept. Raises CheckpointError if the file is of a
    different training.
    """
    data, groups = saved.data, {name: saved.group(name) for name in TRAINING}
    groups["engine"] |= loaded
    if anew or data.get("anew"):
        data = _adapted(assembly, data)
    try:
        _load_optimizer_settings(assembly.optimizers, saved)
        with assembly:
            try:
                assembly.loop.load_state(data["loop"], groups)
                why = assembly.loop.collector.restarted
            except ResumeError as error:
                assembly.loop.load_state(broken_off(data["loop"]), groups)
                why = error.happened
            if why and data["loop"]["collector"]["begun"]:
                warnings.warn(
                    f"{why} Training keeps everything learned so far and starts new episodes.",
                    stacklevel=2,
                )
            assembly.actor.load_state(data["actor"])
    except ResumeError as error:
        raise CheckpointError(
            f"{saved.path} does not fit this agent: {error.happened}",
            error.expected,
            "call set as before, with the same environments; or recreate the agent and call "
            "restore_param. A single environment counts as train's `processes`: give the same "
            "number as before, and leave pool_network out.",
        ) from error
    except (KeyError, ValueError) as error:
        raise CheckpointError(
            f"{saved.path} does not fit this agent ({type(error).__name__}: {str(error)[:200]}).",
            "an agent created and set up with the same arguments and the same types of optimizers",
            "call set as before, then restore, then train.",
        ) from error
    assembly.learner.losses[:] = data["losses"]


def _adapted(assembly: Assembly, data: JSONDict) -> JSONDict:
    """Return a file's data for a training with other arguments of `set`: explorers of the same type
    keep their state; if anything else changed, the pool keeps what fits."""
    explore = assembly.actor.state()["explore"]
    if _states(explore) != _states(data["actor"]["explore"]):
        data = {**data, "actor": {**data["actor"], "explore": explore}}
    now, before = arguments_data(assembly.arguments), data.get("arguments", {})
    # if the file was saved between `set` and training, its pool predates the arguments
    if data.get("anew") or any(now[n] != before.get(n) for n in now if n not in EXPLORERS):
        loop = data["loop"]
        data = {**data, "loop": loop | {"learner": loop["learner"] | {"anew": True}}}
    return data


def _states(explore: list[Any]) -> Any:
    """Return the structure of explorer states, for comparison."""
    return [
        state if state is None else [inner if inner is None else sorted(inner) for inner in state]
        for state in explore
    ]


def move_training(assembly: Assembly, data: JSONDict, groups: checkpoint.Groups) -> None:
    """Load the contents that `whole` returned into an assembly with other environments, which start
    new episodes."""
    engine = assembly.backend.state()  # networks and optimizers are unchanged
    assembly.loop.load_state(broken_off(data["loop"]), groups | {"engine": engine})
    assembly.actor.load_state(data["actor"])
    assembly.learner.losses[:] = data["losses"]


def _load_optimizer_settings(optimizers: list[Any], saved: checkpoint.Checkpoint) -> None:
    """Load learning rates and other numbers from the file into the optimizers. Raises
    CheckpointError if their types or variables differ, since their state would then be
    meaningless."""
    settings = saved.data.get("optimizers")
    if settings is None:  # missing in older files
        return
    own = [o.settings() for o in optimizers]
    if _kinds(own) != _kinds(settings):
        raise CheckpointError(
            f"{saved.path} was saved by an agent with the optimizer {_kinds(settings)}, but train "
            f"was given {_kinds(own)}.",
            "optimizers of the same types, as the file contains their state",
            "pass these to train; or recreate the agent and load only the weights with "
            "restore_param to start with any optimizer.",
        )
    for optimizer, one in zip(optimizers, settings, strict=True):
        try:
            optimizer.adjust(one)
        except ValueError as error:
            raise CheckpointError(
                f"{saved.path} does not fit the optimizer passed to train: {error}.",
                "an optimizer and an agent created with the same arguments",
                "use a schedule as learning rate if the saved optimizer had one, or a number if "
                "it had a number; or recreate the agent and load only the weights with "
                "restore_param to start with any optimizer.",
            ) from error


def _kinds(settings: list[JSONDict]) -> str:
    """Describe the types of optimizers: "Adam, SGD (2 groups)"."""
    kinds = [(one["kind"], len(one["groups"])) for one in settings]
    return ", ".join(f"{kind} ({n} groups)" if n > 1 else kind for kind, n in kinds)


def _in_order(arrays: dict[str, AnyArray]) -> Sequence[AnyArray]:
    return [arrays[str(i)] for i in range(len(arrays))]


def _nesting(param: Any) -> Any:
    """Return lists nested like `param`, with None for each variable."""
    return [_nesting(part) for part in param] if isinstance(param, (list, tuple)) else None


class SavedAgent(AdaptiveMethods):
    """File methods of an agent, and the state from which the next `train` resumes."""

    _restored: checkpoint.Checkpoint | None = None  # the next `train` resumes from it
    _loaded: Sequence[str] = ()  # networks loaded from it
    _anew = False  # whether `set` was called since
    _chosen = False  # whether it was ever called
    _saved_arguments: JSONDict | None = None  # of `set`, in that file
    _rotation: Rotation | None = None  # files written
    _rotation_state: JSONDict | None = None  # the same, after `restore`
    _saves_pools = True  # whether pools are kept between calls of `train`, and saved

    def _set_arguments(self, caller: str) -> SetArguments:
        """Return the arguments of `set`, or those in the restored file. Raises SettingError if
        there are neither."""
        if self._arguments is None and self._saved_arguments is not None:
            self._arguments = arguments_of(self._saved_arguments)
        if self._arguments is None:
            raise SettingError(
                f"{caller} was called before set.",
                f"agent.set(...), then agent.{caller}(...)",
                "call set first.",
            )
        return self._arguments

    def save_param(self, path: PathLike) -> None:
        """Write the parameters to one file of any name: a zip of JSON and safetensors."""
        self._write(path, parameters(self))

    def restore_param(self, path: PathLike) -> None:
        """Load the parameters from a file of `save_param` or `save`. Raises CheckpointError if they
        do not fit."""
        load_param(self, read(path).group("param"), path)

    def save(self, path: PathLike) -> None:
        """Save everything needed to resume training exactly: networks, optimizers, counters,
        generators, and the pools unless the last `train` had save_data=False."""
        with self._assembly or nullcontext():
            self._write(path, self._snapshot(False))

    def restore(self, path: PathLike) -> None:
        """Restore the state that `save` wrote.

        In an agent created with the same arguments, the next `train` resumes as if uninterrupted,
        with the arguments of `set` as called before, or else those in the file. After another
        `set`, it keeps the optimizers, the counters and the newest transitions that fit. Raises
        CheckpointError if the file does not fit.
        """
        file = read(path, WHOLE)
        load_param(self, file.group("param"), path)
        records = dict(file.data["records"])
        self._loss = records.pop("loss")
        vars(self).update(records)
        self._assembly = self._rotation = None
        self._rotation_state = file.data["files"]
        self._sample_sizes = dict(file.data.get("sizes", []))
        self._unrecorded = list(file.data.get("unrecorded", []))
        self._adjusted = Adjusted(**file.data.get("adjusted", {}))
        self._saved_arguments = file.data.get("arguments")
        if not self._chosen:
            self._arguments = None
            with suppress(SettingError):  # `train` names the class that is not tandem's
                self._set_arguments("restore")
        self._restored, self._anew = (file if "loop" in file.data else None), False
        if self._restored is not None:
            self._loaded = load_networks(self, file.group("engine"))

    def _write(self, path: PathLike, contents: Contents) -> None:
        note_one_file(self.parallel_dump)
        checkpoint.write(as_path(path), *contents)

    def _snapshot(self, param_only: bool) -> Contents:
        """Return the current contents of a file of the agent."""
        if param_only:
            return parameters(self)
        if self._restored is not None:  # not trained since
            data, groups = whole_untrained(self, self._restored)
            before = self._restored.data
            changed = self._anew and data.get("arguments") != before.get("arguments")
            data["anew"] = bool(changed or before.get("anew"))
        else:
            data, groups = whole(self, self._assembly, self._saves_pools)
        return data | {"files": self._rotation_record()}, groups

    def _rotation_record(self) -> JSONDict | None:
        """Return the record of written files as JSON data; None if none was ever written."""
        return self._rotation_state if self._rotation is None else self._rotation.state()
