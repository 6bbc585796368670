"""`restore`, then `train`, with `set` before, after or never."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tandem import exploration  # noqa: E402
from tandem.agents.agent_checkpoint import arguments_data, arguments_of  # noqa: E402
from tandem.agents.contract import SetArguments  # noqa: E402
from tandem.errors import CheckpointError, SettingError  # noqa: E402
from tandem.exploration import EpsGreedyQPolicy, GreedyQPolicy  # noqa: E402
from tests.agents.agents import Probe  # noqa: E402
from tests.agents.test_interruptions import PHASES, Ratio, made, same, weights  # noqa: E402
from tests.agents.test_processes import Walk  # noqa: E402

KINDS = ["plain", *PHASES, "hindsight, two optimizers", "several agents"]


def halves(kind: str, path: Path, processes: int = 1) -> tuple[Any, Any, int]:
    """An agent after 9 episodes, one that is restored after the first of them and was never set,
    and how many of the episodes it has to play yet."""
    if kind == "plain":
        kind = "n-step"
    whole, optimizer = made(kind)
    whole.train(optimizer, 3, processes=processes, p=0)
    whole.save(path)
    played = whole.total_episode
    whole.train(None, 6, p=0)
    again, optimizer = unset(kind)
    again.restore(path)
    again.optimizer = optimizer
    return whole, again, whole.total_episode - played


def unset(kind: str) -> Any:
    agent, optimizer = made(kind)
    fresh = type(agent).__new__(type(agent))
    vars(fresh).update({n: x for n, x in vars(agent).items() if n not in ("_arguments", "_chosen")})
    assert fresh._arguments is None
    return fresh, optimizer


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, order",
    [
        *((kind, "never") for kind in KINDS),
        *(
            pytest.param(kind, "after", marks=[] if kind == "plain" else [pytest.mark.thorough])
            for kind in KINDS
        ),
    ],
)
def test_it_goes_on_to_the_bit_with_the_same_arguments(
    kind: str, order: str, tmp_path: Path
) -> None:
    whole, again, left = halves(kind, tmp_path / "agent")
    if order == "after":
        given = arguments_of(arguments_data(whole._arguments))
        again.set(**{n: getattr(given, n) for n in vars(given)})
    again.train(None, left, p=0)
    assert same(weights(again), weights(whole)) and again.loss_list == whole.loss_list
    assert again.reward_list == whole.reward_list


@pytest.mark.slow
def test_in_processes_too(tmp_path: Path) -> None:
    whole, again, left = halves("PPO by episodes", tmp_path / "agent", 2)
    again.train(None, left, p=0)
    assert again._assembly.processes == 2 and same(weights(again), weights(whole))
    assert again.reward_list == whole.reward_list


def rows(agent: Any) -> Any:
    ring = agent._assembly.learner.ring
    ids = np.arange(ring.oldest, ring.newest + 1)
    return ids, ring.transitions(ids)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("size", [30, 60, 300])
@pytest.mark.parametrize("PR", [False, True])
def test_another_set_keeps_optimizer_counters_and_the_newest_rows(
    size: int, PR: bool, processes: int, tmp_path: Path
) -> None:
    first = Ratio([Walk() for _ in range(3)])
    first.set(policy=EpsGreedyQPolicy(0.3), pool_size=60, batch=6, PR=PR)
    first.train(torch.optim.Adam(first.param), 14, processes=processes, p=0)
    first.save(tmp_path / "agent")
    again = Ratio([Walk() for _ in range(3)])
    again.restore(tmp_path / "agent")
    again.set(policy=EpsGreedyQPolicy(0.1), pool_size=size, batch=5, PR=PR, update_steps=2)
    optimizer = torch.optim.Adam(again.param)
    again.train(optimizer, 0, p=0)  # no step, but all is there
    (before, old), (ids, new) = rows(first), rows(again)
    assert ids.tolist() == before[-min(size, len(before)) :].tolist()
    for x, y in zip(old[:5], new[:5], strict=True):
        assert np.array_equal(x[-len(ids) :], y)
    if PR:
        TD = [a.prioritized_replay.TD[-len(ids) :] for a in (first, again)]
        powers = [a.prioritized_replay.powers()[-len(ids) :] for a in (first, again)]
        assert np.array_equal(*TD) and np.array_equal(*powers)
    one, other = (a._assembly for a in (first, again))
    assert other.learner.updates == one.learner.updates > 0
    assert other.actor.steps == one.actor.steps and other.loop.env_steps == one.loop.env_steps
    assert other.learner.schedule.batch_size == 5 and other.processes == processes
    state = optimizer.state[again.param[0]]
    assert state["step"] == one.learner.updates and same(weights(again), weights(first))
    again.train(None, 6, p=0)
    assert again.total_episode >= 20 and len(rows(again)[0]) <= size


KEPT = "What is kept: the networks, optimizers and counters, and of the pool the newest"
ALIKE = "What is not: the priorities: mini-batches are drawn from all transitions alike"
FIRST = (
    "What is not: there are no priorities in the file: every transition begins with initial_TD=7"
)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [{}, {"PPO": True, "update_steps": 12}], ids=["", "ppo"])
@pytest.mark.parametrize("order", ["set, restore", "restore, set", "restore, set, save, restore"])
@pytest.mark.parametrize("before", [True, False])
def test_priorities_that_come_or_go_are_said_once(
    before: bool, order: str, mode: dict[str, Any], tmp_path: Path
) -> None:
    def agent_with(PR: bool) -> Any:
        agent = Ratio([Walk() for _ in range(3)])
        agent.set(policy=EpsGreedyQPolicy(0.3), pool_size=60, batch=6, PR=PR, **mode)
        return agent

    first = agent_with(before)
    first.train(torch.optim.Adam(first.param), 6, p=0)
    if before:
        first.adjust(2.0, alpha_params={"rate": 0.1})  # which without priorities is no number
    first.save(tmp_path / "agent")
    again = agent_with(not before)
    arguments = {n: getattr(again._arguments, n) for n in vars(again._arguments)}
    again.restore(tmp_path / "agent")
    if order != "set, restore":
        again = Ratio([Walk() for _ in range(3)])
        again.restore(tmp_path / "agent")
        again.set(**arguments)
    if order.endswith("save, restore"):
        again.save(tmp_path / "set")
        again = Ratio([Walk() for _ in range(3)])
        again.restore(tmp_path / "set")
    with pytest.warns(UserWarning, match=f"PR={before}, and set was called with") as said:
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


def test_priorities_that_stay_are_not_spoken_of(tmp_path: Path) -> None:
    for PR in (True, False):
        first, again = Ratio(Walk()), Ratio(Walk())
        for agent in (first, again):
            agent.set(policy=EpsGreedyQPolicy(0.3), pool_size=60, batch=6, PR=PR)
        first.train(torch.optim.Adam(first.param), 3, save_data=False, p=0)
        first.save(tmp_path / "agent")
        again.restore(tmp_path / "agent")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            again.train(torch.optim.Adam(again.param), 1, p=0)


def test_without_a_pool_there_is_no_word_of_one(tmp_path: Path) -> None:
    first, again = Ratio(Walk()), Ratio(Walk())
    first.set(policy=EpsGreedyQPolicy(0.3), pool_size=60, batch=6, PR=True)
    first.train(torch.optim.Adam(first.param), 3, save_data=False, p=0)
    first.save(tmp_path / "agent")
    again.restore(tmp_path / "agent")
    again.set(policy=EpsGreedyQPolicy(0.3), pool_size=60, batch=6)
    with pytest.warns(UserWarning, match="optimizers and counters. What is not: the priorities"):
        again.train(torch.optim.Adam(again.param), 1, p=0)


@pytest.mark.filterwarnings("ignore:.* was saved with PR=False, and set was called with PR=True")
def test_other_modes_take_what_fits(tmp_path: Path) -> None:
    first = Ratio([Walk() for _ in range(3)])
    first.set(policy=EpsGreedyQPolicy(0.3), pool_size=60, batch=6)
    first.train(torch.optim.Adam(first.param), 6, p=0)
    first.save(tmp_path / "agent")
    for choices in (
        {"PR": True},
        {"PPO": True, "update_steps": 12},
        {"PPO": True, "PR": True, "update_batches": 4},
        {"num_steps": 3},
        {"TRL": True},
    ):
        again = Ratio([Walk() for _ in range(3)])
        again.restore(tmp_path / "agent")
        again.set(policy=GreedyQPolicy(), pool_size=60, batch=6, **choices)
        again.train(torch.optim.Adam(again.param), 0, p=0)
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
def test_a_pool_of_other_environments_is_refused_with_what_to_do(
    processes: int, tmp_path: Path
) -> None:
    """Their number is asked for before a worker is: what that refuses is taken for its end."""
    first = Ratio([Walk() for _ in range(3)])
    first.set(policy=EpsGreedyQPolicy(0.3), pool_size=60, batch=6)
    first.train(torch.optim.Adam(first.param), 6, p=0, processes=processes)
    first.save(tmp_path / "agent")
    again = Ratio([Walk() for _ in range(2)])
    again.restore(tmp_path / "agent")
    again.set(policy=EpsGreedyQPolicy(0.3), pool_size=90, batch=6)
    with pytest.raises(CheckpointError, match="of 3 environment.*\n.*\n.*restore_param"):
        again.train(torch.optim.Adam(again.param), 1, p=0, processes=processes)
    anew = Ratio([Walk() for _ in range(2)])
    anew.restore_param(tmp_path / "agent")
    anew.set(policy=EpsGreedyQPolicy(0.3), pool_size=90, batch=6)
    anew.train(torch.optim.Adam(anew.param), 1, p=0)


@pytest.mark.slow
def test_a_single_environment_is_asked_for_as_many_processes_as_before(tmp_path: Path) -> None:
    """That of the agent is as it was, so `processes` is what has to be said."""

    def agent() -> Any:
        made = Ratio(Walk())
        made.set(policy=EpsGreedyQPolicy(0.3), pool_size=60, batch=6)
        return made

    first, refused, again = agent(), agent(), agent()
    optimizer = torch.optim.Adam(first.param)
    first.train(optimizer, 4, p=0, processes=2)
    first.save(tmp_path / "agent")
    with pytest.raises(SettingError, match="pool is of 2 copies.*\n.*\n.*give processes=2"):
        first.train(optimizer, 2, p=0, processes=1)
    refused.restore(tmp_path / "agent")
    with pytest.raises(CheckpointError, match="of 2 environment.*\n.*\n.*`processes`"):
        refused.train(torch.optim.Adam(refused.param), 2, p=0, processes=1)
    again.restore(tmp_path / "agent")
    first.train(optimizer, 2, p=0, processes=2)
    again.train(torch.optim.Adam(again.param), 2, p=0, processes=2)
    assert first.total_episode == again.total_episode >= 6


class Own(GreedyQPolicy):
    pass


def test_a_policy_of_ones_own_is_asked_for_by_name(tmp_path: Path) -> None:
    first = Probe(Walk())
    first.set(policy=Own(), pool_size=50, batch=4)
    first.train(torch.optim.Adam(first.param), 3, p=0)
    first.save(tmp_path / "agent")
    first.train(None, 3, p=0)
    again = Probe(Walk())
    again.restore(tmp_path / "agent")
    optimizer = torch.optim.Adam(again.param)
    with pytest.raises(
        SettingError,
        match=r"set with Own[\s\S]*agent.set\(policy=Own\(...\), pool_size=50, batch=4\)",
    ):
        again.train(optimizer, 3, p=0)
    again.set(policy=Own(), pool_size=50, batch=4)
    again.train(optimizer, 3, p=0)
    assert same(weights(again), weights(first)) and again.reward_list == first.reward_list


def test_what_was_set_is_known_after_restore_and_kept_by_the_next_file(tmp_path: Path) -> None:
    first = Probe(Walk())
    first.set(policy=EpsGreedyQPolicy(0.3), pool_size=50, batch=4, trial_count=2, criterion=1e3)
    first.train(torch.optim.Adam(first.param), 3, p=0)
    first.save(tmp_path / "first")
    first.train(None, 2, p=0)
    second = Probe(Walk())
    second.restore(tmp_path / "first")
    assert second.criterion == 1e3 and second.average_reward() is not None
    second.save(tmp_path / "second")
    third = Probe(Walk())
    third.restore(tmp_path / "second")
    third.train(torch.optim.Adam(third.param), 2, p=0)
    assert same(weights(third), weights(first)) and third.loss_list == first.loss_list
    second.set(policy=EpsGreedyQPolicy(0.3), pool_size=20, batch=4)
    second.save(tmp_path / "smaller")
    fourth = Probe(Walk())
    fourth.restore(tmp_path / "smaller")
    fourth.train(torch.optim.Adam(fourth.param), 2, p=0)
    assert fourth.total_episode == 5 and len(fourth._assembly.learner.ring) == 20


def test_a_file_of_before_it_held_arguments(tmp_path: Path) -> None:
    from tandem.agents import agent_checkpoint
    from tandem.runs import checkpoint

    first = Probe(Walk())
    first.set(policy=EpsGreedyQPolicy(0.3), pool_size=50, batch=4)
    first.train(torch.optim.Adam(first.param), 3, p=0)
    with first._assembly:
        data, groups = agent_checkpoint.whole(first, first._assembly, True)
    for name in ("arguments", "unrecorded"):
        del data[name]
    learner = data["loop"]["learner"]
    learner["ended"] = sum(learner["ended"])
    del learner["due"]
    checkpoint.write(tmp_path / "old", data | {"files": None}, groups)
    first.train(None, 2, p=0)
    unset_, again, after = Probe(Walk()), Probe(Walk()), Probe(Walk())
    unset_.restore(tmp_path / "old")
    with pytest.raises(SettingError, match="before set"):
        unset_.train(torch.optim.Adam(unset_.param), 2, p=0)
    again.set(policy=EpsGreedyQPolicy(0.3), pool_size=50, batch=4)
    again.restore(tmp_path / "old")
    after.restore(tmp_path / "old")
    after.set(policy=EpsGreedyQPolicy(0.3), pool_size=50, batch=4)
    for agent in (again, after):
        agent.train(torch.optim.Adam(agent.param), 2, p=0)
        assert same(weights(agent), weights(first)) and agent.loss_list == first.loss_list


def test_weights_that_are_changed_after_restore_are_trained_on(tmp_path: Path) -> None:
    first, other = Probe(Walk()), Probe(Walk())
    first.set(policy=EpsGreedyQPolicy(0.3), pool_size=50, batch=4)
    first.train(torch.optim.Adam(first.param), 3, p=0)
    first.save(tmp_path / "first")
    with torch.no_grad():
        other.net.weight += 5.0
    other.save_param(tmp_path / "other")
    again = Probe(Walk())
    again.restore(tmp_path / "first")
    again.restore_param(tmp_path / "other")
    again.train(torch.optim.Adam(again.param), 0, p=0)
    assert same(weights(again), weights(other)) and len(rows(again)[0]) > 10


@pytest.mark.parametrize(
    "source",
    [
        exploration.SoftmaxPolicy(seed=3),
        exploration.AdaptiveEpsGreedyPolicy(0.9, 0.2, 1e-3),
        exploration.BoltzmannQPolicy(0.5, (-3.0, 3.0)),
        exploration.MaxBoltzmannQPolicy(0.2, 0.5),
        exploration.BoltzmannGumbelQPolicy(2.0),
        exploration.GumbelSoftmaxPolicy(0.5, 0.1),
        exploration.GaussianWhiteNoiseProcess(0.1, 0.2, 0.05, 7, (2, 3)),
        exploration.OrnsteinUhlenbeckProcess(0.15, np.array([0.1, 0.2]), 0.3, size=2),
    ],
    ids=lambda x: type(x).__name__,
)
def test_policies_and_noises_are_made_again(source: Any) -> None:
    import json

    name = "noise" if hasattr(source, "sample") else "policy"
    twice = SetArguments(**{name: [source, source, type(source)(*_values(source))]})
    data = json.loads(json.dumps(arguments_data(twice)))
    one, same_one, other = getattr(arguments_of(data), name)
    assert one is same_one and other is not one and one.seeded == source.seeded
    for made_again in (one, other):
        assert type(made_again) is type(source)
        assert str(_values(made_again)) == str(_values(source))
    state = source.state()
    one.load_state(state), other.load_state(state)
    act = (lambda p: p.sample()) if name == "noise" else (lambda p: p.choose(np.array([0.3, 0.7])))
    expected = act(source)
    assert np.array_equal(act(one), expected) and np.array_equal(act(other), expected)


def _values(source: Any) -> list[Any]:
    import inspect

    names = [n for n in inspect.signature(type(source)).parameters if n != "seed"]
    return [getattr(source, n) for n in names]
