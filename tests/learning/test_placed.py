"""Devices in places of a Ray cluster: the run of as many companions of this machine, whatever
happens to them. The cluster is a real one, which the tests start on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tandem
from tandem.errors import EngineError, ResumeError, SettingError, WorkerError
from tandem.learning.config import Options
from tandem.learning.devices import check_cluster
from tandem.parallel.ray import Places
from tandem.runs.folder import read_run
from tests.helpers import ROOT, run_python

ray = pytest.importorskip("ray")
torch = pytest.importorskip("torch")
slow, thorough = pytest.mark.slow, pytest.mark.thorough
GIVEN: dict[str, Any] = {
    "framework": "torch",
    "device": "cpu",
    "devices": 2,
    "steps": 304,
    "learning_starts": 60,
    "batch_size": 32,
    "hidden": (16,),
    "train_every": 8,
    "updates_per_call": 4,
    "eval_every": 150,
    "eval_episodes": 1,
    "final_episodes": 1,
    "log_every": 50,
    "checkpoint_seconds": 0.0,
    "plots": False,
    "tensorboard": False,
}
OFF_POLICY = ("learning_starts", "train_every", "updates_per_call")


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """Two of its GPUs are none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        ray.init(
            "local",
            num_cpus=3,
            num_gpus=2,
            include_dashboard=False,
            logging_level="error",
            log_to_driver=False,
        )
        yield
        ray.shutdown()


def actors() -> list[int]:
    """The processes of all that are there."""
    from ray._private.state import actors

    return [a["Pid"] for a in actors().values() if a["State"] not in ("DEAD", "PENDING_CREATION")]


def free(cpus: float = 3.0) -> bool:
    """Whether within some seconds no actor is left, and no place taken."""
    limit = time.monotonic() + 20
    while actors() or ray.available_resources().get("CPU") != cpus:
        if time.monotonic() > limit:
            return False
        time.sleep(0.05)
    return True


def prints(run: Path) -> list[str]:
    found = list(read_run(run).table["fingerprint"])
    assert len(found) > 4
    return found


def train(folder: Path, algorithm: str = "dqn", **given: Any) -> list[str]:
    all_of_them = {n: x for n, x in GIVEN.items() if algorithm == "dqn" or n not in OFF_POLICY}
    tandem.train(algorithm, "CartPole-v1", out=folder, **{**all_of_them, **given})
    return prints(folder)


def dropping(space: Any) -> Any:
    """A body with dropout, whose first weights are drawn anew in each process."""
    nn = torch.nn
    return nn.Sequential(nn.Linear(*space.shape, 8), nn.Dropout(0.2), nn.ReLU())


class Falling(torch.nn.Linear):
    """Raises, in processes other than the run's only, when it is called for the 30th time."""

    def __init__(self, main: int, space: Any) -> None:
        super().__init__(*space.shape, 8)
        self.main, self.calls = main, 0

    def forward(self, x: Any) -> Any:
        self.calls += 1
        if self.calls == 30 and os.getpid() != self.main:
            raise OSError("the device has fallen off the bus")
        return super().forward(x)


SAME: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "dqn": ("dqn", {}, {}),
    "ppo": ("ppo", {"envs": 4, "rollout": 16}, {}),
    "dropout, on four": ("dqn", {"network": dropping, "devices": 4}, {"runner_cpus": 0.5}),
    "without CPUs": ("dqn", {}, {"runner_cpus": 0.0}),
    "with workers": ("dqn", {"workers": 1, "envs": 2}, {}),
}


@slow
@pytest.mark.parametrize(
    "name", [n if n == "dqn" else pytest.param(n, marks=thorough) for n in SAME]
)
def test_it_is_the_run_of_companions_here(name: str, tmp_path: Path) -> None:
    algorithm, given, more = SAME[name]
    here = train(tmp_path / "here", algorithm, **given)
    assert train(tmp_path / "there", algorithm, cluster="auto", **given, **more) == here
    assert free()


@slow
def test_the_command_on_a_cluster_that_runs(tmp_path: Path) -> None:
    """Its process asks for a place beside those that others have, and gives it back."""
    command, out = words(tmp_path / "there", 304), tmp_path / "there"
    subprocess.run(command, check=True, env=environment(), capture_output=True, timeout=120)
    assert prints(out) == train(tmp_path / "here")
    assert free()


def words(out: Path, steps: int) -> list[str]:
    given = {n: x for n, x in GIVEN.items() if n not in ("plots", "tensorboard", "hidden")}
    given |= {"steps": steps, "cluster": ray.get_runtime_context().gcs_address, "out": out}
    flags = [str(w) for n, x in given.items() for w in (f"--{n.replace('_', '-')}", x)]
    quiet = ["--no-plots", "--no-tensorboard", "--quiet", "--hidden", "16"]
    return [sys.executable, "-m", "tandem", "train", "dqn", "CartPole-v1", *flags, *quiet]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OMP_NUM_THREADS": "1"}


@slow
@thorough
def test_they_end_with_a_run_that_is_killed(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with subprocess.Popen(words(out, 10**6), env=environment()) as run:
        limit = time.monotonic() + 60
        while not (out / "checkpoints" / "last.zip").is_file():
            assert time.monotonic() < limit and run.poll() is None
            time.sleep(0.05)
        assert len(actors()) == 1
        run.kill()
    assert free()


def lost(folder: Path, harm: Callable[[Any], None] | None, **given: Any) -> WorkerError:
    """What comes of a run to whose companion harm is done after a while."""
    own = {**GIVEN, "cluster": "auto", "out": folder, **given}
    run, done = tandem.session("dqn", "CartPole-v1", **own), harm is None
    with pytest.raises(WorkerError) as caught:
        for event in run:
            if not done and event.updates >= 40:
                harm(run.backend.layout.group.followers)
                done = True
    return caught.value


def killed(companions: Any) -> None:
    os.kill(actors()[0], signal.SIGKILL)


def killed_by_ray(companions: Any) -> None:
    ray.kill(companions.processes[0]._actor)


def stopped(companions: Any) -> None:
    os.kill(actors()[0], signal.SIGSTOP)


@slow
@pytest.mark.parametrize(
    ("harm", "how"),
    [
        (killed, "died: The actor died"),
        pytest.param(killed_by_ray, "died: The actor", marks=thorough),
        pytest.param(stopped, "stands still: it did not come to a sum", marks=thorough),
    ],
)
def test_one_that_is_lost_is_named_and_none_is_left(harm: Any, how: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    error = lost(run, harm, device_timeout=5.0)
    assert f"the process of rank 1, of devices=2, {how}" in str(error)
    assert "go on from the run's last checkpoint by resume=" in error.fix
    assert free()
    tandem.train(resume=run)
    assert prints(run) == train(tmp_path / "whole")
    assert free()


@slow
@thorough
def test_one_that_raises_is_named(tmp_path: Path) -> None:
    error = lost(tmp_path / "run", None, network=partial(fallen, os.getpid()))
    assert "rank 1, of devices=2, raised OSError: the device has fallen" in str(error)
    assert "mend what raised" in error.fix and free()


def fallen(main: int, space: Any) -> Any:
    return torch.nn.Sequential(Falling(main, space), torch.nn.ReLU())


@slow
@thorough
def test_one_that_dies_before_they_meet_is_named(tmp_path: Path, monkeypatch: Any) -> None:
    from tandem.backends.torch_devices import Layout

    opened, own = Layout.open, {**GIVEN, "cluster": "auto", "device_timeout": 5.0}
    monkeypatch.setattr(Layout, "open", lambda *given: (killed(None), opened(*given))[1])
    with pytest.raises(WorkerError, match="rank 1, of devices=2, died: The actor died"):
        tandem.session("dqn", "CartPole-v1", out=tmp_path / "run", **own)
    assert free()


@slow
@thorough
def test_runners_go_there_too(tmp_path: Path) -> None:
    own = {"envs": 2, "ahead": 1}
    here = train(tmp_path / "here", workers=1, **own)
    run = tandem.session(
        "dqn", "CartPole-v1", cluster="auto", runners=1, out=tmp_path / "there", **own, **GIVEN
    )
    assert len(actors()) == 2 and ray.available_resources()["CPU"] == 1.0
    for _ in run:
        pass
    assert prints(tmp_path / "there") == here and free()


@slow
def test_a_run_goes_on_there_and_here_again(tmp_path: Path) -> None:
    """On the cluster from step 160 on, from step 280 on in this process alone."""
    run = tmp_path / "run"
    tandem.train("dqn", "CartPole-v1", out=run, stop_at=160, **GIVEN)
    tandem.train(resume=run, cluster="auto", stop_at=280)
    found, whole = prints(run), train(tmp_path / "whole")
    assert whole[: len(found)] == found and free()
    result = tandem.train(resume=run, devices=1)
    assert result.summary["env_steps"] == 304 and "devices=1 after devices=2" in "".join(
        result.notes
    )


LOCK = threading.Lock()  # which cannot be pickled
locked = partial(lambda lock, space: dropping(space), LOCK)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "error", "what"),
    [
        ({"devices": 5, "batch_size": 40}, EngineError, r"devices=5, .* free are 3 of 3 CPUs"),
        # enough in all, and not on one machine
        ({"runner_cpus": 4.0}, EngineError, "no room for them, 4 CPUs each"),
        ({"devices": 1}, SettingError, "nothing that is to go there"),
        pytest.param(
            {"runners": 3, "envs": 4}, EngineError, "has 3 CPUs, and 4 are needed", marks=slow
        ),
        ({"network": locked}, SettingError, "cannot go to another process"),
        pytest.param({"batch_size": 33}, SettingError, "use batch_size=32", marks=slow),
    ],
)
def test_what_cannot_be_is_refused_soon(
    given: dict[str, Any], error: Any, what: str, tmp_path: Path
) -> None:
    own = {**GIVEN, "cluster": "auto", "worker_patience": 0.5, **given}
    began = time.monotonic()
    with warnings.catch_warnings(), pytest.raises(error, match=what):
        warnings.simplefilter("ignore")
        tandem.session("dqn", "CartPole-v1", out=tmp_path / "run", **own)
    assert time.monotonic() - began < 20
    assert free()  # though the traceback is still there


def test_engines_whose_devices_are_of_one_process_are_refused() -> None:
    for framework in ("jax", "tensorflow"):
        with pytest.raises(SettingError, match=f"{framework}', whose devices are this process's"):
            check_cluster(Options(cluster="auto", devices=2), framework)


def test_a_run_of_one_device_is_not_resumed_there(tmp_path: Path) -> None:
    train(tmp_path / "run", devices=1)
    with pytest.raises(ResumeError, match="no part on a cluster"):
        tandem.train(resume=tmp_path / "run", cluster="auto")


@pytest.mark.slow
def test_room_that_others_have_is_waited_for() -> None:
    first = Places("auto", 3, 1.0, False, 10.0)
    timer = threading.Timer(2.0, first.give_back)
    timer.start()
    with pytest.warns(RuntimeWarning, match="free are 1 of 3 CPUs: waiting up to 30 s"):
        second = Places("auto", 3, 1.0, False, 30.0)
    timer.join()
    second.give_back()
    assert free()


@slow
def test_each_has_a_gpu_of_its_own(monkeypatch: Any) -> None:
    """Ray's, which are none: this process has the first, and the other one sees the second."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    places = Places("auto", 2, 1.0, True, 10.0)
    actor = places.actor(1)
    actor.begin(os.getenv, "CUDA_VISIBLE_DEVICES")
    actor.answer(60.0)
    actor.ask("__str__")
    assert (places.own, actor.answer(10.0)) == (0, "1")
    with pytest.raises(EngineError, match="1 CPU and 1 GPU each; .* and 0 of 2 GPUs"):
        Places("auto", 2, 1.0, True, 0.1)
    places.give_back()
    assert free()


def test_the_gpu_of_a_place(monkeypatch: Any) -> None:
    """A process on a cluster sees its own only, and one of torchrun's those of its machine."""
    from tandem.backends.torch_devices import own_device

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", lambda number: None)
    assert own_device("cuda", 1, 2, 0).index == 0
    with pytest.raises(EngineError, match="torch finds 1 GPU"):
        own_device("cuda", 0, 2, 1)


KERAS = """
import json, os, sys
os.environ["KERAS_BACKEND"] = "torch"
import ray
import tandem
from pathlib import Path
from tandem.runs.folder import read_run

ray.init("local", num_cpus=1, include_dashboard=False, logging_level="error", log_to_driver=False)
given = json.loads(sys.argv[1]) | {"framework": "keras-torch"}
for name, more in (("here", {}), ("there", {"cluster": "auto"})):
    out = Path(sys.argv[2]) / name
    tandem.train("dqn", "CartPole-v1", out=out, **given, **more)
    print(json.dumps(list(read_run(out).table["fingerprint"])))
"""


@slow
@thorough
def test_keras_on_torch(tmp_path: Path) -> None:
    pytest.importorskip("keras")
    here, there = run_python(KERAS, json.dumps(GIVEN), str(tmp_path), engine="keras-torch")
    assert here == there and len(here) > 4


NODES = """
import json, sys, time
import ray
from ray.cluster_utils import Cluster
import tandem
from tandem.errors import EngineError, WorkerError

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
ray.init(address=cluster.address, logging_level="error", log_to_driver=False)
given = json.loads(sys.argv[1]) | {"cluster": cluster.address, "out": sys.argv[2]}
second = cluster.add_node(num_cpus=1)
try:
    tandem.session("dqn", "CartPole-v1", runner_cpus=2.0, worker_patience=0.0, **given)
except EngineError as error:
    print(json.dumps(str(error)))
run, error, removed = tandem.session("dqn", "CartPole-v1", **given), None, False


def nodes():
    from ray._private.state import actors

    return {a["Address"]["NodeID"] for a in actors().values() if a["State"] == "ALIVE"}


print(json.dumps(len(nodes())))
try:
    for event in run:
        if not removed and event.updates >= 40:
            removed = True
            cluster.remove_node(second)
except WorkerError as caught:
    error = caught
print(json.dumps(str(error)))
result = tandem.train(resume=sys.argv[2], devices=2)
print(json.dumps(result.summary["env_steps"]))
ray.shutdown()
cluster.shutdown()
"""


@slow
@thorough
def test_a_machine_that_is_lost(tmp_path: Path) -> None:
    """Two places of one CPU are none of two CPUs."""
    given = json.dumps(GIVEN | {"devices": 3, "batch_size": 36})
    refused, nodes, error, steps = run_python(
        NODES, given, str(tmp_path / "run"), engine="torch", timeout=200
    )
    assert "no room for them, 2 CPUs each; free are 2 of 2 CPUs" in refused
    assert nodes == 2 and steps == 304
    assert "of devices=3, died: " in error
