"""An agent in files: its parameters alone, or all that training needs to go on."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

from tandem.agents.assembly import Assembly
from tandem.agents.contract import AgentMembers, param_variables
from tandem.backends import variables
from tandem.backends.reach import held, reach
from tandem.envs.vector import begun
from tandem.errors import CheckpointError, ResumeError, SettingError
from tandem.runs import checkpoint
from tandem.types import AnyArray, JSONDict

Contents = tuple[JSONDict, checkpoint.Groups]  # of a file: JSON data, and arrays by group and name

PARAM, WHOLE = "param", "agent"  # what a file holds
TRAINING = ("engine", "collector", "learner")  # groups of a file in which there was training
RECORDS = (
    "total_episode",
    "total_time",
    "loss",
    "loss_list",
    "reward_list",
    "noise_scale_list",
)
PICKLES = tuple(b"\x80" + bytes([protocol]) for protocol in (2, 3, 4, 5))  # how they begin


def parameters(agent: AgentMembers) -> Contents:
    """Returns what a file of parameters holds: the arrays of `agent.param` in order, and how they
    are nested."""
    arrays = variables.read(param_variables(agent))
    data = {"holds": PARAM, "nesting": _nesting(agent.param)}
    return data, {"param": {str(i): x for i, x in enumerate(arrays)}}


def whole(agent: AgentMembers, assembly: Assembly | None, pools: bool) -> Contents:
    """Returns what a file of the agent holds: parameters and records; and once there was training,
    networks, optimizers, counters, generators, and with `pools` the transitions."""
    data, groups = parameters(agent)
    data |= {"holds": WHOLE, "records": {name: getattr(agent, name) for name in RECORDS}}
    # as pairs: JSON has no numbers, and no None, for names
    data["sizes"] = list(agent._sample_sizes.items())
    data["adjusted"] = asdict(agent._adjusted)
    data["unrecorded"] = list(agent._unrecorded)
    if assembly is not None:
        loop, arrays = assembly.loop.state(pools)
        data |= {
            "loop": loop,
            "actor": assembly.actor.state(),
            "losses": list(assembly.learner.losses),
            "pools": pools,
            "processes": assembly.processes,
            "optimizers": [o.settings() for o in assembly.optimizers],
        }
        groups |= {name: {n: x.copy() for n, x in group.items()} for name, group in arrays.items()}
    return data, groups


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
    if not isinstance(path, (str, PathLike)) or not Path(path).name:
        raise SettingError(
            f"a file of the agent is to be {path!r}.",
            "its path, a str or a Path",
            'give "agent.dat", say.',
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
                "a file that save or save_param wrote; reading a pickle runs whatever code is in "
                "it, so it is never done here",
                "open it where it was made, take the arrays out, and give them to the agent's "
                "variables one by one.",
            )
    file = checkpoint.read(path)
    kind = file.data.get("holds")
    if kind not in (PARAM, WHOLE) or (holds is not None and kind != holds):
        raise CheckpointError(
            f"{path} holds "
            f"{'parameters alone' if kind == PARAM else 'another kind of checkpoint'}.",
            "what agent.save wrote"
            if holds == WHOLE
            else "what agent.save or agent.save_param wrote",
            "use agent.restore_param for parameters, tandem.load for the folder of a run.",
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
            f"{path} holds parameters of the shapes {shapes}.",
            f"those of agent.param: {own_shapes}",
            "restore into an agent that was made with the same arguments.",
        )
    variables.write(own, values)


def load_networks(agent: AgentMembers, arrays: dict[str, AnyArray]) -> None:
    """Gives the agent's networks, those too that are in no list of parameters, what a file says of
    them. What is not there yet, or does not fit, is left to the training that goes on."""
    own = {
        name: variable
        for name, variable in held(reach(agent)).items()
        if name in arrays and tuple(variable.shape) == arrays[name].shape
    }
    variables.write(own.values(), [arrays[name] for name in own])


def load_training(assembly: Assembly, saved: checkpoint.Checkpoint) -> None:
    """Brings a training to where it was. CheckpointError where it was another one."""
    data, groups = saved.data, {name: saved.group(name) for name in TRAINING}
    try:
        _load_optimizer_settings(assembly.optimizers, saved)
        with assembly:
            try:
                assembly.loop.load_state(data["loop"], groups)
            except ResumeError as error:
                warnings.warn(
                    f"{error.happened} All else is as it was; the episodes under way are broken "
                    "off, and new ones begin.",
                    stacklevel=2,
                )
                assembly.loop.load_state(_broken_off(data["loop"]), groups)
            assembly.actor.load_state(data["actor"])
    except (KeyError, ValueError) as error:
        raise CheckpointError(
            f"{saved.path} does not fit this agent ({type(error).__name__}: {str(error)[:200]}).",
            "an agent made, and set, with the same arguments, and the same kind of optimizers",
            "call set as it was called before, then restore, then train.",
        ) from error
    assembly.learner.losses[:] = data["losses"]


def move_training(assembly: Assembly, data: JSONDict, groups: checkpoint.Groups) -> None:
    """Brings a training to where `whole` says it is, in other environments, whose episodes
    begin."""
    engine = assembly.backend.state()  # the networks and optimizers are the same
    assembly.loop.load_state(_broken_off(data["loop"]), groups | {"engine": engine})
    assembly.actor.load_state(data["actor"])
    assembly.learner.losses[:] = data["losses"]


def _load_optimizer_settings(optimizers: list[Any], saved: checkpoint.Checkpoint) -> None:
    """Gives optimizers the learning rates and other numbers of those in the file. CheckpointError
    where they are of another kind: their state would mean something else, or nothing."""
    settings = saved.data.get("optimizers")
    if settings is None:  # older files do not say
        return
    own = [o.settings() for o in optimizers]
    if _kinds(own) != _kinds(settings):
        raise CheckpointError(
            f"{saved.path} was saved by an agent with the optimizer {_kinds(settings)}; train was "
            f"given {_kinds(own)}.",
            "optimizers of the same kinds, whose state the file holds",
            "give train such ones; or take the weights alone, by restore_param, and begin anew "
            "with any optimizer.",
        )
    for optimizer, one in zip(optimizers, settings, strict=True):
        optimizer.adjust(one)


def _kinds(settings: list[JSONDict]) -> str:
    """Returns the kinds of optimizers in words: "Adam, SGD (2 groups)"."""
    kinds = [(one["kind"], len(one["groups"])) for one in settings]
    return ", ".join(f"{kind} ({n} groups)" if n > 1 else kind for kind, n in kinds)


def _broken_off(loop: JSONDict) -> JSONDict:
    """Returns a loop's state in which the episodes that were under way are over."""
    collector = loop["collector"]
    after = {"after": begun(collector["environments"])} if collector["begun"] else {}
    return loop | {"collector": collector | {"begun": False} | after}


def _in_order(arrays: dict[str, AnyArray]) -> Sequence[AnyArray]:
    return [arrays[str(i)] for i in range(len(arrays))]


def _nesting(param: Any) -> Any:
    """Returns lists as `param` is nested, with None for each variable."""
    return [_nesting(part) for part in param] if isinstance(param, (list, tuple)) else None
