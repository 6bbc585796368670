"""Where an agent lives: in this process, or in one that Ray keeps. Who calls it, hands its
parameters on, keeps its state."""

from __future__ import annotations

import inspect
import math
import os
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from tandem.cluster import saving

Call = tuple[str, tuple[Any, ...], dict[str, Any]]
UPDATES = ("update", "take")  # what agents learn by
FAREWELLS = ("finish", "leave")  # what one who waits may call all the same
WATCH = 2.0  # seconds between looks at the keeper
RELEASE = 1.0  # seconds after which one that waits asks again, so that threads are there for all


class Made(NamedTuple):
    """How an agent was made: what a second maker, a copy, and one who acts for it need."""

    agent_class: type
    sync: bool
    num: int
    hyperparameters: dict[str, Any]

    def make(self) -> Any:
        """An agent, by its class's own way to take arguments."""
        try:
            takes = inspect.signature(self.agent_class).parameters
        except (TypeError, ValueError):
            takes = {}  # type: ignore[assignment]
        kinds = {p.kind for p in takes.values()}
        told = "sync" in takes or inspect.Parameter.VAR_KEYWORD in kinds
        return self.agent_class(**({"sync": self.sync} if told else {}), **self.hyperparameters)


class Reply(NamedTuple):
    """What came of some calls: the last one's result, and the parameters' version; the parameters
    themselves ([reference], or [parameters] in one process) if the caller has older ones; whether
    it is to wait for others before it goes on; and how many of the calls were made before that."""

    value: Any
    version: int
    news: list[Any]
    wait: bool
    made: int = 0


def learns_from_blocks(agent: Any) -> bool:
    """Whether an agent, or a class of them, has a part that acts elsewhere and brings blocks of
    steps. Only such a one is told of who calls, leaves or finishes, by methods that others may have
    for ends of their own."""
    return hasattr(agent, "portable")


class Host:
    """An agent with its number, version and kept state.

    put: makes a reference of parameters that others read. tell: gives (version, reference) to the
      copy that acts.
    """

    def __init__(
        self,
        key: str,
        made: Made,
        keeper: Any,
        seconds: float,
        put: Callable[[Any], Any] = lambda param: param,
        tell: Callable[[int, Any], None] = lambda version, param: None,
    ) -> None:
        self.key, self.made, self.keeper, self.seconds, self._put, self._tell = (
            key,
            made,
            keeper,
            seconds,
            put,
            tell,
        )
        self.version = 0  # rises with every update, and with all that is fired
        self.news: list[Any] = []  # the parameters that were fired last, as a list of one reference
        self.news_version = 0
        self._fired: list[Any] = []
        self.kept: Any = None  # what the keeper said of the state that was left with it last
        self._lock = threading.Condition()
        self.agent = made.make()
        self._saved_at, self._saving = time.monotonic(), 0.0
        self._wire(self.agent)
        if (kept := keeper.recall(key)) is not None:
            saving.load_into(self.agent, kept["data"], kept["arrays"])
            self.version = kept["version"]
            # those who act for it were made anew, and know nothing of what it had learned
            self._hand_on()

    def _wire(self, agent: Any) -> None:
        agent._firing = self.fire
        if not hasattr(agent, "_fire"):
            agent._fire = self.fire

    def _of_blocks(self, name: str) -> Any:
        """What an agent that learns from blocks has of that name; None of another one, for which it
        means what it may."""
        return getattr(self.agent, name, None) if learns_from_blocks(self.agent) else None

    def fire(self, param: Any) -> None:
        """Parameters for all who act; sent when the calls under way are done, the newest alone."""
        self._fired = [param]

    def perform(self, caller: str, calls: list[Call], have: int) -> Reply:
        """Makes the calls, in order, for a caller that has parameters of version `have`."""
        value, updated, done = None, False, 0
        waits = self._of_blocks("waits")
        if self._of_blocks("caller") is not None:
            self.agent.caller = caller
        for name, given, named in calls:
            if waits is not None and name not in FAREWELLS and waits(caller):
                break
            value, done = getattr(self.agent, name)(*given, **named), done + 1
            if name in UPDATES:
                self.version, updated = self.version + 1, True
        if updated and not self._fired:
            self._hand_on()
        self._publish()
        if updated and time.monotonic() - self._saved_at > max(self.seconds, 20 * self._saving):
            self.save()
        if done and calls[done - 1][0] == "update":
            value = None
        return self._reply(caller, value, have, done)

    def _reply(self, caller: str, value: Any, have: int, done: int = 0) -> Reply:
        waits = self._of_blocks("waits")
        with self._lock:
            self._lock.notify_all()
            news = self.news if self.news_version > have else []
            return Reply(
                value, self.news_version, news, bool(waits is not None and waits(caller)), done
            )

    def release(self, caller: str, have: int) -> Reply:
        """Waits until the caller may go on, for a second at most. Called in a thread beside the
        agent's."""
        waits = self._of_blocks("waits")
        with self._lock:
            if waits is not None:
                self._lock.wait_for(lambda: not waits(caller), RELEASE)
        return self._reply(caller, None, have)

    def _hand_on(self) -> None:
        """Its parameters go to those who act for it, where there are any."""
        if not self.made.sync and hasattr(self.agent, "_sync_model"):
            self.agent._sync_model()
        self._publish()

    def _publish(self) -> None:
        if not self._fired:
            return
        (param,), self._fired = self._fired, []
        self.version += 1
        news = [self._put(saving.on_cpu(param))]
        with self._lock:
            self.news, self.news_version = news, self.version
        self._tell(self.version, news[0])

    def newest(self) -> tuple[int, list[Any]]:
        """(version, [parameters]) that were fired last."""
        with self._lock:
            return self.news_version, self.news

    def look_up(self, name: str) -> tuple[str, Any]:
        """What an attribute of the agent is: ("method", None), ("value", itself) or ("nothing",
        None)."""
        if name.startswith("_") or not hasattr(self.agent, name):
            return "nothing", None
        value = getattr(self.agent, name)
        method = callable(getattr(type(self.agent), name, None)) or inspect.isroutine(
            value
        )  # a network can be called, too
        return ("method", None) if method else ("value", value)

    def save(self, now: bool = False) -> None:
        """Leaves the agent's state with the keeper, unless that is still at the one before; `now`
        in any case."""
        if self.kept is not None and not now and not self.keeper.has_kept(self.kept):
            return
        began = time.monotonic()
        self.kept = self.keeper.keep(self.key, self.version, *saving.state_of(self.agent))
        self._saved_at = time.monotonic()
        self._saving = self._saved_at - began

    def forgotten(self) -> None:
        """The keeper has it no more: it is told again after the next update."""
        self._saved_at = -math.inf

    def spec(self) -> Made:
        return self.made

    def pid(self) -> int:
        return os.getpid()


class Copy:
    """An agent that only acts, by the parameters that came last. origin: gives (version,
    [parameters]) as they are now."""

    def __init__(self, made: Made, origin: Callable[[], tuple[int, list[Any]]]) -> None:
        self.agent, self._origin = made.make(), origin
        self.version = 0
        self._came: tuple[int, list[Any]] = (0, [])
        self._asked = False  # for what was fired before this one was made

    def adopt(self, version: int, param: Any) -> None:
        """Takes newer parameters; it acts on them from the next call on. Called in a thread beside
        the agent's."""
        if version > self._came[0]:
            self._came = (version, [param])

    def newest(self) -> tuple[int, list[Any]]:
        """(version, [parameters]) that came last."""
        return self._came

    def perform(self, caller: str, calls: list[Call], have: int) -> Reply:
        """As a host's."""
        if not self._asked:
            version, news = self._origin()
            self._asked = True
            if news:
                self.adopt(version, news[0])
        version, news = self._came
        if version > self.version:
            self.agent._update_model(news[0])
            self.version = version
        value = None
        for name, given, named in calls:
            value = getattr(self.agent, name)(*given, **named)
        return Reply(value, self.version, [], False, len(calls))

    def pid(self) -> int:
        return os.getpid()
