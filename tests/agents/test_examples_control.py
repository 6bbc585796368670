"""The examples of control by several networks: DDPG, with hindsight, and with several agents; and
their worlds."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
from typing import Any

import numpy as np
import pytest

from tandem.examples.worlds import PointWorld, Relay
from tandem.exploration import GaussianWhiteNoiseProcess, SoftmaxPolicy
from tests.helpers import run_python

CHOICES = {
    "DDPG": dict(noise=GaussianWhiteNoiseProcess(), pool_size=500, batch=32),
    "DDPG_HER": dict(noise=GaussianWhiteNoiseProcess(), pool_size=500, batch=32, HER=True),
    "DDPG_FetchReach": dict(noise=GaussianWhiteNoiseProcess(), pool_size=500, batch=32, HER=True),
    "MADDPG": dict(policy=SoftmaxPolicy(), pool_size=500, batch=32, MARL=True),
}
STEPS = {"DDPG": 200, "DDPG_HER": 50, "DDPG_FetchReach": 50, "MADDPG": 25}  # of an episode, at most
ENGINES = ["jax", "tensorflow"]


def needs(*names: str) -> None:
    for name in names:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")


def example(name: str, framework: str = "pytorch") -> Any:
    needs(
        "torch" if framework == "pytorch" else "keras",
        *(["gymnasium_robotics"] if name == "DDPG_FetchReach" else []),
    )
    return importlib.import_module(f"tandem.examples.{framework}.{name}")


def optimizers(model: Any) -> list[Any]:
    import torch

    return [torch.optim.Adam(p) for p in model.param]


# Worlds


def test_a_straight_walk_to_the_goal_takes_four_steps_or_five() -> None:
    world, scores = PointWorld(), set()
    for seed in range(50):
        state, score, done = world.reset(seed=seed), 0.0, False
        assert state.tolist() == [0, 0] and np.all(np.abs(world.goal - 4) <= 0.5)
        while not done:
            state, reward, done, info = world.step((world.goal - state) / world.scale)
            score += reward
        assert not info["TimeLimit.truncated"] and np.linalg.norm(state - world.goal) <= 0.15
        assert score == -(world.steps - 1) and world.steps == (
            4 if world.goal.max() < 4.1 else 5 if world.goal.max() > 4.15 else world.steps
        )
        scores.add(score)
    assert scores == {-3, -4}


def test_time_is_up_in_the_world_of_points_after_fifty_steps() -> None:
    world = PointWorld(0.5)
    world.reset(seed=0)
    ends = [world.step(np.array([-2, -2]))[1:] for _ in range(50)]
    assert ends[:-1] == [(-1, False, {"TimeLimit.truncated": False})] * 49 and ends[-1] == (
        -1,
        True,
        {"TimeLimit.truncated": True},
    )
    world.reset()
    assert world.step(np.array([9.0, 1.0]))[0].tolist() == [1.0, 0.5]  # 1 at most


def test_goals_are_judged_one_by_one_and_in_batches() -> None:
    states, goal = np.array([[4, 4], [4, 4.14], [4, 4.16]]), np.array([4.0, 4.0])
    reward, there = PointWorld.judge(states, goal)
    assert reward.tolist() == [0, 0, -1] and there.tolist() == [True, True, False]
    assert [PointWorld.judge(s, goal)[0] for s in states] == [0, 0, -1]


@pytest.mark.parametrize("right, score", [((1, 1), 24), ((1, 0), 0), ((0, 0), 0)])
def test_both_agents_have_to_open_the_gate_of_the_other(right: Any, score: float) -> None:
    world = Relay()
    state, total, done = world.reset(seed=3), 0.0, [False]
    assert state.shape == (2, 4) and state[:, 3].tolist() == [0, 0]
    while not all(done):
        light = state[:, :2].argmax(1)
        state, reward, done, info = world.step(np.where(right, light, 1 - light))
        assert state[:, 3].tolist() == [right[1], right[0]]  # its own gate is the other's doing
        total += reward[0]
    assert total == score and info["TimeLimit.truncated"] and world.steps == 25


def test_what_an_agent_gets_and_sees_next_does_not_depend_on_its_action() -> None:
    seen = set()
    for action in (0, 1):
        world = Relay()
        world.reset(seed=5)
        world.step(world.light)
        state, reward, *_ = world.step(np.array([action, 1]))
        seen.add((tuple(state[0]), reward[0]))
    assert len(seen) == 1


# Agents


@pytest.mark.slow
@pytest.mark.parametrize("name", CHOICES)
def test_examples_train_on_torch(name: str) -> None:
    model = example(name).DDPG(16, 0.1, 0.98, 0.005)
    before = [x.detach().clone() for x in model.target_param]
    model.set(**CHOICES[name])
    model.train(optimizers(model), 3, p=0)
    assert model.total_episode == 3 and np.isfinite(model.loss_list).all() and model.loss != 0
    assert any((x != y).any() for x, y in zip(before, model.target_param, strict=True))
    states, score, steps = model.run_agent(300, 1)
    assert len(states) == steps <= STEPS[name] and np.isfinite(score)


def test_targets_go_a_part_of_the_way() -> None:
    torch = pytest.importorskip("torch")
    model = example("DDPG").DDPG(8, 0.1, 0.98, 0.25)
    sources = [p for part in model.param for p in part]
    assert all(torch.equal(t, s) for t, s in zip(model.target_param, sources, strict=True))
    with torch.no_grad():
        for s in sources:
            s += 1
    model.update_param()
    assert all(
        torch.allclose(t, s - 0.75, atol=1e-6)
        for t, s in zip(model.target_param, sources, strict=True)
    )


def test_an_actors_loss_is_an_expectation_over_joint_actions() -> None:
    torch = pytest.importorskip("torch")
    model = example("MADDPG").DDPG(8, 0.1, 0.98, 0.005)
    s = torch.rand(3, 2, 4)
    p = [model.action(s[:, i], i) for i in range(2)]
    hot = torch.eye(2)
    for i in range(2):
        expected: Any = 0.0
        for a, b in itertools.product((0, 1), repeat=2):
            joint = torch.stack([hot[a], hot[b]]).expand(3, 2, 2)
            expected = expected + p[0][:, a] * p[1][:, b] * model.value(model.critics, i, s, joint)
        found = (model.likely(model.actors, s, i) * model.values(model.critics, i, s)).sum(1)
        torch.testing.assert_close(found, expected)
        grads = [
            torch.autograd.grad(
                found.sum(), list(x.parameters()), retain_graph=True, allow_unused=True
            )
            for x in model.actors
        ]
        assert [all(g is not None for g in each) for each in grads] == [i == 0, i == 1]


def test_agents_that_learn_alone_do_not_see_each_other() -> None:
    torch = pytest.importorskip("torch")
    model = example("MADDPG").DDPG(8, 0.1, 0.98, 0.005, alone=True)
    s = torch.rand(5, 2, 4)
    q = model.values(model.critics, 0, s)
    assert torch.equal(q[:, 0], q[:, 1]) and not torch.equal(q[:, 0], q[:, 2])
    s[:, 1] = 0
    assert torch.equal(q, model.values(model.critics, 0, s))


@pytest.mark.thorough
def test_agents_with_critics_of_all_beat_those_that_learn_alone() -> None:
    """With critics of both agents the best return, 24, is reached; alone the return stays near what
    chance gives, 6."""
    torch = pytest.importorskip("torch")
    module = example("MADDPG")
    scores: dict[bool, list[float]] = {True: [], False: []}
    for seed, alone in itertools.product(range(3), (False, True)):
        torch.manual_seed(seed)
        model = module.DDPG(64, 0.1, 0.98, 0.005, alone)
        model.seed = seed
        model.set(policy=SoftmaxPolicy(), pool_size=3000, batch=32, num_updates=1, MARL=True)
        model.train(optimizers(model), 30, p=0)
        scores[alone].append(float(np.mean(model.reward_list[-5:])))
    assert min(scores[False]) > 22, scores
    assert max(scores[True]) < 15, scores


# Keras

RUNS = """
import importlib, json
import keras, numpy as np
from tandem.exploration import GaussianWhiteNoiseProcess, SoftmaxPolicy

found = {}
for name, choices, episodes in (
    ("DDPG", dict(noise=GaussianWhiteNoiseProcess()), 1),
    ("DDPG_HER", dict(noise=GaussianWhiteNoiseProcess(), HER=True), 2),
    ("MADDPG", dict(policy=SoftmaxPolicy(), MARL=True), 4),
):
    model = importlib.import_module(f"tandem.examples.keras.{name}").DDPG(16, 0.1, 0.98, 0.005)
    before = [np.array(x) for x in model.target_param] if name == "DDPG" else None
    model.set(pool_size=500, batch=32, **choices)
    loss = model.train(
        keras.metrics.Mean(), [keras.optimizers.Adam(), keras.optimizers.Adam()], episodes, p=0
    )
    moved = before is None or any(
        (x != np.array(y)).any() for x, y in zip(before, model.target_param)
    )
    _, score, steps = model.run_agent(300, 1)
    found[name] = bool(
        np.isfinite(loss) and loss != 0 and moved and np.isfinite(score) and steps <= 200
    )
print(json.dumps(found))
"""


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ENGINES)
def test_examples_train_on_keras(engine: Any) -> None:
    needs("keras", engine)
    (found,) = run_python(RUNS, engine=engine, timeout=300)
    assert found == {"DDPG": True, "DDPG_HER": True, "MADDPG": True}


# Scores, by the examples' own programs

SCORES = """
import importlib, json, sys
from contextlib import redirect_stdout
import numpy as np

with redirect_stdout(sys.stderr):
    model = importlib.import_module(f"tandem.examples.keras.{sys.argv[1]}").main(0)
print(
    json.dumps(
        [
            float(np.mean(model.reward_list[-10:])),
            float(np.mean([model.run_agent(200, i)[1] for i in range(10)])),
        ]
    )
)
"""


@pytest.mark.learns
@pytest.mark.timeout(1200)
def test_ddpg_swings_the_pendulum_up() -> None:
    model = example("DDPG").main(0)
    assert np.mean([model.run_agent(200, i)[1] for i in range(10)]) >= -200


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_hindsight_finds_the_goal() -> None:
    model = example("DDPG_HER").main(0)
    assert model.total_episode < 500 and np.mean(model.reward_list[-10:]) >= -5


@pytest.mark.learns
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("framework", ["pytorch", "keras"])
def test_the_hand_is_where_it_is_told_to_be(framework: str) -> None:
    if framework == "keras":
        needs("jax", "keras", "gymnasium_robotics")
        _, score = run_python(SCORES, "DDPG_FetchReach", engine="jax", timeout=1200)[0]
        assert score > -10
    else:
        module = example("DDPG_FetchReach")
        assert module.success(module.main(0)) == 1.0


@pytest.mark.learns
@pytest.mark.timeout(2500)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["DDPG", "DDPG_HER", "MADDPG"])
def test_scores_on_keras(name: str, engine: Any) -> None:
    needs(engine, "keras")
    last, score = run_python(SCORES, name, engine=engine, timeout=2400)[0]
    if name == "MADDPG":
        assert last > 22 and score > 22  # of 24; each alone about 10
    else:
        assert last >= -5 if name == "DDPG_HER" else score >= -200
