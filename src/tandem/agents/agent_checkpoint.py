"""An agent in files: its parameters alone, or all that training needs to go on."""

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
from tandem.backends import variables
from tandem.backends.reach import held, reach
from tandem.errors import CheckpointError, ResumeError, SettingError
from tandem.learning.loop import broken_off
from tandem.runs import checkpoint
from tandem.runs.rotation import Rotation, note_one_file
from tandem.types import AnyArray, JSONDict

PathLike = str | Path
Contents = tuple[JSONDict, checkpoint.Groups]  # of a file: JSON data, and arrays by group and name

PARAM, WHOLE = "param", "agent"  # what a file holds
TRAINING = ("engine", "collector", "learner")  # groups of a file in which there was training
EXPLORERS = ("policy", "noise")  # arguments of `set` that are objects
RECORDS = ("total_episode", "total_time", "loss_list", "reward_list", "noise_scale_list")
PICKLES = tuple(b"\x80" + bytes([protocol]) for protocol in (2, 3, 4, 5))  # how they begin


def parameters(agent: AgentMembers) -> Contents:
    """Returns what a file of parameters holds: the arrays of `agent.param` in order, and how they
    are nested."""
    arrays = variables.read(param_variables(agent))
    data = {"holds": PARAM, "nesting": _nesting(agent.param)}
    return data, {"param": {str(i): x for i, x in enumerate(arrays)}}


def whole(agent: AgentMembers, assembly: Assembly | None, pools: bool) -> Contents:
    """Returns what a file of the agent holds: parameters and records; and once there was training,
    networks, optimizers, counters, generators, and with `pools` the transitions, as views."""
    data, groups = parameters(agent)
    records = {name: getattr(agent, name) for name in RECORDS}
    data |= {"holds": WHOLE, "records": records | {"loss": agent._loss}}
    # as pairs: JSON has no numbers, and no None, for names
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
    """Returns the arguments of `set` as JSON data."""
    data = {f.name: _plain(getattr(arguments, f.name)) for f in fields(SetArguments)}
    explorers = {name: _described(getattr(arguments, name)) for name in EXPLORERS}
    return data | explorers


def arguments_of(data: JSONDict) -> SetArguments:
    """Returns the arguments of `set` that a file holds. SettingError where policies or noise
    processes are of classes that are not the library's: a file makes no such object."""
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
    """Returns policies or noise processes as JSON data: a class of the library with the arguments
    that it is made with, and by number which ones are one object, or draw from one generator."""
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
    """Returns what `_described` was given, in the state that it was first in."""
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
    """Returns a number, a text, or several, as JSON has them."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, Real) and not isinstance(value, int):  # a fraction, say
        return float(value)
    return list(value) if isinstance(value, tuple) else value


def whole_untrained(agent: AgentMembers, restored: checkpoint.Checkpoint) -> Contents:
    """Returns what a file of an agent holds that was restored from another, and not trained since:
    the same training."""
    data, groups = whole(agent, None, True)
    return {**restored.data, **data}, {
        **{name: restored.group(name) for name in TRAINING},
        **groups,
    }


def as_path(path: object) -> Path:
    """Returns the path of a file. SettingError for what is none."""
    if not isinstance(path, (str, AnyPath)) or not Path(path).name:
        raise SettingError(
            f"the agent's file is {path!r}.",
            "a path (str or Path)",
            'give a path such as "agent.dat".',
        )
    return Path(path)


def read(path: str | Path, holds: str | None = None) -> checkpoint.Checkpoint:
    """Returns a file of either kind, or of the kind that it has to `hold`. CheckpointError where it
    is something else, with a word on pickles."""
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
    """Returns the arrays of the parameters in a file of `save_param` or `save`, nested as
    `agent.param` was: NumPy arrays in lists."""
    file = read(path)
    arrays = iter(_in_order(file.group("param")))

    def nested(nesting: Any) -> Any:
        return next(arrays) if nesting is None else [nested(part) for part in nesting]

    return nested(file.data["nesting"])


def load_param(agent: AgentMembers, arrays: dict[str, AnyArray], path: str | Path) -> None:
    """Gives the agent's parameters these values. CheckpointError where they do not fit."""
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
    """Gives the agent's networks, those too that are in no list of parameters, what a file says of
    them, and returns their names. What is not there yet, or does not fit, is left to the training
    that goes on."""
    own = {
        name: variable
        for name, variable in held(reach(agent)).items()
        if name in arrays and tuple(variable.shape) == arrays[name].shape
    }
    variables.write(own.values(), [arrays[name] for name in own])
    return list(own)


def present(agent: AgentMembers, names: Sequence[str]) -> dict[str, AnyArray]:
    """Returns the values of the networks of these names as they are now."""
    now = held(reach(agent))
    here = [name for name in names if name in now]
    return dict(zip(here, variables.read(now[n] for n in here), strict=True))


def load_training(
    assembly: Assembly, saved: checkpoint.Checkpoint, loaded: dict[str, AnyArray], anew: bool
) -> None:
    """Brings a training to where it was. loaded: networks with what the file says, or what they
    were given since; as they were before the assembly was made, which moves dropout's seeds. anew:
    whether `set` was called after `restore`, so that what fits the new arguments goes on.
    CheckpointError where it was another training."""
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
    """Returns a file's data for a training with other arguments of `set`: explorers of the same
    kinds go on, and where anything else was changed, of the pool what fits."""
    explore = assembly.actor.state()["explore"]
    if _states(explore) != _states(data["actor"]["explore"]):
        data = {**data, "actor": {**data["actor"], "explore": explore}}
    now, before = arguments_data(assembly.arguments), data.get("arguments", {})
    # in a file that was saved after a `set`, before its training, the pool is older
    if data.get("anew") or any(now[n] != before.get(n) for n in now if n not in EXPLORERS):
        loop = data["loop"]
        data = {**data, "loop": loop | {"learner": loop["learner"] | {"anew": True}}}
    return data


def _states(explore: list[Any]) -> Any:
    """Returns of which kinds the states of explorers are."""
    return [
        state if state is None else [inner if inner is None else sorted(inner) for inner in state]
        for state in explore
    ]


def move_training(assembly: Assembly, data: JSONDict, groups: checkpoint.Groups) -> None:
    """Brings a training to where `whole` says it is, in other environments, whose episodes
    begin."""
    engine = assembly.backend.state()  # the networks and optimizers are the same
    assembly.loop.load_state(broken_off(data["loop"]), groups | {"engine": engine})
    assembly.actor.load_state(data["actor"])
    assembly.learner.losses[:] = data["losses"]


def _load_optimizer_settings(optimizers: list[Any], saved: checkpoint.Checkpoint) -> None:
    """Gives optimizers the learning rates and other numbers of those in the file. CheckpointError
    where they are of another kind, or of other variables: their state would mean something else,
    or nothing."""
    settings = saved.data.get("optimizers")
    if settings is None:  # older files do not say
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
    """Returns the kinds of optimizers in words: "Adam, SGD (2 groups)"."""
    kinds = [(one["kind"], len(one["groups"])) for one in settings]
    return ", ".join(f"{kind} ({n} groups)" if n > 1 else kind for kind, n in kinds)


def _in_order(arrays: dict[str, AnyArray]) -> Sequence[AnyArray]:
    return [arrays[str(i)] for i in range(len(arrays))]


def _nesting(param: Any) -> Any:
    """Returns lists as `param` is nested, with None for each variable."""
    return [_nesting(part) for part in param] if isinstance(param, (list, tuple)) else None


class SavedAgent(AdaptiveMethods):
    """What an agent does with files, and what the next `train` goes on from."""

    _restored: checkpoint.Checkpoint | None = None  # what the next `train` goes on from
    _loaded: Sequence[str] = ()  # networks that were given what it says
    _anew = False  # whether `set` was called since
    _chosen = False  # whether it was ever called
    _saved_arguments: JSONDict | None = None  # of `set`, in that file
    _rotation: Rotation | None = None  # which files were written
    _rotation_state: JSONDict | None = None  # the same, after `restore`
    _saves_pools = True  # whether transitions stay from one `train` to the next, and are saved

    def _set_arguments(self, caller: str) -> SetArguments:
        """Returns what `set` was told, or what the file says that was restored. SettingError where
        neither is there."""
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
        """Writes the parameters to one file, whatever its name: a zip of JSON and safetensors."""
        self._write(path, parameters(self))

    def restore_param(self, path: PathLike) -> None:
        """Gives the parameters the values in a file of `save_param` or `save`. CheckpointError
        where they do not fit."""
        load_param(self, read(path).group("param"), path)

    def save(self, path: PathLike) -> None:
        """Writes all that training needs to go on exactly: networks, optimizers, counters,
        generators, and the pools, unless the last `train` had save_data=False."""
        with self._assembly or nullcontext():
            self._write(path, self._snapshot(False))

    def restore(self, path: PathLike) -> None:
        """Becomes what `save` wrote: in an agent made with the same arguments the next `train` goes
        on as if there had been no break, with `set` as it was called before, or by the file.
        After another `set` it goes on with the optimizers and counters, and the newest transitions
        that fit. CheckpointError where it does not fit."""
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
            with suppress(SettingError):  # `train` says which class is not the library's
                self._set_arguments("restore")
        self._restored, self._anew = (file if "loop" in file.data else None), False
        if self._restored is not None:
            self._loaded = load_networks(self, file.group("engine"))

    def _write(self, path: PathLike, contents: Contents) -> None:
        note_one_file(self.parallel_dump)
        checkpoint.write(as_path(path), *contents)

    def _snapshot(self, param_only: bool) -> Contents:
        """Returns what a file of the agent holds now."""
        if param_only:
            return parameters(self)
        if self._restored is not None:  # and not trained since
            data, groups = whole_untrained(self, self._restored)
            before = self._restored.data
            changed = self._anew and data.get("arguments") != before.get("arguments")
            data["anew"] = bool(changed or before.get("anew"))
        else:
            data, groups = whole(self, self._assembly, self._saves_pools)
        return data | {"files": self._rotation_record()}, groups

    def _rotation_record(self) -> JSONDict | None:
        """Returns which files were written, as JSON data; None where none ever was."""
        return self._rotation_state if self._rotation is None else self._rotation.state()
