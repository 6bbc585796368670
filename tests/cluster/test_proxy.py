"""Proxies of agents in other processes, over a line that behaves as Ray's does, without Ray."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from tandem.cluster.host import Host, Made
from tandem.cluster.proxy import ApartProxy, RemoteProxy
from tests.cluster.agents import Recorder


class Notes(Recorder):
    """It has nothing to hand on."""

    def _sync_model(self) -> None:
        pass


class Memory:
    """A keeper that has nothing and keeps nothing."""

    def recall(self, key):
        return None

    def keep(self, *given) -> None:
        pass


class Direct:
    """A line to a host in this process. What goes over it is pickled, and its arrays arrive as from Ray's store: not to be
    written."""

    name, patience = "agent 'a'", 1.0

    def __init__(self, host: Any) -> None:
        self.host = host

    def send(self, method, *given, group=""):
        return sent(getattr(self.host, method)(*sent(given)))

    def receive(self, reference, method, *given, group=""):
        return reference

    def ask(self, method, *given, group=""):
        return self.send(method, *given)

    def arrived(self, reference) -> bool:
        return True


def sent(value):
    buffers: list = []
    data = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(data, buffers=[bytes(b.raw()) for b in buffers])


def proxy(kind, agent_class, **hyper):
    host = Host("a/0", Made(agent_class, kind is RemoteProxy, 1, hyper), Memory(), 0.0)
    return kind("a", "me#0", Direct(host))


@pytest.mark.parametrize("kind", [RemoteProxy, ApartProxy])
def test_updates_are_of_what_was_then_though_an_environment_writes_into_its_arrays(kind) -> None:
    agent, state, info = proxy(kind, Notes), np.zeros(2), {"at": 0, "seen": np.zeros(1)}
    for i in range(3):
        state[:], info["at"], info["seen"][0] = i, i, i
        agent.update(state, info)
    updates = [given for _, given in agent.history()]
    assert [(s[0], told["at"], told["seen"][0]) for s, told in updates] == [(0, 0, 0), (1, 1, 1), (2, 2, 2)]
