"""The advice of the rooms parallel and cluster where it takes Ray, on a cluster of this machine."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from tandem import trainer
from tandem.cluster import Cluster, agent_host, ray_actors
from tandem.learning.events import BatchEnd
from tandem.parallel.ray import connect
from tests.advice.net import follows
from tests.advice.upper import SHORT
from tests.cluster.agents import Bare, Counter, Exits, Plain
from tests.helpers import ROOT

ray = pytest.importorskip("ray")
pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]
LOCAL = {"include_dashboard": False, "logging_level": "ERROR", "log_to_driver": False}


@pytest.fixture(scope="module", autouse=True)
def _one_machine() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        ray.init("local", num_cpus=1, num_gpus=1, **LOCAL)
        yield
        ray.shutdown()


def cluster(namespace: str, **given: Any) -> Cluster:
    return Cluster(namespace=namespace, **{"patience": 20.0, "checkpoint_seconds": 0, **given})


def ended(namespace: str, name: str) -> None:
    """Kills an actor for good, and waits until it is gone."""
    ray.kill(ray.get_actor(name, namespace))
    until = time.monotonic() + 30
    while any(a["name"] == name for a in ray.util.list_named_actors(all_namespaces=True)):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_names_of_agents() -> None:
    one = cluster("names", patience=0.2)
    with follows("cluster/cluster.py:Cluster._agent_actor") as advice:
        one.get_agent("agent")
    assert advice.fix.startswith("make_agent('agent', ...) makes it")
    one.patience = 20.0
    one.make_agent("agent", Counter)
    with follows("cluster/cluster.py:Cluster.get_agent") as advice:
        one.get_agent("agent", act="loca")
    act = advice.quoted()
    with follows("cluster/cluster.py:Cluster._proxy") as advice:
        one.get_agent("agent", act=act)
    assert advice.assigned()[0] == {"sync": False} and "leave act out" in advice.fix
    assert one.get_agent("agent").choose_action(0) == 0
    one.make_agent("apart", Counter, **advice.assigned()[0])
    assert one.get_agent("apart", act=act).choose_action(0) == 0
    ended("names", "agent/apart/0/copy")
    one.patience = 0.1
    with follows("cluster/cluster.py:Cluster._proxy 2") as advice:
        one.get_agent("apart")
    assert "make_agent makes another one by another name" in advice.fix
    one.patience = 20.0
    (again,) = one.make_agent("again", Counter, sync=False)
    assert again.choose_action(0) == 0


def test_what_goes_to_other_processes(tmp_path: Path) -> None:
    one = cluster("travel")
    with follows("cluster/ray_actors.py:Namespace._options") as advice:
        one.make_agent("agent", Plain, resource={"name": "mine", "num_cpus": 0})
    assert "leave these out" in advice.fix
    with follows("cluster/ray_actors.py:submit") as advice:
        one.make_agent("agent", Plain, resource={"num_cpus": 0}, gain=Lock())
    assert "leave out what cannot be" in advice.fix and "__init__ runs there" in advice.fix
    (agent,) = one.make_agent("agent", Plain, resource={"num_cpus": 0}, gain=2)
    assert agent.choose_action(2) == 4
    with follows("cluster/agent_state.py:refuse_other_folder") as advice:
        cluster("travel", folder=tmp_path).make_agent("other", Plain)
    assert "give it to the first Cluster" in advice.fix and "a namespace of its own" in advice.fix
    (other,) = cluster("other", folder=tmp_path).make_agent("other", Plain)
    assert other.choose_action(2) == 2


def test_runners_that_fail() -> None:
    one, light = cluster("fail", patience=0.2), {"num_cpus": 0.1}
    with follows("cluster/cluster.py:Cluster.get_runner") as advice:
        one.get_runner("runner")
    assert advice.fix.startswith("make_runner('runner', ...) makes it")
    one.patience = 20.0
    runners = one.make_runner("runner", Exits, (3, "run"), resource=light)
    with follows("cluster/cluster.py:_result") as advice:
        runners.run()
    assert "what its traceback above names, and make the runners anew" in advice.fix
    assert "sys.exit(3)" in str(advice.error)
    runners = one.make_runner("runner", Exits, (0, "run"), resource=light)
    assert runners.run() == [None]
    with follows("cluster/cluster.py:Cluster.make_runner 2") as advice:
        one.make_runner("runner", Bare, resource=light)
    assert "choose another name, or get_runner" in advice.fix
    assert len(one.get_runner("runner")) == len(one.make_runner("other", Bare, resource=light)) == 1


def test_agents_that_are_gone(monkeypatch: Any) -> None:
    one = cluster("gone", restarts=0)
    (agent,) = one.make_agent("agent", Counter)
    agent.choose_action(0)
    os.kill(agent.here(), signal.SIGKILL)
    with follows("cluster/ray_actors.py:actor_lost") as advice:
        for _ in range(100):
            agent.choose_action(0)
            time.sleep(0.05)
    assert "Cluster(restarts=...)" in advice.fix
    (agent,) = cluster("kept", restarts=1).make_agent("agent", Counter)
    agent.choose_action(0)
    os.kill(pid := agent.here(), signal.SIGKILL)
    assert agent.here() != pid
    with monkeypatch.context() as patched:  # as in a runner whose program has ended
        patched.setattr(agent_host, "_identity", ["runner/r/0"])
        with follows("cluster/ray_actors.py:Namespace.store") as advice:
            ray_actors.Namespace("nobody", 0.1, 0, 1.0, None).store()
    assert advice.fix == "start it again."
    assert ray_actors.Namespace("nobody", 20.0, 0, 1.0, None).store().call("pid")


def test_runs_whose_cluster_was_left(tmp_path: Path) -> None:
    """No call makes Ray start a new cluster, not even those that close what is left."""
    given = {**SHORT, "steps": 64, "rollout": 8, "envs": 2, "runners": 1, "runner_cpus": 0.4}
    run = trainer.session("a2c", "CartPole-v1", out=tmp_path / "run", save_every=16, **given)
    abandoned = trainer.session("a2c", "CartPole-v1", **given)
    events = iter(run)
    next(event for event in events if isinstance(event, BatchEnd) and event.env_steps >= 32)
    ray.shutdown()
    with follows("parallel/ray.py:check_joined") as advice:
        list(events)
    del abandoned
    gc.collect()
    assert not ray.is_initialized()
    assert "tandem.train(resume=...)" in advice.fix
    ray.init("local", num_cpus=1, **LOCAL)
    assert trainer.train(resume=tmp_path / "run").reason == "steps"


def test_who_has_left_a_cluster() -> None:
    (agent,) = cluster("left").make_agent("agent", Plain)
    ray.shutdown()
    with follows("cluster/ray_actors.py:ActorHandle._ray") as advice:
        agent.choose_action(1)
    assert "make the agents anew" in advice.fix
    with follows("parallel/ray.py:connect 3") as advice:
        connect("127.0.0.1:1")
    start = pytest.importorskip("ray.scripts.scripts").start
    assert "`ray start --head --port=6379`" in advice.fix
    assert {"head", "port"} <= {option.name for option in start.params}
    ray.init("local", num_cpus=1, **LOCAL)
    (agent,) = cluster("left").make_agent("agent", Plain)
    assert agent.choose_action(1) == 1
