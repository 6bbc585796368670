"""The handle that programs hold: makes and finds agents and runners by name."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from tandem.cluster import local, proxy
from tandem.cluster.actors import Place
from tandem.cluster.copies import writable
from tandem.cluster.host import Made, learns_from_blocks
from tandem.cluster.lines import Line, _own, gone
from tandem.cluster.proxy import ApartProxy, Proxy, RemoteProxy, caller_id
from tandem.cluster.runner import construct, plain_class
from tandem.errors import EngineError, SettingError, UnknownNameError, WorkerError
from tandem.parallel.ray import connect, library

Act = Literal["remote", "local"]
SCARCE = 10.0  # seconds after which it is looked whether runners wait for a place


class Cluster:
    """Agents and runners by name, on the machines that Ray has.

    address: of a running cluster (HOST:PORT); "" takes the one that this process has, that
    RAY_ADDRESS names, or that runs here, and else starts one, with the first name that is made or
    asked for. folder: where agents' states are kept, too; a program with the same folder and names
    goes on from there. namespace: programs with the same one share their names; each has its own by
    default. patience: seconds that get_agent waits for a name, and callers for an agent that is
    being restarted.
    checkpoint_seconds: between the states that agents leave; stretched where taking them would need
      over 5 % of the time.
    restarts: how often Ray starts a lost process anew.

    In a runner that was made directly, in this process, agents are made and found in this process,
    and Ray is not needed.
    """

    def __init__(
        self,
        address: str = "",
        folder: str | Path | None = None,
        namespace: str = "",
        patience: float = 100.0,
        checkpoint_seconds: float = 10.0,
        restarts: int = 3,
    ) -> None:
        if patience < 0 or checkpoint_seconds < 0 or restarts < -1:
            raise SettingError(
                f"patience={patience}, checkpoint_seconds={checkpoint_seconds}, "
                f"restarts={restarts}.",
                "seconds from 0 on, and restarts from 0 on, or -1 for any number",
                "correct them.",
            )
        self.address, self.namespace = address, namespace
        self.folder = None if folder is None else str(Path(folder).absolute())
        self.patience, self.checkpoint_seconds, self.restarts = (
            float(patience),
            float(checkpoint_seconds),
            int(restarts),
        )

    # Agents

    def make_agent(
        self,
        name: str,
        agent_class: Any,
        sync: bool = True,
        num: int = 1,
        resource: dict[str, Any] | None = None,
        **hyperparameters: Any,
    ) -> list[Proxy]:
        """Makes `num` agents of a name, and gives a proxy of each. They are made with the
        hyperparameters, and with `sync` if they take it. Where there is the name already, made by
        the same class and hyperparameters, it is joined.

        sync=True: one process acts and learns, in the order of the calls. sync=False: acting
        goes to a copy, in a process of its own; see `Agent`. resource: what Ray's options take
        (num_cpus, num_gpus, resources, ...) for each; no core is taken by default. SettingError
        where the name is there, made in another way."""
        _checked(name, num)
        made = Made(plain_class(agent_class), bool(sync), num, hyperparameters)
        if not isinstance(made.agent_class, type) or not callable(
            getattr(made.agent_class, "choose_action", None)
        ):
            raise SettingError(
                f"{agent_class!r} as an agent.",
                "a class with choose_action and update",
                "give the class itself.",
            )
        if local.here() or not _installed():
            return list(
                local.make(self.namespace, name, made, self.folder, self.checkpoint_seconds)
            )
        place = self._place()
        place.make_agent(name, made, resource)
        lines = [self._agent_line(place, name, i) for i in range(num)]
        try:
            asked = [line.send("spec") for line in lines]
            _late({f"agent {name!r}, number {i}": answer for i, answer in enumerate(asked)})
            there = [
                line.receive(answer, "spec") for line, answer in zip(lines, asked, strict=True)
            ]
        except Exception:
            place.unmake(name, num)
            raise
        local.refuse_other(name, there[0], made)
        return [self._proxy(place, name, i, made, "remote") for i in range(num)]

    def get_agent(self, name: str, act: Act = "remote") -> Any:
        """The proxy of an agent; of several of a name, they are given out in turn. Waits until
        there is one of that name.

        act="local": actions are chosen in this process, with parameters that come from the agent
        whenever it has newer ones; for agents with sync=False, and those that give out their
        acting part (`portable`), such as AlgorithmAgent. UnknownNameError, with the names that
        there are, where there is none after `patience` seconds."""
        if act not in get_args(Act):
            raise UnknownNameError("way to act", act, get_args(Act))
        if local.here() or not _installed():
            return local.get(self.namespace, name)
        place = self._place()
        first = self._agent_line(place, name, 0)
        made: Made = first.ask("spec", group="beside")
        number = 0
        if made.num > 1:
            seat = place.keeper().ask("seat", f"agent/{name}", proxy.next_id(self.namespace, name))
            number = int(seat) % made.num
        return self._proxy(place, name, number, made, act)

    def _agent_line(self, place: Place, name: str, number: int) -> Line:
        line = place.line(f"agent/{name}/{number}", self.patience)
        if line is None:
            raise UnknownNameError(
                "agent",
                name,
                place.names("agent"),
                f"make_agent({name!r}, ...) makes it; {self.patience:g} s were waited for it.",
            )
        line.name = f"agent {name!r}"
        return line

    def _proxy(self, place: Place, name: str, number: int, made: Made, act: Act) -> Proxy:
        line, caller, portable = (
            self._agent_line(place, name, number),
            caller_id(self.namespace, name),
            learns_from_blocks(made.agent_class),
        )
        if act == "local" and made.sync and not portable:
            raise SettingError(
                f"get_agent({name!r}, act='local') for {made.agent_class.__name__}, which was "
                "made with sync=True.",
                "an agent that hands parameters to those who act: sync=False, or a class with "
                "portable()",
                "make it with sync=False, or leave act out.",
            )
        if portable and (act == "local" or not made.sync):

            def portable_part(me: str) -> Any:
                return line.ask("perform", me, [("portable", (me,), {})], 0).value

            return ApartProxy(name, caller, line, make=portable_part, records=True)
        if act == "local":
            return ApartProxy(name, caller, line, make=lambda me: made.make())
        if not made.sync:
            copy = place.line(f"agent/{name}/{number}/copy", self.patience)
            if copy is None:
                raise WorkerError(
                    f"the copy of agent {name!r} is gone.",
                    "a process that acts for it",
                    "see the program's output for the reason.",
                )
            copy.name = f"the copy of agent {name!r}"
            return ApartProxy(name, caller, line, copy=copy)
        return RemoteProxy(name, caller, line)

    # Runners

    def make_runner(
        self,
        name: str,
        runner_class: Any,
        args: Any = None,
        num: int = 1,
        resource: dict[str, Any] | None = None,
    ) -> Runners:
        """Makes `num` runners of a name, each in a process of its own, with a core reserved for it,
        or what `resource` says. Each is made with as many of (args, local_rank) as its class takes.
        Where Ray is not installed: one, in this process. SettingError for a name that there is;
        EngineError for several without Ray."""
        _checked(name, num)
        if not _installed():
            if num > 1:
                raise EngineError(
                    f"make_runner({name!r}, num={num}), and Ray is not installed here.",
                    "one runner, or Ray",
                    "pip install 'tandem-rl[ray]'",
                )
            return Runners(name, [construct(runner_class, args, 0, 0, here=True)], [0], None, self)
        place = self._place()
        if name in place.names("runner"):
            raise SettingError(
                f"there are runners {name!r} already.",
                "a name of their own",
                "choose another name, or get_runner.",
            )
        first = place.keeper().ask(
            "seat",
            "runners",
            name,
            sum(place.count(f"runner/{n}") for n in place.names("runner")),
            num,
        )
        ranks = [first + i for i in range(num)]
        try:
            handles = place.make_runner(name, plain_class(runner_class), args, ranks, resource)
        except Exception:
            place.keeper().ask(
                "unseat", "runners", name
            )  # else those that are made instead would miss rank 0
            raise
        return Runners(name, handles, ranks, place, self)

    def get_runner(self, name: str) -> Runners:
        """The runners of a name; waits for it as get_agent does. UnknownNameError where there is
        none."""
        place = self._place()
        if place.line(f"runner/{name}/0", self.patience) is None:
            raise UnknownNameError("runner", name, place.names("runner"))
        handles: list[Any] = []
        while (handle := place.find(f"runner/{name}/{len(handles)}")) is not None:
            handles.append(handle)
        lines = [Line(h, f"runner {name!r}", self.patience) for h in handles]
        return Runners(
            name, handles, [line.ask("numbers", group="beside")[0] for line in lines], place, self
        )

    def start_all_runners(self, runners: Any) -> list[Any]:
        """Runs runners side by side until all have ended: what they returned, in their order.
        Agents' states are kept then.

        runners: what make_runner gave, or several of that. WorkerError, from what was raised,
        for the first that fails, with its rank and traceback; the others are ended then."""
        groups = (
            list(runners)
            if isinstance(runners, Iterable) and not isinstance(runners, Runners)
            else [runners]
        )
        if not all(isinstance(g, Runners) for g in groups):
            raise SettingError(
                f"{runners!r} as runners.", "what make_runner gave, or a list of that", "give them."
            )
        if any(g.place is None for g in groups):
            return [local.run(runner) for g in groups for runner in g.handles]
        found = _together([(g, i) for g in groups for i in range(len(g))])
        place = self._place()
        for name in place.names("agent"):
            line, number = place.line(f"agent/{name}/0"), 0
            while line is not None:
                line.ask("keep_now")
                number += 1
                line = place.line(f"agent/{name}/{number}")
        return found

    # Where

    def _place(self) -> Place:
        """What finds and makes actors, connected; its keeper is there."""
        ray = library()
        if not ray.is_initialized():
            connect(self.address)
        if (
            not self.namespace
        ):  # a name, since Ray's own default is not meant for actors that outlive their maker
            self.namespace = f"tandem-{ray.get_runtime_context().get_job_id()}"
        place = Place(
            self.namespace, self.patience, self.restarts, self.checkpoint_seconds, self.folder
        )
        if not proxy.me():  # a runner's program has made it
            place.keeper()
        return place

    makeAgent = make_agent
    getAgent = get_agent
    makeRunner = make_runner
    getRunner = get_runner
    startAllRunner = startAllRunners = start_all_runner = start_all_runners


WiseRL = Cluster


class Runners(Sequence[Any]):
    """The runners of a name. `ranks` are their numbers among all of the cluster."""

    def __init__(
        self, name: str, handles: list[Any], ranks: list[int], place: Place | None, cluster: Cluster
    ) -> None:
        self.name, self.handles, self.ranks, self.place, self._cluster = (
            name,
            handles,
            ranks,
            place,
            cluster,
        )

    def run(self) -> list[Any]:
        """Runs them all; see `Cluster.start_all_runners`."""
        return self._cluster.start_all_runners(self)

    def call(self, method: str, *given: Any, **named: Any) -> list[Any]:
        """What a method of each gives back. It waits while they run."""
        if self.place is None:
            return [getattr(runner, method)(*given, **named) for runner in self.handles]
        lines = [
            Line(h, f"runner {self.name!r} of rank {r}", self.place.patience)
            for h, r in zip(self.handles, self.ranks, strict=True)
        ]
        return [line.ask("call", method, given, named) for line in lines]

    def __len__(self) -> int:
        return len(self.handles)

    def __getitem__(self, i: Any) -> Any:
        return self.handles[i]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.handles)

    def __repr__(self) -> str:
        return f"<runners {self.name!r}, ranks {self.ranks}>"


def _together(runners: list[tuple[Runners, int]]) -> list[Any]:
    """What all gave back; on the first failure the others are ended."""
    ray = library()
    references = [group.handles[i].run.remote() for group, i in runners]
    waiting, told = list(references), False
    try:
        while waiting:
            ready, waiting = ray.wait(waiting, num_returns=1, timeout=SCARCE)
            for reference in ready:
                group, i = runners[references.index(reference)]
                _result(reference, f"runner {group.name!r} of rank {group.ranks[i]}")
            told = told or (not ready and _tell_who_waits(runners))
    except BaseException:
        for group, i in runners:
            ray.kill(group.handles[i])
        raise
    return [writable(found) for found in ray.get(references)]


def _tell_who_waits(runners: list[tuple[Runners, int]]) -> bool:
    """Says which runners have not begun. True when that was said."""
    return _late(
        {
            f"runner {group.name!r} of rank {group.ranks[i]}": group.handles[i]
            .numbers.options(concurrency_group="beside")
            .remote()
            for group, i in runners
        }
    )


def _late(asked: dict[str, Any]) -> bool:
    """Says by whom nothing of this was answered for a while: they may wait for a node, or a core,
    that never comes. True when that was said."""
    ray = library()
    there, _ = ray.wait(list(asked.values()), num_returns=len(asked), timeout=SCARCE)
    late = [name for name, answer in asked.items() if answer not in there]
    if late:
        logging.getLogger("tandem").warning(
            "%s: not begun yet; it is still being made, or no node has what it reserves (of the "
            "cluster's cores %s of %s"
            " are free). A node that joins will be used; resource={'num_cpus': ...} says what one "
            "reserves.",
            ", ".join(late),
            ray.available_resources().get("CPU", 0),
            ray.cluster_resources().get("CPU", 0),
        )
    return bool(late)


def _result(reference: Any, name: str) -> Any:
    """What a runner gave back, or WorkerError with its name."""
    ray = library()
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        cause = _own(error, name)
        notes = "\n".join(getattr(cause, "__notes__", []))
        raise WorkerError(
            f"{name} failed: {type(cause).__name__}: {str(cause)[:2000]}\n{notes}",
            "runners that come to the end of run()",
            "see its traceback above.",
        ) from cause
    except ray.exceptions.RayActorError as error:
        raise gone(name, error) from error


def _installed() -> bool:
    return importlib.util.find_spec("ray") is not None


def _checked(name: str, num: int) -> None:
    if not name or not isinstance(name, str) or "/" in name or not isinstance(num, int) or num < 1:
        raise SettingError(
            f"name={name!r}, num={num!r}.",
            "a name without a slash, and at least one",
            "correct them.",
        )
