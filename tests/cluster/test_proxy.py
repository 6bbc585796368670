"""Proxies of agents in other processes, over a handle that behaves as Ray's does, without Ray."""

from __future__ import annotations

import math
import pickle
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from tandem.cluster import Cluster, ray_actors
from tandem.cluster.agent_host import AgentHost, AgentSpec
from tandem.cluster.agent_state import StateStore
from tandem.cluster.proxy import AsyncProxy, LocalProxy, RemoteProxy
from tandem.cluster.ray_actors import ActorHandle, Namespace, RemoteHost
from tandem.errors import SettingError
from tandem.testing import environments as known
from tests.cluster.agents import Bare, Counter, Recorder, spaces


class Notes(Recorder):
    def _sync_model(self) -> None:
        pass


class Here(RemoteHost):
    def __init__(self, spec: AgentSpec) -> None:
        self._failed = None
        store = SimpleNamespace(get=lambda key: None, put=lambda *state: None)
        AgentHost.__init__(self, "a/0", spec, store, 0.0)


class Direct(ActorHandle):
    """A handle of an object here. What goes to it is pickled; its arrays are not to be written."""

    def send(self, method, *given, group=""):
        return sent(getattr(self.actor, method)(*sent(given)))

    def ready(self, reference) -> bool:
        return True

    def _ray(self):
        return SimpleNamespace(get=lambda reference: reference)


def sent(value):
    buffers: list = []
    data = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(data, buffers=[bytes(b.raw()) for b in buffers])


def proxy(kind, agent_class, **hyper):
    host = Here(AgentSpec(agent_class, kind is RemoteProxy, 1, hyper))
    return kind("a", "me#0", Direct(host, "agent 'a'", 1.0))


@pytest.mark.parametrize("kind", [RemoteProxy, AsyncProxy])
def test_updates_are_of_what_was_then_though_an_environment_writes_into_its_arrays(kind) -> None:
    agent, state, info = proxy(kind, Notes), np.zeros(2), {"at": 0, "seen": np.zeros(1)}
    for i in range(70):  # more than go at once
        state[:], info["at"], info["seen"][0] = i, i, i
        agent.update(state, info)
    updates = [given for _, given in agent.history()]
    found = [(s[0], told["at"], told["seen"][0]) for s, told in updates]
    assert found == [(i, i, i) for i in range(70)]


class Scales(Notes):
    def choose_action(self, state):
        state -= 1
        return state

    def update(self, state, info) -> None:
        state *= 2
        info["seen"] += state
        super().update(state, info)


def test_arrays_may_be_written_wherever_they_arrive() -> None:
    agent = proxy(RemoteProxy, Scales)
    action = agent.choose_action(np.ones(3))
    action += 1
    agent.update(action, {"seen": np.ones(3)})
    ((_, (state, info)),) = agent.history()
    state += info["seen"]
    np.testing.assert_array_equal([action, state], [[1, 1, 1], [5, 5, 5]])


def test_what_cannot_be_pickled_is_named() -> None:
    pytest.importorskip("ray")
    said = r"agent 'a' cannot be sent to another process: .*lock.*; expected .*\nFix: "
    with pytest.raises(SettingError, match=said):
        ray_actors.submit(lambda *given: pickle.dumps(given), "agent 'a'", 1, threading.Lock())


class Saves(Counter):
    caller = "nobody"

    def load(self, path):
        raise AssertionError

    finish = join = leave = must_wait = learn_from = set_progress = load


@pytest.mark.parametrize("kind", [RemoteProxy, AsyncProxy])
def test_an_agent_may_call_its_methods_what_it_likes(kind) -> None:
    spec = AgentSpec(Saves, kind is RemoteProxy, 1, {})
    more = {"make": lambda caller: spec.make()} if kind is AsyncProxy else {}
    agent = kind("a", "me#0", Direct(Here(spec), "agent 'a'", 1.0), **more)
    assert agent.choose_action(0) == 0
    agent.update(0)
    agent.flush()
    assert agent.choose_action(0) == 1
    agent.close()
    assert agent.caller == "nobody"


@pytest.mark.slow
@pytest.mark.parametrize("kind", [LocalProxy, RemoteProxy, AsyncProxy])
def test_nobody_waits_for_the_steps_of_one_who_only_acts(kind, monkeypatch) -> None:
    """As an evaluation does, while an update needs two blocks of the one that learns."""
    from tandem.cluster import AlgorithmAgent

    pytest.importorskip("torch")
    monkeypatch.setattr("tandem.learning.config.compiling", lambda _: "no")  # some ten seconds
    env = known.Identity()
    hyper = dict(algorithm="ppo", rollout=4, envs=2, batch_size=4, hidden=(4,), framework="torch")
    hyper |= spaces(env)
    host = Here(AgentSpec(AlgorithmAgent, True, 1, hyper))
    handle = Direct(host, "agent 'a'", 1.0)
    make = {"make": lambda me: host.agent.portable(me), "from_blocks": True}
    part = make if kind is AsyncProxy else {}
    learns, looks = (
        kind("a", me, host if kind is LocalProxy else handle, **part) for me in ("me#0", "me#1")
    )
    state, _ = env.reset(seed=0)
    for i in range(12):
        looks.choose_action(state)
        action = learns.choose_action(state)
        assert env.action_space.contains(action) and not host.agent.must_wait("me#0"), i
        after, reward, over, cut, _ = env.step(action)
        learns.update(state, action, reward, after, over or cut, cut)
        assert not host.agent.must_wait("me#0")
        state = env.reset()[0] if over or cut else after
    assert host.agent.updates > 0


class Called:
    def __init__(self) -> None:
        self.weight = 3

    def __call__(self, x):
        return self.weight * x


def test_networks_are_attributes_though_they_can_be_called() -> None:
    agent = proxy(RemoteProxy, Notes, actor=Called(), also=math.sqrt)
    assert agent.actor.weight == 3 and agent.actor(2) == 6
    assert agent.also(4) == 2 and agent.history() == []


@pytest.mark.parametrize("kind", [RemoteProxy, AsyncProxy])
def test_what_would_be_lost_with_a_proxy_is_refused(kind) -> None:
    agent = proxy(kind, Notes, gain=1)
    with pytest.raises(SettingError, match=r"gain of the agent 'a'[^\n]*; expected .*\nFix: "):
        agent.gain = 2
    said = r"proxy of the agent 'a'[^\n]*; expected .*\nFix: call get_agent\('a'\)"
    with pytest.raises(SettingError, match=said):
        pickle.dumps(agent)
    assert agent.gain == 1


def test_runners_that_could_not_be_made_take_no_ranks(monkeypatch) -> None:
    pytest.importorskip("ray")
    store, asked = StateStore(), []

    class Nowhere(Namespace):
        def __init__(self) -> None:
            pass

        def store(self):
            return Direct(store, "the store", 1.0)

        def names(self, kind):
            return []

        def make_runner(self, host_class, name, runner_class, args, ranks, resource):
            asked.append(ranks)
            if args is None:
                raise SettingError("args that cannot be pickled.")
            return []

    cluster = Cluster()
    monkeypatch.setattr(cluster, "_connect", Nowhere)
    cluster.make_runner("one", Bare, 0, num=2)
    with pytest.raises(SettingError):
        cluster.make_runner("two", Bare, num=3)
    cluster.make_runner("three", Bare, 0)
    assert asked == [[0, 1], [2, 3, 4], [2]]
