"""When an agent learns, from what, and the arguments of its loss: computed by hand on a clock."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from tandem import exploration
from tandem.agents.training import usual_updates
from tandem.errors import EnvironmentFault
from tandem.exploration import GaussianWhiteNoiseProcess
from tests.agents.agents import Clock, Probe, Ratio, own, trained


@pytest.mark.parametrize(
    ("choices", "losses", "copies"),
    [
        ({}, 17, range(1, 18)),  # of 20 steps, the first batch at the fourth
        ({"update_steps": 5}, 17, [5, 10, 15]),
        ({"update_batches": 7}, 17, [7, 14]),
        ({"num_updates": 3}, 51, range(3, 52, 3)),
        ({"num_updates": 3, "update_batches": 2}, 51, range(2, 52, 2)),
        ({"PPO": True, "update_steps": 8, "num_updates": 3}, 6, [3, 6]),
    ],
)
def test_phases_and_update_param(choices: Any, losses: int, copies: Any) -> None:
    agent = trained(Probe(), 4, **choices)
    assert agent.losses - 1 == losses and agent.copies == list(copies)
    assert all(len(s) == 4 for s, *_ in agent.seen[1:])
    if choices == {"num_updates": 3}:  # mini-batches of a phase share no transition
        last = torch.cat([s for s, *_ in agent.seen[-3:]])
        assert len({tuple(row) for row in last.tolist()}) == 12


def test_phases_of_whole_episodes() -> None:
    """Ten phases after the second and the fourth of 5 steps each; the third is not seen before."""
    agent = trained(Probe(), 4, train={"num_store": 2})
    assert agent.losses - 1 == 20 and agent.copies == list(range(1, 21))
    steps = [
        {5 * e + t for s, *_ in part for t, e in s.tolist()}
        for part in (agent.seen[1:11], agent.seen[11:21])
    ]
    assert max(steps[0]) < 10 < max(steps[1])
    assert trained(Probe(), 4, PPO=True, update_steps=8, train={"num_store": 3}).copies == [20, 40]


def test_unless_told_a_step_is_followed_by_a_pass_over_the_pool_within_limits() -> None:
    counts = {1: 1, 63: 1, 128: 2, 255: 2, 1_100: 16, 1_300: 8, 10_000: 2, 10**6: 1}
    assert {n: usual_updates(n, 64) for n in counts} == counts
    made = sum(usual_updates(n, 4) for n in range(4, 21))  # 20 steps, a phase from the fourth on
    assert trained(Probe(), 4, num_updates=None).losses - 1 == made == 1 * 4 + 2 * 8 + 4 * 5
    assert trained(Probe(), 4, num_updates=None, update_steps=7).losses - 1 == made


@pytest.mark.parametrize("envs", [1, 3])
@pytest.mark.parametrize("window", ["a number", "a function"])
def test_a_pool_may_be_trimmed_within_a_phase(envs: int, window: str) -> None:
    agent = Probe([Clock() for _ in range(envs)])
    if window == "a function":
        agent.window_size_fn = lambda: 2 * envs
    numbers = {} if window == "a function" else {"window_size_pr": 2 * envs}
    choices = {"PR": True, "num_updates": 4, "update_batches": 2}
    trained(agent, 6 * envs, train=numbers, **choices)
    learner = agent._assembly.learner
    assert agent.losses - 1 == learner.updates
    assert agent.copies == list(range(2, learner.updates + 1, 2))
    assert len(learner.ring) < 4 * envs + 4  # each phase trims it until no batch is left


@pytest.mark.parametrize("envs", [1, 3])
@pytest.mark.parametrize("PR", [False, True])
def test_ppo_updates_its_parameters_within_a_phase(envs: int, PR: bool) -> None:
    """30 mini-batches are ten passes; after 7 the pool is emptied, or trimmed by 3 each time."""

    agent = Ratio([Clock() for _ in range(envs)])
    windows = {"window_size_ppo": 3} if PR else {}
    trained(agent, 12, PPO=True, PR=PR, update_steps=12, update_batches=7, train=windows)
    first = {tuple(x) for s, *_ in agent.seen[1:8] for x in s.tolist()}
    assert agent.copies[:2] == [7, 14]
    if PR:
        assert agent.copies[2:4] == [21, 28]
    else:
        second = {tuple(x) for s, *_ in agent.seen[8:15] for x in s.tolist()}
        assert len(agent.copies) == agent._assembly.loop.env_steps // 12
        assert envs > 1 or not first & second


def test_ppo_by_mini_batches_collects_an_episode_of_each_environment() -> None:
    """14 steps until both have ended, ten passes are 35 mini-batches; after 9 the pool is empty."""
    agent = trained(Probe([Clock(5), Clock(7)]), 4, PPO=True, update_batches=9)
    assert agent.copies == [9, 18] and agent._assembly.loop.env_steps == 28
    first = {tuple(x) for s, *_ in agent.seen[1:10] for x in s.tolist()}
    second = {tuple(x) for s, *_ in agent.seen[10:] for x in s.tolist()}
    # of the first: both clocks' first episodes, and two steps of one's second
    assert first == {(t, 0.0) for t in range(7)} | {(0.0, 1.0), (1.0, 1.0)}
    assert second == {(t, 1.0) for t in range(7)} | {(t, 2.0) for t in range(4)}
    assert len(agent._assembly.learner.ring) == 0


def test_ppo_by_mini_batches_counts_them_from_phase_to_phase() -> None:
    """Ten passes over 4 steps are 10, fewer than 12: the second phase ends after 2 mini-batches."""
    agent = trained(Probe(Clock(4)), 3, PPO=True, update_batches=12)
    assert agent.copies == [12] and agent.losses - 1 == 12 + 10


def test_ppo_collects_more_episodes_where_one_is_no_batch_or_several_are_stored() -> None:
    short = trained(Probe(Clock(3)), 4, PPO=True, update_batches=8)  # a batch is 4
    assert short.copies == [8, 16]
    two, stored = Probe([Clock(5), Clock(4)]), {"num_store": 2}
    several = trained(two, 8, PPO=True, update_batches=6, train=stored)
    assert several.copies == [6, 12] and several._assembly.loop.env_steps == 40


def test_ppo_collects_learns_from_all_and_begins_anew() -> None:
    # 20 steps: two phases of 10 passes over 8 in batches of 4
    agent = trained(Probe(), 4, PPO=True, update_steps=8)
    assert agent.losses - 1 == 40 and agent.copies == [20, 40]
    for phase, begin in ((agent.seen[1:21], 0), (agent.seen[21:41], 8)):
        steps = [5 * e + t for s, *_ in phase for t, e in s.tolist()]
        assert sorted(steps) == sorted(10 * list(range(begin, begin + 8)))
    assert len(agent._assembly.learner.ring) == 4


def test_the_pool_keeps_the_newest() -> None:
    agent = trained(Probe(), 10, pool_size=12)
    ring = agent._assembly.learner.ring
    assert len(ring) == 12 and ring.newest == 49
    late = {5 * e + t for s, *_ in agent.seen[-5:] for t, e in s.tolist()}
    assert min(late) >= 49 - 12 - 4


@pytest.mark.parametrize("cut", [False, True])  # which is no end
def test_what_the_loss_is_told(cut: bool) -> None:
    agent = trained(Probe(Clock(3, cut)), 4)
    for s, a, after, r, d in agent.seen[1:]:
        t, episode = s.numpy().T
        assert s.dtype == r.dtype == d.dtype == torch.float32 and a.dtype == torch.int64
        assert a.shape == r.shape == d.shape
        np.testing.assert_array_equal(r, t + 1)
        np.testing.assert_array_equal(d, (t == 2) & (not cut))
        going = (t != 2) | cut  # the true last observation
        np.testing.assert_array_equal(after[going], np.stack([t + 1, episode], 1)[going])


def test_n_steps_are_discounted_from_the_first_state_on() -> None:
    agent = Probe(Clock(4))
    agent.gamma = 0.5
    trained(agent, 20, num_steps=3)
    reward = {0: 1 + 0.5 * 2 + 0.25 * 3, 1: 2 + 0.5 * 3 + 0.25 * 4, 2: 3 + 0.5 * 4, 3: 4.0}
    checked = 0
    for s, _, after, r, d in agent.seen[-40:]:  # from the tenth episode on
        for (t, e), after_t, ret, end in zip(
            s.tolist(), after[:, 0].tolist(), r.tolist(), d.tolist(), strict=True
        ):
            if e < 9:  # windows at the newest rows are shorter
                # (1 - d) gamma = gamma ** 3 where it goes on
                assert ret == reward[t] and end == (0.75 if t == 0 else 1.0)
                assert t != 0 or after_t == 3
                checked += 1
    assert checked > 40


def test_several_environments_step_together() -> None:
    agent = trained(Probe([Clock(), Clock(4), Clock(3)]), 6)
    assert agent._assembly.loop.env_steps % 3 == 0
    # a batch is there after two steps of three
    assert agent.losses - 1 == len(agent.copies) == agent._assembly.loop.env_steps - 3
    assert agent.reward_list[:3] == [6.0, 10.0, 15.0]


def test_records_and_a_loss_of_0_before_any_update() -> None:
    agent = trained(Probe(), 4)
    assert agent.reward_list == [15.0] * 4 and len(agent.loss_list) == agent.total_episode == 4
    assert isinstance(agent.given, np.float32)
    assert agent.given == np.float32(agent.loss_list[-1]) == np.float32(agent.loss)
    assert 0 < agent.time <= agent.total_time
    assert trained(Probe(), None, trial_count=3, criterion=15.0).total_episode == 3
    agent = Probe()
    agent.stop_training = True
    assert trained(agent, 4).given == np.float32(0) and not agent.reward_list
    assert trained(agent, 2).reward_list == [15.0, 15.0]


def test_windows_periodic_clearing_and_pools_that_begin_empty() -> None:
    for pool_size, train, left in (
        # more than one goes when the pool is full: 12 at step 12: 7; 12 at 17: 7; then 10
        (12, {"window_size": 5}, 10),
        (100, {"clearing_freq": 10, "window_size_": 6}, 20 - 12),
    ):
        agent = trained(Probe(), 4, pool_size=pool_size, num_updates=None, train=train)
        assert len(agent._assembly.learner.ring) == left
    for number, left in ((None, 20), (5, 10)):
        train = {"window_size_pr": number}
        agent = trained(Probe(), 4, num_updates=None, PR=True, update_steps=8, train=train)
        assert len(agent._assembly.learner.ring) == left
    agent = trained(Probe(), 4)
    agent.train(None, 1, save_data=False, p=0)
    assert len(agent._assembly.learner.ring) == 5
    agent.train(None, 1, p=0)
    assert len(agent._assembly.learner.ring) == 10


def test_priorities_by_error_new_ones_first() -> None:
    new = trained(Probe(), 1, PR=True, initial_TD=3.0, batch=100).prioritized_replay
    assert new.TD.tolist() == [3.0] * 5
    agent = trained(Probe(), 8, PR=True, alpha=1.0, epsilon=1e-9, lr=0.0)
    replay = agent.prioritized_replay
    assert len(replay.TD) == 40
    ring = agent._assembly.learner.ring
    rows = ring.transitions(np.arange(ring.oldest, ring.newest + 1))
    found = agent.net(torch.from_numpy(rows.obs))[:, 0]
    true = (found - torch.from_numpy(rows.reward)).abs().detach().numpy()
    reported = ~np.isclose(replay.TD, replay.sampler.most["TD"])
    np.testing.assert_allclose(replay.TD[reported], true[reported], rtol=1e-5)
    assert reported.sum() > 20
    np.testing.assert_allclose(replay.powers(), replay.TD, rtol=1e-6)
    # none twice in a batch
    assert all(len({tuple(x) for x in s.tolist()}) == 4 for s, *_ in agent.seen[1:])


def test_a_loss_per_sample_is_weighted() -> None:
    class Each(Probe):
        weights: tuple[Any, ...] = ()

        def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
            TD = self.net(s)[:, 0] - r
            self.prioritized_replay.update(TD)
            self.weights += (self.prioritized_replay.weight,)
            return TD**2

    agent = trained(Each(), 8, PR=True, beta=1.0)
    assert any(w.min() < 0.99 for w in agent.weights[1:])
    assert all(w.max() == 1 for w in agent.weights[1:])


def test_ppo_with_priorities_by_error_and_ratio_drops_the_oldest() -> None:
    class Drops(Ratio):
        drops: tuple[int, ...] = ()

        def window_size_fn(self) -> int:
            self.drops += (self.adjust_window_size(),)
            return 3

    exact = {"lambda_": 0.5, "alpha": 1.0, "epsilon": 1e-9, "lr": 0.0}
    agent = trained(Drops(), 8, PPO=True, PR=True, update_steps=10, **exact)
    replay = agent.prioritized_replay
    assert len(replay.ratio) == len(replay.TD) == 40 - 4 * 3
    powers = 0.5 * replay.TD + 0.5 * abs(replay.ratio - 1)
    np.testing.assert_allclose(replay.powers(), powers, rtol=1e-5)
    assert all(0 < n < 40 for n in agent.drops)


class Line:
    """A point on a line that has to reach its goal."""

    def __init__(self) -> None:
        self.action_space = None

    def reset(self) -> Any:
        self.at, self.t, self.goal = 0.0, 0, np.array([9.0])
        return np.array([self.at])

    def step(self, action: Any) -> Any:
        self.at, self.t = self.at + 1.0, self.t + 1
        over = self.t == 6
        return np.array([self.at]), -1.0, over, {"TimeLimit.truncated": True} if over else {}


class Goal(Probe):
    batched = True

    def reward_done_func(self, next_state: Any, goal: Any) -> Any:
        if self.batched:
            near = np.abs(next_state - goal).max(-1) < 0.5
            return np.where(near, 0.0, -1.0), near
        if abs(float(next_state[0]) - float(goal[0])) < 0.5:
            return 0.0, True
        return -1.0, False


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("k", [None, 1.0])
def test_hindsight(batched: bool, k: float | None) -> None:
    agent, noise = Goal(Line(), 2, 1), GaussianWhiteNoiseProcess(sigma=0.1)
    agent.batched = batched
    options = {"policy": None, "noise": noise, "HER": True, "k": k, "batch": 8}
    if batched:
        trained(agent, 6, **options)
    else:
        with pytest.warns(UserWarning, match="reward_done_func does not support batches") as told:
            trained(agent, 6, **options)
        assert len(told) == 1
    own = 0
    for s, _, after, r, d in agent.seen[1:]:
        assert s.shape == (8, 2) and torch.equal(s[:, 1], after[:, 1])
        reached = (after[:, 0] - s[:, 1]).abs() < 0.5
        assert torch.equal(r, reached.float() - 1) and torch.equal(d.bool(), reached)
        own += int((s[:, 1] == 9).sum())
        later = s[s[:, 1] != 9]
        assert (later[:, 1] > later[:, 0]).all()
    share = own / (8 * len(agent.seen[1:]))
    assert share == 0 if k is None else 0.4 < share < 0.6


class Two:
    """Two agents, who are told their number and the step."""

    count = 2

    def reset(self) -> Any:
        self.t, self.actions = 0, []
        return self._obs()

    def step(self, actions: Any) -> Any:
        self.t += 1
        self.actions.append(np.array(actions))
        return self._obs(), [1.0, 3.0], [False, self.t == 5], {}

    def _obs(self) -> Any:
        return np.array([[float(i), self.t] for i in range(self.count)])


class Joint(Probe):
    """Agent i takes i % 2."""

    def action(self, s: Any, i: int) -> Any:  # type: ignore[override]
        assert (s[:, 0] == i).all()
        return torch.eye(2)[[i % 2] * len(s)]

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        self.seen.append((s, a, next_s, r, d))
        return (self.net(s).flatten(1).sum(1) - r.reshape(len(s), -1)[:, 0]).pow(2).mean()

    def reward_done_func_ma(self, r: Any, d: Any) -> Any:
        return np.mean(r), any(d)


def test_several_agents() -> None:
    agent = trained(Joint(Two()), 4, MARL=True)
    assert agent.reward_list == [10.0] * 4 and agent.done_pool.sum() == 4
    for s, a, after, r, d in agent.seen[1:]:
        assert s.shape == (4, 2, 2) and (r == 2).all()
        assert torch.equal(a, torch.tensor([[0, 1]] * 4))
        assert torch.equal(d.bool(), s[:, 0, 1] == 4) and (after[..., 1] == s[..., 1] + 1).all()
    assert (agent.next_state_pool[:, :, 1] == agent.state_pool[:, :, 1] + 1).all()


def test_irl_keeps_both_outputs() -> None:
    class Inverse(Probe):
        def action(self, s: Any) -> Any:
            return 10 * s, torch.stack([s[:, 0] * 0, s[:, 0] + 1], 1)

        def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
            extra, action = a
            self.seen.append((s, extra, action))
            return ((self.net(s)[:, 0] - r) ** 2).mean()

    agent = trained(Inverse(), 4, IRL=True)
    for s, extra, action in agent.seen[1:]:
        assert torch.equal(extra, 10 * s) and (action == 1).all()


def test_triplets_of_an_episode() -> None:
    agent = trained(Probe(Clock(6)), 4, TRL=True)
    assert len(agent.seen) > 10
    for s, a, after, r, d in agent.seen[1:]:
        assert s.shape == after.shape == (4, 2, 2) and a.shape == r.shape == d.shape == (4, 2)
        i, k = s[:, 0, 0], r[:, 1] - 1
        assert (i == r[:, 0] - 1).all() and (i < k).all() and (s[:, 1, 0] == k + 1).all()
        assert (after[:, 0] == s[:, 1]).all() and (after[:, 1, 0] > k + 1).all()
        assert (s[..., 1] == after[..., 1]).all()


def test_triplets_of_several_agents() -> None:
    class Three(Two):
        count = 3

        def step(self, actions: Any) -> Any:
            obs, rewards, ends, info = super().step(actions)
            return obs, [*rewards, 5.0], [*ends, False], info

    agent = trained(Joint(Three()), 4, MARL=True, TRL=True)
    for s, a, _, r, _ in agent.seen[1:]:
        assert s.shape == (4, 2, 3, 2) and r.shape == (4, 2)
        assert torch.equal(a, torch.tensor([[[0, 1, 0]] * 2] * 4))


POLICIES = (
    "SoftmaxPolicy GreedyQPolicy EpsGreedyQPolicy AdaptiveEpsGreedyPolicy BoltzmannQPolicy "
    "MaxBoltzmannQPolicy BoltzmannGumbelQPolicy GumbelSoftmaxPolicy"
)


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES.split())
def test_every_policy_explores_by_the_agents_seed(name: str) -> None:
    soft = own(action=lambda self, s: torch.softmax(self.net(s), 1))
    taken = []
    for seed in (1, 1, 2):
        agent = soft(Clock(25))
        agent.seed = seed
        trained(agent, 4, policy=getattr(exploration, name)(), lr=0.0)
        taken.append(agent.env.actions)
    assert taken[0] == taken[1]
    assert name == "GreedyQPolicy" or (taken[0] != taken[2] and set(taken[0]) == {0, 1})


@pytest.mark.parametrize(
    "process", [GaussianWhiteNoiseProcess, exploration.OrnsteinUhlenbeckProcess]
)
def test_noise_has_as_many_numbers_as_an_action_and_forgets_between_episodes(process: Any) -> None:
    agent = Probe(Clock(5), actions=3)
    agent.env.action_space = spaces.Box(-0.5, 0.5, (3,))
    options = {"theta": 0.15} if process is exploration.OrnsteinUhlenbeckProcess else {}
    noise, resets = process(**options), []
    noise.reset_states, old = lambda: (resets.append(1), old())[1], noise.reset_states
    trained(agent, 4, policy=None, noise=noise)
    actions = np.stack(agent.env.actions)
    assert actions.shape == (20, 3) and abs(actions).max() <= 0.5 and len(np.unique(actions[0])) > 1
    assert len(resets) >= 4


@pytest.mark.parametrize("at", [3, 5, 6])  # within an episode, at its end, after it
def test_after_an_environment_has_raised_training_goes_on_with_whole_transitions(at: int) -> None:
    class Flaky(Clock):
        steps = 0

        def step(self, action: Any) -> Any:
            self.steps += 1
            if self.steps == at:
                raise RuntimeError("unplugged")
            return super().step(action)

    agent = Probe([Clock(), Clock(), Flaky()])
    with pytest.raises(EnvironmentFault, match="unplugged"):
        trained(agent, 6, batch=6)
    agent.train(None, 6, p=0)
    assert set(agent.reward_list) == {15.0}
    for s, _, after, _, d in agent.seen[1:]:
        ended = d.bool()
        assert torch.equal(ended, s[:, 0] == 4) and torch.equal(after[~ended, 0], s[~ended, 0] + 1)


def test_noise_of_ones_own_needs_no_more_than_a_sample() -> None:
    class Steady:
        def sample(self) -> Any:
            return np.array([0.25, -0.25])

    still = own(action=lambda self, s: torch.zeros(len(s), 2))
    env = Clock()
    env.action_space = spaces.Box(-1.0, 1.0, (2,))
    env.step = lambda a, step=env.step: (seen.append(a), step(0))[1]
    seen: list[Any] = []
    trained(still(env), 2, policy=None, noise=Steady())
    np.testing.assert_array_equal(seen, [[0.25, -0.25]] * 10)
