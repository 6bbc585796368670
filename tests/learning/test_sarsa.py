"""Q-learning, SARSA, expected SARSA: known answers, and a slow reference of PQN's returns."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from tandem import algorithms
from tandem.algorithms.pqn import PQN
from tandem.testing import contracts
from tandem.testing.environments import Forbidden, Game
from tandem.types import tree_map

GAMMA, EPSILON = 0.9, 0.4
ON_PQN = dict(envs=8, rollout=16, batch_size=64, learning_rate="0.03:0.001", steps=12_000)
ON_STEPS = {"envs": 32, "learning_rate": "0.1:0.003", "target_updates": 10}
OLDER = {"replay": "uniform", "replay_ratio": 1.0, "replay_starts": 64}


class Edge(Game):
    """Three steps along an edge: 1 is a step ahead, and pays 1 at the end; 0 falls, for -1."""

    observation_space, action_space, length, state = spaces.Discrete(3), spaces.Discrete(2), 2, 0

    def begin(self) -> None:
        self.state = int(self.np_random.integers(3))

    def observe(self) -> Any:
        return np.int64(self.state)

    def play(self, action: Any) -> tuple[float, bool]:
        if action == 0 or self.state == 2:
            return (1.0 if action else -1.0), True
        self.state += 1
        return 0.0, False


def known(bootstrap: str) -> Any:
    """Q(s, ahead) of the three places: of the best policy, or of one that falls at random."""
    chance, found = 0.0 if bootstrap == "max" else EPSILON / 2, [1.0]
    for _ in range(2):
        found.insert(0, GAMMA * ((1 - chance) * found[0] - chance))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, given",
    [
        ("pqn", {**ON_PQN, "bootstrap": "sarsa", "q_lambda": 0.7}),
        ("nstep_q", {**ON_STEPS, "steps": 8_000, "rollout": 1, "bootstrap": "max"}),
        ("nstep_q", {**ON_STEPS, "steps": 32_000, "rollout": 4, "bootstrap": "sarsa"}),
        ("nstep_q", {**ON_STEPS, "steps": 32_000, "rollout": 4, "bootstrap": "expected"}),
        ("nstep_q", {**ON_STEPS, **OLDER, "steps": 4_000, "rollout": 1, "bootstrap": "expected"}),
    ],
)
def test_values_are_those_of_the_policy_that_is_learned(name: str, given: Any) -> None:
    every = {"hidden": (), "gamma": GAMMA, "epsilon": EPSILON}
    loop = contracts.begin(algorithms.get(name), Edge, "torch", **every, **given)
    contracts.train(loop)
    (network,) = (loop.backend.networks[n] for n in ("q", "net") if n in loop.backend.networks)
    q = network.predict(np.arange(3))
    np.testing.assert_allclose(q[:, 0], -1, atol=0.05)
    np.testing.assert_allclose(q[:, 1], known(given["bootstrap"]), atol=0.1)


def led_to(t: Any) -> Any:
    """What was seen after each step [T, N, ...]: of an episode's last one, too."""

    def after(obs: Any, cuts: Any, end: Any) -> Any:
        found = np.concatenate([obs[1:], end[None]])
        found[t.cuts.t, t.cuts.env] = cuts
        return found

    return tree_map(after, t.obs, t.cuts.obs, t.bootstrap)


def slow_returns(s: Any, t: Any, values: Any) -> Any:
    """PQN's returns of a rollout, from the last step of each environment to the first; values [T,
    N, A] are of what was seen after each step."""
    seen, found = led_to(t), np.zeros(t.reward.shape)
    for n in range(s.envs):
        for i in reversed(range(s.rollout)):
            q, masks = values[i, n].tolist(), isinstance(seen, dict)
            may = [a for a in range(len(q)) if not masks or seen["action_mask"][i, n, a]]
            best, mean = max(q[a] for a in may), sum(q[a] for a in may) / len(may)
            over = t.last[i, n] or i + 1 == s.rollout
            epsilon = t.extra["epsilon"][i if over else i + 1, n] if "epsilon" in t.extra else 0.0
            value = best if s.bootstrap == "max" else (1 - epsilon) * best + epsilon * mean
            if not over:
                value = q[t.action[i + 1, n]] if s.bootstrap == "sarsa" else value
                value = (1 - s.q_lambda) * value + s.q_lambda * found[i + 1, n]
            found[i, n] = t.reward[i, n] + t.discount[i, n] * value
    return found


def short_pole() -> Any:
    return gymnasium.make("CartPole-v1", max_episode_steps=7)


@pytest.mark.parametrize("bootstrap", ["max", "sarsa", "expected"])
@pytest.mark.parametrize("env", [short_pole, Forbidden, "CartPole-v1"])
def test_the_returns_of_a_rollout_are_those_of_a_slow_reference(env: Any, bootstrap: str) -> None:
    """Where episodes end or are cut, with masks, and in vectors that reset on the next step."""
    native: dict[str, Any] = {"vectorization": "native"} if env == "CartPole-v1" else {}
    given: dict[str, Any] = dict(hidden=(8,), envs=4, rollout=21, batch_size=84, steps=420)
    given |= {"epsilon": "0.9:0.1", "q_lambda": 0.6, "gamma": 0.9, "bootstrap": bootstrap}
    loop = contracts.begin(PQN, env, "torch", **given, **native)
    rollouts: list[Any] = []
    prepare = loop.algorithm.prepare

    def watched(trajectory: Any, networks: Any) -> Any:
        batch = prepare(trajectory, networks)
        rows = tree_map(lambda x: x.reshape(-1, *x.shape[2:]), led_to(trajectory))
        values = loop.backend.networks["q"].predict(rows).reshape(*trajectory.reward.shape, -1)
        wanted = slow_returns(loop.settings, trajectory, values).reshape(-1)
        rollouts.append((trajectory, batch, wanted))
        return batch

    loop.algorithm.prepare = watched
    contracts.train(loop)
    assert len(rollouts) >= 5 and any(t.last.any() for t, _, _ in rollouts)
    assert any((t.last & (t.discount > 0)).any() for t, _, _ in rollouts) or native
    for t, batch, wanted in rollouts:
        counted = t.valid.reshape(-1)
        found = batch.extra["return"][counted]
        np.testing.assert_allclose(found, wanted[counted], rtol=1e-4, atol=1e-5)
        if bootstrap != "max":
            assert t.extra["epsilon"].min() > 0.09 and t.extra["epsilon"].max() < 0.91


def test_the_returns_of_a_network_with_a_memory_follow_it_step_by_step() -> None:
    units = 5
    given: dict[str, Any] = {"hidden": (8,), "envs": 4, "rollout": 20, "batch_size": 80}
    given |= {"steps": 240, "recurrent": units, "sequence": 5, "q_lambda": 0.6}
    loop = contracts.begin(PQN, short_pole, "torch", **given, gamma=0.9, epsilon=0.5)
    network, prepare = loop.backend.networks["q"], loop.algorithm.prepare

    def seen(obs: Any, state: Any) -> tuple[Any, Any]:
        """(the values, the states after it)."""
        out = network.predict({"obs": obs, "state": state, "start": np.zeros(len(obs), "f4")})
        return out[:, :-units], out[:, -units:]

    def watched(t: Any, networks: Any) -> Any:
        batch, state, values = prepare(t, networks), t.state, []
        for i, after in enumerate(led_to(t)):
            state = seen(t.obs[i], state)[1]
            values.append(seen(after, state)[0])
            state = np.where(t.last[i][:, None], np.float32(0), state)
        wanted = slow_returns(loop.settings, t, np.stack(values))
        rows = np.moveaxis(wanted.reshape(4, 5, 4), 2, 1).reshape(-1, 5)
        np.testing.assert_allclose(batch.extra["return"], rows, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(batch.extra["q_state"][:4], t.state)
        met.append(((t.last & (t.discount > 0)).any(), np.abs(t.state).max() > 0))
        return batch

    met: list[Any] = []
    loop.algorithm.prepare = watched
    contracts.train(loop)
    assert len(met) == 3 and all(cut for cut, _ in met) and met[1][1]
