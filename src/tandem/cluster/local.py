"""Agents in this process: what runners that were made here, without Ray, get."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tandem.cluster.host import Host, Made
from tandem.cluster.keeper import Keeper
from tandem.cluster.proxy import LocalProxy, caller_id
from tandem.errors import SettingError, UnknownNameError

# What the local runner that is being made, or runs, has got; None where there is none.
_proxies: ContextVar[list[LocalProxy] | None] = ContextVar("tandem_cluster_here", default=None)
_agents: dict[tuple[str, str], list[Host]] = {}
_keepers: dict[str | None, Keeper] = {}


def here() -> bool:
    """Whether a local runner is being made, or runs."""
    return _proxies.get() is not None


@contextmanager
def living(runner: Any) -> Iterator[None]:
    """The runner lives in this process: meanwhile agents are made and found here."""
    runner._proxies = getattr(runner, "_proxies", None) or []
    token = _proxies.set(runner._proxies)
    try:
        yield
    finally:
        _proxies.reset(token)


def make(
    namespace: str, name: str, made: Made, folder: str | None, seconds: float
) -> list[LocalProxy]:
    """The agents of that name, made if they are not there."""
    hosts = _agents.get((namespace, name))
    if hosts is not None:
        refuse_other(name, hosts[0].made, made)
    else:
        keeper = _keepers.setdefault(folder, Keeper(folder))
        every = (
            seconds if folder is not None else math.inf
        )  # memory that ends with this process keeps nothing
        hosts = [Host(f"{name}/{i}", made, keeper, every) for i in range(made.num)]
        _agents[namespace, name] = hosts
    return [_proxy(name, caller_id(namespace, name), host) for host in hosts]


def get(namespace: str, name: str) -> LocalProxy:
    """UnknownNameError for a name that there is not: nobody else would make it in the meantime."""
    if (namespace, name) not in _agents:
        raise UnknownNameError(
            "agent",
            name,
            known(namespace),
            "call make_agent before: in one process nobody else makes it meanwhile.",
        )
    hosts = _agents[namespace, name]
    caller = caller_id(namespace, name)
    return _proxy(name, caller, hosts[int(caller.rpartition("#")[2]) % len(hosts)])


def _proxy(name: str, caller: str, host: Host) -> LocalProxy:
    made = LocalProxy(name, caller, host)
    if (mine := _proxies.get()) is not None:
        mine.append(made)
    return made


def known(namespace: str) -> list[str]:
    return [name for where, name in _agents if where == namespace]


def save() -> None:
    """What the agents of this process have learned is kept, where there are folders for it."""
    for hosts in _agents.values():
        for host in hosts:
            if host.keeper.folder is not None:
                host.save()


def refuse_other(name: str, there: Made, wanted: Made) -> None:
    """SettingError, which says what differs, where an agent of that name was made in another way.
    Arrays, modules and functions are not compared."""
    differing = []
    for what in ("sync", "num"):
        if getattr(there, what) != getattr(wanted, what):
            differing.append(f"{what}={getattr(wanted, what)!r} (there: {getattr(there, what)!r})")
    classes = [f"{m.agent_class.__module__}.{m.agent_class.__qualname__}" for m in (wanted, there)]
    if classes[0].rpartition(".")[2] != classes[1].rpartition(".")[2]:
        differing.insert(0, f"class {classes[0]} (there: {classes[1]})")
    one, other = wanted.hyperparameters, there.hyperparameters
    for key in sorted({*one, *other}):
        a, b = one.get(key, "nothing"), other.get(key, "nothing")
        if _plain(a) and _plain(b) and a != b:
            differing.append(f"{key}={a!r} (there: {b!r})")
    if differing:
        raise SettingError(
            f"there is an agent {name!r} already, which was made in another way: "
            f"{', '.join(differing)}.",
            "the same class and hyperparameters, which join it, or a name of its own",
            "choose another name, or make both alike.",
        )


def _plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_plain(x) for x in value)
    return value is None or isinstance(value, (bool, int, float, str))


def run(runner: Any) -> Any:
    """What a runner's run() gives back, in this process; its agents have learned from all of it
    then, and are kept."""
    with living(runner):
        found = runner.run()
    for proxy in runner._proxies:
        proxy.close()
    save()
    return found
