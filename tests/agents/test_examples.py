"""The examples: losses by hand, worlds, a few episodes of each, that they learn, and the programs
that Note_rl documents, which run after their import lines are changed."""

import importlib
import importlib.util
import itertools
import json
from typing import Any

import numpy as np
import pytest
import torch

from tandem.examples.pytorch import DQN, PPO, DoubleDQN, DuelingDQN, PPO_pr
from tandem.examples.pytorch.AlphaZeroCartPole import AlphaZero
from tandem.examples.worlds import PointWorld, Relay
from tandem.exploration import EpsGreedyQPolicy, GaussianWhiteNoiseProcess, SoftmaxPolicy
from tests.agents import documented
from tests.helpers import run_python

VALUES = [DQN.DQN, DoubleDQN.DoubleDQN, DuelingDQN.DuelingDQN]
PROGRAMS = [DQN, DoubleDQN, DuelingDQN, PPO, PPO_pr]
GAMMA = 0.98


def needs(name: str, *packages: str) -> None:
    """Skips where the packages, or those of the example, are not installed."""
    for package in (*packages, *["gymnasium_robotics"] * (name == "DDPG_FetchReach")):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")


def example(name: str) -> Any:
    needs(name)
    return importlib.import_module(f"tandem.examples.pytorch.{name}")


def adams(model: Any) -> list[Any]:
    nested = isinstance(model.param[0], list)
    return [torch.optim.Adam(p) for p in (model.param if nested else [model.param])]


def batch() -> tuple[dict[str, Any], dict[str, Any]]:
    """s, a, next_s, r, d of CartPole's shapes, as arrays and as tensors; d is 1 somewhere."""
    rng, rows = np.random.default_rng(3), 9
    s, next_s = rng.normal(size=(2, rows, 4)).astype(np.float32)
    a, r = rng.integers(2, size=rows), rng.normal(size=rows).astype(np.float32)
    d = (np.arange(rows) % 3 == 0).astype(np.float32)
    arrays = {"s": s, "a": a, "next_s": next_s, "r": r, "d": d}
    return arrays, {name: torch.as_tensor(x) for name, x in arrays.items()}


def q_learning(q: Any, following: Any, a: Any, r: Any, d: Any) -> Any:
    """`following` [B]: the value of the next state."""
    TD = q[np.arange(len(a)), a] - (r + GAMMA * (1 - d) * following)
    return np.mean(TD**2)


def ppo_losses(prob: Any, old: Any, value: Any, following: Any, *more: Any) -> tuple[Any, Any]:
    """Of each sample: the actor's loss, the critic's."""
    a, r, d, clip_eps, alpha = more
    TD = r + GAMMA * (1 - d) * following[:, 0] - value[:, 0]
    taken = np.arange(len(a)), a
    ratio = prob[taken] / old[taken]
    bounded = np.where(TD > 0, np.minimum(ratio, 1 + clip_eps), np.maximum(ratio, 1 - clip_eps))
    entropy = -(prob * np.log(prob)).sum(1)
    return -bounded * TD - alpha * entropy, TD**2


def gradients(loss: Any, weights: Any) -> list[bool]:
    """Of which weights the loss has a gradient."""
    found = torch.autograd.grad(loss, [*weights], allow_unused=True, retain_graph=True)
    return [x is not None for x in found]


@pytest.mark.parametrize("kind", VALUES)
def test_losses_of_value_methods(kind: Any) -> None:
    torch.manual_seed(0)
    agent, (b, t) = kind(4, 16, 2), batch()
    values = agent.q_net(t["s"]), agent.q_net(t["next_s"]), agent.target_q_net(t["next_s"])
    q, next_q, judged = (x.detach().numpy() for x in values)
    following = judged.max(1)
    if kind is DoubleDQN.DoubleDQN:
        following = judged[np.arange(len(q)), next_q.argmax(1)]
    loss = agent(*t.values())
    wanted = q_learning(q, following, b["a"], b["r"], b["d"])
    np.testing.assert_allclose(loss.item(), wanted, rtol=1e-5)
    assert not any(gradients(loss, agent.target_q_net.parameters()))


def test_dueling_heads_are_joined_by_equation_9() -> None:
    net, s = DuelingDQN.DuelingNet(4, 16, 3), torch.randn(5, 4)
    h = net.body(s)
    torch.testing.assert_close(net(s).mean(1), net.value(h)[:, 0])
    torch.testing.assert_close(net(s) - net(s)[:, :1], net.advantage(h) - net.advantage(h)[:, :1])


@pytest.mark.parametrize("module", [PPO, PPO_pr])
def test_losses_of_ppo(module: Any) -> None:
    torch.manual_seed(0)
    agent, (b, t) = module.PPO(4, 16, 2, 0.2, 0.5), batch()
    for p in agent.actor.parameters():
        p.data += 0.3 * torch.randn_like(p)
    nets = [net(t["s"]).detach().numpy() for net in (agent.actor, agent.old_actor, agent.critic)]
    following, given = agent.critic(t["next_s"]).detach().numpy(), (b["a"], b["r"], b["d"])
    actor, critic = ppo_losses(*nets, following, *given, 0.2, 0.5)
    found = agent(*t.values())
    means = [x.mean().item() for x in found]
    np.testing.assert_allclose(means, [actor.mean(), critic.mean()], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(agent.action(t["s"]).detach(), nets[1])
    assert not any(gradients(found[0].mean(), agent.param[1]))
    # of the value alone, not of the target
    bias = torch.autograd.grad(found[1].mean(), agent.param[1])[-1]
    TD = b["r"] + GAMMA * (1 - b["d"]) * following[:, 0] - nets[2][:, 0]
    np.testing.assert_allclose(bias.item(), -2 * TD.mean(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", VALUES)
def test_value_methods_with_priorities(kind: Any) -> None:
    """Without them, `test_programs_run` and `test_documented_programs`."""
    model, more = kind(4, 128, 2), {"trial_count": 10, "criterion": 200, "PR": True}
    sizes = {"pool_size": 10000, "batch": 64, "update_steps": 10, "initial_TD": 7, "alpha": 0.7}
    model.set(policy=EpsGreedyQPolicy(0.01), **sizes, **more)
    model.train(torch.optim.Adam(model.param), 10, p=0)
    assert model.total_episode == 10 and model.loss > 0


@pytest.mark.slow
@pytest.mark.parametrize(("module", "more"), [(PPO, {}), (PPO_pr, {"PR": True})])
def test_ppo_as_documented(module: Any, more: dict[str, Any]) -> None:
    model = module.PPO(4, 128, 2, 0.7, 0.7)
    sizes = {"pool_size": 10000, "batch": 64, "update_steps": 1000}
    model.set(policy=SoftmaxPolicy(), PPO=True, **sizes, **more)
    actor, critic = model.param
    model.train([torch.optim.Adam(actor, 1e-4), torch.optim.Adam(critic, 5e-3)], 70, p=0)
    learner = model._assembly.learner
    assert learner.updates >= 150 and np.isfinite(model.loss_list[-1])
    left = len(model.prioritized_replay.TD) if more else None
    assert len(learner.ring) == left if more else len(learner.ring) < 1000


@pytest.mark.parametrize("module", PROGRAMS)
def test_programs_run(module: Any, capsys: Any) -> None:
    assert module.main(1, episodes=2).reward_list == module.main(1, episodes=2).reward_list


def test_every_documented_import_line_has_its_row() -> None:
    for program in (*documented.TORCH.values(), *documented.KERAS.values()):
        lines = [x for x in documented.ported(program, "jax").splitlines() if "tandem" in x]
        assert len(lines) >= 2
        for line in lines:
            assert importlib.util.find_spec(line.split()[1]) is not None, line


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:processes_her")
@pytest.mark.parametrize(
    "name", [pytest.param("DQN", marks=pytest.mark.thorough), *list(documented.TORCH)[1:]]
)
def test_documented_programs(name: str) -> None:
    assert documented.run(documented.TORCH, "torch", [name]) == {name: True}


SET_VALUE = {"policy": EpsGreedyQPolicy(0.01), "batch": 64, "update_batches": 17}
SET_TEAM = {"policy": SoftmaxPolicy(), "batch": 32, "trial_count": 10, "MARL": True}
SET_PPO = {"policy": SoftmaxPolicy(), "batch": 64, "update_steps": 300, "PPO": True, "PR": True}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind", "arguments", "choices", "episodes"),
    [
        ("DoubleDQN", "DoubleDQN", (4, 32, 2), SET_VALUE, 20),
        ("DuelingDQN", "DuelingDQN", (4, 32, 2), SET_VALUE, 20),
        ("MADDPG", "DDPG", (16, 0.1, 0.98, 0.005), SET_TEAM, 6),
        ("PPO_pr", "PPO", (4, 32, 2, 0.7, 0.7), SET_PPO, 30),
    ],
)
def test_they_train_in_processes(name: str, kind: str, arguments, choices, episodes: int) -> None:
    model = getattr(example(f"pool_network.{name}"), kind)(*arguments, 3)
    model.set(pool_size=3000, **choices)
    model.train(adams(model), episodes, pool_network=True, processes=3, p=0)
    assembly, learner = model._assembly, model._assembly.learner
    assert len(assembly.environments.group.workers) == 2 and learner.updates > 0
    assert model.total_episode >= episodes and np.isfinite(model.loss) and model.loss != 0
    assert name != "PPO_pr" or len(learner.ring) == len(model.prioritized_replay.TD)


NOISY = {"noise": GaussianWhiteNoiseProcess, "num_updates": 1}
CHOICES = {"DDPG": NOISY, "MADDPG": {"policy": SoftmaxPolicy(), "num_updates": 2, "MARL": True}}
CHOICES |= {name: NOISY | {"HER": True} for name in ("DDPG_HER", "DDPG_FetchReach")}
STEPS = {"DDPG": 200, "DDPG_HER": 50, "DDPG_FetchReach": 50, "MADDPG": 25}  # of an episode, at most


def test_walks_in_the_world_of_points_their_time_and_their_goals() -> None:
    world, scores = PointWorld(), set()
    for seed in range(50):
        state, score, done = world.reset(seed=seed), 0.0, False
        assert state.tolist() == [0, 0] and np.all(np.abs(world.goal - 4) <= 0.5)
        while not done:
            state, reward, done, info = world.step((world.goal - state) / world.scale)
            score += reward
        assert not info["TimeLimit.truncated"] and np.linalg.norm(state - world.goal) <= 0.15
        far = world.goal.max()
        steps = 4 if far < 4.1 else 5 if far > 4.15 else world.steps
        assert score == -(world.steps - 1) and world.steps == steps
        scores.add(score)
    assert scores == {-3, -4}
    world = PointWorld(0.5)  # time is up after fifty steps
    world.reset(seed=0)
    ends = [world.step(np.array([-2, -2]))[1:] for _ in range(50)]
    assert ends[:-1] == [(-1, False, {"TimeLimit.truncated": False})] * 49
    assert ends[-1] == (-1, True, {"TimeLimit.truncated": True})
    world.reset()
    assert world.step(np.array([9.0, 1.0]))[0].tolist() == [1.0, 0.5]  # 1 at most
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


@pytest.mark.slow
@pytest.mark.parametrize("name", CHOICES)
def test_examples_train_on_torch(name: str) -> None:
    model = example(name).DDPG(16, 0.1, 0.98, 0.005)
    before = [x.detach().clone() for x in model.target_param]
    given = dict(CHOICES[name])
    given |= {"noise": given["noise"]()} if "noise" in given else {}  # of the first agent's size
    model.set(pool_size=500, batch=32, **given)
    model.train(adams(model), 2, p=0)
    assert model.total_episode == 2 and np.isfinite(model.loss_list).all() and model.loss != 0
    assert any((x != y).any() for x, y in zip(before, model.target_param, strict=True))
    states, score, steps = model.run_agent(300, 1)
    assert len(states) == steps <= STEPS[name] and np.isfinite(score)


def test_targets_go_a_part_of_the_way() -> None:
    model = example("DDPG").DDPG(8, 0.1, 0.98, 0.25)
    sources = [p for part in model.param for p in part]
    assert all(torch.equal(t, s) for t, s in zip(model.target_param, sources, strict=True))
    for s in sources:
        s.data += 1
    model.update_param()
    for target, s in zip(model.target_param, sources, strict=True):
        torch.testing.assert_close(target, s - 0.75, rtol=1e-5, atol=1e-6)


def test_an_actors_loss_is_an_expectation_over_joint_actions() -> None:
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
        grads = [gradients(found.sum(), actor.parameters()) for actor in model.actors]
        assert [all(each) for each in grads] == [i == 0, i == 1]


def test_agents_that_learn_alone_do_not_see_each_other() -> None:
    model = example("MADDPG").DDPG(8, 0.1, 0.98, 0.005, alone=True)
    s = torch.rand(5, 2, 4)
    q = model.values(model.critics, 0, s)
    assert torch.equal(q[:, 0], q[:, 1]) and not torch.equal(q[:, 0], q[:, 2])
    s[:, 1] = 0
    assert torch.equal(q, model.values(model.critics, 0, s))


@pytest.mark.thorough
def test_agents_with_critics_of_all_beat_those_that_learn_alone() -> None:
    """With critics of both the best return, 24, is reached; alone it stays near chance's, 6."""
    module = example("MADDPG")
    scores: dict[bool, list[float]] = {True: [], False: []}
    for seed, alone in itertools.product(range(3), (False, True)):
        torch.manual_seed(seed)
        model = module.DDPG(64, 0.1, 0.98, 0.005, alone)
        model.seed = seed
        model.set(policy=SoftmaxPolicy(), pool_size=3000, batch=32, num_updates=1, MARL=True)
        model.train(adams(model), 30, p=0)
        scores[alone].append(float(np.mean(model.reward_list[-5:])))
    assert min(scores[False]) > 22, scores
    assert max(scores[True]) < 15, scores


def test_a_search_sees_the_fall_that_is_near_and_trains_on_what_it_found() -> None:
    torch.manual_seed(0)
    sees, agent = (AlphaZero(4, 16, 2, num_simulations=n, c_puct=0.03) for n in (64, 8))
    leaning = np.array([0.0, 0.0, 0.12, 0.5])  # falls to the right unless it is pushed there
    assert np.argmax(sees.search(leaning)) == 1 and np.argmax(sees.search(-leaning)) == 0
    agent.set(pool_size=200, batch=8, num_steps=10, IRL=True)
    before = agent.net[0].weight.detach().clone()
    agent.train(torch.optim.Adam(agent.param, 1e-3), 1, p=0)
    assert agent.total_episode == 1 and not torch.equal(before, agent.net[0].weight)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["jax", pytest.param("tensorflow", marks=pytest.mark.thorough)])
def test_a_search_trains_on_keras(engine: Any) -> None:
    needs("AlphaZeroCartPole", engine)
    code = """
    import json
    import keras
    from tandem.examples.keras.AlphaZeroCartPole import AlphaZero
    agent = AlphaZero(4, 16, 2, num_simulations=4, c_puct=0.03)
    agent.set(pool_size=200, batch=8, num_steps=10, IRL=True)
    agent.train(None, keras.optimizers.Adam(1e-3), 1, p=0)
    print(json.dumps([agent.total_episode, agent.loss]))
    """
    ((episodes, loss),) = run_python(code, engine=engine, timeout=300)
    assert episodes == 1 and 0 < loss < 10


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_hindsight_finds_the_goal() -> None:
    model = example("DDPG_HER").main(0)
    assert model.total_episode < 500 and np.mean(model.reward_list[-10:]) >= -5


LEARNED = """
import importlib, json, sys
from contextlib import redirect_stdout
import numpy as np

module, parts, given = sys.argv[1], sys.argv[2].split(), json.loads(sys.argv[3])
with redirect_stdout(sys.stderr):
    model = importlib.import_module(f"tandem.examples.{module}").main(0, **given)
found = {"average": model.average_reward, "last": lambda: float(np.mean(model.reward_list[-10:]))}
found["plays"] = lambda: float(np.mean([model.run_agent(200, i)[1] for i in range(10)]))
print(json.dumps([found[part]() for part in parts]))
"""
KERAS = "jax tensorflow"
LEARNS = [  # example, what is looked at, how much it is at least, on what, and on what in processes
    ("DQN", "average", 475, f"torch {KERAS}", "torch jax"),
    ("DoubleDQN", "average", 475, "torch", "torch"),
    ("DuelingDQN", "average", 475, "torch", "torch"),
    ("PPO", "average", 475, f"torch {KERAS}", ""),
    ("PPO_pr", "average", 475, f"torch {KERAS}", "torch jax"),
    ("AlphaZeroCartPole", "average", 475, f"torch {KERAS}", ""),
    ("DDPG", "plays", -200, f"torch {KERAS}", "torch"),
    ("DDPG_HER", "last", -5, KERAS, "torch"),
    ("MADDPG", "last plays", 22, KERAS, ""),  # of 24; each alone about 10
    ("MADDPG", "last", 15, "", "torch"),
    ("DDPG_FetchReach", "plays", -10, "torch jax", ""),
]


@pytest.mark.learns
@pytest.mark.timeout(2500)
@pytest.mark.parametrize(
    ("name", "parts", "least", "engine", "given"),
    [
        (*row, engine, given)
        for *row, alone, several in LEARNS
        for engines, given in ((alone, {}), (several, {"processes": 2}))
        for engine in engines.split()
    ],
)
def test_examples_learn(name: str, parts: str, least: float, engine: Any, given: Any) -> None:
    needs(name, engine)
    module = f"{'pytorch' if engine == 'torch' else 'keras'}.{'pool_network.' * bool(given)}{name}"
    words = (module, parts, json.dumps(given))
    (found,) = run_python(LEARNED, *words, engine=engine, timeout=2400)
    assert min(found) >= least, found
