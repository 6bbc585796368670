"""The advice about agents of a user's class, and about the makers of `drlbox`."""

import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import tandem
from tandem.agents import assembly
from tandem.agents.custom_loop import CustomLoop
from tandem.agents.distributed import check_workers
from tandem.agents.rounds import Rounds
from tandem.backends.backend import Outcome
from tandem.exploration import GreedyQPolicy, OrnsteinUhlenbeckProcess
from tandem.types import Batch
from tests.advice.net import advised, follow, rows
from tests.agents.agents import Clock, Probe, fit, trained
from tests.drlbox.test_makers import SHORT


def probe(*envs: Any, **members: Any) -> Any:
    """Makes a Probe with other members, for one or several environments."""
    return lambda: type("Own", (Probe,), members)([make() for make in envs] or None)


def learn(make: Any = Probe, **choices: Any) -> Any:
    return trained(make(), 1, **choices)


def reporting(report: Any) -> Any:
    """A Probe that reports a function of its errors [B] to prioritized_replay."""

    def call(self: Any, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        TD = self.net(s)[:, 0] - r
        if report is not None:
            self.prioritized_replay.update(report(TD))
        return TD**2

    return probe(__call__=call)


def boxed() -> Any:
    """A clock that takes two numbers."""
    clock = Clock()
    clock.action_space = spaces.Box(-1, 1, (2,), np.float32)
    return clock


class Rooted(Clock):
    """Goes to other processes, and cannot be copied within one."""

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("I hold a window")


def silent() -> Any:
    """A clock that does not say how many actions it has."""
    clock = Clock()
    del clock.action_space
    return clock


NOISY = {"policy": None, "noise": OrnsteinUhlenbeckProcess(0.1)}
NUMBERS = probe(boxed, action=lambda self, s: self.net(s))
CHOICES = probe(silent, action=lambda self, s: self.net(s).argmax(-1))
SAID = probe(Clock, action=lambda self, s: self.net(s).argmax(-1))
CLOCK = Clock()
TWICE, BOTH = probe(lambda: CLOCK, lambda: CLOCK), probe(Clock, Clock)
MEAN_LOSS = {"__call__": lambda self, s, a, next_s, r, d: self.net(s).mean()}
TUPLE = probe(action=lambda self, s: (s, self.net(s)), **MEAN_LOSS)
ROOTED, ROOTS = {"make": probe(Rooted), "train": {"processes": 2}}, {"make": probe(Rooted, Rooted)}
UNKNOWN, KNOWN = {"make": CHOICES, "policy": None}, {"make": SAID}
SILENT, MEAN = {"make": reporting(None), "PR": True}, {"make": reporting(torch.mean), "PR": True}


@pytest.mark.slow
@rows(
    ("_check_together 5", learn, {"TRL": True, "PR": True}, "leave the other", {"PR": False}),
    ("Assembly._environments", learn, {"make": TWICE}, "one by one", {"make": BOTH}),
    ("Assembly._action_space", learn, UNKNOWN, "env.action_space = gymnasium.spaces.Dis", KNOWN),
    ("collection.py:copied", learn, ROOTED, "a list of them", ROOTS),
    ("collection.py:copied", learn, ROOTED, "or processes=1", {"train": {"processes": 1}}),
    ("Assembly._extra", learn, {"IRL": True}, "both as a tuple", {"make": TUPLE}),
    ("AgentActor._check", learn, {"policy": None}, "return the action itself", KNOWN),
    ("AgentActor._check", learn, {"policy": None}, "a policy", {"policy": GreedyQPolicy()}),
    ("AgentActor._check", learn, {"make": NUMBERS}, "noise instead of a policy", NOISY),
    ("PrioritizedReplay.reported", learn, SILENT, "update(TD) in __call__", {"make": Probe}),
    ("PrioritizedReplay.reported 2", learn, MEAN, "before the mean", {"make": Probe}),
)
def test_agents(row: Any) -> None:
    follow(*row)


def test_noise_of_another_size_and_what_is_asked_before_its_time() -> None:
    three, two = ({"noise": OrnsteinUhlenbeckProcess(0.1, size=(n,))} for n in (3, 2))
    noisy, agent = partial(learn, NUMBERS, policy=None), Probe()
    assert advised("NoiseExplorer.__call__", noisy, **three).assigned() == [{"size": (2,)}]
    noisy(**two)
    advice = advised("SavedAgent._set_arguments", fit, agent, 1)
    assert advice.fix == "call set first."
    trained(agent, 1)
    advice = advised("PrioritizedReplay._scored", getattr, agent.prioritized_replay, "TD")
    assert advice.fix == "call set(PR=True, ...) first."
    assert len(trained(agent, 1, PR=True).prioritized_replay.TD)


def round_of(other: int) -> None:
    """A round of two workers, of which the other one says how it goes."""
    gather = lambda values: np.array([list(values), [3, other, False]])  # noqa: E731
    assert Rounds(SimpleNamespace(rank=0, workers=2, gather=gather)).end_round(5) == 3


def hooked(hooks: bool = True, workers: int = 2) -> None:
    agent = Probe()
    if hooks:
        agent.adjust_func = agent.batch_size_fn = lambda *_: 4
    check_workers(agent, SimpleNamespace(workers=workers))


def own_loop(times: int = 1, outside: bool = False) -> None:
    """A loop whose CTL trains on each minibatch `times` times, or returns something else."""
    agent: Any = SimpleNamespace()
    loop = CustomLoop(agent, 1.0, False)

    def ctl(batches: Any) -> Any:
        for inputs in batches:
            for _ in range(times):
                loop.step(tuple(inputs) if outside else inputs)
        return 0.0, 1

    agent.CTL = ctl
    x = np.ones((2, 3), np.float32)
    batch = Batch(x, x, x, x, x, extra={}, settings={"update": np.arange(2)})
    loop(lambda b: Outcome({"loss": np.ones(1)}, (), 1, False, ""), batch)


@rows(
    ("Rounds._agree", round_of, {"other": 2}, "restart all workers", {"other": 0}),
    ("check_workers", hooked, {}, "leave adjust_func and batch_size_fn out", {"hooks": False}),
    ("check_workers", hooked, {}, "with a MirroredStrategy", {"workers": 1}),
    ("CustomLoop.__call__", own_loop, {"times": 2}, "once per minibatch", {"times": 1}),
    ("CustomLoop.step", own_loop, {"outside": True}, "for inputs in", {"outside": False}),
)
def test_agents_of_several_workers(row: Any) -> None:
    follow(*row)


def test_evaluators(tmp_path: Path, monkeypatch: Any) -> None:
    unmade = partial(tandem.make_evaluator, "ac", load_model="runs")
    follow("Evaluator.__init__ 5", unmade, {"max_steps": -1})

    def evaluated(name: str, **given: Any) -> Any:
        return tandem.make_evaluator(name, num_episodes=1, **given).run()

    def made(name: str, env: str) -> dict[str, Any]:
        short = {**SHORT, "env_maker": lambda: gymnasium.make(env), "final_episodes": 1}
        if name == "sac":
            short |= {"num_parallel": None, "hidden": (8,)}
        own = {"save_dir": str(tmp_path / name), "train_steps": 64}
        run = tandem.make_trainer(name, **{**short, **own}).run()
        return {"env_maker": short["env_maker"], "load_model": str(run.folder)}

    for name in ("dqn", "sac"):
        given = made(name, "CartPole-v1")
        advice = advised("Evaluator.agent", evaluated, "acer", **given)
        assert len(evaluated(advice.quoted(), **given).returns) == 1
    given = made("a3c", "Pendulum-v1")
    advice = advised("Evaluator._action", evaluated, "ac", policy_type="greedy", **given)
    assert advice.fix == "leave policy_type out."
    assert len(evaluated("ac", **given).returns) == 1
    monkeypatch.setitem(sys.modules, "keras", None)
    loads = tandem.make_trainer("a3c", **{**SHORT, "load_model": "net.keras"})
    assert advised("own_networks.py:read", loads.run).fix == "pip install 'tandem-rl[jax]'"


@pytest.mark.parametrize("running", ["torch", "keras-torch"])
def test_keras_on_torch(running: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(assembly.backends, "running", lambda: running)
    advice = advised("assembly.py:engine", assembly.engine, torch=False)
    assert "set KERAS_BACKEND=jax" in advice.fix and "subclass RL_pytorch" in advice.fix
    assert assembly.engine(torch=True) == "torch"
    monkeypatch.setattr(assembly.backends, "running", lambda: "jax")
    assert assembly.engine(torch=False) == "jax"
