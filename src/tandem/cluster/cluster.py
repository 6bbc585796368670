"""Entry points of the cluster API: `Cluster` creates and finds agents and runners by name;
`Runners` is a group of runners with the same name."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from tandem.cluster import runner
from tandem.cluster.agent_host import (
    AgentSpec,
    identity,
    learns_from_blocks,
    new_caller_id,
    next_caller_id,
)
from tandem.cluster.agent_state import writable
from tandem.cluster.proxy import AsyncProxy, Proxy, RemoteProxy
from tandem.cluster.ray_actors import ActorHandle, Namespace, actor_lost, remote_error
from tandem.cluster.runner import RunnerHost, construct, plain_class
from tandem.errors import EngineError, SettingError, UnknownNameError, WorkerError, at_least
from tandem.workers.ray import connect, library

Act = Literal["remote", "local"]
WARN_SECONDS = 10.0  # seconds until a warning names the actors that have not started


class Cluster:
    """Named agents and runners on the machines of a Ray cluster.

    In a runner that is created directly, agents are created and found in this process, and Ray is
    not needed.

    Args:
        address: Address of a running cluster (HOST:PORT). By default, the cluster is the one that
            this process is connected to, that RAY_ADDRESS names, or that runs on this machine; if
            there is none, the first call that uses a name starts one.
        folder: Folder in which agents' states are also saved. A program with the same folder and
            names resumes from them.
        namespace: Programs with the same namespace share names; by default each program has its
            own.
        patience: Seconds that get_agent waits for a name, and that callers wait for an agent that
            is being restarted.
        checkpoint_seconds: Seconds between saved states of agents; longer if saving would take over
            5 % of the time.
        restarts: Number of times that Ray restarts a lost process.
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
        at_least("patience", patience, 0)
        at_least("checkpoint_seconds", checkpoint_seconds, 0)
        at_least("restarts", restarts, -1)  # negative: no limit
        self.address, self.namespace = address, namespace
        self.folder = None if folder is None else str(Path(folder).absolute())
        self.patience = float(patience)
        self.checkpoint_seconds = float(checkpoint_seconds)
        self.restarts = int(restarts)

    # Agents

    def make_agent(
        self,
        name: str,
        agent_class: object,
        sync: bool = True,
        num: int = 1,
        resource: Mapping[str, object] | None = None,
        **hyperparameters: object,
    ) -> list[Proxy]:
        """Create `num` agents with the same name, and return a proxy of each.

        If agents with this name, class and hyperparameters exist, they are shared instead.

        Args:
            name: Name of the agents.
            agent_class: Class with choose_action and update.
            sync: True: one process acts and learns, in the order of the calls. False: a copy in
                another process acts; see `Agent`. Passed to the class if it accepts `sync`.
            num: Number of agents.
            resource: Ray options of each agent (num_cpus, num_gpus, resources, ...). By default, no
                CPU is reserved.
            **hyperparameters: Arguments of the class.

        Raises:
            SettingError: if the name exists with different arguments.
        """
        _check_name(name, num)
        spec = AgentSpec(plain_class(agent_class), bool(sync), num, hyperparameters)
        if not isinstance(spec.agent_class, type) or not callable(
            getattr(spec.agent_class, "choose_action", None)
        ):
            raise SettingError(
                f"{agent_class!r} is not an agent class.",
                "a class with choose_action and update",
                "pass the class itself, not an instance, with a method choose_action(state).",
            )
        if runner.is_here() or not _installed():
            seconds = self.checkpoint_seconds
            return [*runner.make_agents_here(self.namespace, name, spec, self.folder, seconds)]
        namespace = self._connect()
        namespace.make_agent(name, spec, resource)
        actors = [self._agent_actor(namespace, name, i) for i in range(num)]
        try:
            asked = [actor.send("spec") for actor in actors]
            _warn_of_late({f"agent {name!r}, number {i}": x for i, x in enumerate(asked)})
            specs = [a.receive(x, "spec") for a, x in zip(actors, asked, strict=True)]
        except Exception:
            namespace.remove_agent(name, num)
            raise
        runner.refuse_other(name, specs[0], spec)
        return [self._proxy(namespace, name, i, spec, "remote") for i in range(num)]

    def get_agent(self, name: str, act: Act = "remote") -> Any:
        """Return the proxy of an agent, waiting until one with this name exists. Several agents
        with the same name are assigned in turn.

        Args:
            name: Name of the agents.
            act: "remote" or "local". With "local", this process chooses actions, with parameters
                that it receives from the agent whenever there are newer ones. This works for agents
                with sync=False, and for those with an acting part (`portable`), such as
                AlgorithmAgent.

        Raises:
            UnknownNameError: if there is no such agent after `patience` seconds. It lists the
                existing names.
        """
        if act not in get_args(Act):
            raise UnknownNameError("acting mode", act, get_args(Act))
        if runner.is_here() or not _installed():
            return runner.get_agent_here(self.namespace, name)
        namespace = self._connect()
        spec: AgentSpec = self._agent_actor(namespace, name, 0).call("spec", group="control")
        number = 0
        if spec.num > 1:
            caller = next_caller_id(self.namespace, name)
            number = int(namespace.store().call("rank", f"agent/{name}", caller)) % spec.num
        return self._proxy(namespace, name, number, spec, act)

    def _agent_actor(self, namespace: Namespace, name: str, number: int) -> ActorHandle:
        actor = namespace.handle(f"agent/{name}/{number}", self.patience)
        if actor is None:
            raise UnknownNameError(
                "agent",
                name,
                namespace.names("agent"),
                f"call make_agent({name!r}, ...) first (waited {self.patience:g} s for it).",
            )
        actor.name = f"agent {name!r}"
        return actor

    def _proxy(
        self, namespace: Namespace, name: str, number: int, spec: AgentSpec, act: Act
    ) -> Proxy:
        actor = self._agent_actor(namespace, name, number)
        caller, portable = new_caller_id(self.namespace, name), learns_from_blocks(spec.agent_class)
        if act == "local" and spec.sync and not portable:
            raise SettingError(
                f"get_agent({name!r}, act='local') is not supported for "
                f"{spec.agent_class.__name__} with sync=True.",
                "an agent that shares its parameters: sync=False, or a class with portable()",
                "create it with sync=False, or leave act out.",
            )
        if portable and (act == "local" or not spec.sync):

            def portable_part(caller: str) -> Any:
                return actor.call("perform", caller, [("portable", (caller,), {})], 0).value

            return AsyncProxy(name, caller, actor, make=portable_part, from_blocks=True)
        if act == "local":
            return AsyncProxy(name, caller, actor, make=lambda caller: spec.make())
        if not spec.sync:
            copy = namespace.handle(f"agent/{name}/{number}/copy", self.patience)
            if copy is None:
                raise WorkerError(
                    f"the acting copy of agent {name!r} has ended.",
                    "a running process that acts for it",
                    "see the program's output for the reason; make_agent creates a new agent "
                    "under another name.",
                )
            copy.name = f"the copy of agent {name!r}"
            return AsyncProxy(name, caller, actor, copy=copy)
        return RemoteProxy(name, caller, actor)

    # Runners

    def make_runner(
        self,
        name: str,
        runner_class: object,
        args: object = None,
        num: int = 1,
        resource: Mapping[str, object] | None = None,
    ) -> Runners:
        """Create `num` runners with the same name, each in its own process.

        Each one receives as many of (args, local_rank) as its class accepts. Without Ray, a single
        runner is created in this process.

        Args:
            name: Name of the runners.
            runner_class: Class with run.
            args: First argument of the class.
            num: Number of runners.
            resource: Ray options of each runner. By default, one CPU is reserved.

        Raises:
            SettingError: if the name exists.
            EngineError: for several runners without Ray.
        """
        _check_name(name, num)
        if not _installed():
            if num > 1:
                raise EngineError(
                    f"make_runner({name!r}, num={num}) requires Ray, which is not installed.",
                    "one runner, or Ray",
                    "pip install 'tandem-rl[ray]'",
                )
            return Runners(name, [construct(runner_class, args, 0, 0, here=True)], [0], None, self)
        namespace = self._connect()
        names = namespace.names("runner")
        if name in names:
            raise SettingError(
                f"runners named {name!r} already exist.",
                "an unused name",
                "choose another name, or call get_runner.",
            )
        others, store = sum(len(namespace.all_of(f"runner/{n}")) for n in names), namespace.store()
        first = store.call("rank", "runners", name, others, num)
        ranks = [first + i for i in range(num)]
        plain = plain_class(runner_class)
        try:
            actors = namespace.make_runner(RunnerHost, name, plain, args, ranks, resource)
        except Exception:
            # else runners created in their place would lack rank 0
            store.call("release_rank", "runners", name)
            raise
        return Runners(name, actors, ranks, namespace, self)

    def get_runner(self, name: str) -> Runners:
        """Return the runners with this name, waiting for it like get_agent. Raises UnknownNameError
        if there are none."""
        namespace = self._connect()
        if namespace.handle(f"runner/{name}/0", self.patience) is None:
            raise UnknownNameError(
                "runner",
                name,
                namespace.names("runner"),
                f"call make_runner({name!r}, ...) first (waited {self.patience:g} s for it).",
            )
        actors = namespace.all_of(f"runner/{name}")
        handles = [ActorHandle(actor, f"runner {name!r}", self.patience) for actor in actors]
        ranks = [handle.call("ranks", group="control")[0] for handle in handles]
        return Runners(name, actors, ranks, namespace, self)

    def start_all_runners(self, runners: Any) -> list[Any]:
        """Run runners in parallel until all have finished, then save the agents' states.

        Args:
            runners: The result of make_runner, or a list of such results.

        Returns:
            The results of run(), in the order of the runners.

        Raises:
            WorkerError: for the first runner that fails, with its rank and traceback, chained to
                the original exception. The other runners are terminated.
        """
        groups = (
            list(runners)
            if isinstance(runners, Iterable) and not isinstance(runners, Runners)
            else [runners]
        )
        if not all(isinstance(g, Runners) for g in groups):
            raise SettingError(
                f"start_all_runners was given {runners!r}.",
                "the result of make_runner, or a list of such results",
                "runners = cluster.make_runner('runner', YourRunner), then "
                "cluster.start_all_runners(runners).",
            )
        if any(g.namespace is None for g in groups):
            return [runner.run_here(each) for g in groups for each in g]
        results = _run_all([(g, i) for g in groups for i in range(len(g))])
        namespace = self._connect()
        for name in namespace.names("agent"):
            for actor in namespace.all_of(f"agent/{name}"):
                ActorHandle(actor, f"agent {name!r}", self.patience).call("save_now")
        return results

    def _connect(self) -> Namespace:
        """Return the namespace, which finds and creates actors. Connects this process to Ray and
        creates the store if necessary."""
        ray = library()
        if not ray.is_initialized():
            connect(self.address)
        if not self.namespace:
            # required, since Ray's default namespace is not meant for detached actors
            self.namespace = f"tandem-{ray.get_runtime_context().get_job_id()}"
        namespace = Namespace(
            self.namespace, self.patience, self.restarts, self.checkpoint_seconds, self.folder
        )
        if not identity():  # the program that started this runner has created it
            namespace.store()
        return namespace

    makeAgent = make_agent
    getAgent = get_agent
    makeRunner = make_runner
    getRunner = get_runner
    startAllRunner = startAllRunners = start_all_runner = start_all_runners


WiseRL = Cluster


class Runners(list[Any]):
    """Runners with the same name. `ranks` are their numbers among all runners of the cluster."""

    def __init__(
        self,
        name: str,
        handles: Sequence[object],
        ranks: list[int],
        namespace: Namespace | None,
        cluster: Cluster,
    ) -> None:
        super().__init__(handles)
        self.name, self.ranks = name, ranks
        self.namespace, self._cluster = namespace, cluster

    def run(self) -> list[Any]:
        """Run all of them; see `Cluster.start_all_runners`."""
        return self._cluster.start_all_runners(self)

    def call(self, method: str, *args: object, **kwargs: object) -> list[Any]:
        """Return the results of a method of each runner. Waits while they run."""
        if self.namespace is None:
            return [getattr(each, method)(*args, **kwargs) for each in self]
        patience = self.namespace.patience
        handles = [
            ActorHandle(actor, f"runner {self.name!r} of rank {rank}", patience)
            for actor, rank in zip(self, self.ranks, strict=True)
        ]
        return [handle.call("call", method, args, kwargs) for handle in handles]

    def __repr__(self) -> str:
        return f"<runners {self.name!r}, ranks {self.ranks}>"


def _run_all(runners: list[tuple[Runners, int]]) -> list[Any]:
    """Return the results of all runners. On the first failure, terminate the others."""
    ray = library()
    references = [group[i].run.remote() for group, i in runners]
    waiting, warned = list(references), False
    try:
        while waiting:
            ready, waiting = ray.wait(waiting, num_returns=1, timeout=WARN_SECONDS)
            for reference in ready:
                group, i = runners[references.index(reference)]
                _result(reference, f"runner {group.name!r} of rank {group.ranks[i]}")
            if not ready and not warned:
                asked = {
                    f"runner {group.name!r} of rank {group.ranks[i]}": group[i]
                    .ranks.options(concurrency_group="control")
                    .remote()
                    for group, i in runners
                }
                warned = _warn_of_late(asked)
    except BaseException:
        for group, i in runners:
            ray.kill(group[i])
        raise
    return [writable(result) for result in ray.get(references)]


def _warn_of_late(asked: Mapping[str, object]) -> bool:
    """Warn about actors that have not responded after WARN_SECONDS: they may be waiting for a node
    or CPU that never becomes available. Returns whether there are any.

    asked: references of the responses, by actor name.
    """
    ray = library()
    answered, _ = ray.wait(list(asked.values()), num_returns=len(asked), timeout=WARN_SECONDS)
    late = [name for name, answer in asked.items() if answer not in answered]
    if late:
        logging.getLogger("tandem").warning(
            "%s: not started yet; it is still being created, or no node has what it reserves (of "
            "the cluster's cores %s of %s are free). A node that joins will be used; "
            "resource={'num_cpus': ...} says what one reserves.",
            ", ".join(late),
            ray.available_resources().get("CPU", 0),
            ray.cluster_resources().get("CPU", 0),
        )
    return bool(late)


def _result(reference: object, name: str) -> Any:
    """Return the result of a runner. Raises WorkerError with its name if it failed."""
    ray = library()
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        cause = remote_error(error, name)
        notes = "\n".join(getattr(cause, "__notes__", []))
        raise WorkerError(
            f"{name} failed: {type(cause).__name__}: {str(cause)[:2000]}\n{notes}",
            "runners that finish run()",
            "fix the error in the traceback above, and recreate the runners.",
        ) from cause
    except ray.exceptions.RayActorError as error:
        raise actor_lost(name, error) from error


def _installed() -> bool:
    return importlib.util.find_spec("ray") is not None


def _check_name(name: str, num: int) -> None:
    if not name or not isinstance(name, str) or "/" in name:
        plain = str(name).replace("/", "-") if name else "agent"
        raise SettingError(f"name={name!r}.", "a str without a slash", f"give name={plain!r}.")
    if not isinstance(num, int) or num < 1:
        raise SettingError(f"num={num!r}.", "a whole number, at least 1", "give num=1.")
