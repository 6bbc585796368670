"""Proxies of agents, as `get_agent` returns them: an agent's methods, wherever it runs."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any

from tandem.cluster.agent_host import AgentHost, Call, Reply
from tandem.cluster.agent_state import copied
from tandem.cluster.ray_actors import ActorHandle
from tandem.errors import SettingError

BATCH = 32  # maximum number of updates sent together to an agent that does not reply immediately
BATCH_SECONDS = 0.05  # maximum delay of an update that waits for others, while the agent is in use
IN_FLIGHT = 2  # maximum number of such batches in flight; the next one waits

_proxies: weakref.WeakSet[Proxy] = weakref.WeakSet()  # all proxies of this process


def close_all() -> None:
    """Flush all proxies of this process and leave their agents, so that no agent waits for its
    runner."""
    for proxy in list(_proxies):
        proxy.close()


class Proxy:
    """Interface of an agent to its users.

    `choose_action` and `update` are those of the agent, but `update` returns None, and an error in
    an update that was sent without waiting is raised by the next call. Other public methods of the
    agent can be called, and its attributes read, by value. `flush()` waits until the agent has
    processed everything that was sent.

    A subclass defines `choose_action`, `update`, `flush`, `_look_up` (the type and value of an
    attribute of the agent, see `AgentHost.look_up`) and `_call` (calls a method of the agent).
    """

    def __init__(self, name: str, caller: str) -> None:
        self._name, self._caller, self._methods = name, caller, set[str]()
        _proxies.add(self)

    def close(self) -> None:
        """Flush, and notify the agent that this proxy sends nothing more."""
        self.flush()
        if self._of_blocks("finish"):
            self._call("finish")
        if self._of_blocks("leave"):
            self._call("leave", self._caller)

    def _of_blocks(self, name: str) -> bool:
        """Return whether the agent learns from blocks (see `agent_host.learns_from_blocks`) and has
        a method with this name."""
        return {self._look_up("portable")[0], self._look_up(name)[0]} == {"method"}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._methods:
            self.flush()
            kind, value = self._look_up(name)
            if kind == "value":
                return value
            if kind == "nothing":
                raise AttributeError(f"the agent {self._name!r} has no attribute {name!r}")
            self._methods.add(name)
        return lambda *args, **kwargs: self._call(name, *args, **kwargs)

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_"):
            raise SettingError(
                f"{name} of the agent {self._name!r} cannot be set through its proxy: the agent "
                "would not see it.",
                "attributes that the agent sets itself",
                f"add a method such as set_{name}(value) to the agent, and call it.",
            )
        super().__setattr__(name, value)

    def __reduce__(self) -> str | tuple[object, ...]:
        raise SettingError(
            f"the proxy of the agent {self._name!r} cannot be sent to another process: its queued "
            "steps would be lost.",
            "a separate proxy for each process",
            f"call get_agent({self._name!r}) there, for example in a runner's __init__.",
        )

    def __repr__(self) -> str:
        return f"<agent {self._name!r}, for {self._caller}>"


class LocalProxy(Proxy):
    """Proxy of an agent in this process."""

    def __init__(self, name: str, caller: str, host: AgentHost) -> None:
        self._host = host
        super().__init__(name, caller)

    def choose_action(self, *args: object, **kwargs: object) -> Any:
        return copied(self._call("choose_action", *args, **kwargs))

    def update(self, *args: object, **kwargs: object) -> None:
        self._call("update", *args, **kwargs)

    def flush(self) -> None:
        """Do nothing: no calls are queued. Steps of an incomplete block stay, as `finish` could
        drop them."""

    def _look_up(self, name: str) -> tuple[str, object]:
        return self._host.look_up(name)

    def _call(self, name: str, /, *args: object, **kwargs: object) -> Any:
        reply = self._host.perform(self._caller, [(name, copied(args), copied(kwargs))], 0)
        if not reply.done:  # waiting here would never end: the missing steps come from this process
            raise SettingError(
                f"{name} of the agent {self._name!r} was called by a proxy whose block of steps "
                "is full, while the block of another proxy that it is learned with is not.",
                "all proxies of a process to fill their blocks at the same step",
                "step all of them in turn from the first step, or give one proxy the observations "
                "of all environments.",
            )
        return reply.value


class _ActorProxy(Proxy):
    """Proxy of an agent in a Ray actor."""

    def __init__(self, name: str, caller: str, actor: ActorHandle) -> None:
        self._actor, self._queue = actor, list[Call]()
        super().__init__(name, caller)

    def _look_up(self, name: str) -> tuple[str, object]:
        kind, value = self._actor.call("look_up", name)
        return kind, value


class RemoteProxy(_ActorProxy):
    """Proxy of an agent that acts and learns in another process. An update is sent together with
    the next call: one message per step, and all calls in their original order."""

    def choose_action(self, *args: object, **kwargs: object) -> Any:
        return self._send(("choose_action", args, kwargs)).value

    def update(self, *args: object, **kwargs: object) -> None:
        if len(self._queue) >= BATCH:  # nothing acts in between: send them alone
            self._send()
        self._queue.append(("update", copied(args), copied(kwargs)))

    def flush(self) -> None:
        if self._queue:
            self._send()

    def _call(self, name: str, /, *args: object, **kwargs: object) -> Any:
        return self._send((name, args, kwargs)).value

    def _send(self, *calls: Call) -> Reply:
        """Send the queued calls and these calls in one message. If the agent has to wait for others
        that it learns from together, send the remaining calls again."""
        left, self._queue = [*self._queue, *calls], []
        while True:
            reply: Reply = self._actor.call("perform", self._caller, left, 0)
            left = left[reply.done :]
            if not left:
                return reply
            while reply.wait:
                reply = self._actor.call("release", self._caller, 0, group="waiting")


class AsyncProxy(_ActorProxy):
    """Proxy of an agent that learns asynchronously: updates are sent in batches, and a copy acts.

    copy: acts for the agent in another process. make: on first use, creates the object that acts
    for a caller in this process instead; parameters are then received here and passed to its
    `_update_model` on arrival. from_blocks: that object is the acting part of an agent that learns
    from blocks. Its `update` receives each step; the result, if any, goes to the agent's
    `learn_from`, whose result goes to its `set_progress`. Parameters go to its `load`.
    """

    def __init__(
        self,
        name: str,
        caller: str,
        actor: ActorHandle,
        copy: ActorHandle | None = None,
        make: Callable[[str], Any] | None = None,
        from_blocks: bool = False,
    ) -> None:
        self._copy, self._make, self._from_blocks = copy, make, from_blocks
        self._local: Any = None  # the object that acts in this process
        self._records = False  # whether it records blocks: from its first action on
        self._joined = False  # whether the agent knows that steps will come from here
        self._queued_at = 0.0
        self._in_flight: list[tuple[object, tuple[object, ...]]] = []  # (reference, arguments)
        self._version, self._params = 0, list[object]()  # version of the last parameters
        self._reply = Reply(None, 0, [], False)
        super().__init__(name, caller, actor)

    def choose_action(self, *args: object, **kwargs: object) -> Any:
        self._poll()
        if self._copy is not None:
            calls = [("choose_action", args, kwargs)]
            return self._copy.call("perform", self._caller, calls, 0).value
        if self._local is None:
            assert self._make is not None
            self._local = self._make(self._caller)
            self._records = self._from_blocks
        self._load_params()
        return self._local.choose_action(*args, **kwargs)

    def update(self, *args: object, **kwargs: object) -> None:
        if self._records:
            self._join()
            block = self._local.update(*args, **kwargs)
            if block is None:
                return
            self._queue.append(("learn_from", (block,), {}))
            self._send()
            if self._local.lockstep:
                self._wait_for_others()
            return
        now = time.monotonic()
        self._queued_at = self._queued_at if self._queue else now
        self._queue.append(("update", copied(args), copied(kwargs)))
        if len(self._queue) >= BATCH or now - self._queued_at > BATCH_SECONDS:
            self._send()
        else:
            self._poll()

    def _join(self) -> None:
        """Register with the agent, so that others wait for the steps that start here."""
        if self._local.lockstep and not self._joined:
            self._joined = True
            self._queue.append(("join", (self._caller,), {}))
            self._send()

    def flush(self) -> None:
        if self._queue:
            self._send()
        while self._in_flight:
            self._receive()

    def close(self) -> None:
        if self._records and (rest := self._local.finish()) is not None:
            self._queue.append(("learn_from", (rest,), {}))
        self._joined = False
        super().close()

    def _call(self, name: str, /, *args: object, **kwargs: object) -> Any:
        self.flush()
        calls = [(name, args, kwargs)]
        return self._take(self._actor.call("perform", self._caller, calls, self._version)).value

    def _send(self) -> None:
        calls, self._queue = self._queue, []
        while len(self._in_flight) >= IN_FLIGHT:
            self._receive()
        arguments = (self._caller, calls, self._version)
        self._in_flight.append((self._actor.send("perform", *arguments), arguments))
        self._poll()

    def _poll(self) -> None:
        """Process replies that have arrived, and raise errors from the agent."""
        while self._in_flight and self._actor.ready(self._in_flight[0][0]):
            self._receive()
        late = time.monotonic() - self._queued_at > BATCH_SECONDS
        if self._queue and late and not self._records:
            self._send()

    def _receive(self) -> None:
        reference, arguments = self._in_flight.pop(0)
        self._take(self._actor.receive(reference, "perform", *arguments))

    def _take(self, reply: Reply) -> Reply:
        if self._records and isinstance(reply.value, dict):
            self._local.set_progress(reply.value)
        if reply.params and reply.version > self._version:
            self._version, self._params = reply.version, reply.params
        self._reply = reply
        return reply

    def _wait_for_others(self) -> None:
        """Wait until the other proxies have sent their blocks and the agent has learned from all of
        them."""
        while self._in_flight:
            self._receive()
        while self._reply.wait:
            reply = self._actor.call("release", self._caller, self._version, group="waiting")
            self._take(reply)
        self._load_params(wait=True)

    def _load_params(self, wait: bool = False) -> None:
        """Load parameters that have arrived, or wait for them."""
        if not self._params or self._local is None:
            return
        if not wait and not self._actor.ready(self._params[0]):
            return
        (reference,), self._params = self._params, []
        params = self._actor.fetch(reference)
        if params is None:
            self._version = 0  # they were lost with the process that sent them: accept any others
        else:
            (self._local.load if self._records else self._local._update_model)(params)
