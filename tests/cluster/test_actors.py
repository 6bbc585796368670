"""The cluster door on Ray: in actors of one machine."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from tandem.cluster import Cluster
from tandem.cluster import cluster as door
from tandem.errors import SettingError, UnknownNameError, WorkerError
from tandem.testing import environments as known
from tests.cluster import agents
from tests.cluster.agents import Bare, Counter, Documented, Learns, Plain, Recorder, program
from tests.helpers import run_python

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(100), pytest.mark.usefixtures("on_ray")]


@pytest.fixture
def cluster(request):
    """A namespace of its own for each test; its actors end with it."""
    name = f"test-{abs(hash(request.node.name))}"
    made = Cluster(namespace=name, patience=30, checkpoint_seconds=0)
    yield made
    for actor in ray.util.list_named_actors(all_namespaces=True):
        if actor["namespace"] == made.namespace:
            ray.kill(ray.get_actor(actor["name"], made.namespace))


def until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.05)
    return found


def actor(cluster, name):
    return ray.get_actor(name, cluster.namespace)


def kill(cluster, name) -> int:
    """Kills the process of an actor as the kernel would; its id."""
    group = {} if name == "tandem/states" else {"concurrency_group": "control"}
    called = actor(cluster, name).__ray_call__.options(**group)
    pid = ray.get(called.remote(lambda _: os.getpid()))
    os.kill(pid, signal.SIGKILL)
    return pid


@pytest.mark.parametrize("num", [1, 2])
def test_the_documented_program(cluster, num) -> None:
    args = SimpleNamespace(cluster=cluster, lr=0.1)
    runners = cluster.makeRunner("runner", Documented, args, num=num)
    found = cluster.startAllRunners(runners)
    assert [f[1:] for f in found] == [(4, i, i) for i in range(num)]
    agent = cluster.get_agent("recorder")
    assert agent.lr == 0.1 and len(agent.history()) == 40 * num
    if num == 1:
        own = Recorder()
        assert found[0][0] == program(own) and agent.history() == own.history()


def test_a_runner_of_no_base_and_ranks_over_all_names(cluster) -> None:
    half = {"num_cpus": 0.5}
    one = cluster.make_runner("one", Bare, num=2, resource=half)
    two = cluster.make_runner("two", ray.remote(Bare), resource=half)
    assert cluster.start_all_runners([one, two]) == [(0, 0), (1, 1), (2, 0)]
    assert cluster.get_runner("two").ranks == [2]
    assert cluster.get_runner("one").run() == [(0, 0), (1, 1)]
    with pytest.raises(SettingError, match="runners named 'one' already"):
        cluster.make_runner("one", Bare)


def test_names_errors_and_attributes(cluster, tmp_path) -> None:
    (agent,) = cluster.make_agent("a", Recorder, lr=0.5)
    assert agent.lr == 0.5 and agent.here() != os.getpid()
    with pytest.raises(AttributeError, match="'policy'"):
        agent.policy  # noqa: B018
    with pytest.raises(ValueError, match="no map here") as caught:
        agent.fail("map")
    assert "in fail" in "".join(caught.value.__notes__)
    with pytest.raises(UnknownNameError, match="one of a"):
        Cluster(namespace=cluster.namespace, patience=0.2).get_agent("b")
    with pytest.raises(SettingError, match=r"lr=0.1 \(there: 0.5\)"):
        cluster.make_agent("a", Recorder, lr=0.1)
    with pytest.raises(SettingError, match="sync=True"):
        cluster.get_agent("a", act="local")
    with pytest.raises(TypeError, match="unexpected keyword"):
        cluster.make_agent("p", Plain, gian=1)
    (plain,) = cluster.make_agent("p", Plain, gain=3)
    assert plain.choose_action(2) == 6
    for i, agent in enumerate(cluster.make_agent("two", Plain, num=2)):
        agent.update(0, i, 0, 0, False)
        agent.flush()
    assert sorted(cluster.get_agent("two").seen[0] for _ in range(4)) == [0, 0, 1, 1]
    said = r"folder='.*', but the agents of this namespace are saved in no folder"
    with pytest.raises(SettingError, match=said):
        Cluster(namespace=cluster.namespace, folder=tmp_path).make_agent("d", Counter)


def test_a_runner_that_fails_is_named_with_its_traceback_or_code(cluster) -> None:
    with pytest.raises(WorkerError, match=r"rank 1 failed: KeyError[\s\S]*agents.py[\s\S]*in run"):
        cluster.start_all_runners(cluster.make_runner("bad", agents.Fails, num=3))
    # its forerunners' cores are free again
    with pytest.raises(WorkerError, match=r"rank 3 failed: OSError: no environment"):
        cluster.start_all_runners(cluster.make_runner("worse", agents.FailsAtOnce))
    for i, where in enumerate(("run", "__init__")):
        found = cluster.start_all_runners(cluster.make_runner(f"ends{i}", agents.Exits, (0, where)))
        assert found == [None]
        with pytest.raises(WorkerError, match=rf"'gives-up{i}' called sys.exit\(3\)"):
            cluster.start_all_runners(cluster.make_runner(f"gives-up{i}", agents.Exits, (3, where)))


def test_acting_never_waits_for_learning(cluster) -> None:
    cluster.make_agent("a", Counter, sync=False, seconds=0.0)
    agent = cluster.get_agent("a")
    assert agent.choose_action(0) == 0
    for _ in range(5):
        agent.update(0)
    agent.flush()
    until(lambda: agent.choose_action(0) == 5)
    cluster.make_agent("slow", Counter, sync=False, seconds=6.0)
    slow = cluster.get_agent("slow")
    slow.choose_action(0)
    slow.update(0)
    slow._send()  # it is learned from for 6 s from now on
    began = time.monotonic()
    assert [slow.choose_action(0) for _ in range(20)] == [0] * 20
    assert time.monotonic() - began < 5.5
    assert until(lambda: slow.choose_action(0) == 1)


def test_acting_here_takes_newer_parameters(cluster) -> None:
    cluster.make_agent("a", Counter, sync=False)
    agent = cluster.get_agent("a", act="local")
    found = []
    until(lambda: (found.append(agent.choose_action(0)), agent.update(0), found[-1] > 20)[-1])
    assert found == sorted(found) and agent.here() != os.getpid()
    agent.flush()
    assert until(lambda: agent.choose_action(0) == agent.at)


THOROUGH = pytest.mark.thorough


@pytest.mark.parametrize(
    "sync, act", [pytest.param(True, "remote", marks=THOROUGH), (False, "remote"), (False, "local")]
)
def test_whoever_is_killed_comes_back(cluster, tmp_path, sync, act) -> None:
    """A runner, the agent, its copy and the store; all that was kept is there afterwards."""
    args = {"cluster": cluster, "folder": tmp_path, "sync": sync, "act": act}
    runners = cluster.make_runner("r", agents.Steady, args, num=2)
    found: list = []
    thread = threading.Thread(target=lambda: found.append(cluster.start_all_runners(runners)))
    thread.start()
    agent = Cluster(namespace=cluster.namespace, patience=60).get_agent("counter")
    try:
        copy = [] if sync else ["agent/counter/0/copy"]
        for victim in ("runner/r/1", "agent/counter/0", "tandem/states", *copy, "runner/r/0"):
            before = until(lambda: agent.at if agent.at > 10 else 0)
            states = actor(cluster, "tandem/states")
            if victim == "tandem/states":
                kill(cluster, victim)
                until(lambda: ray.get(actor(cluster, "tandem/states").has.remote("counter/0")))
            elif victim == "agent/counter/0":
                kept = until(lambda states=states: ray.get(states.get.remote("counter/0")))
                pid = kill(cluster, victim)
                assert agent.at >= kept["data"]["plain"]["at"] and agent.here() != pid
            else:
                kill(cluster, victim)
            until(lambda before=before: agent.at > before)
        until(lambda: len(list(tmp_path.iterdir())) == 4)  # both runners began twice
    finally:
        (tmp_path / "stop").touch()
        thread.join(60)
    assert len(found[0]) == 2
    for acts in found[0]:
        back = [later for earlier, later in pairwise(acts) if later < earlier]
        if not sync and act == "remote":  # the copy gives the restarted agent what it acts by
            assert not back
        else:  # the agent was killed once: nothing is lost but what was not kept yet
            assert len(back) <= 1 and all(at >= kept["data"]["plain"]["at"] for at in back)


def learned(kept):
    """The kept state, once it is of a time after the first update."""
    return kept if kept and kept["data"]["learner"]["updates"] else None


@pytest.mark.parametrize(
    "algorithm, act",
    [
        ("dqn", "local"),
        pytest.param("ppo", "local", marks=THOROUGH),
        pytest.param("dqn", "remote", marks=THOROUGH),
    ],
)
def test_an_algorithm_goes_on_from_its_state(cluster, tmp_path, algorithm, act) -> None:
    args = learns(cluster, algorithm, act, 10**9) | {"stop": tmp_path / "stop"}
    runners = cluster.make_runner("r", Learns, args, num=2)
    found: list = []
    thread = threading.Thread(target=lambda: found.append(cluster.start_all_runners(runners)))
    thread.start()
    agent = Cluster(namespace=cluster.namespace, patience=60).get_agent("a")
    try:
        for _ in range(2):
            before = agent.updates
            until(lambda before=before: agent.updates > before + 50)
            states = actor(cluster, "tandem/states")
            kept = until(lambda: learned(ray.get(states.get.remote("a/0"))))  # noqa: B023
            kill(cluster, "agent/a/0")
            assert agent.updates >= kept["data"]["learner"]["updates"]
            assert agent.env_steps >= kept["data"]["env_steps"] > 0
            assert algorithm == "ppo" or "learner/ring/reward" in kept["arrays"]
        now = agent.updates
        until(lambda: agent.updates > now + 50)
    finally:
        (tmp_path / "stop").touch()
        thread.join(60)
    assert len(found[0]) == 2


def test_an_agent_that_is_lost_too_often_is_named(cluster) -> None:
    cluster.restarts = 0
    (agent,) = cluster.make_agent("a", Recorder)
    agent.choose_action(0)
    kill(cluster, "agent/a/0")
    with pytest.raises(WorkerError, match="agent 'a' is gone"):
        until(lambda: agent.choose_action(0) is None)


def test_a_folder_outlives_a_program(tmp_path) -> None:
    for i in range(2):
        cluster = Cluster(namespace=f"folder-{i}", folder=tmp_path, checkpoint_seconds=1000)
        (agent,) = cluster.make_agent("c", Counter)
        assert agent.at == 3 * i
        for _ in range(3):
            agent.update(0)
        agent.flush()
        cluster.start_all_runners(cluster.make_runner("r", Bare))
        ray.kill(actor(cluster, "agent/c/0"))


def test_an_agent_that_waits_for_a_place_is_told_of(cluster, monkeypatch, caplog) -> None:
    monkeypatch.setattr(door, "WARN_SECONDS", 0.2)
    with ThreadPoolExecutor() as pool:
        made = pool.submit(cluster.make_agent, "big", Counter, resource={"num_cpus": 64})
        until(lambda: "agent 'big', number 0: not started yet" in caplog.text)
        ray.kill(actor(cluster, "agent/big/0"))
        with pytest.raises(WorkerError, match="agent 'big' is gone"):
            made.result(60)


SMALL = {"hidden": (32,), "framework": "torch", "learning_rate": 5e-3}
REPLAYS = dict(learning_starts=100, batch_size=32, train_every=1, target_every=100)
ANSWERS = {"dqn": SMALL | REPLAYS, "ppo": {**SMALL, "rollout": 64, "envs": 2, "batch_size": 32}}


def learns(cluster: Cluster, algorithm: str, act: str, limit: int) -> dict[str, Any]:
    settings = {"algorithm": algorithm, "steps": 6000, **ANSWERS[algorithm]}
    given = {"make": known.Identity, "act": act, "limit": limit}
    return given | {"cluster": cluster, "settings": settings}


@pytest.mark.parametrize(
    "algorithm, act, num, limit",
    [
        ("ppo", "local", 2, 2500),
        pytest.param("dqn", "local", 2, 1500, marks=THOROUGH),
        pytest.param("ppo", "local", 1, 4000, marks=THOROUGH),
        pytest.param("ppo", "remote", 2, 1500, marks=THOROUGH),
    ],
)
def test_it_finds_the_answer(cluster, algorithm, act, num, limit) -> None:
    args = learns(cluster, algorithm, act, limit)
    heavy = cluster.start_all_runners(cluster.make_runner("r", Learns, args, num=num))
    agent = cluster.get_agent("a")
    found = agent.evaluate(known.Identity, 5)
    assert heavy == [[]] * num and found.mean == found.lengths[0]
    assert algorithm != "ppo" or agent.env_steps >= 0.9 * num * limit


# On several nodes, in a new process: it does not depend on what tests did with Ray before

PROGRAM = """
    import json, threading, time
    from pathlib import Path
    from tempfile import mkdtemp
    from types import SimpleNamespace

    import ray
    from ray.cluster_utils import Cluster as Nodes

    from tandem.cluster import Cluster
    from tandem.errors import WorkerError
    from tests.cluster.agents import Documented, Recorder, Where

    nodes = Nodes(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    ray.init(nodes.address, log_to_driver=False, logging_level="ERROR")
    folder = Path(mkdtemp())
    cluster = Cluster(patience=60)
    (agent,) = cluster.make_agent("a", Recorder)
    runners = cluster.make_runner("r", Where, (folder, 2), num=2)  # the second finds no core yet
    found = []
    thread = threading.Thread(target=lambda: found.append(cluster.start_all_runners(runners)))
    thread.start()
    while not list(folder.iterdir()):
        time.sleep(0.05)
    began, answer = len(list(folder.iterdir())), agent.choose_action(0)
    joined = nodes.add_node(num_cpus=1)
    thread.join(120)
    print(json.dumps([began, answer, found[0], joined.node_id]))

    (agent,) = Cluster().make_agent("b", Recorder)
    answer = agent.choose_action(0)
    ray.shutdown()
    try:
        agent.choose_action(0)
    except WorkerError as error:
        print(json.dumps([answer, str(error)]))
    args = SimpleNamespace(cluster=Cluster(namespace="after"), lr=0.1)
    # in this process, whatever has become of `agent`
    print(json.dumps([Documented(args).run()[1:], ray.is_initialized()]))
    nodes.shutdown()
"""


@pytest.mark.timeout(200)
def test_runners_use_a_node_that_joins_and_who_has_left_is_told_so() -> None:
    shown = run_python(PROGRAM, timeout=180, env={"PYTHONFAULTHANDLER": "1"})
    (began, answer, found, joined), (again, left), (after, is_initialized) = shown
    assert began == answer == 1 and len(set(found)) == 2 and joined in found
    assert again == 1 and "agent 'b' was called after ray.shutdown()" in left
    assert after == [4, 0, 0] and not is_initialized
