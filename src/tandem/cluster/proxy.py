"""What `get_agent` returns: an agent's methods, wherever it lives."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any

from tandem.cluster.agent_host import AgentHost, Call, Reply
from tandem.cluster.agent_state import copied
from tandem.cluster.ray_actors import ActorHandle
from tandem.errors import SettingError

BATCH = 32  # updates that are sent together to an agent that does not answer at once
BATCH_SECONDS = 0.05  # the longest that one is held back for others, while the agent is used
IN_FLIGHT = 2  # such batches that may be under way; the next one waits

_proxies: weakref.WeakSet[Proxy] = weakref.WeakSet()  # all of this process


def close_all() -> None:
    """Everything that is held back in this process arrives; nobody waits for its runner any
    more."""
    for proxy in list(_proxies):
        proxy.close()


class Proxy:
    """An agent as its users see it. `choose_action` and `update` as the agent has them; `update`
    returns nothing, and its errors, where it was sent off without waiting, are raised by the next
    call. Its other public methods can be called, and its attributes read, by value. `flush()`
    waits until all that was sent has been learned from.

    A subclass defines `choose_action`, `update`, `flush`, `_look_up` (what an attribute of the
    agent is, see `AgentHost.look_up`) and `_call` (a method of the agent)."""

    def __init__(self, name: str, caller: str) -> None:
        self._name, self._caller, self._methods = name, caller, set[str]()
        _proxies.add(self)

    def close(self) -> None:
        """Flushes, and says that nothing more will come."""
        self.flush()
        if self._of_blocks("finish"):
            self._call("finish")
        if self._of_blocks("leave"):
            self._call("leave", self._caller)

    def _of_blocks(self, name: str) -> bool:
        """Whether the agent is one that learns from blocks (see `agent_host.learns_from_blocks`),
        and has a method of that name."""
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
    """An agent in this process."""

    def __init__(self, name: str, caller: str, host: AgentHost) -> None:
        self._host = host
        super().__init__(name, caller)

    def choose_action(self, *args: object, **kwargs: object) -> Any:
        return copied(self._call("choose_action", *args, **kwargs))

    def update(self, *args: object, **kwargs: object) -> None:
        self._call("update", *args, **kwargs)

    def flush(self) -> None:
        """Nothing is held back. What is not a block yet stays: `finish` would drop it."""

    def _look_up(self, name: str) -> tuple[str, object]:
        return self._host.look_up(name)

    def _call(self, name: str, /, *args: object, **kwargs: object) -> Any:
        reply = self._host.perform(self._caller, [(name, copied(args), copied(kwargs))], 0)
        if not reply.done:  # to wait here for steps that come from this very process has no end
            raise SettingError(
                f"{name} of the agent {self._name!r} was called by a proxy whose block of steps "
                "is full, while the block of another proxy that it is learned with is not.",
                "all proxies of a process to fill their blocks at the same step",
                "step all of them in turn from the first step, or give one proxy the observations "
                "of all environments.",
            )
        return reply.value


class _ActorProxy(Proxy):
    """An agent in an actor of Ray's."""

    def __init__(self, name: str, caller: str, actor: ActorHandle) -> None:
        self._actor, self._queue = actor, list[Call]()
        super().__init__(name, caller)

    def _look_up(self, name: str) -> tuple[str, object]:
        kind, value = self._actor.call("look_up", name)
        return kind, value


class RemoteProxy(_ActorProxy):
    """An agent in a process of its own that acts and learns. An update waits here for the next
    call, and goes with it: one message a step, and the order of all calls as it was written."""

    def choose_action(self, *args: object, **kwargs: object) -> Any:
        return self._send(("choose_action", args, kwargs)).value

    def update(self, *args: object, **kwargs: object) -> None:
        if len(self._queue) >= BATCH:  # nobody acts in between: then they go by themselves
            self._send()
        self._queue.append(("update", copied(args), copied(kwargs)))

    def flush(self) -> None:
        if self._queue:
            self._send()

    def _call(self, name: str, /, *args: object, **kwargs: object) -> Any:
        return self._send((name, args, kwargs)).value

    def _send(self, *calls: Call) -> Reply:
        """Sends what was held back, and then these calls, in one message; the rest of them again
        where it has to wait for others that it learns together with."""
        left, self._queue = [*self._queue, *calls], []
        while True:
            reply: Reply = self._actor.call("perform", self._caller, left, 0)
            left = left[reply.done :]
            if not left:
                return reply
            while reply.wait:
                reply = self._actor.call("release", self._caller, 0, group="waiting")


class AsyncProxy(_ActorProxy):
    """An agent whose learning nobody waits for: updates go to it in batches, and a copy acts.

    copy: acts for it in a process of its own. make: makes, for a caller, what acts in this process
    instead, when it is first used; parameters come here then, and go to its `_update_model` as
    soon as they are here. from_blocks: what acts is the part of an agent that learns from blocks.
    It is told of each step by its `update`; what that returns, if anything, goes to the agent's
    `learn_from`, the answer to its `set_progress`, and parameters go to its `load`.
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
        self._local: Any = None  # what acts in this process
        self._records = False  # whether that writes down blocks: from its first action on
        self._joined = False  # whether the agent knows that steps will come from here
        self._queued_at = 0.0
        self._in_flight: list[tuple[object, tuple[object, ...]]] = []  # (reference, arguments)
        self._version, self._params = 0, list[object]()  # of the parameters that came last
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
        """Others are to wait for the steps that begin here."""
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
        """Takes in the answers that are here, and raises what was raised there."""
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
        """Until the others have brought what is learned from together, and that was learned
        from."""
        while self._in_flight:
            self._receive()
        while self._reply.wait:
            reply = self._actor.call("release", self._caller, self._version, group="waiting")
            self._take(reply)
        self._load_params(wait=True)

    def _load_params(self, wait: bool = False) -> None:
        """Loads parameters that have arrived."""
        if not self._params or self._local is None:
            return
        if not wait and not self._actor.ready(self._params[0]):
            return
        (reference,), self._params = self._params, []
        params = self._actor.fetch(reference)
        if params is None:
            self._version = 0  # they were lost with the process that sent them: any are newer
        else:
            (self._local.load if self._records else self._local._update_model)(params)
