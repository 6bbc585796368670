"""The cluster's actors, as Ray keeps them: how they are made and found. Names, placement and
restarts are Ray's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from tandem.cluster.copies import writable
from tandem.cluster.host import WATCH, Call, Copy, Host, Made, Reply, learns_from_blocks
from tandem.cluster.keeper import Keeper
from tandem.cluster.lines import Line, sent
from tandem.cluster.proxy import me, repeated
from tandem.cluster.runner import RunnerHost
from tandem.errors import SettingError, WorkerError
from tandem.parallel.ray import library

KEEPER = "tandem/keeper"
GROUPS = {
    "beside": 2,
    "waiting": 16,
}  # threads beside the agent's own: questions, and callers that wait for others
ANEW = 1 << 32  # more versions than any agent comes to
PARAMETERS = 5.0  # seconds that a restarted agent asks its copy for newer parameters


_keepers: dict[
    tuple[str, str], tuple[Any, str | None]
] = {}  # with their folders; they live as long as somebody holds them


class Place:
    """The actors of one namespace. Plain data: it goes to other processes."""

    def __init__(
        self, namespace: str, patience: float, restarts: int, seconds: float, folder: str | None
    ) -> None:
        self.namespace, self.patience, self.restarts, self.seconds, self.folder = (
            namespace,
            patience,
            restarts,
            seconds,
            folder,
        )

    def names(self, kind: str) -> list[str]:
        """The names of all agents, or runners, that there are."""
        found = library().util.list_named_actors(all_namespaces=True)
        mine = (a["name"] for a in found if a["namespace"] == self.namespace)
        return sorted(
            {
                n.removeprefix(f"{kind}/").rpartition("/")[0]
                for n in mine
                if n.startswith(f"{kind}/") and n[-1].isdigit()
            }
        )

    def count(self, name: str) -> int:
        """How many actors there are of a name with a number."""
        number = 0
        while self.find(f"{name}/{number}") is not None:
            number += 1
        return number

    def find(self, name: str) -> Any:
        """The actor of that name; None where there is none."""
        try:
            return library().get_actor(name, self.namespace)
        except ValueError:
            return None

    def line(self, name: str, wait: float = 0.0) -> Line | None:
        handle = repeated(lambda: self.find(name), time.monotonic() + wait)
        return None if handle is None else Line(handle, name, self.patience)

    def keeper(self) -> Line:
        """The keeper. The program makes it where there is none, and it ends with the program, and
        all agents after it."""
        ray = library()
        key = (ray.get_runtime_context().gcs_address, self.namespace)
        if me() and key not in _keepers:
            found = self.line(KEEPER, self.patience)
            if found is None:
                raise WorkerError(
                    "the keeper is gone.", "the program that began all this", "start it again."
                )
            return found
        if key not in _keepers:
            options = {
                "name": KEEPER,
                "namespace": self.namespace,
                "get_if_exists": True,
                "num_cpus": 0,
                "max_restarts": -1,
            }
            made = ray.remote(Keeper).options(**options, max_task_retries=-1).remote(self.folder)
            _keepers[key] = made, Line(made, "the keeper", self.patience).ask("place")
        keeper, folder = _keepers[key]
        if self.folder not in (None, folder) and not me():
            there = f"in {folder!r}" if folder else "in none"
            raise SettingError(
                f"folder={self.folder!r}, and the agents of this namespace are kept {there}.",
                "one folder for all agents of a namespace",
                "give it to the first Cluster of the program, or give this one a namespace of its "
                "own.",
            )
        return Line(keeper, "the keeper", self.patience)

    def make_agent(self, name: str, made: Made, resource: dict[str, Any] | None) -> None:
        """The actors of an agent, and of its copies, where they are not there."""
        ray = library()
        options = self._options(resource, 0) | {
            "lifetime": "detached"
        }  # else they would end with the runner that made them
        what = f"agent {name!r}, its class with its hyperparameters,"
        for i in range(made.num):
            key = f"agent/{name}/{i}"
            apart = not made.sync and not learns_from_blocks(made.agent_class)
            host = ray.remote(concurrency_groups=GROUPS)(RemoteHost)
            sent(host.options(**options, name=key).remote, what, self, f"{name}/{i}", made)
            if apart:
                copy = ray.remote(concurrency_groups=GROUPS)(RemoteCopy)
                sent(copy.options(**options, name=f"{key}/copy").remote, what, self, key, made)

    def make_runner(
        self, name: str, runner_class: Any, args: Any, ranks: list[int], resource: Any
    ) -> list[Any]:
        ray = library()
        options = self._options(resource, 1)
        del options["get_if_exists"]
        host = ray.remote(concurrency_groups={"beside": 1})(RunnerHost)
        what = f"runner {name!r}, its class with its args,"
        return [
            sent(
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

    def unmake(self, name: str, num: int) -> None:
        """Frees the name of an agent that could not be made."""
        for i in range(num):
            for key in (f"agent/{name}/{i}", f"agent/{name}/{i}/copy"):
                if (handle := self.find(key)) is not None:
                    library().kill(handle)

    def _options(self, resource: dict[str, Any] | None, cpus: float) -> dict[str, Any]:
        """A runner takes a core, as environments do. Agents reserve none: runners mostly wait while
        they learn, and a program that makes as many runners as there are cores is not to wait for
        ever for a place for its agent."""
        given = dict(resource or {})
        if taken := {"name", "namespace", "lifetime", "get_if_exists"} & set(given):
            raise SettingError(
                f"resource with {', '.join(sorted(taken))}.",
                "what an actor needs and where it may be: num_cpus, num_gpus, resources, "
                "scheduling_strategy, ...",
                "leave these out; they are tandem's.",
            )
        restarts = {"max_restarts": self.restarts, "max_task_retries": self.restarts}
        return {
            "num_cpus": cpus,
            **restarts,
            **given,
            "namespace": self.namespace,
            "get_if_exists": True,
        }


class _Kept:
    """The keeper, for a host: `keep` does not wait."""

    def __init__(self, line: Any) -> None:
        self._line = line

    def keep(self, *given: Any) -> Any:
        return self._line.send("keep", *given)

    def has_kept(self, answer: Any) -> bool:
        return bool(self._line.arrived(answer))

    def recall(self, key: str) -> Any:
        return self._line.ask("recall", key)


def _watch(place: Place, beat: Callable[[Any], None]) -> None:
    """Ends this process's actor, for good, when there is no keeper any more: it ends with the
    program that made it."""
    ray = library()
    me = ray.get_actor  # bound before the thread starts, so that it never imports at exit
    handle = ray.get_runtime_context().current_actor

    def watching() -> None:
        missing = 0
        while True:
            time.sleep(WATCH)
            try:
                keeper = me(KEEPER, place.namespace)
                missing = 0
            except ValueError:
                missing += 1
                if missing > 1:
                    ray.kill(handle, no_restart=True)
                    return
                continue
            try:
                beat(keeper)
            except ray.exceptions.RayError:
                continue  # it is being restarted

    threading.Thread(target=watching, name="tandem-watch", daemon=True).start()


class RemoteHost(Host):
    """A host that Ray keeps. What its agent raises while it is made is raised to all who ask for
    it."""

    def __init__(self, place: Place, key: str, made: Made) -> None:
        ray = library()
        self._place, self._copy = place, None
        self._failed: Exception | None = None
        line = place.line(KEEPER, place.patience)
        if line is None:  # the program has ended meanwhile
            ray.actor.exit_actor()
        try:
            super().__init__(
                key, writable(made), _Kept(line), place.seconds, ray.put, self._to_copy
            )
        except Exception as error:
            self._failed = error
        else:
            self._from_copy()
            if ray.get_runtime_context().was_current_actor_reconstructed:
                self._again()
        _watch(place, self._beat)

    def spec(self) -> Made:
        if self._failed is not None:
            raise self._failed
        return super().spec()

    def perform(self, caller: str, calls: list[Call], have: int) -> Reply:
        if self._failed is not None:
            raise self._failed
        return super().perform(caller, writable(calls), have)

    def _to_copy(self, version: int, reference: Any) -> None:
        if self._copy is None:
            self._copy = self._place.find(f"agent/{self.key}/copy")
        if self._copy is not None:
            self._copy.adopt.options(concurrency_group="beside").remote(version, reference)

    def _from_copy(self) -> None:
        """After a restart, what was fired since the state that was kept is newer."""
        ray, copy = library(), self._place.find(f"agent/{self.key}/copy")
        if copy is None:
            return
        try:
            version, news = ray.get(
                copy.newest.options(concurrency_group="beside").remote(), timeout=PARAMETERS
            )
        except (ray.exceptions.RayError, TimeoutError):
            return  # the copy was lost as well: it is the kept state
        if news and version > self.version:
            self.agent._update_model(news[0])
            self.version = version
            self.fire(news[0])  # a copy that is lost before the next update is given it again
            self._publish()

    def _again(self) -> None:
        """It stands for one that was lost: its parameters are the newest for all who act, whatever
        number theirs have."""
        self.version += ANEW
        if learns_from_blocks(self.agent):
            self.agent.restarted = True
            self.agent._sync_model()
            self._publish()

    def _beat(self, keeper: Any) -> None:
        """A keeper that was restarted has forgotten what it had."""
        if (
            not self._failed
            and self.kept is not None
            and not library().get(keeper.has.remote(self.key))
        ):
            self.forgotten()

    def keep_now(self) -> int:
        """Leaves the agent's state with the keeper, and waits until it is there. Its version."""
        self.save(now=True)
        library().get(self.kept)
        return self.version


class RemoteCopy(Copy):
    """A copy that Ray keeps. key: its agent's actor."""

    def __init__(self, place: Place, key: str, made: Made) -> None:
        self._place, self._key = place, key
        super().__init__(writable(made), self._from_agent)
        _watch(place, lambda keeper: None)

    def perform(self, caller: str, calls: list[Call], have: int) -> Reply:
        return super().perform(caller, writable(calls), have)

    def _from_agent(self) -> tuple[int, list[Any]]:
        line = self._place.line(self._key, self._place.patience)
        if line is None:
            return 0, []
        version, news = line.ask("newest", group="beside")
        found = line.fetched(news[0]) if news else None
        return (0, []) if found is None else (version, [found])
