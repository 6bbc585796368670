"""An agent in files: its parameters alone, or all that training needs to go on."""

from __future__ import annotations

import warnings
from os import PathLike
from pathlib import Path
from typing import Any

from tandem.agents import contract
from tandem.backends import variables
from tandem.backends.reach import held, reach
from tandem.envs.vector import begun
from tandem.errors import CheckpointError, ResumeError, SettingError
from tandem.runs import checkpoint
from tandem.types import Array

PARAM, WHOLE = "param", "agent"  # what a file holds
TRAINING = (
    "engine",
    "collector",
    "learner",
)  # groups of arrays of a file in which there was training
KEPT = ("total_episode", "total_time", "loss", "loss_list", "reward_list")


def parameters(agent: Any) -> tuple[dict[str, Any], checkpoint.Groups]:
    """What a file of parameters holds: the arrays of `agent.param` in order, and how they are
    nested."""
    arrays = variables.read(contract.variables(agent, agent.torch))
    data = {"holds": PARAM, "nesting": _nesting(agent.param)}
    return data, {"param": {str(i): x for i, x in enumerate(arrays)}}


def whole(agent: Any, assembly: Any, pools: bool) -> tuple[dict[str, Any], checkpoint.Groups]:
    """What a file of the agent holds: parameters and records; and once there was training,
    networks, optimizers, counters, generators, and with `pools` the transitions."""
    data, groups = parameters(agent)
    data |= {"holds": WHOLE, "records": {name: getattr(agent, name) for name in KEPT}}
    data["sizes"] = list(agent._sizes.items())  # JSON has no numbers, and no None, for names
    if assembly is not None:
        loop, inner = assembly.loop.state(pools)
        data |= {
            "loop": loop,
            "actor": assembly.actor.state(),
            "losses": list(assembly.learner.losses),
            "pools": pools,
            "processes": assembly.processes,
            "optimizers": [o.settings() for o in assembly.optimizers],
        }
        groups |= {name: {n: x.copy() for n, x in arrays.items()} for name, arrays in inner.items()}
    return data, groups


def again(agent: Any, saved: checkpoint.Checkpoint) -> tuple[dict[str, Any], checkpoint.Groups]:
    """What a file of an agent holds that was restored from another, and not trained since: the same
    training."""
    data, groups = whole(agent, None, True)
    return {**saved.data, **data}, {**{name: saved.group(name) for name in TRAINING}, **groups}


def place(path: Any) -> Path:
    """The path of a file. SettingError for what is none."""
    if not isinstance(path, (str, PathLike)) or not Path(path).name:
        raise SettingError(
            f"a file of the agent is to be {path!r}.",
            "its path, a str or a Path",
            'give "agent.dat", say.',
        )
    return Path(path)


def read(path: Any, holds: str | None = None) -> checkpoint.Checkpoint:
    """A file of either kind. CheckpointError where it is something else, with a word on pickles."""
    path = place(path)
    if path.is_file():
        with path.open("rb") as file:
            first = file.read(2)
        if first[:1] == b"\x80" and first[1:] in (b"\x02", b"\x03", b"\x04", b"\x05"):
            raise CheckpointError(
                f"{path} is a pickle.",
                "a file that save or save_param wrote; reading a pickle runs whatever code is in "
                "it, so it is never done here",
                "open it where it was made, take the arrays out, and give them to the agent's "
                "variables one by one.",
            )
    found = checkpoint.read(path)
    kind = found.data.get("holds")
    if kind not in (PARAM, WHOLE) or (holds is not None and kind != holds):
        raise CheckpointError(
            f"{path} holds "
            f"{'parameters alone' if kind == PARAM else 'another kind of checkpoint'}.",
            "what agent.save wrote"
            if holds == WHOLE
            else "what agent.save or agent.save_param wrote",
            "use agent.restore_param for parameters, tandem.load for the folder of a run.",
        )
    return found


def restore_param(path: Any) -> Any:
    """The arrays of the parameters in a file of `save_param` or `save`, nested as `agent.param`
    was: NumPy arrays in lists."""
    found = read(path)
    arrays = found.group("param")
    values = iter([arrays[str(i)] for i in range(len(arrays))])

    def nested(nesting: Any) -> Any:
        return next(values) if nesting is None else [nested(part) for part in nesting]

    return nested(found.data["nesting"])


def put(agent: Any, arrays: dict[str, Array], path: Any) -> None:
    """Gives the agent's parameters these values. CheckpointError where they do not fit."""
    mine = contract.variables(agent, agent.torch)
    values = [arrays[str(i)] for i in range(len(arrays))]
    have, came = ([tuple(x.shape) for x in xs] for xs in (mine, values))
    if have != came:
        raise CheckpointError(
            f"{path} holds parameters of the shapes {came}.",
            f"those of agent.param: {have}",
            "restore into an agent that was made with the same arguments.",
        )
    variables.write(mine, values)


def hold(agent: Any, arrays: dict[str, Array]) -> None:
    """Gives the agent's networks, those too that are in no list of parameters, what a file says of
    them. What is not there yet, or does not fit, is left to the training that goes on."""
    mine = {
        n: v
        for n, v in held(reach(agent)).items()
        if n in arrays and tuple(v.shape) == arrays[n].shape
    }
    variables.write(mine.values(), [arrays[n] for n in mine])


def load(assembly: Any, saved: checkpoint.Checkpoint) -> None:
    """Brings a training to where it was. CheckpointError where it was another one."""
    data, groups = saved.data, {name: saved.group(name) for name in TRAINING}
    try:
        _adjust(assembly.optimizers, saved)
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


def _adjust(optimizers: list[Any], saved: checkpoint.Checkpoint) -> None:
    """Gives optimizers the learning rates and other numbers of those in the file. CheckpointError
    where they are of another
    kind: their state would mean something else, or nothing."""
    came = saved.data.get("optimizers")
    if came is None:  # older files do not say
        return
    kinds = [
        [(each["kind"], len(each["groups"])) for each in of]
        for of in (came, [o.settings() for o in optimizers])
    ]
    if kinds[0] != kinds[1]:
        theirs, mine = (
            ", ".join(f"{kind} ({n} groups)" if n > 1 else kind for kind, n in of) for of in kinds
        )
        raise CheckpointError(
            f"{saved.path} was saved by an agent with the optimizer {theirs}; train was given "
            f"{mine}.",
            "optimizers of the same kinds, whose state the file holds",
            "give train such ones; or take the weights alone, by restore_param, and begin anew "
            "with any optimizer.",
        )
    for optimizer, settings in zip(optimizers, came, strict=True):
        optimizer.adjust(settings)


def move(assembly: Any, data: dict[str, Any], groups: checkpoint.Groups) -> None:
    """Brings a training to where `whole` says it is, in other environments, whose episodes
    begin."""
    engine = assembly.backend.state()  # the networks and optimizers are the same
    assembly.loop.load_state(_broken_off(data["loop"]), groups | {"engine": engine})
    assembly.actor.load_state(data["actor"])
    assembly.learner.losses[:] = data["losses"]


def _broken_off(loop: dict[str, Any]) -> dict[str, Any]:
    """A loop's state in which the episodes that were under way are over."""
    collector = loop["collector"]
    after = {"after": begun(collector["environments"])} if collector["begun"] else {}
    return loop | {"collector": collector | {"begun": False} | after}


def _nesting(param: Any) -> Any:
    return [_nesting(part) for part in param] if isinstance(param, (list, tuple)) else None
