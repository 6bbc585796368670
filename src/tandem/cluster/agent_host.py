"""What an agent is to the cluster, and the object that holds one, in this process or in an actor of
Ray's: it makes the calls, hands out parameters, and leaves the state with a store."""

from __future__ import annotations

import inspect
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from tandem.cluster import agent_state
from tandem.errors import SettingError
from tandem.types import AnyArray, JSONDict, State, Tree

ACTING = ("actor", "policy", "q_net", "net", "network", "model")  # the first that is there acts
UPDATES = ("update", "learn_from")  # what agents learn by
FAREWELLS = ("finish", "leave")  # what one who waits may call all the same
RELEASE_SECONDS = 1.0  # after which one that waits asks again, so that threads are there for all

Call = tuple[str, tuple[object, ...], dict[str, object]]  # a method's name, its arguments


class Agent:
    """The base of agents. Override `choose_action` and `update`; keyword arguments become
    attributes.

    sync=True: one agent acts and learns, in the order in which it is called. sync=False: another
    object of the same class acts, in a process of its own, with the parameters that `_fire` handed
    over last; so acting never waits for learning.

    A class needs this base for its defaults alone: any with `choose_action` and `update` will do.
    """

    _firing: Callable[[Tree], None] | None = None  # set where someone else acts for it

    def __init__(self, sync: bool = True, **kwargs: object) -> None:
        self.sync = sync
        self.__dict__.update(kwargs)

    def choose_action(self, state: Tree) -> Tree:
        raise NotImplementedError(f"{type(self).__name__} has no choose_action(state).")

    def update(self, *transition: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no update(...).")

    def _sync_model(self) -> None:
        """Called after updates. With sync=False it fires the state_dict of the network that
        acts."""
        if not self.sync:
            self._fire(self._acting().state_dict())

    def _fire(self, param: Tree) -> None:
        """Hands parameters to all who act for this agent: arrays and tensors in dicts, lists and
        tuples, which may change afterwards. The newest count; nothing where nobody else acts."""
        if self._firing is not None:
            self._firing(param)

    def _update_model(self, param: Tree) -> None:
        """Called where the copy acts, with what was fired, on the CPU. Loads it into the network
        that acts."""
        self._acting().load_state_dict(param)

    def _acting(self) -> Any:
        for name in ACTING:
            if hasattr(network := getattr(self, name, None), "load_state_dict"):
                return network
        raise SettingError(
            f"{type(self).__name__} acts apart from its learner, but none of its attributes "
            f"{', '.join(ACTING)} is a torch module with parameters to share.",
            "a network to act with",
            "give the network one of these names, or override _sync_model (which sends "
            "parameters) and _update_model (which receives them).",
        )

    def state(self) -> State:
        """All that a restarted agent goes on from: (JSON data, arrays by name). By default, those
        of its attributes that are plain numbers and texts, torch modules and optimizers, and Keras
        models; replay buffers are not among them."""
        return agent_state.attributes_state(self)

    def load_state(self, data: JSONDict, arrays: dict[str, AnyArray]) -> None:
        """Go on from what `state` returned, in an agent made by the same arguments."""
        agent_state.load_attributes(self, data, arrays)


class AgentSpec(NamedTuple):
    """How an agent was made: what a second maker, a copy, and one who acts for it need."""

    agent_class: type
    sync: bool
    num: int
    hyperparameters: dict[str, object]

    def make(self) -> Any:
        """An agent, which is told `sync` if its class takes it."""
        try:
            parameters = dict(inspect.signature(self.agent_class).parameters)
        except (TypeError, ValueError):
            parameters = {}
        kinds = {p.kind for p in parameters.values()}
        takes_sync = "sync" in parameters or inspect.Parameter.VAR_KEYWORD in kinds
        return self.agent_class(
            **({"sync": self.sync} if takes_sync else {}), **self.hyperparameters
        )


class Reply(NamedTuple):
    """What came of some calls.

    value: the last one's result. version: of the parameters. params: the parameters themselves
    ([reference], or [parameters] in one process) if the caller has older ones. wait: whether the
    caller is to wait for others before it goes on. done: how many of the calls were made before
    that.
    """

    value: object
    version: int
    params: list[object]
    wait: bool
    done: int = 0


def learns_from_blocks(agent: object) -> bool:
    """Whether an agent, or a class of them, has a part that acts elsewhere and brings blocks of
    steps. Only such a one is told of who calls, leaves or finishes: another class may have methods
    of these names for ends of its own."""
    return hasattr(agent, "portable")


class AgentHost:
    """An agent with its parameters' version and its stored state.

    key: NAME/NUMBER. store: a `StateStore`, or a client of one. seconds: between two states that
    are stored. put: makes a reference of parameters that others read. notify: gives (version,
    reference) to the copy that acts.
    """

    def __init__(
        self,
        key: str,
        spec: AgentSpec,
        store: Any,
        seconds: float,
        put: Callable[[Tree], object] = lambda param: param,
        notify: Callable[[int, object], None] = lambda version, param: None,
    ) -> None:
        self.key, self._spec, self.store, self.seconds = key, spec, store, seconds
        self._put, self._notify = put, notify
        self.version = 0  # rises with every update, and with all that is fired
        self.params: list[object] = []  # a reference of the parameters that were published last
        self.params_version = 0
        self._fired: list[Tree] = []
        self.stored: object = None  # what `store.put` returned last
        self._lock = threading.Condition()
        self.agent = spec.make()
        self._saved_at, self._save_seconds = time.monotonic(), 0.0
        self.agent._firing = self.fire
        if not hasattr(self.agent, "_fire"):
            self.agent._fire = self.fire
        if (state := store.get(key)) is not None:
            agent_state.load_into(self.agent, state["data"], state["arrays"])
            self.version = state["version"]
            # those who act for it were made anew, and know nothing of what it had learned
            self._hand_on()

    def _of_blocks(self, name: str) -> Any:
        """An attribute of an agent that learns from blocks; None of another agent, for which the
        name means what it may."""
        return getattr(self.agent, name, None) if learns_from_blocks(self.agent) else None

    def fire(self, param: Tree) -> None:
        """Parameters for all who act; sent when the calls under way are done, the newest alone."""
        self._fired = [param]

    def perform(self, caller: str, calls: list[Call], version: int) -> Reply:
        """Makes the calls, in order, for a caller that has parameters of that version."""
        value, updated, done = None, False, 0
        must_wait = self._of_blocks("must_wait")
        if self._of_blocks("caller") is not None:
            self.agent.caller = caller
        for name, args, kwargs in calls:
            if must_wait is not None and name not in FAREWELLS and must_wait(caller):
                break
            value, done = getattr(self.agent, name)(*args, **kwargs), done + 1
            if name in UPDATES:
                self.version, updated = self.version + 1, True
        if updated and not self._fired:
            self._hand_on()
        self._publish()
        pause = max(self.seconds, 20 * self._save_seconds)  # at most 5 % of the time is for saving
        if updated and time.monotonic() - self._saved_at > pause:
            self.save()
        if done and calls[done - 1][0] == "update":
            value = None
        return self._reply(caller, value, version, done)

    def _reply(self, caller: str, value: object, version: int, done: int = 0) -> Reply:
        must_wait = self._of_blocks("must_wait")
        with self._lock:
            self._lock.notify_all()
            params = self.params if self.params_version > version else []
            wait = must_wait is not None and bool(must_wait(caller))
            return Reply(value, self.params_version, params, wait, done)

    def release(self, caller: str, version: int) -> Reply:
        """Waits until the caller may go on, for a second at most. Called in a thread beside the
        agent's."""
        must_wait = self._of_blocks("must_wait")
        with self._lock:
            if must_wait is not None:
                self._lock.wait_for(lambda: not must_wait(caller), RELEASE_SECONDS)
        return self._reply(caller, None, version)

    def _hand_on(self) -> None:
        """Publishes parameters to those who act for the agent, where there are any."""
        if not self._spec.sync and hasattr(self.agent, "_sync_model"):
            self.agent._sync_model()
        self._publish()

    def _publish(self) -> None:
        if not self._fired:
            return
        (param,), self._fired = self._fired, []
        self.version += 1
        params = [self._put(agent_state.on_cpu(param))]
        with self._lock:
            self.params, self.params_version = params, self.version
        self._notify(self.version, params[0])

    def newest(self) -> tuple[int, list[object]]:
        """Returns (version, [parameters]) of what was published last."""
        with self._lock:
            return self.params_version, self.params

    def look_up(self, name: str) -> tuple[str, object]:
        """Returns what an attribute of the agent is: ("method", None), ("value", itself) or
        ("nothing", None)."""
        if name.startswith("_") or not hasattr(self.agent, name):
            return "nothing", None
        value = getattr(self.agent, name)
        # a network can be called, too
        method = callable(getattr(type(self.agent), name, None)) or inspect.isroutine(value)
        return ("method", None) if method else ("value", value)

    def save(self, now: bool = False) -> None:
        """Leaves the agent's state with the store, unless that has not taken the one before yet;
        `now` in any case."""
        if self.stored is not None and not now and not self.store.has_stored(self.stored):
            return
        began = time.monotonic()
        self.stored = self.store.put(self.key, self.version, *agent_state.state_of(self.agent))
        self._saved_at = time.monotonic()
        self._save_seconds = self._saved_at - began

    def save_again(self) -> None:
        """The store has lost the state: it is sent again after the next update."""
        self._saved_at = -math.inf

    def spec(self) -> AgentSpec:
        return self._spec


class ActingCopy:
    """An agent that only acts, by the parameters that came last. newest: returns (version,
    [parameters]) of the agent."""

    def __init__(self, spec: AgentSpec, newest: Callable[[], tuple[int, list[object]]]) -> None:
        self.agent, self._newest_of_agent = spec.make(), newest
        self.version = 0
        self._received: tuple[int, list[object]] = (0, [])
        self._asked = False  # for what was fired before this one was made

    def receive(self, version: int, param: object) -> None:
        """Takes newer parameters; it acts on them from the next call on. Called in a thread beside
        the agent's."""
        if version > self._received[0]:
            self._received = (version, [param])

    def newest(self) -> tuple[int, list[object]]:
        """Returns (version, [parameters]) of what came last."""
        return self._received

    def perform(self, caller: str, calls: list[Call], version: int) -> Reply:
        """As a host's."""
        if not self._asked:
            newest, params = self._newest_of_agent()
            self._asked = True
            if params:
                self.receive(newest, params[0])
        newest, params = self._received
        if newest > self.version:
            self.agent._update_model(params[0])
            self.version = newest
        value = None
        for name, args, kwargs in calls:
            value = getattr(self.agent, name)(*args, **kwargs)
        return Reply(value, self.version, [], False, len(calls))


# Who calls: the identity of this process, and of each proxy in it

_identity = [""]  # a runner's name in its actor, "" in a program
_proxy_counts: Counter[tuple[str, str]] = Counter()


def identity() -> str:
    return _identity[0]


def set_identity(name: str) -> None:
    _identity[0] = name


def next_caller_id(namespace: str, agent: str) -> str:
    return f"{identity() or f'program/{os.getpid()}'}#{_proxy_counts[namespace, agent]}"


def new_caller_id(namespace: str, agent: str) -> str:
    """The name of a new proxy here: the same again in a runner that was restarted."""
    caller = next_caller_id(namespace, agent)
    _proxy_counts[namespace, agent] += 1
    return caller
