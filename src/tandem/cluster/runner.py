"""Runners, which step environments and send the transitions to agents. Runners created directly
live in this process, and so do their agents."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

from tandem.cluster import proxy
from tandem.cluster.agent_host import AgentHost, AgentSpec, new_caller_id, set_identity
from tandem.cluster.agent_state import StateStore, refuse_other_folder, writable
from tandem.cluster.proxy import LocalProxy
from tandem.errors import SettingError, UnknownNameError, WorkerError


class _MadeHere(type):
    """Metaclass that creates and finds agents in this process during the `__init__` of a runner
    created directly.

    Only the `__call__` of a metaclass encloses the `__init__` of every subclass, including one that
    does not call super().__init__() and that of a dataclass, which does not exist yet in
    `__init_subclass__`.
    """

    def __call__(cls, *args: object, **kwargs: object) -> Any:
        proxies: list[LocalProxy] = []
        with agents_here(proxies):
            runner = super().__call__(*args, **kwargs)
        if isinstance(runner, cls):
            runner._proxies = proxies
        return runner


class Runner(metaclass=_MadeHere):
    """Base class of runners: define `__init__(self)`, `(self, args)` or `(self, args, local_rank)`,
    and `run`, which does all the work.

    `rank` is the number of a runner among all runners of a cluster, `local_rank` that among those
    with its name. Both are available in `__init__`. They are 0 for a runner created directly, which
    lives in this process together with the agents it creates.
    """

    rank: int = 0
    local_rank: int = 0
    _proxies: list[LocalProxy] | None = None  # if it lives in this process

    def __init__(self, args: Any = None, local_rank: int = 0) -> None:
        self.args, self.local_rank = args, local_rank

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if "run" in cls.__dict__:
            cls.run = _runs_here(cls.__dict__["run"])  # type: ignore[method-assign]

    def run(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no run().")


def _runs_here(run: Callable[[Runner], Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def wrapped(self: Runner) -> object:
        if self._proxies is None or is_here():
            return run(self)
        return run_here(self)

    return wrapped


def plain_class(runner_class: object) -> Any:
    """Return the user's class without the decorator ray.remote."""
    metadata = getattr(runner_class, "__ray_metadata__", None)
    return runner_class if metadata is None else metadata.modified_class


def construct(
    runner_class: object, args: object, rank: int, local_rank: int, here: bool = False
) -> Any:
    """Create a runner with its ranks. Its `__init__` receives as many of (args, local_rank) as it
    accepts, and no args if it needs none.

    here: its agents live in this process, too. Raises SettingError if `__init__` accepts no args
    but some are given, or if it requires more.
    """
    cls = plain_class(runner_class)
    if not isinstance(cls, type) or not callable(getattr(cls, "run", None)):
        raise SettingError(
            f"{cls!r} is not a runner class.",
            "a class with a method run()",
            "pass the class itself, not an instance.",
        )
    positional, keywords = _arguments(cls, args, local_rank)
    new: Any = cls.__new__
    runner = new(cls)
    runner.rank, runner.local_rank = rank, local_rank
    proxies: list[LocalProxy] = []
    with agents_here(proxies) if here else nullcontext():
        runner.__init__(*positional, **keywords)
    runner.rank, runner.local_rank = rank, local_rank
    if here:
        runner._proxies = proxies
    return runner


def _arguments(cls: type, args: object, local_rank: int) -> tuple[list[object], dict[str, int]]:
    """Return the arguments among (args, local_rank) that a class's `__init__` accepts: positional
    and keyword arguments."""
    init = inspect.getattr_static(cls, "__init__")
    try:
        parameters = list(inspect.signature(init).parameters.values())[1:]
    except (TypeError, ValueError):
        parameters = []
    if init is object.__init__:
        parameters = []
    by_position = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    any_number = any(p.kind == p.VAR_POSITIONAL for p in parameters)
    keywords = {"local_rank": local_rank} if any(p.name == "local_rank" for p in parameters) else {}
    others = [p for p in by_position if p.name != "local_rank"]
    required = [p.name for p in others if p.default is p.empty]
    if not keywords and len(required) > 1:
        if len(required) > 2:
            raise SettingError(
                f"{cls.__name__}.__init__ requires {', '.join(required)}.",
                "(self), (self, args) or (self, args, local_rank)",
                "put these values into args.",
            )
        return [args, local_rank], {}
    if required or (args is not None and (others or any_number)):
        return [args], keywords
    if args is not None:
        raise SettingError(
            f"args were given to {cls.__name__}, but its __init__ takes none.",
            "__init__(self, args)",
            "let __init__ take args, or give none.",
        )
    return [], keywords


def ended(exited: SystemExit, name: str) -> bool:
    """Return True for sys.exit(), which ends a runner like a return; raise WorkerError for an exit
    code. Ray would treat either as a lost process and recreate the runner."""
    if exited.code in (None, 0):
        return True
    raise WorkerError(
        f"runner {name!r} called sys.exit({exited.code!r}).",
        "a run() that returns, or sys.exit(0)",
        "raise an exception there to see its traceback here; to end without an error, return or "
        "call sys.exit(0).",
    ) from exited


class RunnerHost:
    """Host of a runner in a Ray actor. Ray recreates and reruns it if its process is lost."""

    def __init__(
        self, runner_class: object, args: object, rank: int, local_rank: int, name: str
    ) -> None:
        set_identity(f"runner/{name}/{local_rank}")
        self._ranks, self._name = (rank, local_rank), name
        self._runner: Any = None
        self._failed: Exception | None = None
        self._over = False  # it has already exited in __init__
        try:
            self._runner = construct(runner_class, writable(args), rank, local_rank)
        except SystemExit as exited:
            try:
                self._over = ended(exited, name)
            except WorkerError as error:
                self._failed = error
        except Exception as error:  # raised later by run(), which adds the rank
            self._failed = error

    def run(self) -> Any:
        result = None
        try:
            if not self._over:
                result = self.call("run")
        except SystemExit as exited:
            ended(exited, self._name)
        proxy.close_all()
        return result

    def call(
        self, method: str, args: tuple[object, ...] = (), kwargs: Mapping[str, object] | None = None
    ) -> Any:
        if self._failed is not None:
            raise self._failed
        return getattr(self._runner, method)(*writable(args), **writable(kwargs or {}))

    def ranks(self) -> tuple[int, int]:
        """Return (rank, local_rank)."""
        return self._ranks


# Agents in this process, for runners created directly

# proxies of the runner that is being created or running here; None if there is none
_current: ContextVar[list[LocalProxy] | None] = ContextVar("tandem_cluster_here", default=None)
_hosts: dict[tuple[str, str], list[AgentHost]] = {}  # by namespace and name
_stores: dict[str | None, StateStore] = {}  # by folder


def is_here() -> bool:
    """Return whether a runner is being created or running in this process without Ray."""
    return _current.get() is not None


@contextmanager
def agents_here(proxies: list[LocalProxy]) -> Iterator[None]:
    """Create and find agents in this process within the context, and append their proxies to
    `proxies`."""
    token = _current.set(proxies)
    try:
        yield
    finally:
        _current.reset(token)


def run_here(runner: Any) -> object:
    """Run a runner in this process and return its result. Its agents have then learned from all
    steps, and their states are saved."""
    result = None
    with agents_here(runner._proxies):
        try:
            result = runner.run()
        except SystemExit as exited:
            ended(exited, type(runner).__name__)
    for each in runner._proxies:
        each.close()
    for hosts in _hosts.values():
        for host in hosts:
            if host.store.folder is not None:
                host.save()
    return result


def make_agents_here(
    namespace: str, name: str, spec: AgentSpec, folder: str | None, seconds: float
) -> list[LocalProxy]:
    """Return the agents with this name, created if necessary. Raises SettingError if they exist
    with different arguments or are saved in another folder."""
    hosts = _hosts.get((namespace, name))
    if hosts is not None:
        refuse_other(name, hosts[0].spec(), spec)
        refuse_other_folder(folder, hosts[0].store.folder_path())
    else:
        store = _stores.setdefault(folder, StateStore(folder))
        # in-memory states end with this process, so none are needed
        pause = seconds if folder is not None else math.inf
        hosts = [AgentHost(f"{name}/{i}", spec, store, pause) for i in range(spec.num)]
        _hosts[namespace, name] = hosts
    return [_proxy(name, new_caller_id(namespace, name), host) for host in hosts]


def get_agent_here(namespace: str, name: str) -> LocalProxy:
    """Return a proxy of an agent in this process. Raises UnknownNameError without waiting, since no
    other process could create it."""
    if (namespace, name) not in _hosts:
        raise UnknownNameError(
            "agent",
            name,
            [known for where, known in _hosts if where == namespace],
            "call make_agent first: in a single process nothing else creates it.",
        )
    hosts, caller = _hosts[namespace, name], new_caller_id(namespace, name)
    return _proxy(name, caller, hosts[int(caller.rpartition("#")[2]) % len(hosts)])


def _proxy(name: str, caller: str, host: AgentHost) -> LocalProxy:
    proxy = LocalProxy(name, caller, host)
    if (proxies := _current.get()) is not None:
        proxies.append(proxy)
    return proxy


def refuse_other(name: str, existing: AgentSpec, wanted: AgentSpec) -> None:
    """Raise SettingError if an agent with this name was created with different arguments, and list
    them. Arrays, modules and functions are not compared."""
    differing = []
    for field in ("sync", "num"):
        if getattr(existing, field) != getattr(wanted, field):
            differing.append(
                f"{field}={getattr(wanted, field)!r} (there: {getattr(existing, field)!r})"
            )
    one, other = wanted.agent_class, existing.agent_class
    if one.__qualname__.rpartition(".")[2] != other.__qualname__.rpartition(".")[2]:
        differing.insert(
            0,
            f"class {one.__module__}.{one.__qualname__} "
            f"(there: {other.__module__}.{other.__qualname__})",
        )
    for key in sorted({*wanted.hyperparameters, *existing.hyperparameters}):
        a, b = (spec.hyperparameters.get(key, "nothing") for spec in (wanted, existing))
        if _comparable(a) and _comparable(b) and a != b:
            differing.append(f"{key}={a!r} (there: {b!r})")
    if differing:
        raise SettingError(
            f"an agent {name!r} already exists with different arguments: {', '.join(differing)}.",
            "the same class and hyperparameters to share it, or an unused name",
            "choose another name, or use the same arguments.",
        )


def _comparable(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_comparable(x) for x in value)
    return value is None or isinstance(value, (bool, int, float, str))
