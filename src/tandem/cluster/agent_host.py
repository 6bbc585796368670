"""Base class of agents, and the host that holds an agent in this process or in a Ray actor: it
makes the calls, distributes parameters, and saves the state in a store."""

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

ACTING = ("actor", "policy", "q_net", "net", "network", "model")  # the first that exists acts
UPDATES = ("update", "learn_from")  # methods that learn
FAREWELLS = ("finish", "leave")  # methods that a waiting caller may still call
RELEASE_SECONDS = 1.0  # limit of one wait, after which a caller asks again: then threads suffice

Call = tuple[str, tuple[object, ...], dict[str, object]]  # a method's name and its arguments


class Agent:
    """Base class of agents. Override `choose_action` and `update`; keyword arguments become
    attributes.

    sync=True: one agent acts and learns, in the order of the calls. sync=False: another object of
    the same class acts in its own process, with the parameters of the last `_fire`, so that acting
    never waits for learning.

    The base class only provides defaults: any class with `choose_action` and `update` works.
    """

    _firing: Callable[[Tree], None] | None = None  # set if another object acts for the agent

    def __init__(self, sync: bool = True, **kwargs: object) -> None:
        self.sync = sync
        self.__dict__.update(kwargs)

    def choose_action(self, state: Tree) -> Tree:
        raise NotImplementedError(f"{type(self).__name__} has no choose_action(state).")

    def update(self, *transition: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no update(...).")

    def _sync_model(self) -> None:
        """Send the state_dict of the acting network with `_fire`, if sync=False. Called after
        updates."""
        if not self.sync:
            self._fire(self._acting().state_dict())

    def _fire(self, param: Tree) -> None:
        """Send parameters to all objects that act for this agent: arrays and tensors in dicts,
        lists and tuples, which may change afterwards. Only the newest are kept. Does nothing if no
        other object acts."""
        if self._firing is not None:
            self._firing(param)

    def _update_model(self, param: Tree) -> None:
        """Load the parameters from `_fire`, on the CPU, into the acting network. Called in the
        acting copy."""
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
        """Return the state from which a restarted agent resumes: (JSON data, arrays by name). By
        default, it contains the attributes that are plain numbers and strings, torch modules and
        optimizers, and Keras models, but no replay buffers."""
        return agent_state.attributes_state(self)

    def load_state(self, data: JSONDict, arrays: dict[str, AnyArray]) -> None:
        """Restore the result of `state` in an agent created with the same arguments."""
        agent_state.load_attributes(self, data, arrays)


class AgentSpec(NamedTuple):
    """Arguments with which an agent was created, to compare them and to create copies."""

    agent_class: type
    sync: bool
    num: int
    hyperparameters: dict[str, object]

    def make(self) -> Any:
        """Create an agent. `sync` is passed if its class accepts it."""
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
    """Result of several calls.

    value: the result of the last call. version: of the parameters. params: the parameters
    ([reference], or [parameters] in the same process) if the caller's are older. wait: whether the
    caller must wait for others before it continues. done: the number of calls made until then.
    """

    value: object
    version: int
    params: list[object]
    wait: bool
    done: int = 0


def learns_from_blocks(agent: object) -> bool:
    """Return whether an agent, or a class of agents, has a part that acts elsewhere and sends
    blocks of steps. Only such an agent is notified of callers and of their leaving or finishing:
    another class may use the same method names for its own purposes."""
    return hasattr(agent, "portable")


class AgentHost:
    """An agent with the version of its parameters and its stored state.

    key: NAME/NUMBER. store: a `StateStore`, or a client of one. seconds: between two stored states.
    put: creates a reference to parameters that others can read. notify: sends (version, reference)
    to the acting copy.
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
        self.version = 0  # incremented by every update and every `fire`
        self.params: list[object] = []  # a reference to the parameters published last
        self.params_version = 0
        self._fired: list[Tree] = []
        self.stored: object = None  # the result of the last `store.put`
        self._lock = threading.Condition()
        self.agent = spec.make()
        self._saved_at, self._save_seconds = time.monotonic(), 0.0
        self.agent._firing = self.fire
        if not hasattr(self.agent, "_fire"):
            self.agent._fire = self.fire
        if (state := store.get(key)) is not None:
            agent_state.load_into(self.agent, state["data"], state["arrays"])
            self.version = state["version"]
            # the objects that act for it were recreated, too, without the learned parameters
            self._hand_on()

    def _of_blocks(self, name: str) -> Any:
        """Return an attribute of an agent that learns from blocks; None for other agents, where the
        name may mean something else."""
        return getattr(self.agent, name, None) if learns_from_blocks(self.agent) else None

    def fire(self, param: Tree) -> None:
        """Queue parameters for all objects that act. Only the newest are sent, after the current
        calls."""
        self._fired = [param]

    def perform(self, caller: str, calls: list[Call], version: int) -> Reply:
        """Make the calls in order, for a caller with parameters of this version."""
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
        pause = max(self.seconds, 20 * self._save_seconds)  # saving takes at most 5 % of the time
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
        """Wait until the caller may continue, at most a second. Called in another thread than the
        agent's."""
        must_wait = self._of_blocks("must_wait")
        with self._lock:
            if must_wait is not None:
                self._lock.wait_for(lambda: not must_wait(caller), RELEASE_SECONDS)
        return self._reply(caller, None, version)

    def _hand_on(self) -> None:
        """Publish parameters to the objects that act for the agent, if there are any."""
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
        """Return (version, [parameters]) as last published."""
        with self._lock:
            return self.params_version, self.params

    def look_up(self, name: str) -> tuple[str, object]:
        """Return the type and value of an attribute of the agent: ("method", None), ("value",
        value) or ("nothing", None)."""
        if name.startswith("_") or not hasattr(self.agent, name):
            return "nothing", None
        value = getattr(self.agent, name)
        # a network is callable, too
        method = callable(getattr(type(self.agent), name, None)) or inspect.isroutine(value)
        return ("method", None) if method else ("value", value)

    def save(self, now: bool = False) -> None:
        """Send the agent's state to the store, unless the store is still busy with the previous
        one; with `now`, always."""
        if self.stored is not None and not now and not self.store.has_stored(self.stored):
            return
        began = time.monotonic()
        self.stored = self.store.put(self.key, self.version, *agent_state.state_of(self.agent))
        self._saved_at = time.monotonic()
        self._save_seconds = self._saved_at - began

    def save_again(self) -> None:
        """Send the state again after the next update, since the store has lost it."""
        self._saved_at = -math.inf

    def spec(self) -> AgentSpec:
        return self._spec


class ActingCopy:
    """An agent that only acts, with the last received parameters. newest: returns (version,
    [parameters]) of the learning agent."""

    def __init__(self, spec: AgentSpec, newest: Callable[[], tuple[int, list[object]]]) -> None:
        self.agent, self._newest_of_agent = spec.make(), newest
        self.version = 0
        self._received: tuple[int, list[object]] = (0, [])
        self._asked = False  # whether parameters from before its creation were requested

    def receive(self, version: int, param: object) -> None:
        """Store newer parameters, which the next call uses. Called in another thread than the
        agent's."""
        if version > self._received[0]:
            self._received = (version, [param])

    def newest(self) -> tuple[int, list[object]]:
        """Return (version, [parameters]) as last received."""
        return self._received

    def perform(self, caller: str, calls: list[Call], version: int) -> Reply:
        """Make the calls, see `AgentHost.perform`."""
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


# Callers: the identity of this process, and of each proxy in it

_identity = [""]  # a runner's name in its actor, "" in a program
_proxy_counts: Counter[tuple[str, str]] = Counter()


def identity() -> str:
    return _identity[0]


def set_identity(name: str) -> None:
    _identity[0] = name


def next_caller_id(namespace: str, agent: str) -> str:
    return f"{identity() or f'program/{os.getpid()}'}#{_proxy_counts[namespace, agent]}"


def new_caller_id(namespace: str, agent: str) -> str:
    """Return the name of a new proxy. It is the same after a runner is restarted."""
    caller = next_caller_id(namespace, agent)
    _proxy_counts[namespace, agent] += 1
    return caller
