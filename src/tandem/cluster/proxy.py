"""What `get_agent` gives: an agent's methods, wherever it lives."""

from __future__ import annotations

import itertools
import os
import time
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

from tandem.cluster.copies import copied
from tandem.cluster.host import Call, Host, Reply
from tandem.cluster.lines import Line
from tandem.errors import SettingError

BATCH = 32  # updates that are sent together to an agent that does not answer at once
BATCH_SECONDS = 0.05  # the longest that one is held back for others, while the agent is used
UNDER_WAY = 2  # such batches that may be under way; the next one waits

LIVING: weakref.WeakSet[Proxy] = weakref.WeakSet()
_place = [""]  # who this process is to agents: a runner's name in its actor, "" in a program
_numbers: Counter[tuple[str, str]] = Counter()


def me() -> str:
    return _place[0]


def set_identity(place: str) -> None:
    _place[0] = place


def next_id(namespace: str, agent: str) -> str:
    return f"{me() or f'program/{os.getpid()}'}#{_numbers[namespace, agent]}"


def caller_id(namespace: str, agent: str) -> str:
    """The name of a new proxy here: the same again in a runner that was restarted."""
    found = next_id(namespace, agent)
    _numbers[namespace, agent] += 1
    return found


def flush_all() -> None:
    """Everything that is held back in this process arrives; those who leave are waited for no
    more."""
    for proxy in list(LIVING):
        proxy.close()


class Proxy:
    """An agent as its users see it. `choose_action` and `update` as the agent has them; `update`
    gives back nothing, and its errors, where it was sent off without waiting, are raised by the
    next call. Its other public methods can be called, and its attributes read, by value. `flush()`
    waits until all that was sent has been learned from."""

    def __init__(self, name: str, caller: str) -> None:
        self._name, self._caller, self._methods = name, caller, set[str]()
        LIVING.add(self)

    def choose_action(self, *given: Any, **named: Any) -> Any:
        raise NotImplementedError

    def update(self, *given: Any, **named: Any) -> None:
        raise NotImplementedError

    def flush(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Flushes, and says that nothing more will come."""
        self.flush()
        if self._of_blocks("leave"):
            self._call("leave", (self._caller,), {})

    def _of_blocks(self, name: str) -> bool:
        """Whether the agent is one that learns from blocks (see `host.learns_from_blocks`), and has
        a method of that name."""
        return self._look_up("portable")[0] == self._look_up(name)[0] == "method"

    def _look_up(self, name: str) -> tuple[str, Any]:
        raise NotImplementedError

    def _call(self, name: str, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        raise NotImplementedError

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
        return lambda *given, **named: self._call(name, given, named)

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            raise SettingError(
                f"{name} of the agent {self._name!r} was to be set by its proxy, where nobody "
                "would see it.",
                "attributes that the agent sets itself",
                f"give it a method that does, such as set_{name}(value), and call that.",
            )
        super().__setattr__(name, value)

    def __reduce__(self) -> Any:
        raise SettingError(
            f"the proxy of the agent {self._name!r} was to go to another process, where nobody "
            "would send what it holds back.",
            "a proxy of its own for each process",
            f"call get_agent({self._name!r}) there, as in a runner's __init__.",
        )

    def __repr__(self) -> str:
        return f"<agent {self._name!r}, for {self._caller}>"


class LocalProxy(Proxy):
    """An agent in this process."""

    def __init__(self, name: str, caller: str, host: Host) -> None:
        self._host = host
        super().__init__(name, caller)

    def choose_action(self, *given: Any, **named: Any) -> Any:
        return self._host.perform(self._caller, [("choose_action", given, named)], 0).value

    def update(self, *given: Any, **named: Any) -> None:
        self._host.perform(self._caller, [("update", given, named)], 0)

    def flush(self) -> None:
        if self._of_blocks("finish"):
            self._call("finish", (), {})

    def _look_up(self, name: str) -> tuple[str, Any]:
        return self._host.look_up(name)

    def _call(self, name: str, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return self._host.perform(self._caller, [(name, given, named)], 0).value


class RemoteProxy(Proxy):
    """An agent in a process of its own that acts and learns. An update waits here for the next
    call, and goes with it: one message a step, and the order of all calls as it was written."""

    def __init__(self, name: str, caller: str, line: Line) -> None:
        self._line, self._queue = line, list[Call]()
        super().__init__(name, caller)

    def choose_action(self, *given: Any, **named: Any) -> Any:
        return self._send(("choose_action", given, named)).value

    def update(self, *given: Any, **named: Any) -> None:
        if len(self._queue) >= BATCH:  # nobody acts in between: then they go by themselves
            self._send()
        self._queue.append(("update", copied(given), copied(named)))

    def flush(self) -> None:
        if self._queue:
            self._send()

    def close(self) -> None:
        self.flush()
        if self._of_blocks("finish"):
            self._call("finish", (), {})
        super().close()

    def _look_up(self, name: str) -> tuple[str, Any]:
        return self._line.ask("look_up", name)  # type: ignore[no-any-return]

    def _call(self, name: str, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return self._send((name, given, named)).value

    def _send(self, *calls: Call) -> Reply:
        """What was held back, and then these, in one message; the rest of them again where it has
        to wait for others that it learns together with."""
        left, self._queue = [*self._queue, *calls], []
        while True:
            reply: Reply = self._line.ask("perform", self._caller, left, 0)
            left = left[reply.made :]
            if not left:
                return reply
            while reply.wait:
                reply = self._line.ask("release", self._caller, 0, group="waiting")


class ApartProxy(Proxy):
    """An agent whose learning nobody waits for: updates go to it in batches, and a copy acts.

    copy: acts for it in a process of its own; or what `make(caller)` makes in this process, when
    it is first used: then parameters come here, and go to its `_update_model` as soon as they
    are here. records: that is the part of an agent that learns from blocks. It is told of each
    step by its `update`; what that gives back, if anything, goes to the agent's `take`, the
    answer to its `told`, and parameters go to its `load`."""

    def __init__(
        self,
        name: str,
        caller: str,
        line: Line,
        copy: Line | None = None,
        make: Callable[[str], Any] | None = None,
        records: bool = False,
    ) -> None:
        self._line, self._copy, self._make, self._blocks = line, copy, make, records
        self._act: Any = None
        self._records = False  # until it has acted
        self._entered = False  # whether the agent knows that steps will come from here
        self._queue, self._since, self._sent = list[Call](), 0.0, list[Any]()
        self._have, self._coming, self._reply = 0, list[Any](), Reply(None, 0, [], False)
        super().__init__(name, caller)

    def choose_action(self, *given: Any, **named: Any) -> Any:
        self._look()
        if self._copy is not None:
            return self._copy.ask(
                "perform", self._caller, [("choose_action", given, named)], 0
            ).value
        if self._act is None:
            self._begin()
        self._adopt()
        return self._act.choose_action(*given, **named)

    def _begin(self) -> None:
        assert self._make is not None
        self._act = self._make(self._caller)
        self._records = self._blocks

    def update(self, *given: Any, **named: Any) -> None:
        if self._records:
            self._enter()
            made = self._act.update(*given, **named)
            if made is None:
                return
            self._queue.append(("take", (made,), {}))
            self._send()
            if self._act.lockstep:
                self._wait()
            return
        now = time.monotonic()
        self._since = self._since if self._queue else now
        self._queue.append(("update", copied(given), copied(named)))
        if len(self._queue) >= BATCH or now - self._since > BATCH_SECONDS:
            self._send()
        else:
            self._look()

    def _enter(self) -> None:
        """Others are to wait for the steps that begin here."""
        if self._act.lockstep and not self._entered:
            self._entered = True
            self._queue.append(("enter", (self._caller,), {}))
            self._send()

    def flush(self) -> None:
        if self._queue:
            self._send()
        while self._sent:
            self._receive()

    def close(self) -> None:
        if self._records and (rest := self._act.finish()) is not None:
            self._queue.append(("take", (rest,), {}))
        self._entered = False
        super().close()

    def _look_up(self, name: str) -> tuple[str, Any]:
        return self._line.ask("look_up", name)  # type: ignore[no-any-return]

    def _call(self, name: str, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        self.flush()
        return self._took(
            self._line.ask("perform", self._caller, [(name, given, named)], self._have)
        ).value

    def _send(self) -> None:
        calls, self._queue = self._queue, []
        while len(self._sent) >= UNDER_WAY:
            self._receive()
        arguments = (self._caller, calls, self._have)
        self._sent.append((self._line.send("perform", *arguments), arguments))
        self._look()

    def _look(self) -> None:
        """Takes in the answers that are here, and raises what was raised there."""
        while self._sent and self._line.arrived(self._sent[0][0]):
            self._receive()
        if self._queue and time.monotonic() - self._since > BATCH_SECONDS and not self._records:
            self._send()

    def _receive(self) -> Reply:
        reference, arguments = self._sent.pop(0)
        return self._took(self._line.receive(reference, "perform", *arguments))

    def _took(self, reply: Reply) -> Reply:
        if self._records and reply.value is not None and isinstance(reply.value, dict):
            self._act.told(reply.value)
        if reply.news and reply.version > self._have:
            self._have, self._coming = reply.version, reply.news
        self._reply = reply
        return reply

    def _wait(self) -> None:
        """Until the others have brought what is learned from together, and that was learned
        from."""
        while self._sent:
            self._receive()
        while self._reply.wait:
            self._took(self._line.ask("release", self._caller, self._have, group="waiting"))
        self._adopt(wait=True)

    def _adopt(self, wait: bool = False) -> None:
        """Takes in parameters that have arrived."""
        if self._coming and self._act is not None and (wait or self._line.arrived(self._coming[0])):
            coming, self._coming = self._coming, []
            found = self._line.fetched(coming[0])
            if found is None:
                self._have = 0  # they were lost with the process that sent them: any are newer
            else:
                (self._act.load if self._records else self._act._update_model)(found)


def repeated(function: Callable[[], Any], until: float) -> Any:
    """The first result that is not None, asked for again and again; None at the time `until`
    (monotonic)."""
    for pause in itertools.chain((0.01, 0.02, 0.05, 0.1), itertools.repeat(0.25)):
        if (found := function()) is not None or time.monotonic() > until:
            return found
        time.sleep(pause)
    return None
