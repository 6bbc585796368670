"""The advice about several devices, processes that were launched together, and Keras's backends."""

import json
import re
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tandem import trainer
from tandem.agents import companion_agents
from tandem.agents.companion_agents import CompanionDevices
from tandem.backends import torch_group
from tandem.backends.torch_devices import own_device
from tandem.cli.train import run
from tandem.examples.pytorch.DQN import DQN
from tandem.exploration import EpsGreedyQPolicy
from tandem.learning import launch
from tandem.spaces import Leaf
from tests.advice.net import advised, follow, follows, rows
from tests.advice.worlds import SHORT, made
from tests.helpers import COMPILED_LIGHTLY, run_python


def test_devices_that_torch_does_not_have(monkeypatch: Any) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(torch.distributed, "is_available", lambda: False)
        follow("torch_group.py:Group.__init__", made, {"algorithm": "dqn", "devices": 2})
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda number: None)
    (fix, *_) = advised("backends/__init__.py:too_few", own_device, "cuda", 1, 3).assigned()
    assert own_device("cuda", 1, fix["devices"]).index == 1
    for name, value in {"RANK": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)  # as torchrun does where there are more machines
    assert own_device("cuda", 1, 3).index == 0


@pytest.mark.slow
def test_a_companion_that_is_lost(tmp_path: Path) -> None:
    few = {"learning_starts": 8, "batch_size": 8, "train_every": 4, "devices": 2}
    session = trainer.session("dqn", "CartPole-v1", out=tmp_path / "run", **{**SHORT, **few})
    with follows("Companions._error") as advice:
        for event in session:
            if event.updates:
                session.backend.layout.group.followers.kill()
    assert "resume=" in advice.fix and advice.assigned()[-1] == {"devices": 1}
    result = trainer.train(resume=tmp_path / "run", devices=1)
    assert result.summary["env_steps"] == SHORT["steps"]


@pytest.mark.thorough
def test_advice_about_agents() -> None:
    agents = "from tests.advice import agent_devices_cases; agent_devices_cases.main()"
    assert run_python(agents, engine="tensorflow") == []


def torch_agent(strategy=2, frozen: bool = False, again: bool = False, loss=None) -> Any:
    """An agent of torch's that was trained on two devices, and is trained on with other weights."""
    agent = DQN(4, 8, 2)
    optimizer = torch.optim.SGD(agent.param, 0.01)
    for i in range(2 if frozen else 1):
        if i == 0 or again:
            agent.set(policy=EpsGreedyQPolicy(0.5), batch=4, pool_size=100)
        agent.param[0].requires_grad_(i == 0)
        agent.distributed_training(optimizer, strategy, 1, p=0, train_loss=loss)
    return agent


LOSS = {"loss": len, "strategy": 1}


@pytest.mark.thorough
@rows(
    ("check_trained", torch_agent, {"frozen": True}, "call agent.set", {"again": True}),
    ("distributed_training", torch_agent, LOSS, "leave train_loss", {"loss": None}),
)
def test_advice_about_agents_of_torch(row: Any) -> None:
    follow(*row)


def launched(
    framework: str = "torch", devices: int = 2, own: bool = False, cluster: str = ""
) -> launch.Launched:
    """A run of two processes that were launched together, up to where the other one is told."""
    store = SimpleNamespace(set=lambda name, text: None)
    options = SimpleNamespace(devices=devices, device_timeout=5.0, cluster=cluster, runners=0)
    given = {"own_network": own, "own_optimizer": False, "own_algorithm": None}
    plain = {"options": options, "to_json": dict, "network": ""}
    conf = SimpleNamespace(framework=framework, **plain, **given)
    leaves = {"observation": Leaf("box", (4,), "float32"), "action": Leaf("box", (1,), "float32")}
    pair = SimpleNamespace(count=2, runs=0, store=store)
    return launch.Launched(pair, conf, SimpleNamespace(**leaves))


@rows(
    ("check_launched", launched, {"framework": "jax"}, {"framework": "torch"}),
    ("check_launched 2", launched, {"devices": 3}, {"devices": 2}),
    ("check_launched 3", launched, {"cluster": "auto"}, "leave cluster out", {"cluster": ""}),
    ("check_launched 4", launched, {"own": True}, "without the launcher", {"own": False}),
    ("LaunchedDevices.__init__", CompanionDevices.of, {"given": 3}, "strategy=2", {"given": 2}),
)
def test_processes_that_were_launched(row: Any, monkeypatch: Any) -> None:
    pair = SimpleNamespace(count=2, rank=1)
    monkeypatch.setattr(companion_agents, "_launch", lambda: pair)
    follow(*row)


def test_the_environment_of_processes_that_were_launched(monkeypatch: Any) -> None:
    with follows("Others.error") as advice:
        raise launched().error(1, "has died")
    assert "resume=" in advice.fix  # tests/learning/test_launch.py does it
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        port = str(taken.getsockname()[1])
        place = {"MASTER_ADDR": "localhost", "MASTER_PORT": port}
        for name, value in {"RANK": "1", "WORLD_SIZE": "2", **place}.items():
            monkeypatch.setenv(name, value)
        advised("launched_store", torch_group.launched_store, 1.0)
    monkeypatch.setenv("WORLD_SIZE", "two")
    advice = advised("Launch.__init__", launch.find)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK")
    assert "RANK=0 and WORLD_SIZE=2; or unset RANK" in advice.fix and launch.find() is None
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    torch_group.launched_store(10.0)  # one process, with a port that it can open


def cluster(*workers: str) -> str:
    task = {"type": "worker", "index": 0}
    return json.dumps({"cluster": {"worker": workers, "ps": ["c:4000"]}, "task": task})


@pytest.mark.parametrize(
    "name, value, alone",
    [
        ("JAX_COORDINATOR_ADDRESS", "a:6543", {"JAX_NUM_PROCESSES": "1"}),
        ("TF_CONFIG", cluster("a:4000", "b:4000"), {"TF_CONFIG": cluster("a:4000")}),
        ("TF_CONFIG", cluster("a:4000", "b:4000"), {"TF_CONFIG": '["of another program"]'}),
    ],
)
def test_processes_of_jax_and_tensorflow_do_not_train_a_run_each(
    name: str, value: str, alone: Any, monkeypatch: Any, tmp_path: Path
) -> None:
    """A single one trains, as without the variable."""
    monkeypatch.setenv(name, value)
    words = ["ppo", "CartPole-v1", "--out", str(tmp_path / "run")]
    advice = advised("launch.py:find", run, words)
    assert not (tmp_path / "run").exists()
    for each, one in alone.items():
        monkeypatch.setenv(each, one)
    assert launch.find() is None
    for each in alone:
        monkeypatch.delenv(each)
    monkeypatch.delenv(re.match(r"unset (\w+);", advice.fix)[1], raising=False)
    assert launch.find() is None


CASES = "from tests.advice import keras_cases; keras_cases.main({device})"
THERE = "import json; from tandem.backends import choose; import keras; print(json.dumps(choose()))"
FOUR = """
import tensorflow as tf
{line}
tf.zeros(1)
from tandem import trainer
trainer.session("dqn", "CartPole-v1", framework="tensorflow", device="cpu", devices=4, plots=False)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "engine, other",
    [("jax", "tensorflow"), pytest.param("tensorflow", "jax", marks=[pytest.mark.thorough])],
)
def test_advice_on_keras(engine, other) -> None:
    """On TensorFlow that of devices alone, which is all that differs."""
    env = {"JAX_NUM_CPU_DEVICES": "2"} | (COMPILED_LIGHTLY if engine == "jax" else {})
    code = CASES.format(device=engine == "tensorflow")
    ((fix, devices),) = run_python(code, engine=engine, env=env)
    (told,) = re.findall(r"KERAS_BACKEND=(\w+) before anything imports keras", fix)
    assert run_python(THERE, env={"KERAS_BACKEND": told}) == [other]
    if engine == "jax":
        assert "JAX_NUM_CPU_DEVICES=4 before anything imports jax" in devices
    else:
        (line,) = re.findall(r"call (tf\.config\..*\* 4\)) where your program begins", devices)
        assert run_python(FOUR.format(line=line), engine=engine) == []
