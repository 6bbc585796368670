"""The advice of agents and runners on a cluster, in one process, without Ray; and of a cluster of
Ray that was left, or that is not there."""

import gc
import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from tandem import trainer
from tandem.cluster import Agent, AlgorithmAgent, Cluster, Runner, ray_actors
from tandem.cluster.ray_actors import Namespace
from tandem.cluster.runner import construct
from tandem.learning.events import BatchEnd
from tandem.workers import ray as bridge
from tests.advice.net import advised, follow, follows, rows
from tests.advice.worlds import SHORT, installs
from tests.cluster.agents import Counter
from tests.cluster.test_local import fresh, here, make_agents
from tests.helpers import ROOT
from tests.test_trainer import SMALL


class Needs(Runner):
    def __init__(self, env: Any, seed: int, size: int) -> None:
        """Needs more than a runner is given, and keeps none of it."""

    def run(self) -> tuple[int, int]:
        return self.rank, self.local_rank


class Takes(Needs):
    def __init__(self, args: Any) -> None:
        super().__init__(args.env, args.seed, args.size)


def runner(runner_class: Any, args: Any = None) -> None:
    assert construct(runner_class, args, 0, 0, here=True).run() == (0, 0)


class Acts(Agent):
    """Its network has a name that nobody looks for, or is `called` so."""

    def __init__(self, sync: bool = True, called: str = "brain") -> None:
        super().__init__(sync)
        setattr(self, called, torch.nn.Linear(1, 1))

    choose_action = update = lambda self, *given: 0


class Fires(Acts):
    def _sync_model(self) -> None:
        self._fire({"weight": self.brain.weight.detach().numpy()})

    def _update_model(self, param: Any) -> None:
        self.brain.load_state_dict(param)


def learn(agent_class: Any = Acts, **given: Any) -> None:
    (agent,) = make_agents(fresh(), "agent", agent_class, sync=False, **given)
    agent.update(1)


def learner(algorithm: str = "dqn", **given: Any) -> dict[str, Any]:
    env = gymnasium.make("CartPole-v1")
    own = {"observation_space": env.observation_space, "action_space": env.action_space}
    return {"algorithm": algorithm, "framework": "torch", **own, **given}


SEEDED = partial(AlgorithmAgent, **learner())
NEEDS = {"runner_class": Needs, "args": SimpleNamespace(env=0, seed=1, size=2)}


@rows(
    ("Cluster.__init__", Cluster, {"patience": -1.0}, {"patience": 0}),
    ("Cluster.__init__ 2", Cluster, {"checkpoint_seconds": -1.0}, {"checkpoint_seconds": 0}),
    ("Cluster.__init__ 3", Cluster, {"restarts": -2}, {"restarts": -1}),
    ("runner.py:_arguments", runner, NEEDS, "into args", {"runner_class": Takes}),
    ("Agent._acting", learn, {}, "one of these names", {"called": "actor"}),
    ("Agent._acting", learn, {}, "override _sync_model", {"agent_class": Fires}),
    ("algorithm_agent.py:_config 2", SEEDED, {"seed": -1}, "give seed=0", {"seed": 0}),
)
def test_clusters(row: Any) -> None:
    follow(*row)


def test_proxies_in_one_process_that_are_not_stepped_in_turn() -> None:
    def proxies() -> tuple[Any, Any]:
        cluster = fresh()
        small = {"rollout": 8, "batch_size": 16, "epochs": 1, "hidden": (4,), "envs": 2}
        (one,) = make_agents(cluster, "agent", AlgorithmAgent, **learner("ppo", **small))
        return one, partial(here, cluster, "agent")

    def step(proxies: list[Any], n: int = 0) -> None:
        s = np.zeros((n, 4) if n else 4, np.float32)
        for each in proxies:
            a, zeros = each.choose_action(s), np.zeros(n or ())
            assert a is not None
            each.update(s, a, zeros, s, zeros, zeros)

    one, another = proxies()
    other = another()
    step([one] * 3)
    with follows("LocalProxy._call") as advice:
        for _ in range(8):
            step([one, other])
    assert "in turn from the first step" in advice.fix and "one proxy the obs" in advice.fix
    step([other] * 3)  # what was waited for comes
    step([one])
    assert one.env_steps == 16
    (one, another), (alone, _) = proxies(), proxies()
    pair = [one, another()]
    for _ in range(24):
        step(pair)
        step([alone], n=2)
    assert one.env_steps == alone.env_steps == 48


def test_names_that_are_too_long_for_a_file_and_flags_of_other_steps(tmp_path: Path) -> None:
    def named(name: str) -> None:
        make_agents(Cluster(namespace=name, folder=tmp_path), name, Counter)

    follow("StateStore._file", named, {"name": "a" * 201}, "shorten it.", {"name": "a" * 190})
    s = np.zeros(4, np.float32)
    (agent,) = make_agents(fresh(), "agent", AlgorithmAgent, **learner())

    def step(over: Any) -> None:
        agent.update(s, agent.choose_action(s), (0.0,), s, over)

    follow("sampler.py:_flags", step, {"over": [False, True]}, "one for each", {"over": [False]})


def test_parts_of_a_cluster_that_are_gone(monkeypatch: Any) -> None:
    """Found by name, without Ray."""
    one, names = Cluster(namespace="one", patience=0.01), Namespace("one", 0.01, 0, 1.0, None)
    context = SimpleNamespace(gcs_address="here")
    found: dict[str, Any] = {}
    monkeypatch.setattr(
        ray_actors, "library", lambda: SimpleNamespace(get_runtime_context=lambda: context)
    )
    monkeypatch.setattr(ray_actors, "identity", lambda: "runner/r/0")
    monkeypatch.setattr(Namespace, "find", lambda self, name: found.get(name))
    monkeypatch.setattr(Namespace, "names", lambda self, kind: [])
    monkeypatch.setattr(Cluster, "_connect", lambda self: names)
    monkeypatch.setattr(Cluster, "_agent_actor", lambda *number: None)
    assert advised("Cluster.get_agent", one.get_agent, "agent", act="loca").quoted() == "local"
    advice = advised("Cluster.get_runner", one.get_runner, "runner")
    assert advice.fix.startswith("call make_runner('runner', ...) first (waited 0.01 s")
    proxy = partial(one._proxy, names, "a", 0, SimpleNamespace(sync=False, agent_class=Counter), "")
    advice = advised("Cluster._proxy 2", proxy)
    assert "make_agent creates a new agent under another name" in advice.fix
    assert advised("Namespace.store", names.store).fix == "restart that program."
    found |= {"agent/a/0/copy": object(), ray_actors.STORE: object()}
    assert proxy()._copy.name == "the copy of agent 'a'"
    assert names.store() is not None
    for name in ("name", "namespace", "lifetime", "get_if_exists"):
        given, then = {"resource": {name: 1}, "cpus": 1.0}, {"resource": {"num_cpus": 0}}
        follow("Namespace._options", names._options, given, "leave these out", then)


def test_where_ray_or_posix_is_missing(monkeypatch: Any) -> None:
    with monkeypatch.context() as patched:
        patched.delitem(bridge.sys.modules, "ray", raising=False)
        patched.setattr(bridge.importlib.util, "find_spec", lambda name: None)
        advice = advised("workers/ray.py:library", bridge.library)
    assert any(package.startswith("ray") for package in installs(advice.fix))
    train = partial(trainer.train, "ppo", "CartPole-v1", framework="torch", steps=32, **SMALL)
    with monkeypatch.context() as patched:
        patched.setattr("tandem.platforms.os", SimpleNamespace(**vars(os) | {"name": "nt"}))
        advice = advised("platforms.py:check_processes", train, workers=1)
        assert advice.fix == "train without them, one seed after another."
        train()


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_runs_whose_cluster_was_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No call makes Ray start a new cluster, not even those that close what is left."""
    ray = pytest.importorskip("ray")
    local = {"include_dashboard": False, "logging_level": "ERROR", "log_to_driver": False}
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")
    ray.init("local", num_cpus=1, **local)
    try:
        given = {**SHORT, "steps": 64, "rollout": 8, "envs": 2, "runners": 1, "runner_cpus": 0.4}
        run = trainer.session("a2c", "CartPole-v1", out=tmp_path / "run", save_every=16, **given)
        abandoned = trainer.session("a2c", "CartPole-v1", **given)
        events = iter(run)
        next(event for event in events if isinstance(event, BatchEnd) and event.env_steps >= 32)
        ray.shutdown()
        advice = advised("workers/ray.py:check_joined", list, events)
        del abandoned
        gc.collect()
        assert not ray.is_initialized()
        assert "tandem.train(resume=...)" in advice.fix
        advice = advised("workers/ray.py:connect 3", bridge.connect, "127.0.0.1:1")
        ray.init("local", num_cpus=1, **local)
        assert trainer.train(resume=tmp_path / "run").reason == "steps"
    finally:
        ray.shutdown()
    start = pytest.importorskip("ray.scripts.scripts").start
    assert "`ray start --head --port=6379`" in advice.fix
    assert {"head", "port"} <= {option.name for option in start.params}
