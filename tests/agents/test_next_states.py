"""The next state is what the environment showed, also at an episode's end: in losses and pools."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import tandem
from tandem.algorithms.dqn import DQN
from tandem.cluster import AlgorithmAgent
from tandem.exploration import GreedyQPolicy
from tests.agents.agents import Clock, Ratio, own, trained


@pytest.mark.parametrize(
    ("envs", "choices", "train"),
    [
        (1, {}, {}),
        (3, {}, {}),
        (1, {"PR": True}, {}),
        (2, {"PPO": True, "update_steps": 8}, {}),
        (2, {"PPO": True, "PR": True, "update_steps": 8}, {}),
        (1, {"num_steps": 2}, {}),
        (3, {"TRL": True}, {}),
        pytest.param(2, {}, {"processes": 2}, marks=pytest.mark.slow),
        pytest.param(2, {}, {"parallel_store_and_training": True}, marks=pytest.mark.slow),
    ],
)
def test_the_next_state_is_that_of_the_same_episode(envs: int, choices: Any, train: Any) -> None:
    agent = Ratio([Clock(3 + i) for i in range(envs)] if envs > 1 else Clock(3))
    agent.gamma = 0.5
    trained(agent, 12, train=train, **choices)
    ended = 0
    for s, _, next_s, _, d in agent.seen[1:]:
        ended += int((d == 1).sum())
        later = next_s[..., 0] - s[..., 0]
        assert (next_s[..., 1] == s[..., 1]).all()  # the number of the episode
        assert (later > 0).all()
        if not choices.get("TRL"):
            assert (later <= choices.get("num_steps", 1)).all() and (next_s[d == 1, 0] >= 3).all()
    assert ended > 0 or choices.get("TRL")
    if not choices.get("PPO"):  # whose pool is empty by now
        s, next_s = agent.state_pool, agent.next_state_pool
        assert len(s) > 10 and (next_s[:, 1] == s[:, 1]).all() and (next_s > s)[:, 0].all()


class Reach:
    """A plain object with a goal, which one step reaches or misses; then the episode is over."""

    observation_space, action_space = spaces.Box(-9, 9, (8,), np.float32), spaces.Discrete(8)
    rng = np.random.default_rng(0)

    def reset(self) -> Any:
        self.goal = np.eye(8, dtype=np.float32)[self.rng.integers(8)]
        return np.zeros(8, np.float32)

    def step(self, action: Any) -> Any:
        state = np.eye(8, dtype=np.float32)[action]
        return state, float((state == self.goal).all()) - 1.0, True, {}


def test_hindsight_learns_from_a_single_step_that_terminates() -> None:
    def judge(self: Any, state: Any, goal: Any) -> Any:
        there = (state == goal).all(-1)
        return there - 1.0, there

    agent = own(reward_done_func=judge)(Reach(), 16, 8)
    agent.set(policy=GreedyQPolicy(), pool_size=100, batch=16, HER=True, num_updates=1)
    agent.train(torch.optim.SGD(agent.param, 0.1), episodes=60)
    for s, a, next_s, r, d in agent.seen[1:]:
        assert (d == 1).all() and (next_s[:, :8].argmax(1) == a).all() and (s[:, :8] == 0).all()
        assert torch.equal(r == 0, s[:, 8:].argmax(1) == a)
    relabeled = torch.cat([r for *_, r, _ in agent.seen[-20:]])
    assert (relabeled == 0).float().mean() > 0.7  # four of five, and those that hit


class Count(gymnasium.Env):
    """Shows the step, and terminates after three or is truncated after two."""

    observation_space, action_space = spaces.Box(-99, 99, (1,), np.float32), spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t, self.limit = 0, bool(self.np_random.integers(2))
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return np.full(1, self.t, np.float32), 1.0, self.t == 3, self.limit and self.t == 2, {}


class Mine(DQN):
    """A user's algorithm."""


SIZES = {"learning_starts": 20, "batch_size": 8, "buffer_size": 60, "train_every": 2, "envs": 2}
SMALL: dict[str, Any] = {"framework": "torch", "hidden": (4,), **SIZES}
RUN = {"compile": "no", "eval_every": 0, "out": None, **SMALL}


@pytest.mark.parametrize("kind", ["plain", "SAME_STEP", "NEXT_STEP", "DISABLED"])
def test_a_users_algorithm_is_given_the_true_last_observation(kind: str) -> None:
    env = Count
    if kind != "plain":
        mode = gymnasium.vector.AutoresetMode[kind]
        env = gymnasium.vector.SyncVectorEnv([Count] * 2, autoreset_mode=mode)
    run = tandem.session(Mine, env, steps=100, eval_env=Count, **RUN)
    list(run)
    ring = run.loop.learner.ring
    for n in (1, 2):
        batch = ring.transitions(ring.rows(), n)
        after, ended = batch.next_obs - batch.obs, batch.discount == 0
        assert ended.sum() > 3 and (after > 0).all() and (after <= n).all()
        assert (batch.next_obs[ended] == 3).all()


def test_an_agent_of_the_cluster_is_given_it_too() -> None:
    env, given = Count(), {"algorithm": Mine, "steps": 100, **SMALL, "envs": 1}
    given |= {name: getattr(Count, name) for name in ("observation_space", "action_space")}
    agent = AlgorithmAgent(**given)
    s, _ = env.reset(seed=0)
    for _ in range(60):
        s2, r, over, cut, _ = env.step(a := agent.choose_action(s))
        agent.update(s, a, r, s2, over or cut, cut)
        s = env.reset()[0] if over or cut else s2
    ring = agent.learner.ring
    batch = ring.transitions(ring.rows())
    assert (batch.next_obs == batch.obs + 1).all() and (batch.discount == 0).sum() > 3


def test_tandems_own_algorithms_store_no_more_than_they_use() -> None:
    """Their losses multiply what follows a termination by a discount of 0."""
    run = tandem.session("dqn", Count, steps=60, **RUN)
    list(run)
    ring = run.loop.learner.ring
    assert (ring.discount[ring.position(ring._cuts.ids)] > 0).all() and len(ring._cuts)
