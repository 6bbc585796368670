"""Noise on weights in a run: constant within a block, and agents act without."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tandem
from tandem import algorithms, trainer
from tandem.envs.team import Team
from tandem.learning.events import BatchEnd
from tandem.networks.noisy import NoisyDense, is_noise
from tandem.networks.plan import Twin
from tandem.networks.serial import from_json
from tandem.reports.onnx_export import to_numpy
from tandem.testing import contracts, team_games
from tandem.testing.environments import Chain

DQN: dict[str, Any] = dict(
    hidden=(8,), envs=2, learning_starts=8, train_every=8, updates_per_call=2, steps=80
)
DQN |= dict(batch_size=8, buffer_size=100, target_every=16, epsilon=0.0, noisy="factorised")
PPO: dict[str, Any] = dict(hidden=(8,), envs=2, rollout=8, batch_size=16, epochs=1, steps=80)
PPO |= {"normalize_advantage": False, "noisy": "independent"}
QUIET: dict[str, Any] = dict(
    plots=False, tensorboard=False, eval_episodes=2, final_episodes=2, keep=1
)


def begin(name: str, **given: Any) -> Any:
    return contracts.begin(algorithms.get(name), Chain, "torch", **given)


def noises(weights: dict[str, Any]) -> dict[str, Any]:
    return {n: np.array(x) for n, x in weights.items() if is_noise(n)}


@pytest.mark.parametrize("name, settings", [("dqn", DQN), ("ppo", PPO)])
def test_noise_stays_for_a_block_and_is_another_in_the_next(name, settings) -> None:
    loop = begin(name, **settings)
    (role,) = loop.algorithm.acting
    heard: list[list[dict[str, Any]]] = [[]]
    act = loop.actor.act

    def listening(*given: Any) -> Any:
        heard[-1].append(noises(loop.networks[role].weights))
        return act(*given)

    loop.actor.act = listening
    for event in loop.events():
        if isinstance(event, BatchEnd):
            inside = noises(loop.backend.networks[role].read())  # already what acts next
            acting = noises(loop.networks[role].weights)
            assert all(np.array_equal(x, inside[n]) for n, x in acting.items())
            heard.append([])
    blocks = [b for b in heard if b]
    assert len(blocks) >= 5 and all(len(b) == loop.learner.block for b in blocks)
    assert all(np.array_equal(x, b[0][n]) for b in blocks for step in b for n, x in step.items())
    firsts = [next(iter(b[0].values())) for b in blocks]
    assert all(x.any() for x in firsts)  # from the first step on
    changed = [not np.array_equal(x, y) for i, x in enumerate(firsts) for y in firsts[:i]]
    assert all(changed)


def test_a_rollout_is_learned_from_with_the_noise_that_acted() -> None:
    loop = begin("ppo", **PPO)
    # the one update of each: nothing has moved
    assert [abs(m["kl"]) < 1e-6 for m in contracts.train(loop)] == [True] * 5
    loop = begin("ppo", **PPO)
    real = loop.learner.learn

    def deaf(*given: Any) -> Any:
        for role in loop.networks:
            network = loop.backend.networks[role]
            network.place({n: -x for n, x in network.read_noise().items()})
        return real(*given)

    loop.learner.learn = deaf
    assert min(m["kl"] for m in contracts.train(loop)) > 1e-6  # other noise would be seen


def test_each_update_has_noise_of_its_own_and_targets_too() -> None:
    loop = begin("dqn", **DQN)
    real, seen = loop.learner._run, []
    loop.learner._run = lambda batch, *rest: (seen.append(batch.settings), real(batch, *rest))[1]
    contracts.train(loop)
    names = sorted(n for n in seen[0] if n.startswith("noise/"))
    layers = [f"{net}/2/{n}" for net in ("q", "q_target") for n in ("bias", "kernel")]
    assert names == [f"noise/{layer}_noise" for layer in layers]
    for name in names:
        draws = np.concatenate([s[name] for s in seen])
        different = np.unique(draws.reshape(len(draws), -1), axis=0)
        assert len(different) == len(draws) == loop.learner.updates
    assert not np.array_equal(seen[0][names[0]], seen[0][names[2]])


@pytest.mark.parametrize("name, settings", [("dqn", DQN), ("ppo", PPO)])
def test_saving_leaves_noise_alone_and_agents_have_none(name, settings, tmp_path) -> None:
    given = {"framework": "torch", "out": tmp_path / "run", **settings, **QUIET}
    run = trainer.session(name, "tandem/Chain-v0", **given)
    list(run.events())
    (role,) = run.kind.acting
    network = run.backend.networks[role]
    noise, before = noises(network.read()), run.fingerprint()
    assert noise and all(x.any() for x in noise.values())
    states = np.arange(4)
    quiet = {n: 0 * x if is_noise(n) else x for n, x in network.read().items()}
    mean = Twin(network.plan, quiet)(states)
    assert np.abs(mean - network.predict(states)).max() > 1e-3
    agents = [run.agent(), tandem.load(tmp_path / "run", which="last")]
    for agent in agents:
        twin = agent.networks[role]
        assert isinstance(twin.plan[-1], NoisyDense)
        assert not any(x.any() for x in noises(twin.weights).values())
        np.testing.assert_array_equal(twin(states), mean)
        assert agent.act(0) in (0, 1) and agent.act(states, deterministic=False).shape == (4,)
    assert run.fingerprint() == before
    with np.load(to_numpy(agents[0], tmp_path / "a.npz").file) as data:
        plan, arrays = from_json(json.loads(str(data["plan"]))), set(data.files) - {"plan"}
        out = Twin(plan, {n: data[n] for n in arrays})(states)
    np.testing.assert_array_equal(out, mean)


def test_the_program_that_reads_an_export_knows_noisy_layers(tmp_path: Path) -> None:
    run = trainer.session(
        "dqn", "CartPole-v1", framework="torch", **{**DQN, "activation": "tanh"}, **QUIET
    )
    agent, obs = run.agent(), np.ones((3, 4), np.float32)
    done = to_numpy(agent, tmp_path / "agent.npz")
    assert "tandem" not in done.how.replace(str(tmp_path), "")
    space: dict[str, Any] = {}
    exec(done.how, space)
    np.testing.assert_allclose(space["network"](obs), agent.networks["q"](obs), rtol=1e-6)


@pytest.mark.parametrize("name", algorithms.NAMES)
def test_every_algorithm_learns_with_noise(name) -> None:
    env: Any = "Pendulum-v1" if name in ("sac", "crossq", "tqc", "ddpg", "td3") else "CartPole-v1"
    env = (lambda: Team(team_games.TwoStep())) if algorithms.get(name).team else env
    kind = algorithms.get(name)
    rollout = {"rollout": 8, "envs": 2}
    own = rollout if kind.needs != "transitions" else {"learning_starts": 8}
    own |= dict(batch_size=8, buffer_size=100, train_every=8, updates_per_call=2, policy_delay=1)
    known = {n: x for n, x in own.items() if n in kind.Settings.__dataclass_fields__}
    given = {"steps": 48, "hidden": (8,), "noisy": "factorised", **known}
    loop = contracts.begin(kind, env, "torch", **given)
    before = contracts.weights(loop)
    assert contracts.train(loop)
    after = contracts.weights(loop)
    sigmas = [n for n in before if n.endswith("kernel_sigma")]
    trained = [n for n in sigmas if "_target/" not in n]
    quiet = ("log_alpha", "encoder")
    noisy = {n for n in loop.backend.networks if n not in quiet and "mixer" not in n}
    assert {n.split("/")[0] for n in sigmas} == noisy
    assert all(not np.array_equal(before[n], after[n]) for n in trained)
