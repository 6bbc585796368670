"""`restore`, then `train`, with `set` before, after or never."""

import inspect
import json
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tandem import LambdaCallback, exploration
from tandem.agents import agent_checkpoint
from tandem.agents.agent_checkpoint import arguments_data, arguments_of
from tandem.agents.contract import SetArguments
from tandem.errors import CheckpointError, SettingError
from tandem.exploration import EpsGreedyQPolicy, GreedyQPolicy
from tandem.runs import checkpoint
from tests.agents.agents import Layers, Probe, Ratio, alike, fit, own, ready, same, trained, weights
from tests.agents.clocks import Clock, Walk
from tests.agents.test_interruptions import KINDS, made

CASES = [("n-step", "after", 1), ("PPO by episodes", "never", 2)]


@pytest.mark.slow
@pytest.mark.parametrize("kind, order, processes", [*((k, "never", 1) for k in KINDS), *CASES])
def test_restored_it_resumes_exactly(kind: str, order: str, processes: int, tmp_path: Path) -> None:
    """One after 9 episodes, one restored amid them and set as it was, or never."""
    (whole, optimizer), (template, other) = made(kind), made(kind)
    whole.train(optimizer, 3, processes=processes, p=0)
    whole.save(tmp_path / "agent")
    played = whole.total_episode
    whole.train(None, 6, p=0)
    again = type(template).__new__(type(template))
    of_set = ("_arguments", "_chosen")
    vars(again).update({n: x for n, x in vars(template).items() if n not in of_set})
    assert again._arguments is None
    again.restore(tmp_path / "agent")
    again.optimizer = other
    if order == "after":
        given = arguments_of(arguments_data(whole._arguments))
        again.set(**{n: getattr(given, n) for n in vars(given)})
    again.train(None, whole.total_episode - played, p=0)
    assert alike(again, whole) and again._assembly.processes == processes


def unset(file: Path) -> Any:
    """An agent that was restored, and never set."""
    agent = Ratio([Walk() for _ in range(3)])
    agent.restore(file)
    return agent


def rows(agent: Any) -> Any:
    ring = agent._assembly.learner.ring
    ids = np.arange(ring.oldest, ring.newest + 1)
    return ids, ring.transitions(ids)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("size", [30, 60, 300])
@pytest.mark.parametrize("PR", [False, True])
def test_another_set_keeps_what_fits(size: int, PR: bool, processes: int, tmp_path: Path) -> None:
    first, again = fit(ready(PR=PR), 14, processes=processes), ready()
    first.save(tmp_path / "agent")
    again.restore(tmp_path / "agent")
    again.set(policy=EpsGreedyQPolicy(0.1), pool_size=size, batch=5, PR=PR, update_steps=2)
    optimizer = torch.optim.Adam(again.param)
    again.train(optimizer, 0, p=0)  # no step, but all is there
    (before, old), (ids, new) = rows(first), rows(again)
    assert ids.tolist() == before[-min(size, len(before)) :].tolist()
    kept = list(zip(old[:5], new[:5], strict=True))
    if PR:
        one, other = first.prioritized_replay, again.prioritized_replay
        kept += [(one.TD, other.TD), (one.powers(), other.powers())]
    assert all(np.array_equal(x[-len(ids) :], y) for x, y in kept)
    one, other = (a._assembly for a in (first, again))
    assert other.learner.updates == one.learner.updates > 0
    assert other.actor.steps == one.actor.steps and other.loop.env_steps == one.loop.env_steps
    assert other.learner.schedule.batch_size == 5 and other.processes == processes
    state = optimizer.state[again.param[0]]
    assert state["step"] == one.learner.updates and same(weights(again), weights(first))
    again.train(None, 6, p=0)
    assert again.total_episode >= 20 and len(rows(again)[0]) <= size


KEPT = "Kept: the networks, optimizers and counters, and the newest transitions of the pool"
ALIKE = "Not kept: the priorities: minibatches are sampled uniformly from all transitions"
FIRST = "Not kept: the priorities: the file has none, so every transition starts with initial_TD=7"


@pytest.mark.slow
@pytest.mark.parametrize("mode", [{}, {"PPO": True, "update_steps": 12}], ids=["", "ppo"])
@pytest.mark.parametrize("order", ["set, restore", "restore, set", "restore, set, save, restore"])
@pytest.mark.parametrize("before", [True, False])
def test_added_or_dropped_priorities_warn_once(before, order, mode, tmp_path) -> None:
    first, again = fit(ready(PR=before, **mode), 6), ready(PR=not before, **mode)
    if before:
        first.adjust(2.0, alpha_params={"rate": 0.1})  # which without priorities is no number
    first.save(tmp_path / "agent")
    arguments = dict(vars(again._arguments))
    again.restore(tmp_path / "agent")
    if order != "set, restore":
        again = unset(tmp_path / "agent")
        again.set(**arguments)
    if order.endswith("save, restore"):
        again.save(tmp_path / "set")
        again = unset(tmp_path / "set")
    with pytest.warns(UserWarning, match=f"PR={before}, but set was called with") as said:
        again.train(torch.optim.Adam(again.param), 0, p=0)
    (text,) = [str(one.message) for one in said]
    assert KEPT in text and (ALIKE if before else FIRST) in text
    assert said[0].filename == __file__
    assert ("initial_ratio=1" in text) == (not before and "PPO" in mode)
    one, other = first._assembly.learner, again._assembly.learner
    assert other.updates == one.updates > 0 and same(weights(again), weights(first))
    assert len(other.ring) == len(one.ring)
    if not before:
        assert set(again.prioritized_replay.TD) <= {7.0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again.train(None, 6, p=0)
    assert again.total_episode > first.total_episode and np.isfinite(again.loss)


def test_no_warning_of_kept_priorities_or_an_empty_pool(tmp_path: Path) -> None:
    for PR in (False, True):
        first, again = fit(ready(1, PR=PR), 3, save_data=False), ready(1, PR=PR)
        first.save(tmp_path / "agent")
        again.restore(tmp_path / "agent")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fit(again, 1)
    again = ready(1)
    again.restore(tmp_path / "agent")
    with pytest.warns(UserWarning, match="optimizers and counters. Not kept: the priorities"):
        fit(again, 1)


@pytest.mark.filterwarnings("ignore:.* was saved with PR=False, but set was called with PR=True")
def test_other_modes_take_what_fits(tmp_path: Path) -> None:
    first = fit(ready(), 6)
    first.save(tmp_path / "agent")
    for choices in (
        {"PR": True},
        {"PPO": True, "update_steps": 12},
        {"PPO": True, "PR": True, "update_batches": 4},
        {"num_steps": 3},
        {"TRL": True},
    ):
        again = unset(tmp_path / "agent")
        again.set(policy=GreedyQPolicy(), pool_size=60, batch=6, **choices)
        fit(again, 0)
        ring = again._assembly.learner.ring
        assert len(ring) == len(first._assembly.learner.ring)
        gamma = 0.9 if "num_steps" in choices else 1.0
        assert {round(x, 6) for x in ring.discount[: len(ring)].tolist()} == {0.0, gamma}
        if "PR" in choices:
            assert set(again.prioritized_replay.TD) == {7.0}
        if "TRL" not in choices:
            again.train(None, 6, p=0)
            assert np.isfinite(again.loss) and again.total_episode >= 12


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_a_pool_of_other_environments_is_refused(processes: int, tmp_path: Path) -> None:
    """Their number is asked for before a worker is: what that refuses is taken for its end."""
    first, again, anew = fit(ready(), 6, processes=processes), ready(2), ready(2)
    first.save(tmp_path / "agent")
    again.restore(tmp_path / "agent")
    again.set(policy=EpsGreedyQPolicy(0.3), pool_size=90, batch=6)
    with pytest.raises(CheckpointError, match="has 3 environment.*\n.*restore_param"):
        fit(again, 1, processes=processes)
    anew.restore_param(tmp_path / "agent")
    fit(anew, 1)


@pytest.mark.slow
def test_a_single_environment_is_asked_for_as_many_processes_as_before(tmp_path: Path) -> None:
    """That of the agent is as it was, so `processes` is what has to be said."""
    first, refused, again = fit(ready(1), 4, processes=2), ready(1), ready(1)
    first.save(tmp_path / "agent")
    with pytest.raises(SettingError, match="pool belongs to 2 copies.*\n.*give processes=2"):
        fit(first, 2, processes=1)
    refused.restore(tmp_path / "agent")
    with pytest.raises(CheckpointError, match="has 2 environment.*\n.*`processes`"):
        fit(refused, 2, processes=1)
    again.restore(tmp_path / "agent")
    assert fit(again, 2, processes=2).total_episode >= 6 and fit(first, 2).total_episode >= 6


def small(agent: Any = None, **choices: Any) -> Any:
    agent = Probe(Walk()) if agent is None else agent
    agent.set(**{"policy": EpsGreedyQPolicy(0.3), "pool_size": 50, "batch": 4, **choices})
    return agent


def test_a_policy_of_ones_own_is_asked_for_by_name(tmp_path: Path) -> None:
    Own = type("Own", (GreedyQPolicy,), {})
    first, again = fit(small(policy=Own()), 3), Probe(Walk())
    first.save(tmp_path / "agent")
    again.restore(tmp_path / "agent")
    fix = r"uses Own[\s\S]*agent.set\(policy=Own\(...\), pool_size=50, batch=4\)"
    with pytest.raises(SettingError, match=fix):
        fit(again, 3)
    assert alike(fit(small(again, policy=Own()), 3), fit(first, 3))


def test_what_was_set_is_known_after_restore_and_kept_by_the_next_file(tmp_path: Path) -> None:
    first = fit(small(trial_count=2, criterion=1e3), 3)
    first.save(tmp_path / "first")
    second, third, fourth = Probe(Walk()), Probe(Walk()), Probe(Walk())
    second.restore(tmp_path / "first")
    assert second.criterion == 1e3 and second.average_reward() is not None
    second.save(tmp_path / "second")
    third.restore(tmp_path / "second")
    assert alike(fit(third, 2), fit(first, 2))
    small(second, pool_size=20).save(tmp_path / "smaller")
    fourth.restore(tmp_path / "smaller")
    assert fit(fourth, 2).total_episode == 5 and len(fourth._assembly.learner.ring) == 20


def test_a_file_of_before_it_held_arguments(tmp_path: Path) -> None:
    first, again = fit(small(), 3), small()
    with first._assembly:
        data, groups = agent_checkpoint.whole(first, first._assembly, True)
    learner = data["loop"]["learner"]
    learner["ended"] = sum(learner["ended"])
    del data["arguments"], data["unrecorded"], learner["due"]
    checkpoint.write(tmp_path / "old", data | {"files": None}, groups)
    first.train(None, 2, p=0)
    unset_, after = Probe(Walk()), Probe(Walk())
    for agent in (unset_, again, after):
        agent.restore(tmp_path / "old")
    with pytest.raises(SettingError, match="before set"):
        fit(unset_, 2)
    assert alike(fit(again, 2), first) and alike(fit(small(after), 2), first)


def test_weights_that_are_changed_after_restore_are_trained_on(tmp_path: Path) -> None:
    first, other, again = fit(small(), 3), Probe(Walk()), Probe(Walk())
    first.save(tmp_path / "first")
    with torch.no_grad():
        other.net.weight += 5.0
    other.save_param(tmp_path / "other")
    again.restore(tmp_path / "first")
    again.restore_param(tmp_path / "other")
    fit(again, 0)
    assert same(weights(again), weights(other)) and len(rows(again)[0]) > 10


@pytest.mark.parametrize(
    "source",
    [
        *(exploration.SoftmaxPolicy(seed=3), exploration.AdaptiveEpsGreedyPolicy(0.9, 0.2, 1e-3)),
        *(exploration.BoltzmannQPolicy(0.5, (-3.0, 3.0)), exploration.BoltzmannGumbelQPolicy(2.0)),
        *(exploration.MaxBoltzmannQPolicy(0.2, 0.5), exploration.GumbelSoftmaxPolicy(0.5, 0.1)),
        exploration.GaussianWhiteNoiseProcess(0.1, 0.2, 0.05, 7, (2, 3)),
        exploration.OrnsteinUhlenbeckProcess(0.15, np.array([0.1, 0.2]), 0.3, size=2),
    ],
    ids=lambda x: type(x).__name__,
)
def test_policies_and_noises_are_made_again(source: Any) -> None:
    def values(source: Any) -> list[Any]:
        names = [n for n in inspect.signature(type(source)).parameters if n != "seed"]
        return [getattr(source, n) for n in names]

    name = "noise" if hasattr(source, "sample") else "policy"
    twice = SetArguments(**{name: [source, source, type(source)(*values(source))]})
    data = json.loads(json.dumps(arguments_data(twice)))
    one, same_one, other = getattr(arguments_of(data), name)
    assert one is same_one and other is not one and one.seeded == source.seeded
    for made_again in (one, other):
        assert type(made_again) is type(source)
        assert str(values(made_again)) == str(values(source))
    state = source.state()
    one.load_state(state), other.load_state(state)
    act = (lambda p: p.sample()) if name == "noise" else (lambda p: p.choose(np.array([0.3, 0.7])))
    expected = act(source)
    assert np.array_equal(act(one), expected) and np.array_equal(act(other), expected)


class Behind(Layers):
    """Acts by the network that follows; a batch norm, and a number of its own in no list."""

    def __init__(self, seed: int) -> None:
        super().__init__(Walk())
        self.scale = torch.tensor(float(seed))
        self.net[1].weight.data += seed
        self.target.load_state_dict(self.net.state_dict())
        self.set(policy=EpsGreedyQPolicy(0.5), pool_size=50, batch=4, update_steps=3)

    def action(self, s: Any) -> Any:
        return self.target(s)

    def update_param(self) -> None:
        self.target.load_state_dict(self.net.state_dict())


def arrays(agent: Any) -> list[Any]:
    return [*agent.net.state_dict().values(), *agent.target.state_dict().values(), agent.scale]


def test_all_networks_are_restored_and_saved_before_training(tmp_path: Path) -> None:
    first, second, third = fit(Behind(1), 3), Behind(2), Behind(3)
    first.save(tmp_path / "first")
    second.restore(tmp_path / "first")
    assert same(arrays(first), arrays(second))
    assert first.run_agent(20, seed=5)[1] == second.run_agent(20, seed=5)[1]
    second.save(tmp_path / "second")
    third.restore(tmp_path / "second")
    assert alike(fit(first, 3), fit(third, 3)) and same(arrays(first), arrays(third))


def test_smoothed_sizes_of_the_pool_are_kept(tmp_path: Path) -> None:
    class Windowed(Probe):
        def __init__(self) -> None:
            super().__init__(Walk())
            self.dropped: list[int] = []
            self.set(policy=EpsGreedyQPolicy(0.5), pool_size=50, batch=4, PR=True)

        def window_size_fn(self) -> int:
            self.dropped.append(self.adjust_window_size(smooth_alpha=0.01))
            return self.dropped[-1] if len(self.prioritized_replay.TD) > 30 else 0

    first = fit(Windowed(), 4)
    first.save(tmp_path / "agent")
    first.dropped, second = [], Windowed()
    second.restore(tmp_path / "agent")
    assert fit(first, 2).dropped == fit(second, 2).dropped


def test_an_agent_must_explore_as_the_one_that_was_saved(tmp_path: Path) -> None:
    fixed = own(Behind, action=lambda self, s: torch.ones(len(s), dtype=torch.int64))
    first, second, third = fixed(1), fixed(2), fixed(3)
    first.set(pool_size=50, batch=4)
    fit(first, 2).save(tmp_path / "agent")
    second.restore(tmp_path / "agent")
    with pytest.raises(CheckpointError, match=r"does not fit this agent \(ValueError"):
        fit(second, 2)
    third.set(pool_size=50, batch=4)
    third.restore(tmp_path / "agent")
    assert fit(third, 2).total_episode == 4 and set(third.env.actions) == {1}


class Same(Clock):
    """Every episode is the first one, so that training resumes exactly."""

    def reset(self) -> Any:
        self.episode = 0
        return super().reset()


def test_a_delayed_file_holds_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three episodes end in one step. The first one's file is written after the seventh."""
    begun, free, write = threading.Event(), threading.Event(), checkpoint.write

    def waits(*arguments: Any) -> None:
        begun.set()
        assert free.wait(60)
        write(*arguments)

    def ended(episode: int, logs: Any) -> None:
        assert episode != 1 or begun.wait(60)
        if episode == 6:
            free.set()

    monkeypatch.setattr(checkpoint, "write", waits)
    agent, here = Probe([Same(3) for _ in range(3)]), {"pool_network": False}
    agent.path, agent.max_save_files = tmp_path / "m.dat", 30
    agent.callbacks = [LambdaCallback(on_episode_end=ended)]
    trained(agent, 9, train=here)
    files = sorted(tmp_path.iterdir(), key=lambda f: int(f.name.split("-")[1]))
    assert files[0].name.startswith("m-1-") and files[-1].name.startswith("m-9-")
    for file in files:
        n = int(file.name.split("-")[1])
        other = Probe([Same(3) for _ in range(3)])
        other.restore(file)
        assert (other.total_episode, other.reward_list) == (n, agent.reward_list[:n])
        assert 0 < other.total_time <= agent.total_time and len(other.loss_list) == n
        trained(other, 9 - n, train=here)
        assert alike(other, agent)
