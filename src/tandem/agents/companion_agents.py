"""Training of a PyTorch agent on several devices: a process per device, in which a copy of the
agent makes the same updates."""

from __future__ import annotations

import copy
import traceback
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from typing import Any

import cloudpickle
import numpy as np

from tandem.agents.agent_checkpoint import RECORDS
from tandem.agents.assembly import Assembly
from tandem.agents.contract import AgentMembers, SetArguments, param_variables
from tandem.agents.user_functions import PrioritizedReplay
from tandem.backends import no_strategy, sharding
from tandem.backends.backend import Backend
from tandem.errors import SettingError, WorkerError
from tandem.learning.companions import Companions
from tandem.learning.launch import Launch, Others
from tandem.types import JSONDict, Variable
from tandem.workers.process import not_picklable

NUMBERS = ("lr", "weight_decay", "beta1", "beta2")  # of optimizers; rules may change them
OWN = {*RECORDS, "time", "path", "patience", "parallel_dump", "stop_training"}
HERE: dict[str, object] = {
    "_assembly": None,
    "_layout": None,
    "_restored": None,
    "_rotation": None,
    "_rotation_state": None,
    "callbacks": [],
}
PATIENCE = 120.0  # seconds that each process has to join an all-reduce


class AgentCompanions(Companions):
    """Companion processes of an agent. The next training starts new ones."""

    setting = "strategy"

    def _again(self, still: bool) -> str:
        return (
            "call distributed_training again, which starts other processes; or train, where "
            "memory is short."
        )


class AgentOthers(Others):
    """Processes started by torchrun."""

    again = "with agent.restore where it has saved"


class CompanionDevices(sharding.Devices):
    """`count` devices, of which this process has number `index`."""

    def __init__(self, count: int, index: int = 0) -> None:
        self.count, self.index = count, index
        self._end: Callable[[], object] | None = None
        self._trained: list[bool] = []  # whether each weight was trainable when companions started

    @classmethod
    def of(cls, given: object, coordinator: None = None) -> CompanionDevices:
        """Return the devices for this number. Raises SettingError for an invalid number."""
        if isinstance(given, bool) or not isinstance(given, int) or given < 1:
            raise no_strategy(given, "how many devices, for an agent of PyTorch's")
        launch = _launch() if given > 1 else None
        return cls(given) if launch is None else LaunchedDevices(launch, given)

    def fits(self, given: object) -> bool:
        """Return whether this is the number of devices that the user gave."""
        return bool(given == self.count)

    def check_trained(self, variables: list[Variable]) -> None:
        """Raise SettingError if other weights are frozen than when companions started."""
        if self._trained and self._trained != [x.requires_grad for x in variables]:
            raise SettingError(
                "weights were frozen or unfrozen after training on several devices began.",
                "the same trainable weights, as other processes also train them",
                "call agent.set as before to restart distributed_training with them.",
            )

    def begin(self, assembly: Assembly) -> None:
        """Start a process for each other device that repeats the assembly's updates. Processes
        started for a previous assembly end."""
        if self._end is not None:
            self._end()
        if self.count == 1 or self.index:
            return
        agent, backend = assembly.agent, assembly.backend
        inner = [o.inner for o in assembly.optimizers]
        self._trained = [x.requires_grad for x in param_variables(agent)]
        packed = _packed(agent, assembly.arguments, inner)
        backend.layout.tell = partial(_numbers, weakref.ref(assembly))
        self._end = weakref.finalize(assembly, backend.close)
        AgentCompanions(partial(_companion, packed, self.count), self.count, PATIENCE).join(backend)


class LaunchedDevices(CompanionDevices):
    """Devices of processes started by torchrun, each running the program with its own agent: that
    of rank 0 trains, and the others repeat its updates."""

    def __init__(self, launch: Launch, count: int) -> None:
        if count != launch.count:
            raise SettingError(
                f"strategy={count}, but {launch.count} processes were launched.",
                "one device per process",
                f"give strategy={launch.count}, or launch {count} processes.",
            )
        super().__init__(launch.count, launch.rank)
        self._launch = launch

    def begin(self, assembly: Assembly) -> None:
        """Join the other processes for the updates of an assembly; each process has its own."""
        if self._end is not None:
            self._end()
        layout, launch, this = assembly.backend.layout, self._launch, weakref.ref(assembly)
        self._trained = [x.requires_grad for x in param_variables(assembly.agent)]
        layout.tell, layout.hear = partial(_numbers, this), partial(_take_numbers, this)
        layout.group.followers = None if self.index else AgentOthers(launch)
        self._end = weakref.finalize(assembly, layout.group.cut)
        launch.runs += 1
        try:
            launch.join(layout.group, PATIENCE)
        except (RuntimeError, launch.group.Lost) as error:
            raise AgentOthers(launch).lost() from error

    def led(self, train: Callable[[], np.float32], assembly: Assembly) -> np.float32:
        """Return the result of a training call on all processes: rank 0 makes the call, the others
        follow."""
        layout, loss = assembly.backend.layout, None
        if self.index:
            return self._follow(assembly)
        try:
            loss = train()
            return loss
        finally:
            if layout.group.joined:
                # like the other processes: with optimizers in their training state
                with suppress(WorkerError), assembly:  # of a lost process: the next call reports it
                    layout.pause(None if loss is None else float(loss))

    def _follow(self, assembly: Assembly) -> np.float32:
        layout, launch = assembly.backend.layout, self._launch
        with assembly:
            try:
                there = layout.serve()
            except BaseException:
                launch.say("lost", traceback.format_exc())
                raise
        if not there:
            launch.say("lost")
        if not there or layout.result is None:
            how = "has ended by an error" if there else "has died, or another one"
            raise AgentOthers(launch).error(0, how)
        return np.float32(layout.result)


@cache
def _launch() -> Launch | None:
    return Launch.find()


def _packed(agent: AgentMembers, arguments: SetArguments, optimizers: list[object]) -> bytes:
    """Pickle everything that a process needs to make the same updates. Raises SettingError for
    anything that cannot be pickled."""
    bare = copy.copy(agent)
    vars(bare).update(HERE, prioritized_replay=PrioritizedReplay())
    try:
        return bytes(cloudpickle.dumps((bare, arguments, optimizers)))
    except Exception as error:  # pickling can raise any type
        raise not_picklable(error) from error


def _numbers(assembly_: Callable[[], Any]) -> JSONDict:
    """Return plain numbers that may have changed since the previous call, without tensors."""
    assembly = assembly_()
    numbers = {
        n: x
        for n, x in vars(assembly.agent).items()
        if isinstance(x, (bool, int, float)) and n not in OWN and not n.startswith("_")
    }
    optimizers = [
        [sorted(o.entries()), {n: o.numbers(n) for n in NUMBERS}] for o in assembly.optimizers
    ]
    return {"numbers": numbers, "optimizers": optimizers}


def _take_numbers(assembly_: Callable[[], Any], told: JSONDict) -> None:
    assembly = assembly_()
    vars(assembly.agent).update(told["numbers"])
    for o, (names, numbers) in zip(assembly.optimizers, told["optimizers"], strict=True):
        if sorted(o.entries()) != names:
            o.expect(set(names))
        for name, values in numbers.items():
            if values and o.numbers(name) != values:
                o.set_numbers(name, values)


def _companion(packed: bytes, count: int, rank: int) -> Backend:
    """Return the backend of rank `rank`, with the agent's update compiled."""
    agent, arguments, optimizers = cloudpickle.loads(packed)
    assembly = Assembly(agent, arguments, optimizers, layout=CompanionDevices(count, rank))
    assembly.environments.close()
    assembly.__enter__()  # for the lifetime of this process
    backend = assembly.backend
    backend.layout.hear = partial(_take_numbers, weakref.ref(assembly))
    backend.layout.kept = assembly
    backend.compile(assembly.algorithm.update)
    return backend
