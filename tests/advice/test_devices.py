"""The advice about several devices."""

from __future__ import annotations

import json
import re
import socket
import textwrap
from types import SimpleNamespace
from typing import Any

import pytest

from tandem import trainer
from tests.advice.net import Case, follows
from tests.advice.upper import SHORT, made
from tests.helpers import run_python

TWO = {"algorithm": "dqn", "env": "CartPole-v1", "framework": "torch", "device": "cpu"}


def test_a_torch_without_its_distributed_package(monkeypatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    Case("backends/torch_group.py:Group.__init__", made, {**TWO, "devices": 2}).follow()


def test_more_devices_than_gpus(monkeypatch) -> None:
    torch = pytest.importorskip("torch")
    from tandem.backends.torch_devices import own_device

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda number: None)
    with follows("backends/__init__.py:too_few") as advice:
        own_device("cuda", 1, 3)
    assert own_device("cuda", 1, advice.assigned()[0]["devices"]).index == 1
    for name, value in {"RANK": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)  # as torchrun does where there are more machines
    assert own_device("cuda", 1, 3).index == 0


@pytest.mark.slow
def test_a_companion_that_is_lost(tmp_path) -> None:
    pytest.importorskip("torch")
    given = {"learning_starts": 8, "batch_size": 8, "train_every": 4, "out": tmp_path / "run"}
    run = trainer.session(**{**SHORT, **TWO, **given, "devices": 2})
    with follows("learning/companions.py:Companions._error") as advice:
        for event in run:
            if event.updates:
                run.backend.layout.group.followers.kill()
    (fix,) = advice.assigned()[-1:]
    assert "resume=" in advice.fix and fix == {"devices": 1}
    assert trainer.train(resume=tmp_path / "run", **fix).summary["env_steps"] == SHORT["steps"]


CASES = "from tests.advice import devices_cases; devices_cases.main()"
FOUR = """
    import json
    from tests.advice.devices_cases import made
    print(json.dumps(made("dqn", devices=4)))
"""


@pytest.mark.slow
def test_advice_on_jax() -> None:
    (fix,) = run_python(CASES, engine="jax")
    (told,) = re.findall(r"(JAX_NUM_CPU_DEVICES)=4 before anything imports jax", fix)
    assert run_python(FOUR, engine="jax", env={told: "4"}) == [json.loads("null")]


@pytest.mark.thorough
def test_advice_on_tensorflow() -> None:
    (fix,) = run_python(CASES, engine="tensorflow")
    (line,) = re.findall(r"call (tf\.config\..*\* 4\)) where your program begins", fix)
    program = f"import tensorflow as tf\n{line}\ntf.zeros(1)\n" + textwrap.dedent(FOUR)
    assert run_python(program, engine="tensorflow") == [json.loads("null")]


AGENTS = "from tests.advice import agent_devices_cases; agent_devices_cases.main()"


@pytest.mark.thorough
def test_advice_about_agents() -> None:
    assert run_python(AGENTS, engine="tensorflow") == []


def torch_agent(
    strategy: Any = 2, frozen: bool = False, again: bool = False, loss: Any = None
) -> Any:
    """An agent of torch's that was trained on two devices, and is trained on with other weights."""
    import torch

    from tandem.examples.pytorch.DQN import DQN
    from tandem.exploration import EpsGreedyQPolicy

    agent = DQN(4, 8, 2)
    optimizer = torch.optim.SGD(agent.param, 0.01)
    for i in range(2 if frozen else 1):
        if i == 0 or again:
            agent.set(policy=EpsGreedyQPolicy(0.5), batch=4, pool_size=100)
        agent.param[0].requires_grad_(i == 0)
        agent.distributed_training(optimizer, strategy, 1, p=0, train_loss=loss)
    return agent


@pytest.mark.thorough
def test_advice_about_agents_of_torch() -> None:
    pytest.importorskip("torch")
    key = "agents/companion_agents.py:Devices.check_trained"
    Case(key, torch_agent, {"frozen": True}, "call agent.set", {"again": True}).follow()
    key = "agents/distributed.py:DistributedTraining.distributed_training"
    Case(
        key, torch_agent, {"loss": len, "strategy": 1}, "leave train_loss", {"loss": None}
    ).follow()


def launched(framework="torch", devices=2, own=False, cluster=""):
    """A run of two processes that were launched together, up to where the other one is told."""
    from tandem.learning.launch import Launched
    from tandem.spaces import Leaf

    store = SimpleNamespace(set=lambda name, text: None)
    conf = SimpleNamespace(
        framework=framework,
        options=SimpleNamespace(devices=devices, device_timeout=5.0, cluster=cluster, runners=0),
        own_network=own,
        own_optimizer=False,
        own_algorithm=None,
        to_json=dict,
    )
    known = SimpleNamespace(
        observation=Leaf("box", (4,), "float32"), action=Leaf("box", (1,), "float32")
    )
    return Launched(SimpleNamespace(count=2, runs=0, store=store), conf, known)


def test_advice_about_processes_that_were_launched(monkeypatch) -> None:
    pytest.importorskip("torch")
    from tandem.backends import torch_group
    from tandem.learning import launch

    key = "learning/launch.py:check_launched"
    Case(key, launched, {"framework": "jax"}, "framework='torch'", {"framework": "torch"}).follow()
    key = "learning/launch.py:check_launched 2"
    Case(key, launched, {"devices": 3}, "devices=2", {"devices": 2}).follow()
    key, there = "learning/launch.py:check_launched 3", {"cluster": "auto"}
    Case(key, launched, there, "leave cluster out", {"cluster": ""}).follow()
    key = "learning/launch.py:check_launched 4"
    Case(key, launched, {"own": True}, "leave the launcher out", {"own": False}).follow()
    with follows("learning/launch.py:Others.error") as advice:
        raise launched().error(1, "has died")
    assert "resume=" in advice.fix  # tests/learning/test_launch.py does it
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        for name, value in {
            "RANK": "1",
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": str(taken.getsockname()[1]),
        }.items():
            monkeypatch.setenv(name, value)
        with follows("backends/torch_group.py:launched_store"):
            torch_group.launched_store(1.0)
    monkeypatch.setenv("WORLD_SIZE", "two")
    with follows("learning/launch.py:Launch.__init__") as advice:
        launch.find()
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
    ("name", "value"),
    [("JAX_COORDINATOR_ADDRESS", "a:6543"), ("TF_CONFIG", cluster("a:4000", "b:4000"))],
)
def test_processes_of_jax_and_tensorflow_do_not_train_a_run_each(
    name: str, value: str, monkeypatch, tmp_path
) -> None:
    from tandem.cli.train import run
    from tandem.learning import launch

    monkeypatch.setenv(name, value)
    with follows("learning/launch.py:find") as advice:
        run(["ppo", "CartPole-v1", "--out", str(tmp_path / "run")])
    assert not (tmp_path / "run").exists()
    monkeypatch.delenv(re.match(r"unset (\w+);", advice.fix)[1])
    assert launch.find() is None


@pytest.mark.parametrize(
    "given",
    [
        {"JAX_COORDINATOR_ADDRESS": "a:6543", "JAX_NUM_PROCESSES": "1"},
        {"TF_CONFIG": cluster("a:4000")},
        {"TF_CONFIG": '["of another program"]'},
    ],
)
def test_a_single_process_of_jax_or_tensorflow_trains(given: dict[str, str], monkeypatch) -> None:
    from tandem.learning import launch

    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert launch.find() is None


def test_advice_about_an_agent_in_processes_that_were_launched(monkeypatch) -> None:
    pytest.importorskip("torch")
    from tandem.agents import companion_agents

    launch = SimpleNamespace(count=2, rank=1)
    monkeypatch.setattr(companion_agents, "_launch", lambda: launch)
    key = "agents/companion_agents.py:LaunchedDevices.__init__"
    Case(key, companion_agents.Devices.of, {"given": 3}, "strategy=2", {"given": 2}).follow()
