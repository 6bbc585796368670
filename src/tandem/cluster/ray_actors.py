"""The cluster's Ray actors: creating, finding and calling them. Ray handles names, placement and
restarts."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

from tandem.cluster.agent_host import (
    ActingCopy,
    AgentHost,
    AgentSpec,
    Call,
    Reply,
    identity,
    learns_from_blocks,
)
from tandem.cluster.agent_state import (
    StateStore,
    refuse_other_folder,
    writable,
)
from tandem.errors import SettingError, TandemError, WorkerError
from tandem.workers.ray import library

STORE = "tandem/states"
# threads in addition to the agent's own: for control calls, and for callers that wait for others
GROUPS = {"control": 2, "waiting": 16}
WATCH_SECONDS = 2.0  # between checks of the store
RESTART_VERSIONS = 1 << 32  # more versions than any agent reaches
COPY_SECONDS = 5.0  # maximum wait of a restarted agent for newer parameters from its copy

# by (cluster, namespace): the store, which lives as long as a reference to it, and its folder
_stores: dict[tuple[str, str], tuple[object, str | None]] = {}


class ActorHandle:
    """Handle of a Ray actor. Calls arrive in order. Calls that cannot arrive at the moment are sent
    again; calls that never will raise an error that names the actor.

    name: used in messages. patience: seconds that the actor may be unavailable.
    """

    def __init__(self, actor: object, name: str, patience: float) -> None:
        self.actor, self.name, self.patience = actor, name, patience

    def send(self, method: str, *args: object, group: str = "") -> object:
        """Call a method without waiting. Returns a reference to its result."""
        self._ray()
        remote = getattr(self.actor, method)
        if group:
            remote = remote.options(concurrency_group=group)
        return submit(remote.remote, f"what {self.name} is given", *args)

    def receive(self, reference: object, method: str, *args: object, group: str = "") -> Any:
        """Return the result of a call. If the actor was unavailable, the call is sent again until
        `patience` runs out. Raises WorkerError if the actor is lost for good, and exceptions from
        its code here, with its traceback in the notes."""
        ray, end = self._ray(), time.monotonic() + self.patience
        while True:
            try:
                return writable(ray.get(reference))
            except ray.exceptions.RayTaskError as error:
                raise remote_error(error, self.name) from None
            except ray.exceptions.ActorUnavailableError as error:
                if time.monotonic() > end:
                    raise actor_lost(self.name, error) from error
            except (ray.exceptions.ActorDiedError, ray.exceptions.RayActorError) as error:
                raise actor_lost(self.name, error) from error
            time.sleep(0.1)
            reference = self.send(method, *args, group=group)

    def call(self, method: str, *args: object, group: str = "") -> Any:
        """Call a method and wait for its result, see `receive`."""
        return self.receive(self.send(method, *args, group=group), method, *args, group=group)

    def ready(self, reference: object) -> bool:
        """Return whether a result is available."""
        return bool(self._ray().wait([reference], timeout=0)[0])

    def fetch(self, reference: object) -> Any:
        """Return the object of a reference; None if it was lost with its owner."""
        ray = self._ray()
        try:
            return ray.get(reference)
        except (ray.exceptions.ObjectLostError, ray.exceptions.RayActorError):
            return None

    def _ray(self) -> ModuleType:
        """Return Ray. Raises WorkerError if this process has left its cluster: Ray would silently
        start another one."""
        ray = library()
        if not ray.is_initialized():
            raise WorkerError(
                f"{self.name} was called after ray.shutdown().",
                "a process connected to its cluster",
                "shut Ray down after the last call, or recreate the agents.",
            )
        return ray


def submit(remote: Callable[..., object], what: str, *args: object) -> object:
    """Return the result of Ray's `remote`. Raises SettingError, naming `what`, if an argument
    cannot be pickled."""
    try:
        return remote(*args)
    except (TandemError, library().exceptions.RayError):
        raise
    except Exception as error:
        # pickling can raise any type; Ray reports its search for the object
        raise SettingError(
            f"{what} cannot be sent to another process: {str(error.__cause__ or error)[:600]}",
            "values, objects and classes that can be pickled",
            "leave out what cannot be pickled, or create it there (the __init__ of runners and "
            "agents runs there).",
        ) from error


def actor_lost(name: str, error: Exception) -> WorkerError:
    """Return the error for an actor that ended and will not be restarted."""
    return WorkerError(
        f"{name} is gone: {' '.join(str(error).split())[:600]}",
        "a running process, or one that Ray may restart",
        "see its output for the reason; Cluster(restarts=...) sets how often it is restarted.",
    )


def remote_error(error: BaseException, name: str) -> BaseException:
    """Return the exception that an actor's code raised, with its remote traceback in the notes."""
    cause = getattr(error, "cause", None)
    if not isinstance(cause, BaseException) or cause is error:
        return error
    cause.add_note(f"In {name}:\n{error}")
    return cause


class Namespace:
    """The actors of one namespace. Contains only plain data, so that it can be sent to other
    processes."""

    def __init__(
        self, name: str, patience: float, restarts: int, seconds: float, folder: str | None
    ) -> None:
        self.name, self.patience, self.restarts = name, patience, restarts
        self.seconds, self.folder = seconds, folder

    def names(self, kind: str) -> list[str]:
        """Return the names of all existing agents or runners."""
        actors = library().util.list_named_actors(all_namespaces=True)
        names = (a["name"] for a in actors if a["namespace"] == self.name)
        return sorted(
            {
                n.removeprefix(f"{kind}/").rpartition("/")[0]
                for n in names
                if n.startswith(f"{kind}/") and n[-1].isdigit()
            }
        )

    def all_of(self, name: str) -> list[object]:
        """Return the numbered actors of a name, in order."""
        actors: list[object] = []
        while (actor := self.find(f"{name}/{len(actors)}")) is not None:
            actors.append(actor)
        return actors

    def find(self, name: str) -> Any:
        """Return the actor with this name; None if there is none."""
        try:
            return library().get_actor(name, self.name)
        except ValueError:
            return None

    def handle(self, name: str, wait: float = 0.0) -> ActorHandle | None:
        """Return the actor with this name, waiting up to `wait` seconds for it; else None."""
        end = time.monotonic() + wait
        for pause in itertools.chain((0.01, 0.02, 0.05, 0.1), itertools.repeat(0.25)):
            if (actor := self.find(name)) is not None:
                return ActorHandle(actor, name, self.patience)
            if time.monotonic() > end:
                return None
            time.sleep(pause)
        raise AssertionError  # unreachable: the pauses never end

    def store(self) -> ActorHandle:
        """Return the store of agents' states. The program creates it if necessary; it ends with the
        program, and so do all agents."""
        ray = library()
        key = (ray.get_runtime_context().gcs_address, self.name)
        if identity() and key not in _stores:
            handle = self.handle(STORE, self.patience)
            if handle is None:
                raise WorkerError(
                    "the store of agents' states is gone.",
                    "the program that created it, still running",
                    "restart that program.",
                )
            return handle
        if key not in _stores:
            options = {
                "name": STORE,
                "namespace": self.name,
                "get_if_exists": True,
                "num_cpus": 0,
                "max_restarts": -1,
                "max_task_retries": -1,
            }
            actor = ray.remote(StateStore).options(**options).remote(self.folder)
            _stores[key] = actor, self._store_handle(actor).call("folder_path")
        actor, folder = _stores[key]
        if not identity():
            refuse_other_folder(self.folder, folder)
        return self._store_handle(actor)

    def _store_handle(self, actor: object) -> ActorHandle:
        return ActorHandle(actor, "the store of agents' states", self.patience)

    def make_agent(self, name: str, spec: AgentSpec, resource: Mapping[str, object] | None) -> None:
        """Create the actors of an agent and of its acting copies, unless they exist."""
        ray = library()
        # detached: otherwise they would end with the runner that created them
        options = self._options(resource, 0) | {"lifetime": "detached", "get_if_exists": True}
        what = f"agent {name!r}, its class with its hyperparameters,"
        for i in range(spec.num):
            key = f"agent/{name}/{i}"
            host = ray.remote(concurrency_groups=GROUPS)(RemoteHost)
            submit(host.options(**options, name=key).remote, what, self, f"{name}/{i}", spec)
            if not spec.sync and not learns_from_blocks(spec.agent_class):
                copy = ray.remote(concurrency_groups=GROUPS)(RemoteCopy)
                submit(copy.options(**options, name=f"{key}/copy").remote, what, self, key, spec)

    def make_runner(
        self,
        host_class: type,
        name: str,
        runner_class: type,
        args: object,
        ranks: list[int],
        resource: Mapping[str, object] | None,
    ) -> list[object]:
        """Create the actors of the runners of a new name."""
        host = library().remote(concurrency_groups={"control": 1})(host_class)
        options = self._options(resource, 1)
        what = f"runner {name!r}, its class with its args,"
        return [
            submit(
                host.options(**options, name=f"runner/{name}/{i}").remote,
                what,
                runner_class,
                args,
                rank,
                i,
                name,
            )
            for i, rank in enumerate(ranks)
        ]

    def remove_agent(self, name: str, num: int) -> None:
        """Free the name of an agent that could not be created."""
        for i in range(num):
            for key in (f"agent/{name}/{i}", f"agent/{name}/{i}/copy"):
                if (actor := self.find(key)) is not None:
                    library().kill(actor)

    def _options(self, resource: Mapping[str, object] | None, cpus: float) -> dict[str, object]:
        """Return Ray's options of an actor.

        A runner reserves a CPU, like environments. Agents reserve none: runners mostly wait while
        agents learn, and a program with as many runners as CPUs must not wait forever to place its
        agent.
        """
        resource = dict(resource or {})
        if taken := {"name", "namespace", "lifetime", "get_if_exists"} & set(resource):
            raise SettingError(
                f"resource contains {', '.join(sorted(taken))}.",
                "the resources and placement of an actor: num_cpus, num_gpus, resources, "
                "scheduling_strategy, ...",
                "leave these out; tandem sets them.",
            )
        return {
            "num_cpus": cpus,
            "max_restarts": self.restarts,
            "max_task_retries": self.restarts,
            **resource,
            "namespace": self.name,
        }


def _watch(namespace: Namespace, check: Callable[[Any], None]) -> None:
    """Kill this process's actor for good once the store is gone, which ends with the program that
    created it. check: called regularly with the store."""
    ray = library()
    get_actor = ray.get_actor  # bound before the thread starts, so that it never imports at exit
    this_actor = ray.get_runtime_context().current_actor

    def watch() -> None:
        missing = 0
        while True:
            time.sleep(WATCH_SECONDS)
            try:
                store = get_actor(STORE, namespace.name)
                missing = 0
            except ValueError:
                missing += 1
                if missing > 1:
                    ray.kill(this_actor, no_restart=True)
                    return
                continue
            try:
                check(store)
            except ray.exceptions.RayError:
                continue  # the store is being restarted

    threading.Thread(target=watch, name="tandem-watch", daemon=True).start()


class RemoteHost(AgentHost):
    """Agent host in a Ray actor. An exception from the agent's creation is raised to all
    callers."""

    def __init__(self, namespace: Namespace, key: str, spec: AgentSpec) -> None:
        ray = library()
        self._namespace, self._copy = namespace, None
        self._failed: Exception | None = None
        store = namespace.handle(STORE, namespace.patience)
        if store is None:  # the program has ended meanwhile
            ray.actor.exit_actor()
        else:
            client = SimpleNamespace(
                put=partial(store.send, "put"),  # does not wait
                get=partial(store.call, "get"),
                has_stored=store.ready,
            )
            try:
                super().__init__(
                    key, writable(spec), client, namespace.seconds, ray.put, self._notify_copy
                )
            except Exception as error:
                self._failed = error
            else:
                self._load_from_copy()
                if ray.get_runtime_context().was_current_actor_reconstructed:
                    self._after_restart()
        _watch(namespace, self._check_store)

    def spec(self) -> AgentSpec:
        if self._failed is not None:
            raise self._failed
        return super().spec()

    def perform(self, caller: str, calls: list[Call], version: int) -> Reply:
        if self._failed is not None:
            raise self._failed
        return super().perform(caller, writable(calls), version)

    def _notify_copy(self, version: int, reference: object) -> None:
        if self._copy is None:
            self._copy = self._namespace.find(f"agent/{self.key}/copy")
        if self._copy is not None:
            self._copy.receive.options(concurrency_group="control").remote(version, reference)

    def _load_from_copy(self) -> None:
        """Load parameters from the copy after a restart, if they are newer than the stored
        state."""
        ray, copy = library(), self._namespace.find(f"agent/{self.key}/copy")
        if copy is None:
            return
        try:
            newest = copy.newest.options(concurrency_group="control").remote()
            version, params = ray.get(newest, timeout=COPY_SECONDS)
        except (ray.exceptions.RayError, TimeoutError):
            return  # the copy was lost as well: keep the stored state
        if params and version > self.version:
            self.agent._update_model(params[0])
            self.version = version
            self.fire(params[0])  # for a copy that is lost before the next update
            self._publish()

    def _after_restart(self) -> None:
        """Make this restarted agent's parameters the newest for all objects that act, whatever
        their version."""
        self.version += RESTART_VERSIONS
        if learns_from_blocks(self.agent):
            self.agent.restarted = True
            self.agent._sync_model()
            self._publish()

    def _check_store(self, store: Any) -> None:
        """Send the state again if the store was restarted and has lost it."""
        saved = self._failed is None and self.stored is not None
        if saved and not library().get(store.has.remote(self.key)):
            self.save_again()

    def save_now(self) -> int:
        """Send the agent's state to the store, and wait until it is stored. Returns its version."""
        self.save(now=True)
        library().get(self.stored)
        return self.version


class RemoteCopy(ActingCopy):
    """Acting copy in a Ray actor. key: name of its agent's actor."""

    def __init__(self, namespace: Namespace, key: str, spec: AgentSpec) -> None:
        self._namespace, self._key = namespace, key
        super().__init__(writable(spec), self._newest_of_host)
        _watch(namespace, lambda store: None)

    def perform(self, caller: str, calls: list[Call], version: int) -> Reply:
        return super().perform(caller, writable(calls), version)

    def _newest_of_host(self) -> tuple[int, list[object]]:
        host = self._namespace.handle(self._key, self._namespace.patience)
        if host is None:
            return 0, []
        version, params = host.call("newest", group="control")
        param = host.fetch(params[0]) if params else None
        return (0, []) if param is None else (version, [param])
