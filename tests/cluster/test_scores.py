"""Agents of the cluster API reach known scores, from the steps of two runners."""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest

from tandem.cluster import AlgorithmAgent, Cluster, Runner
from tandem.envs.team import team
from tandem.testing import environments as games
from tandem.testing import team_games
from tests.cluster.agents import spaces

pytest.importorskip("torch")
SMALL = {"hidden": (32, 32), "framework": "torch", "gamma": 0.1, "envs": 2}
REPLAY = SMALL | dict(learning_starts=200, train_every=16, updates_per_call=16, batch_size=64)
REPLAY |= {"buffer_size": 5000, "learning_rate": 3e-3, "tau": 0.02}
ROLLOUT = SMALL | {"rollout": 64, "learning_rate": "1e-2:1e-3", "log_std": -0.5}
PPO = {"batch_size": 32, "epochs": 6, "entropy": 0.0}
MAPPO = dict(rollout=64, batch_size=128, learning_rate="5e-3:1e-3", gamma=0.9, entropy="0.3:0")
DQN = dict(learning_starts=100, batch_size=32, train_every=2, learning_rate=5e-3, target_every=100)
# name: algorithm, environment, steps, settings; the score of a perfect policy, and a lower limit.
# In IdentityBox the best constant action scores -3.3; in TwoStep agents that do not cooperate
# score at most 7.
CASES: dict[str, tuple[str, Any, int, dict[str, Any], float]] = {
    "dqn": ("dqn", games.Identity, 1500, SMALL | DQN, 10.0),
    "sac": ("sac", games.IdentityBox, 1200, REPLAY, -0.5),
    "trpo": ("trpo", games.IdentityBox, 6000, ROLLOUT | {"radius": 0.03}, -1.0),
    "ppo": ("ppo", games.IdentityBox, 4000, ROLLOUT | PPO, -1.0),
    "mappo": ("mappo", lambda: team(team_games.TwoStep), 4000, SMALL | MAPPO, 8.0),
}


class Two(Runner):
    """The loops of two runners in one process: their proxies take turns."""

    def __init__(self, cluster: Cluster, make: Any, steps: int, settings: dict[str, Any]) -> None:
        self.envs, self.steps = [make() for _ in range(2)], steps // 2
        env: gymnasium.Env[Any, Any] = self.envs[0]
        given = {"steps": steps, **spaces(env), **settings}
        cluster.make_agent("learner", AlgorithmAgent, **given)
        self.agents = [cluster.get_agent("learner") for _ in self.envs]

    def run(self) -> None:
        states = [env.reset(seed=i)[0] for i, env in enumerate(self.envs)]
        for _ in range(self.steps):
            for i, (agent, env) in enumerate(zip(self.agents, self.envs, strict=True)):
                action = agent.choose_action(states[i])
                after, reward, terminated, truncated, info = env.step(action)
                over, rewards = terminated or truncated, info.get("rewards", reward)
                agent.update(states[i], action, rewards, after, over, truncated and not terminated)
                states[i] = env.reset()[0] if over else after


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_it_learns_from_two_runners(name: str) -> None:
    algorithm, make, steps, settings, least = CASES[name]
    cluster = Cluster(namespace=f"scores-{name}")
    runner = Two(cluster, make, steps, {"algorithm": algorithm, **settings})
    untrained = runner.agents[0].evaluate(make, 20).mean
    runner.run()
    score = runner.agents[0].evaluate(make, 20).mean
    assert untrained < least - 0.5 and score >= least, (untrained, score)
