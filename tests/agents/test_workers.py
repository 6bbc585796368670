"""Agents that several processes train together, as TensorFlow's workers on this machine."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import ROOT, expect_installed, run_python
from tests.learning.test_launch import free_port

SNIPPET = Path(__file__).parent / "snippets" / "keras_workers.py"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
thorough = pytest.mark.thorough

PROGRAMS = """
import json, os, sys
from tests.agents import documented
found = documented.run(documented.WORKERS, "tensorflow", sys.argv[2:])
print(json.dumps(found), flush=True)
if set(found.values()) == {True}:  # after an error the other worker learns that this one is gone
    sys.stdin.read()
os._exit(0)  # TensorFlow's own end waits for the other workers
"""


def task(cluster: dict[str, list[str]], kind: str, index: int, *words: Any) -> dict[str, Any]:
    """How to start a task of a cluster: arguments of `subprocess.Popen`."""
    config = {"cluster": cluster, "task": {"type": kind, "index": index}}
    env = {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    env = {**os.environ, **env, "TF_CONFIG": json.dumps(config)}
    return {"args": [sys.executable, *map(str, words)], "env": env}


def together(folder: Path, *words: str, codes: Any = (0, 0), snippet: Path = SNIPPET) -> list[Any]:
    """What each of two workers found, or None. Both live until both have answered, since the other
    may still have to fetch what one has sent; one that is to be killed outlives the first."""
    expect_installed("tensorflow")
    cluster = {"worker": [f"localhost:{free_port()}" for _ in range(2)]}
    errors = [folder / f"{i}.err" for i in range(2)]
    each = []
    for i in range(2):
        started = task(cluster, "worker", i, snippet, folder, *words)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        each.append(subprocess.Popen(**started, **pipes, stderr=errors[i].open("w")))
    try:
        said = [each[0].stdout.readline()]
        if codes[1] == -signal.SIGKILL:
            each[1].kill()
        said.append(each[1].stdout.readline())
        for process in each:
            process.communicate(timeout=60)
    finally:
        for process in each:
            process.kill()
    told = [file.read_text(encoding="utf-8")[-2000:] for file in errors]
    assert tuple(p.returncode for p in each) == codes, told
    return [json.loads(x) if x.strip() else None for x in said]


def alike(one: Any, other: Any) -> bool:
    """Whether two workers have come to the same weights by as many updates."""
    keys = ("weights", "updates", "loss")
    return one["updates"] > 0 and all(one[k] == other[k] for k in keys)


def test_gradients_are_of_all_workers_rows(tmp_path) -> None:
    one, other = together(tmp_path, "mean")
    for name in ("mean", "own loop", "mean, PR", "own loop, PR"):
        assert alike(one[name], other[name]), name
        found = one[name]
        # three steps in each of four rounds, two rows of each worker: 2, 3, 5, 6 updates
        assert (found["updates"], found["episodes"]) == (2 + 3 + 5 + 6, 4)
        if "PR" not in name:  # rewards of 1 and of 3; the first worker's weight was 0
            assert found["weights"] == [pytest.approx(-0.1 * 2.0 * found["updates"], rel=1e-5)]
    twice = "CTL made 4 updates for 2 minibatches. | call self.distributed_train_step"
    assert twice in one["twice"]
    assert "batch_size_fn is called in 2 workers" in other["hooks"]
    assert "distributed_train_step was given a tuple outside of CTL." in one["outside"]


@thorough
def test_the_first_worker_ends_the_training_of_all(tmp_path) -> None:
    one, other = together(tmp_path, "ends")
    for name in ("criterion", "stop", "went on", "not by another"):
        assert alike(one[name], other[name]), name
    assert one["criterion"]["episodes"] == 2
    assert one["stop"]["updates"] == 9  # that of the callback and those before it
    assert one["went on"]["updates"] > one["stop"]["updates"]
    assert one["not by another"]["episodes"] == other["not by another"]["episodes"] == 3


@thorough
def test_each_worker_goes_on_from_its_own_file(tmp_path) -> None:
    for found in together(tmp_path, "files"):
        assert found == {"files": True, "rewards": True, "own": 6}


@thorough
def test_every_mode(tmp_path) -> None:
    one, other = together(tmp_path, "modes")
    for name in ("PPO", "PPO by batches", "HER", "MARL", "processes"):
        assert alike(one[name], other[name]), name


@thorough
@pytest.mark.parametrize(
    ("how", "codes"), [("raises", (0, 0)), ("dies", (0, 7)), ("stops", (0, -signal.SIGKILL))]
)
def test_a_worker_that_fails_is_named(tmp_path, how: str, codes: tuple[int, int]) -> None:
    one, other = together(tmp_path, "fails", how, codes=codes)
    assert one["seconds"] < 60, "after the failure, not after the start"
    wanted = "worker 1 of 2 failed with an error;" if how == "raises" else "has lost worker 1;"
    assert one["error"].startswith("WorkerError: ") and wanted in one["error"]
    assert other is None or other["error"] == "mine"


@thorough
@pytest.mark.parametrize("name", ["DQN", "PPO", "DDPG_HER", "MADDPG", "pool DQN"])
def test_a_documented_program_runs_as_a_cluster_of_one_and_of_two(tmp_path, name: str) -> None:
    """Alone in its processes: TensorFlow's workers lose each other over a second strategy."""
    script = tmp_path / "programs.py"
    script.write_text(PROGRAMS)
    alone = run_python(PROGRAMS, "", name, engine="tensorflow", timeout=380)
    for found in (*alone, *together(tmp_path, name, snippet=script)):
        assert found == {name: True}, found[name]


@thorough
def test_parameter_servers(tmp_path) -> None:
    expect_installed("tensorflow")
    ports = [f"localhost:{free_port()}" for _ in range(4)]
    cluster = {"ps": ports[:1], "worker": ports[1:3], "chief": ports[3:]}
    snippet = SNIPPET.parent / "keras_servers.py"
    tasks = [("ps", 0), ("worker", 0), ("worker", 1)]
    started = [task(cluster, *each, snippet, "serve") for each in tasks]
    servers = [subprocess.Popen(**each, stderr=subprocess.DEVNULL) for each in started]
    try:
        chief = task(cluster, "chief", 0, snippet, tmp_path)
        done = subprocess.run(**chief, capture_output=True, timeout=300)
    finally:
        for server in servers:
            server.kill()
            server.wait()
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found.pop("updates") > 10 and found.pop("coordinator") == "ClusterCoordinator"
    assert (found.pop("episodes"), found.pop("stopped")) == (6, 0.0)
    assert found == dict.fromkeys(("moved", "losses", "reported", "restored", "not finite"), True)
