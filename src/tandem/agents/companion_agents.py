"""Several devices for an agent of PyTorch's: a process for each, in which a copy of the agent makes
the same updates."""

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

NUMBERS = ("lr", "weight_decay", "beta1", "beta2")  # of optimizers, which may be moved
OWN = {*RECORDS, "time", "path", "patience", "parallel_dump", "stop_training"}
HERE: dict[str, object] = {
    "_assembly": None,
    "_layout": None,
    "_restored": None,
    "_rotation": None,
    "_rotation_state": None,
    "callbacks": [],
}
PATIENCE = 120.0  # seconds in which each process comes to a sum


class AgentCompanions(Companions):
    """Those of an agent, whose next training begins others."""

    setting = "strategy"

    def _again(self, still: bool) -> str:
        return (
            "call distributed_training again, which goes on with other processes; or train, where "
            "memory is short."
        )


class AgentOthers(Others):
    """Those that torchrun has started."""

    again = "with agent.restore where it has saved"


class CompanionDevices(sharding.Devices):
    """`count` devices, of which this process has the `rank`-th."""

    def __init__(self, count: int, index: int = 0) -> None:
        self.count, self.index = count, index
        self._end: Callable[[], object] | None = None
        self._trained: list[bool] = []  # which weights were, when companions began

    @classmethod
    def of(cls, given: object, coordinator: None = None) -> CompanionDevices:
        """SettingError for what is no number of devices."""
        if isinstance(given, bool) or not isinstance(given, int) or given < 1:
            raise no_strategy(given, "how many devices, for an agent of PyTorch's")
        launch = _launch() if given > 1 else None
        return cls(given) if launch is None else LaunchedDevices(launch, given)

    def fits(self, given: object) -> bool:
        """Whether it is of what a user gave."""
        return bool(given == self.count)

    def check_trained(self, variables: list[Variable]) -> None:
        """SettingError where other weights are frozen than when companions began."""
        if self._trained and self._trained != [x.requires_grad for x in variables]:
            raise SettingError(
                "weights were frozen or unfrozen after training on several devices began.",
                "the same trainable weights, as other processes also train them",
                "call agent.set as before to restart distributed_training with them.",
            )

    def begin(self, assembly: Assembly) -> None:
        """From now on a process for each other device repeats the assembly's updates; those that
        were begun for another one end."""
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
    """Those of processes that torchrun has started, each with the program and its agent: that of
    rank 0 trains, and the others make its updates with it."""

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
        """Joins the other processes, for the updates of an assembly, of which each has its own."""
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
        """What a call of training gives: rank 0's, which makes it, on all of them."""
        layout, loss = assembly.backend.layout, None
        if self.index:
            return self._follow(assembly)
        try:
            loss = train()
            return loss
        finally:
            if layout.group.joined:
                # as there, where optimizers are as training needs them
                with suppress(WorkerError), assembly:  # of one that is lost: the next call says so
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
    """What a process needs to make the same updates. SettingError for what cannot travel."""
    bare = copy.copy(agent)
    vars(bare).update(HERE, prioritized_replay=PrioritizedReplay())
    try:
        return bytes(cloudpickle.dumps((bare, arguments, optimizers)))
    except Exception as error:  # as many kinds as there are objects
        raise not_picklable(error) from error


def _numbers(assembly_: Callable[[], Any]) -> JSONDict:
    """What is no tensor, and may have changed since the call before."""
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
    """Rank `rank`'s backend, with the agent's update compiled."""
    agent, arguments, optimizers = cloudpickle.loads(packed)
    assembly = Assembly(agent, arguments, optimizers, layout=CompanionDevices(count, rank))
    assembly.environments.close()
    assembly.__enter__()  # for as long as this process lives
    backend = assembly.backend
    backend.layout.hear = partial(_take_numbers, weakref.ref(assembly))
    backend.layout.kept = assembly
    backend.compile(assembly.algorithm.update)
    return backend
