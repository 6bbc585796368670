"""When an agent learns, from what, the arguments of its loss, and which transitions its pool drops:
computed by hand on a clock."""

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from tandem import exploration
from tandem.agents.training import usual_updates
from tandem.errors import EnvironmentFault, SettingError
from tandem.exploration import GaussianWhiteNoiseProcess, GreedyQPolicy
from tandem.math.effective import effective_sample_size
from tests.agents.agents import Clock, Probe, Ratio, Walk, own, ready, resumed, trained

POLICIES = [x for x in exploration.__all__ if x.endswith("Policy") and x != "Policy"]


def ring(agent: Any) -> Any:
    return agent._assembly.learner.ring


def clocks(n: int) -> list[Clock]:
    return [Clock(5 + i) for i in range(n)]


def rows(batches: Any) -> set[tuple[float, ...]]:
    """The states of some minibatches: step, and number of the episode."""
    return {tuple(x) for s, *_ in batches for x in s.tolist()}


def steps(batches: Any) -> list[int]:
    """The same as steps since the beginning, of episodes of 5."""
    return [int(5 * e + t) for s, *_ in batches for t, e in s.tolist()]


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
    if choices == {"num_updates": 3}:  # minibatches of a phase share no transition
        assert len(rows(agent.seen[-3:])) == 12


def test_phases_of_whole_episodes() -> None:
    """Ten phases after the second and the fourth of 5 steps each; the third is not seen before."""
    agent = trained(Probe(), 4, train={"num_store": 2})
    assert agent.losses - 1 == 20 and agent.copies == list(range(1, 21))
    assert max(steps(agent.seen[1:11])) < 10 < max(steps(agent.seen[11:21]))
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
    """30 minibatches are ten passes; after 7 the pool is emptied, or trimmed by 3 each time."""
    agent = Ratio([Clock() for _ in range(envs)])
    windows = {"window_size_ppo": 3} if PR else {}
    trained(agent, 12, PPO=True, PR=PR, update_steps=12, update_batches=7, train=windows)
    assert agent.copies[:2] == [7, 14]
    if PR:
        assert agent.copies[2:4] == [21, 28]
    else:
        assert len(agent.copies) == agent._assembly.loop.env_steps // 12
        assert envs > 1 or not rows(agent.seen[1:8]) & rows(agent.seen[8:15])


def test_ppo_by_mini_batches_collects_an_episode_of_each_environment() -> None:
    """14 steps until both have ended, ten passes are 35 minibatches; after 9 the pool is empty."""
    agent = trained(Probe([Clock(5), Clock(7)]), 4, PPO=True, update_batches=9)
    assert agent.copies == [9, 18] and agent._assembly.loop.env_steps == 28
    # of the first: both clocks' first episodes, and two steps of one's second
    first = {(t, 0.0) for t in range(7)} | {(0.0, 1.0), (1.0, 1.0)}
    second = {(t, 1.0) for t in range(7)} | {(t, 2.0) for t in range(4)}
    assert rows(agent.seen[1:10]) == first and rows(agent.seen[10:]) == second
    assert len(ring(agent)) == 0


def test_ppo_by_mini_batches_counts_them_and_collects_episodes_until_they_are_a_batch() -> None:
    # ten passes over 4 steps are 10, fewer than 12: the second phase ends after 2 minibatches
    agent = trained(Probe(Clock(4)), 3, PPO=True, update_batches=12)
    assert agent.copies == [12] and agent.losses - 1 == 12 + 10
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
        assert sorted(steps(phase)) == sorted(10 * list(range(begin, begin + 8)))
    assert len(ring(agent)) == 4


def test_the_pool_keeps_the_newest() -> None:
    agent = trained(Probe(), 10, pool_size=12)
    assert len(ring(agent)) == 12 and ring(agent).newest == 49
    assert min(steps(agent.seen[-5:])) >= 49 - 12 - 4


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
        columns = (x.tolist() for x in (s, after[:, 0], r, d))
        for (t, e), after_t, ret, end in zip(*columns, strict=True):
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
        assert len(ring(agent)) == left
    for number, left in ((None, 20), (5, 10)):
        train = {"window_size_pr": number}
        agent = trained(Probe(), 4, num_updates=None, PR=True, update_steps=8, train=train)
        assert len(ring(agent)) == left
    agent = trained(Probe(), 4)
    agent.train(None, 1, save_data=False, p=0)
    assert len(ring(agent)) == 5
    agent.train(None, 1, p=0)
    assert len(ring(agent)) == 10


def test_priorities_by_error_new_ones_first() -> None:
    new = trained(Probe(), 1, PR=True, initial_TD=3.0, batch=100).prioritized_replay
    assert new.TD.tolist() == [3.0] * 5
    agent = trained(Probe(), 8, PR=True, alpha=1.0, epsilon=1e-9, lr=0.0)
    replay = agent.prioritized_replay
    assert len(replay.TD) == 40
    pool = ring(agent).transitions(ring(agent).rows())
    found = agent.net(torch.from_numpy(pool.obs))[:, 0]
    true = (found - torch.from_numpy(pool.reward)).abs().detach().numpy()
    reported = ~np.isclose(replay.TD, replay.sampler.most["TD"])
    np.testing.assert_allclose(replay.TD[reported], true[reported], rtol=1e-5)
    assert reported.sum() > 20
    np.testing.assert_allclose(replay.powers(), replay.TD, rtol=1e-6)
    assert all(len(rows([batch])) == 4 for batch in agent.seen[1:])  # none twice in a batch


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

    action_space = None

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
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        trained(agent, 6, policy=None, noise=noise, HER=True, k=k, batch=8)
    assert len(told) == (not batched)
    assert batched or "reward_done_func does not support batches" in str(told[0].message)
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
    """Two agents, or three, that receive their number and the step."""

    def __init__(self, count: int = 2) -> None:
        self.count = count

    def reset(self) -> Any:
        self.t, self.actions = 0, []
        return self._obs()

    def step(self, actions: Any) -> Any:
        self.t += 1
        self.actions.append(np.array(actions))
        ends = [False, self.t == 5, False]
        return self._obs(), [1.0, 3.0, 5.0][: self.count], ends[: self.count], {}

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
    agent = trained(Joint(Two(3)), 4, MARL=True, TRL=True)
    for s, a, _, r, _ in agent.seen[1:]:
        assert s.shape == (4, 2, 3, 2) and r.shape == (4, 2)
        assert torch.equal(a, torch.tensor([[[0, 1, 0]] * 2] * 4))


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
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
    agent = Probe([Clock(), Clock(), Clock(at=at)])
    with pytest.raises(EnvironmentFault, match="unplugged"):
        trained(agent, 6, batch=6)
    agent.train(None, 6, p=0)
    assert set(agent.reward_list) == {15.0}
    for s, _, after, _, d in agent.seen[1:]:
        ended = d.bool()
        assert torch.equal(ended, s[:, 0] == 4) and torch.equal(after[~ended, 0], s[~ended, 0] + 1)


def test_noise_of_ones_own_needs_no_more_than_a_sample() -> None:
    steady = SimpleNamespace(sample=lambda: np.array([0.25, -0.25]))
    still = own(action=lambda self, s: torch.zeros(len(s), 2))
    env = Clock()
    env.action_space = spaces.Box(-1.0, 1.0, (2,))
    trained(still(env), 2, policy=None, noise=steady)
    np.testing.assert_array_equal(env.actions, [[0.25, -0.25]] * 10)


class Sized(Probe):
    """Notes how many transitions there are when its loss is computed."""

    sizes: tuple[int, ...] = ()

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        if (sampler := self.prioritized_replay.sampler) is not None:
            self.sizes += (len(sampler.ring),)
        return super().__call__(s, a, next_s, r, d)


def test_pool_size_is_never_exceeded(capsys: pytest.CaptureFixture[str]) -> None:
    agent = ready(clocks(7), Sized, pool_size=100, batch=4)
    agent.train(torch.optim.SGD(agent.param, 0.01), 30)
    assert max(agent.sizes) == 98 == len(ring(agent))
    said = capsys.readouterr().out
    assert "holds 98 transitions of pool_size=100: 14 of each of 7 environments" in said


@pytest.mark.parametrize(
    ("choices", "fix"),
    [
        ({"pool_size": 6, "batch": 4}, 7),
        ({"pool_size": 9, "batch": 8}, 14),
        ({"pool_size": 30, "batch": 4, "PPO": True, "update_steps": 29}, 35),
    ],
)
def test_a_pool_that_holds_too_little_is_refused(choices: Any, fix: int) -> None:
    with pytest.raises(SettingError, match=f"set pool_size={fix}, or more"):
        trained(Probe(clocks(7)), 4, **choices)
    trained(Probe(clocks(7)), 4, **(choices | {"pool_size": fix}))


def test_counts_and_windows_below_the_number_of_environments() -> None:
    # 70 stored ones, 5 go for every 10
    agent = trained(Sized(clocks(7)), 14, train={"clearing_freq": 10, "window_size_": 5}, batch=2)
    assert agent.sizes
    time = ring(agent).time
    assert len(ring(agent)) == 7 * time - 7 * time // 10 * 5
    for t, size in enumerate(dict.fromkeys(agent.sizes)):
        assert size == 7 * (t + 1) - 7 * (t + 1) // 10 * 5
    agent = trained(Sized(clocks(7)), 20, pool_size=28, train={"window_size": 3})
    assert set(agent.sizes[-50:]) == {28 - 3}


class Windows(Probe):
    """Drops as many of process p's transitions as `counts` says."""

    def __init__(self, env: Any, counts: Any) -> None:
        super().__init__(env)
        self.counts, self.left = counts, list[Any]()

    def window_size_fn(self, p: int) -> int:
        pool, (first, *_) = ring(self), self.prioritized_replay.columns[p]
        own = [len(pool.rows([e])) for e in self.prioritized_replay.columns[p]]
        self.left.append((p, first, own, len(self.prioritized_replay.powers(p))))
        return self.counts[p]


@pytest.mark.slow
def test_windows_are_of_each_process() -> None:
    agent = Windows(clocks(3), [2, 3])
    trained(agent, 6, PR=True, update_steps=8, batch=3, train={"processes": 2})
    # the second process has environments 1 and 2
    assert [p for p, *_ in agent.left[:4]] == [0, 1, 0, 1]
    assert all(first == p and sum(own) == powers for p, first, own, powers in agent.left)
    calls = len(agent.left) // 2
    left = [2 * calls, 2 * calls - calls // 2, calls + calls // 2]
    assert [len(ring(agent).rows([e])) for e in range(3)] == [ring(agent).time - n for n in left]


def test_with_one_process_p_is_0() -> None:
    agent = Windows(clocks(3), [4])
    trained(agent, 6, PR=True, update_steps=8, batch=3)
    assert {p for p, *_ in agent.left} == {0}
    assert len(ring(agent)) == 3 * ring(agent).time - 4 * len(agent.left)


@pytest.mark.slow
def test_sizes_and_averages_are_of_each_process() -> None:
    class Adaptive(Probe):
        answers: tuple[Any, ...] = ()

        def window_size_fn(self, p: int) -> int:
            powers = self.prioritized_replay.powers(p)
            assert self.answers or self.ema_ess == [None, None]
            count = self.adjust_window_size(p, smooth_alpha=0.5)
            self.answers += ((p, len(powers), effective_sample_size(powers), count),)
            return count

    choices = {"PR": True, "update_steps": 8, "alpha": 1.0}
    agent = trained(Adaptive(clocks(4)), 6, train={"processes": 2}, **choices)
    assert len(agent.answers) > 8
    for p in (0, 1):
        average = None
        for _, n, size, count in (a for a in agent.answers if a[0] == p):
            average = size if average is None else 0.5 * size + 0.5 * average
            assert count == n - min(max(int(average), 1), n - 1)
        assert agent.ema_ess[p] == pytest.approx(average)
    with pytest.raises(SettingError, match="p=2 with 2 processes"):
        agent.adjust_window_size(2)


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_what_is_left_is_saved(processes: int, tmp_path: Path) -> None:
    def fresh() -> Any:
        agent = Windows([Walk() for _ in range(5)], [3, 1])
        agent.set(policy=GreedyQPolicy(), pool_size=40, batch=4, PR=True, update_steps=3)
        return agent, torch.optim.Adam(agent.param, 0.01)

    train = {"processes": processes, "clearing_freq": 7, "window_size_": 2}
    whole, again = resumed(fresh, tmp_path / "x.dat", 4, 8, **train)
    assert again.loss_list == whole.loss_list
    assert ring(again).rows().tolist() == ring(whole).rows().tolist()


def test_a_file_of_a_longer_pool_loads(tmp_path: Path) -> None:
    """Once pools were rounded up, to 15 of each of 7 environments here."""
    agent = trained(Probe([Walk() for _ in range(7)]), 30, pool_size=105, PR=True, lr=0.0)
    agent.save(tmp_path / "x.dat")
    again = Probe([Walk() for _ in range(7)])
    again.set(policy=GreedyQPolicy(), pool_size=100, batch=4, PR=True)
    again.restore(tmp_path / "x.dat")
    again.train(torch.optim.SGD(again.param, 0.0), 0, p=0)
    assert len(ring(agent)) == 105
    assert ring(again).rows().tolist() == ring(agent).rows()[7:].tolist()
    replay, old = again.prioritized_replay, agent.prioritized_replay
    np.testing.assert_array_equal(replay.TD, old.TD[7:])
    np.testing.assert_array_equal(replay.powers(), old.powers()[7:])
    again.train(None, 10, p=0)
    assert len(ring(again)) == 98
