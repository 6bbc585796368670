"""Runs with runners and actor-learners on a real Ray cluster: the run of one process."""

import os
import signal
import socket
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import tandem
from tandem.cli.train_arguments import with_address
from tandem.errors import EngineError, ResumeError, SettingError, WorkerError
from tandem.runs.callbacks import Callback
from tandem.workers.ray import _running_cluster, connect
from tandem.workers.ray_probe import check_cluster
from tests.helpers import run_python
from tests.learning.test_asynchronous import REPLAY, SMALL, TURNS
from tests.parallel import same_runs
from tests.parallel.processes import program
from tests.parallel.same_runs import ALIKE, FAST, SETTINGS, faulty, rows, sampled, trained
from tests.runs.shared import finished
from tests.runs.test_curriculum import COURSE, ON_POLICY, Corridor, Course

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("on_ray")]


@pytest.mark.parametrize("name", sampled(ALIKE, ("ppo", "mappo")))
def test_a_run_with_runners_is_the_run_of_one_process(name: str, tmp_path: Path) -> None:
    here = trained(tmp_path / "here", name, ahead=0, workers=0)
    same_runs.assert_alike(here, trained(tmp_path / "there", name, ahead=0, runners=2))


@pytest.mark.parametrize("name", sampled(("dqn", "acer"), ("dqn",)))
def test_ahead_they_are_the_workers_of_a_pool(name: str, tmp_path: Path) -> None:
    there, here = (trained(tmp_path / x, name, ahead=2, **{x: 2}) for x in ("runners", "workers"))
    assert rows(there) == rows(here)  # to the bit, the lag included


@pytest.mark.parametrize(
    "name, ahead", sampled([("ppo", 0), ("dqn", 2), ("a2c with a memory", 0)], (("dqn", 2),))
)
def test_it_is_resumed_exactly(name: str, ahead: int, tmp_path: Path) -> None:
    again = {"cluster": ray.get_runtime_context().gcs_address}
    same_runs.assert_resumed_exactly(tmp_path, name, again, runners=2, ahead=ahead)


def test_what_is_called_in_their_environments_comes_as_in_workers(tmp_path: Path) -> None:
    given = COURSE | ON_POLICY | {"callbacks": [Course()]}
    for name in ("runners", "workers"):
        tandem.train("ppo", Corridor, out=tmp_path / name, **given, **{name: 2})
    same_runs.assert_alike(tmp_path / "runners", tmp_path / "workers")


DIVERGED = "ZeroDivisionError: the simulator diverged"
FAULTS = {"killed": "died: ", "raises": DIVERGED, "stands still": "did not respond for 3 s"}


@pytest.mark.parametrize("fault", sampled(FAULTS, ("killed", "stands still")))
def test_a_lost_runner_is_started_again_by_ray_and_named(fault: str, tmp_path: Path) -> None:
    given = {**SETTINGS, "worker_patience": 3.0 if fault == "stands still" else 60.0}
    run = tandem.session("a2c", faulty(tmp_path, fault), runners=2, out=tmp_path / "run", **given)
    actors = [w.process._actor for w in run.loop.collector.group.workers]
    with pytest.warns(UserWarning, match=FAULTS[fault]) as caught:
        last = [*run][-1]
    said = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
    assert len(said) == 1 and "of 3)" in said[0] and "worker " in said[0]
    assert fault != "raises" or "in _go_wrong" in said[0]
    assert last.reason == "steps" and run.loop.env_steps == 1600
    workers = run.loop.collector.group.workers
    assert sorted(w.generation for w in workers) == [0, 1]
    same = [w.process._actor == actor for w, actor in zip(workers, actors, strict=True)]
    # one that raised has closed its environments and ended, so another actor takes its place
    assert sorted(same) == ([False, True] if fault == "raises" else [True, True])


def test_above_the_budget_it_ends_with_an_error_and_a_checkpoint(tmp_path: Path) -> None:
    env = faulty(tmp_path, "raises", times=2)
    raises = pytest.raises(WorkerError, match="the simulator diverged")
    with warnings.catch_warnings(), raises as caught:
        warnings.simplefilter("ignore")
        tandem.train("a2c", env, runners=1, out=tmp_path / "run", worker_restarts=1, **SETTINGS)
    assert "in _go_wrong" in str(caught.value) and "1 had been restarted" in str(caught.value)
    with warnings.catch_warnings():
        # Ray may take an actor for unavailable once more, soon after others were killed
        warnings.simplefilter("ignore")
        again = tandem.train(env=env, resume=tmp_path / "run")
    assert again.summary["env_steps"] == 1600


@pytest.mark.parametrize("algorithm", sampled(("acer", "nstep_q"), ()))
def test_actor_learners_are_those_of_this_machine(algorithm: str, tmp_path: Path) -> None:
    given = {**SMALL, **TURNS, **REPLAY}
    here = finished(tandem.session(algorithm, "CartPole-v1", **given))
    run = tandem.session(algorithm, "CartPole-v1", cluster="auto", out=tmp_path / "run", **given)
    finished(run, 250)
    there = finished(tandem.session(resume=tmp_path / "run"))
    assert here.fingerprint() == there.fingerprint()
    assert there.loop.learner.updates == here.loop.learner.updates > 60


def test_an_actor_learner_that_is_killed_begins_anew(tmp_path: Path) -> None:
    given = {**SMALL, **REPLAY, "learners": 2, "steps": 1200, "cluster": "auto"}
    run = tandem.session("acer", faulty(tmp_path, "killed"), **given)
    with pytest.warns(UserWarning, match="died: "):
        finished(run)
    lives = [w.generation for w in run.loop.collector.group.workers]
    assert run.loop.env_steps >= 1200 and sorted(lives) == [0, 1]


# picklable as little as a lock is
OWN = partial(lambda lock: gymnasium.make("CartPole-v1"), threading.Lock())


def test_what_cannot_be_is_refused_before_anything_runs(tmp_path) -> None:
    tandem.train("a2c", "CartPole-v1", out=tmp_path / "run", stop_at=320, **SETTINGS)
    with pytest.raises(ResumeError, match="does not use a cluster"):
        tandem.train(resume=tmp_path / "run", cluster="auto")
    wide = {"envs": 4, "rollout": 64}
    for given, error, what in (
        ({"runners": 2, "workers": 1, "envs": 4}, SettingError, "runners=2 and workers=1"),
        ({**wide, "runners": 5}, SettingError, "runners=5 for 4 environments"),
        ({"runners": -1}, SettingError, "runners=-1"),
        ({"runners": 1, "cluster": "127.0.0.1:1"}, EngineError, "this process is connected to"),
        ({"runners": 1, "cluster": "ray://127.0.0.1:10001"}, EngineError, "HOST:PORT"),
        ({**wide, "runners": 4, "worker_patience": 0.5}, EngineError, "has 3 CPUs, but 4 are need"),
        ({"runners": 1, "env": OWN}, SettingError, "cannot be pickled"),
    ):
        with warnings.catch_warnings(), pytest.raises(error, match=what):
            warnings.simplefilter("ignore")
            tandem.session("ppo", **{"env": "CartPole-v1"} | given, **FAST)


def test_the_address_may_be_left_out() -> None:
    for given in ("ppo E --cluster --runners 2", "--cluster ppo E", "ppo E --cluster"):
        expected = given.replace("--cluster", "--cluster=auto")
        assert with_address(given.split()) == expected.split()
    for given in ("--cluster 10.0.0.1:6379 ppo", "--cluster=10.0.0.1:6379"):
        assert with_address(given.split()) == given.split()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
def test_who_is_no_cluster_is_told_soon(answer: bytes) -> None:
    """As Ray's own dashboard is none, whose address is the one that a browser shows."""

    def serve() -> None:
        with listener.accept()[0] as line:
            line.recv(64)
            line.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as pool:
        pool.submit(serve)
        with pytest.raises(OSError, match="no Ray cluster"):
            check_cluster(f"127.0.0.1:{listener.getsockname()[1]}")
    check_cluster(ray.get_runtime_context().gcs_address)


def test_a_cluster_here_is_found_and_a_silent_address_told_soon(tmp_path, monkeypatch) -> None:
    with pytest.raises(OSError, match="refused"):
        check_cluster("127.0.0.1:1")
    check_cluster("auto")
    assert connect("auto").is_initialized()
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    assert _running_cluster() == "local"
    note, here = tmp_path / "ray" / "ray_current_cluster", ray.get_runtime_context().gcs_address
    note.parent.mkdir()
    note.write_text("127.0.0.1:1")
    assert _running_cluster() == "local"
    note.write_text(f"{here}\n")
    assert _running_cluster() == here
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert _running_cluster() == "10.0.0.1:6379"


KERAS = """
import json
import ray
import tandem
from tests.collect.own_networks import body

ray.init("local", num_cpus=1, include_dashboard=False, logging_level="error", log_to_driver=False)
given = {"steps": 192, "envs": 2, "rollout": 16, "batch_size": 16, "plots": False, "seed": 1}
given |= {"eval_episodes": 0, "network": body, "vectorization": "plain"}
runs = [tandem.session("ppo", "CartPole-v1", **given, runners=n) for n in (0, 1)]
assert [[*run][-1].reason for run in runs] == ["steps"] * 2
weights = [{n: x for n, x in run.backend.state().items() if x.dtype == "float32"} for run in runs]
apart = max(float(abs(weights[0][n] - weights[1][n]).max()) for n in weights[0])
print(json.dumps([apart, runs[1].loop.learner.updates]))
"""


@pytest.mark.thorough  # as companions here: tests/parallel/test_pool.py
def test_layers_of_ones_own_act_by_keras_on_the_engine_of_the_run() -> None:
    ((apart, updates),) = run_python(KERAS, engine="jax", timeout=200)
    assert apart < 1e-4 and updates > 0


TWO_NODES = """
import json, sys, threading, time, warnings
import ray
from ray.cluster_utils import Cluster
import tandem
from tandem.learning.events import BatchEnd

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
ray.init(address=cluster.address, logging_level="error", log_to_driver=False)
said, made = [], []
answers, sys.stdout = sys.stdout, sys.stderr  # Ray writes what went wrong to stdout
warnings.showwarning = lambda message, *_: said.append(str(message))
given = {"steps": 4000, "envs": 2, "rollout": 8, "hidden": (8,), "framework": "torch"}
given |= {"eval_episodes": 0, "plots": False}
waiting = threading.Thread(
    target=lambda: made.append(tandem.session("a2c", "CartPole-v1", runners=2, **given))
)
waiting.start()
while not said:
    time.sleep(0.05)
second = cluster.add_node(num_cpus=1)  # Ray wants that in the main thread
waiting.join()
(run,) = made


def nodes():
    from ray._private.state import actors

    return sorted(a["Address"]["NodeID"] for a in actors().values() if a["State"] == "ALIVE")


before, third = nodes(), None
for event in run:
    if third is None and isinstance(event, BatchEnd) and event.env_steps > 1000:
        third = cluster.add_node(num_cpus=1)
        cluster.remove_node(second)
    if isinstance(event, BatchEnd) and event.env_steps > 3900:
        after = nodes()
lives = sorted(w.generation for w in run.loop.collector.group.workers)
found = [len(set(before)), len(set(after)), before == after, lives, run.loop.env_steps, said]
print(json.dumps(found), file=answers, flush=True)
ray.shutdown()
cluster.shutdown()
"""


def test_nodes_that_join_are_used_and_runners_leave_those_that_are_lost() -> None:
    ((before, after, same, lives, steps, said),) = run_python(TWO_NODES, timeout=200)
    assert before == after == 2 and not same and lives == [0, 1] and steps == 4000
    assert "the cluster has 1 CPUs, but 2 are needed: waiting" in said[0]
    assert "died: " in said[1] and len(said) == 2


class Killed(Callback):
    batches = 0

    def on_batch_end(self, event: Any) -> None:
        self.batches += 1
        if self.batches == 20:
            os.kill(os.getpid(), signal.SIGKILL)


def killed(folder: Path | str, **more: Any) -> None:
    given = FAST | dict(runners=2, steps=3000, checkpoint_seconds=0.0, seed=3, envs=4, hidden=(8,))
    given |= {"train_every": 16, "updates_per_call": 4, "learning_starts": 100}
    tandem.train("dqn", "CartPole-v1", out=folder, **given, **more)


KILLED = """
import sys
from tests.parallel.test_ray import Killed, killed

killed(sys.argv[1], callbacks=[Killed()])
"""


def test_a_learner_that_is_killed_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    killed(tmp_path / "whole")
    address = ray.get_runtime_context().gcs_address
    with program(KILLED, tmp_path / "parts", RAY_ADDRESS=address) as run:
        assert run.wait(100) == -signal.SIGKILL
    assert len(rows(tmp_path / "parts")) < len(rows(tmp_path / "whole"))
    tandem.train(resume=tmp_path / "parts")
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole")
