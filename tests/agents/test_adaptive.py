"""Adaptive methods of agents: their answers, when hooks are called, what goes back, files."""

import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tandem.agents import train_call
from tandem.agents.adaptive import methods as adaptive
from tandem.agents.rl import LambdaCallback
from tandem.errors import SettingError
from tandem.exploration import AdaptiveEpsGreedyPolicy, EpsGreedyQPolicy, GreedyQPolicy
from tandem.math.adaptive import RULES, gradient_noise
from tandem.math.effective import effective_sample_size
from tests.agents.agents import Layers, Probe, Ratio, Walk, alike, own, ready, same, trained


class Adaptive(Probe):
    """Calls `hook` with the number of the minibatch."""

    def __init__(self, env: Any = None, hook: Any = None) -> None:
        super().__init__(env)
        self.hook, self.calls = hook, 0

    def adjust_func(self) -> None:
        self.calls += 1
        if self.hook is not None:
            self.hook(self, self.calls)


class Reporting(Adaptive, Ratio):
    """Knows the effective sample size of each phase's beginning."""

    def initialize_adjusting(self) -> None:
        super().initialize_adjusting()
        self.starts = [*getattr(self, "starts", ()), self.compute_ess()]


def test_limits_of_the_effective_sample_size() -> None:
    agent = Probe()
    assert agent.compute_ess_from_weights([]) == 0
    assert agent.compute_ess_from_weights([0.0, 0.0]) == 2
    assert agent.compute_ess_from_weights(np.array([1e-300, 1e300])) == 1
    # before the first training, and before `set`
    assert agent.compute_ess() == 0 and agent.ema_ess is None and agent.ema_noise is None
    assert agent.adjust_window_size() == agent.adjust_window_size(3, smooth=0.5) == 0
    assert agent.adjust_batch_size() == agent.adjust_batch() == 1
    assert agent.estimate_gradient_variance(8, 4) == 0.0
    assert agent.adabatch(4, batch_params={}, lr_params={"rate": 0.1}) == 1
    agent.initialize_adjusting()
    agent.set(batch=64, pool_size=1000)
    assert agent.adjust_batch_size() == 32
    assert agent.adjust(target_noise=0.1, num_samples=2, batch_params={}) == 32
    assert agent.adjust_batch_size(min_batch=16, max_batch=100, lr_params={"rate": 0.1}) == 64


@pytest.mark.parametrize("pr", [False, True])
def test_of_a_pool(pr: bool) -> None:
    agent = trained(Probe(), 3, PR=pr, alpha=1.0)
    powers = agent.prioritized_replay.powers()
    expected = effective_sample_size(powers)
    assert len(powers) == 15 and (pr or expected == 15)
    assert agent.compute_ess() == agent.compute_ess(p=0) == expected
    assert agent.compute_ess(10.0, smooth=0.3) == pytest.approx(0.3 * expected + 0.7 * 10.0)
    assert agent.adjust_window_size(smooth_alpha=1.0) == 15 - min(int(expected), 14)
    assert agent.ema_ess == expected
    agent._sample_sizes[0] = 4.0
    agent.adjust_window_size(0, smooth=0.5)
    assert agent.ema_ess == pytest.approx(0.5 * expected + 2.0)
    agent._assembly.learner.sampler.forget(14)
    assert agent.adjust_window_size() == 0
    agent._assembly.learner.sampler.forget()
    assert agent.compute_ess() == 0 and agent.adjust_window_size() == 0


def test_hooks_come_after_each_mini_batch_once_the_pool_holds_those_of_a_phase() -> None:
    asked: list[int] = []

    class Sized(Adaptive):
        def batch_size_fn(self) -> int:
            asked.append(2 + self.losses % 3)
            return asked[-1]

    agent = trained(Sized(), 4, num_updates=2)  # 20 steps; 4 a batch, 8 a phase
    sizes = [len(s) for s, *_ in agent.seen[1:]]
    assert agent.losses == len(sizes) + 1
    # the hooks are called from the 8th step on, when two minibatches of 4 are there
    assert sizes[:8] == [4] * 8 and sizes[9:] == [2 + (i + 1) % 3 for i in range(9, len(sizes))]
    assert agent.calls == len(asked) == len(sizes) - 8
    agent = trained(Adaptive(), 4, num_updates=3)
    assert agent.losses - 1 == 3 * 17 and agent.calls == 3 * 9


def test_sizes_by_the_effective_sample_size() -> None:
    agent = trained(Probe(), 8, batch=4)  # without priorities it is the pool's: 40
    assert agent.adjust_batch_size(smooth_alpha=1.0) == 32
    assert agent.adjust_batch_size(smooth=1.0, scale=0.25) == 8
    assert agent.adjust_batch_size(smooth=1.0, max_batch=20) == 20
    assert agent.adjust_batch_size(smooth=1.0, min_batch=12, max_batch=39, align=12) == 24
    assert agent._assembly.learner.schedule.batch_size == 4
    # with a target the present size is multiplied, and small changes add up
    sizes = []
    for _ in range(5):
        given = {"batch_params": {"min": 2, "max": 64}, "target_ess": 40 / 1.5}
        sizes.append(agent.adjust_batch_size(smooth=1.0, **given))
    assert sizes == [4, 8, 8, 16, 16]  # 6, 9, 13.5, 20.25, 30.4
    assert agent._assembly.learner.schedule.batch_size == 16
    assert agent.adjust_batch({"max": 10}, ema=8.0) == 8
    assert agent.adjust_batch({"max": 10}, ema=8.0, target=4.0) == 10


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"batch_params": {"min": 50, "max": 20}}, "min"),
        ({"batch_params": {"min": 101}}, "min"),
        ({"min_batch": 50, "max_batch": 20}, "sizes from 50 to 20"),
        ({"alpha_params": {"rate": 0.1}}, "PR=True"),
        ({"eps_params": {"rate": 0.1}}, "a policy with a numeric eps"),
        ({"clip_params": {"rate": 0.1}}, "a numeric self.clip"),
        ({"beta1_params": {"rate": 0.1}}, "as Adam has"),
        ({"store_params": {}}, "num_store"),
        ({"num_updates_params": {}}, "num_updates"),
        ({"freq_params": {}}, "update_batches"),
    ],
)
def test_sizes_that_cannot_be_and_rules_without_anything_to_move(given: Any, word: str) -> None:
    agent = trained(Probe(), 4, num_updates=None)
    with pytest.raises(SettingError, match=word):
        agent.adjust_batch_size(**given)


def test_what_is_said_wrongly_is_refused_and_every_rule_has_an_argument() -> None:
    agent = trained(Probe(), 4)
    for call, given, match in (
        (agent.adjust_window_size, {"smooth": 2}, "smooth=2"),
        (agent.adjust, {"lr_parms": {"rate": 0.1}}, "give an argument='lr_params'"),
        (agent.adjust, {"target_noise": 0.1}, "num_samples"),
    ):
        with pytest.raises(SettingError, match=match):
            call(**given)
    named = [f"{name}_params" for name in RULES if name != "batch"]
    assert list(adaptive.RuleParams.__annotations__) == named


def test_the_noise_moves_no_num_store_and_says_so_once() -> None:
    train_call._said.clear()
    agent = trained(Probe(), 4, train={"num_store": 2})
    with pytest.warns(UserWarning, match="store_params: this value depends only on the effective"):
        agent.adjust(target_noise=0.1, num_samples=2, store_params={})
    agent.adjust(target_noise=0.1, num_samples=2, store_params={})  # warnings are errors
    assert agent._assembly.learner.schedule.store_episodes == 2


def test_the_target_is_the_size_when_the_phase_began() -> None:
    """PPO, 8 steps a phase: with all priorities alike 8; they change with the first update."""
    found = []

    def hook(agent: Any, _: int) -> None:
        rate = agent.optimizer.param_groups[0]["lr"]
        found.append((agent._start_size(), agent.compute_ess(), rate))
        agent.adjust(smooth=1.0, lr_params={"rate": 0.1, "smooth": 0.0, "max": 1.0})

    choices = {"PPO": True, "PR": True, "update_steps": 8, "alpha": 1.0}
    trained(Reporting(hook=hook), 4, lr=0.01, **choices)
    first, second = found[:20], found[20:]  # ten passes over 8, then over 16
    assert len(second) == 40 and first[0][0] == pytest.approx(8.0)
    assert len({start for start, *_ in first}) == len({start for start, *_ in second}) == 1
    assert first[0][2] == second[0][2] == 0.01  # each begins with the original
    for part in (first, second):
        for (start, size, before), (*_, after) in pairwise(part):
            expected = min(max(0.0, before + 0.1 * (size / start - 1)), 1.0)
            assert after == pytest.approx(expected, abs=1e-9)


# what the pool goes through within a phase: other priorities, new rows, fewer rows, another alpha
COURSES: dict[str, dict[str, Any]] = {
    "phases after each step": {},
    "ppo": {"PPO": True, "update_steps": 8},
    "a small pool": {"pool_size": 8},
    "two environments": {"env": lambda: [Walk(), Walk()]},
    "windows": {"update_steps": 1, "train": {"window_size_pr": 2}},
    "without priorities": {"PR": False},
    "another alpha": {"rules": {"alpha_params": {"rate": 0.2}}},
}


@pytest.mark.slow
@pytest.mark.parametrize("course", COURSES)
@pytest.mark.parametrize("every", [1, 11])
def test_the_first_size_is_that_whenever_asked(course: str, every: int) -> None:
    given = {"PR": True, **COURSES[course]}
    env, rules, pairs = given.pop("env", Walk), given.pop("rules", {}), []

    def hook(agent: Any, call: int) -> None:
        agent.adjust(2.0, **rules)
        if call % every == 0:
            pairs.append((agent._start_size(), agent.starts[-1]))

    trained(Reporting(env(), hook), 12, **given)
    assert len(pairs) > 1
    assert [now for now, _ in pairs] == [then for _, then in pairs]


def test_priorities_are_summed_for_rules_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    summed: list[int] = []
    sums = lambda powers: summed.append(len(powers)) or effective_sample_size(powers)  # noqa: E731
    monkeypatch.setattr(adaptive, "effective_sample_size", sums)
    quiet = own(Reporting, initialize_adjusting=Adaptive.initialize_adjusting)
    agent = trained(quiet(Walk()), 8, PR=True)
    assert agent.batch_counter > 10 and summed == []
    agent.adjust(1.0, lr_params={"rate": 0.1})
    assert len(summed) == 1  # that of now
    agent.adjust(lr_params={"rate": 0.1})
    agent.adjust(lr_params={"rate": 0.1})
    assert len(summed) == 4  # and once that of the beginning


def test_values_go_back_unless_something_else_has_moved_them() -> None:
    agent = trained(Probe(), 4, policy=EpsGreedyQPolicy(0.5))
    agent.gamma, group = 0.9, agent.optimizer.param_groups[0]
    rule = {"rate": 0.1, "smooth": 0.0}
    agent.adjust(10.0, smooth=1.0, lr_params=rule, gamma_params=rule, eps_params=rule)
    policy = agent._arguments.policy
    assert (group["lr"], agent.gamma, policy.eps) == pytest.approx((0.11, 1.0, 0.4))
    group["lr"] = 0.5  # as a scheduler does
    agent.initialize_adjusting()
    assert (group["lr"], agent.gamma, policy.eps) == (0.5, 0.9, 0.5)
    agent.adjust(10.0, lr_params=rule)
    assert group["lr"] != 0.5
    agent.set(policy=GreedyQPolicy())  # which begins with the originals
    assert group["lr"] == 0.5


def test_an_eps_of_its_own_course_goes_on() -> None:
    policy = AdaptiveEpsGreedyPolicy(0.8, 0.1, 0.01)
    agent = trained(Probe(), 4, policy=policy)
    course = policy.eps
    agent.adjust(1e9, smooth=1.0, eps_params={"rate": 1.0, "smooth": 0.0, "max": 0.95})
    assert policy.eps == 0.95 != course
    policy.choose(np.zeros(2), 1000)
    assert policy.eps == 0.95
    agent.initialize_adjusting()
    assert policy.eps == pytest.approx(0.1 + 0.7 * np.exp(-10))


def test_of_two_rules_for_one_value_the_later_has_it() -> None:
    agent = trained(Probe(), 4)
    agent.gamma = agent.tau = torch.tensor(0.5)
    up, down = ({"rate": x, "smooth": 0.0} for x in (0.1, -0.3))
    agent.adjust(10.0, smooth=1.0, gamma_params=down, tau_params=up)
    assert float(agent.tau) == pytest.approx(0.5 + 0.1 - 0.3)
    agent.initialize_adjusting()
    assert float(agent.tau) == 0.5


def test_whoever_overrides_it_keeps_moved_values() -> None:
    kinds = (Adaptive, own(Adaptive, initialize_adjusting=lambda self: None))

    def hook(agent: Any, call: int) -> None:
        if call == 1:
            agent.adjust(1.0, smooth=1.0, lr_params={"rate": 1.0, "max": 0.02, "smooth": 0.0})

    agents = [trained(kind(hook=hook), 4) for kind in kinds]
    assert [agent.optimizer.param_groups[0]["lr"] for agent in agents] == [0.01, 0.02]


RULE = {"rate": 0.02, "min": 0.001, "max": 0.9, "smooth": 0.5}


def moving(agent: Any, call: int) -> None:
    rules = {f"{n}_params": RULE for n in ("alpha", "lr", "eps", "gamma", "beta1")}
    rules |= {"batch_params": {"min": 2, "max": 16}, "freq_params": {"max": 6}}
    agent.adjust(target_ess=9.0, smooth=0.3, num_updates_params={"max": 5}, **rules)


def fresh() -> Any:
    class Discounted(Adaptive):
        def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
            self.losses += 1
            TD = self.net(s)[:, 0] - r - self.gamma * (1 - d) * self.target(next_s)[:, 0]
            self.prioritized_replay.update(TD)
            return (TD**2).mean()

    sizes = {"pool_size": 40, "batch": 4, "update_steps": 3, "num_updates": 2}
    agent = ready(2, lambda env: Discounted(env, moving), PR=True, **sizes)
    agent.gamma = 0.5
    return agent, torch.optim.Adam(agent.param, 0.01)


@pytest.mark.slow
@pytest.mark.parametrize("at", [40, 55, 61])
def test_stopped_within_a_phase_it_goes_on_to_the_bit(at: int, tmp_path: Path) -> None:
    (whole, optimizer), (half, of_half), (again, of_again) = fresh(), fresh(), fresh()
    whole.train(optimizer, 16, p=0)

    def stop(b: int, logs: Any) -> None:
        half.stop_training = b == at

    half.callbacks.append(LambdaCallback(on_batch_end=stop))
    half.train(of_half, 16, p=0)
    assert 0 < len(half.reward_list) < 16 and half._adjusted.originals["gamma"] == [0.5]
    assert half.gamma != 0.5
    half.save(tmp_path / "x.dat")
    again.restore(tmp_path / "x.dat")
    again.train(of_again, len(whole.reward_list) - len(half.reward_list), p=0)
    assert alike(again, whole) and again.gamma == whole.gamma and again.ema_ess == whole.ema_ess
    assert again._start_size() == whole._start_size() and again._adjusted == whole._adjusted


@pytest.mark.slow
def test_what_was_moved_stays_where_the_number_of_processes_changes() -> None:
    agent, optimizer = fresh()
    agent.train(optimizer, 6, p=0)
    before = agent._assembly.learner.sampler.alpha, agent._assembly.learner.schedule.batch_size
    assert before != (0.7, 4)
    agent.train(None, 0, processes=2, p=0)
    learner = agent._assembly.learner
    assert (learner.sampler.alpha, learner.schedule.batch_size) == before


def test_attributes_show_what_rules_have_moved(tmp_path: Path) -> None:
    """The numbers in use, rather than what `set` was told; after `restore` too."""
    rules: dict[str, Any] = {"num_updates_params": {"max": 3}, "freq_params": {"max": 8}}
    rules["alpha_params"] = {"rate": 0.1, "smooth": 0.0}

    def made() -> Any:
        agent, counts = Adaptive(Walk()), {"num_updates": 2, "update_batches": 5}
        agent.set(policy=GreedyQPolicy(), pool_size=100, batch=4, PR=True, **counts)
        return agent

    def shown(agent: Any) -> Any:
        return agent.alpha, agent.num_updates, agent.update_batches, agent.update_steps

    agent = made()
    assert shown(agent) == (0.7, 2, 5, None)
    agent.train(torch.optim.SGD(agent.param, 0.01), 2, p=0)
    assert shown(agent) == (0.7, 2, 5, None)
    agent.adjust(1.0, smooth=1.0, **rules)  # e / T is far above 1
    learner = agent._assembly.learner
    moved = shown(agent)
    now = learner.schedule.updates_per_phase, learner.schedule.sync_updates
    assert moved == (learner.sampler.alpha, *now, None) and learner.sampler.alpha != 0.7
    assert now[0] == 3 and now[1] != 5
    agent.save(tmp_path / "x.dat")
    again = made()
    again.restore(tmp_path / "x.dat")
    assert shown(again) == moved
    again.set(policy=GreedyQPolicy(), PR=True, alpha=0.5)
    assert again.alpha == 0.5
    agent.initialize_adjusting()
    assert shown(agent) == (0.7, 2, 5, None)


def test_a_moved_num_store_goes_on_where_the_same_is_asked_for(tmp_path: Path) -> None:
    def made() -> Any:
        agent = Adaptive(Walk(), lambda a, _: a.adjust(1e9, smooth=1.0, store_params={"max": 4}))
        agent.set(policy=GreedyQPolicy(), pool_size=100, batch=4)
        return agent, torch.optim.SGD(agent.param, 0.01)

    def number(agent: Any, optimizer: Any = None, **train: int) -> int:
        agent.train(optimizer, p=0, **train)
        return int(agent._assembly.learner.schedule.store_episodes)

    (agent, optimizer), (again, other) = made(), made()
    agent.train(optimizer, 2, num_store=2, p=0)
    assert number(agent, episodes=0, num_store=2) == 4
    agent.save(tmp_path / "x.dat")
    again.restore(tmp_path / "x.dat")
    assert number(again, other, episodes=0, num_store=2) == 4
    assert number(agent, episodes=0, num_store=3) == 3
    agent.initialize_adjusting()
    assert agent._assembly.learner.schedule.store_episodes == 3


def test_set_after_restore_begins_with_the_optimizers_originals(tmp_path: Path) -> None:
    agent, optimizer = fresh()
    agent.train(optimizer, 6, p=0)
    assert optimizer.param_groups[0]["lr"] != 0.01
    agent.save(tmp_path / "x.dat")
    again, optimizer = fresh()
    again.restore(tmp_path / "x.dat")
    again.set(policy=EpsGreedyQPolicy(0.3), pool_size=40, batch=4)
    again.train(optimizer, 0, p=0)
    assert optimizer.param_groups[0]["lr"] == 0.01 and again.gamma == 0.5


class Line(Probe):
    """Its gradient, of two weights, is the mean of (reward, step) of a minibatch."""

    def __init__(self) -> None:
        super().__init__()
        self.param = [torch.nn.Parameter(torch.zeros(2))]

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        self.seen.append((s, a, next_s, r, d))
        self.prioritized_replay.update(r)
        return (self.param[0] * torch.stack([r.mean(), s[:, 0].mean()])).sum()

    def update_param(self) -> None:
        """There is no target."""


def test_variance_and_noise_scale_are_those_of_independent_mini_batches() -> None:
    agent = trained(Line(), 4)
    before = len(agent.seen)
    variance = agent.estimate_gradient_variance(6, 30)
    drawn = agent.seen[before:]
    assert len(drawn) == 30 and all(len(s) == 6 for s, *_ in drawn)
    assert all(len({tuple(x) for x in s.tolist()}) == 6 for s, *_ in drawn)  # no row twice in one
    gradients = np.array([[float(r.mean()), float(s[:, 0].mean())] for s, _, _, r, _ in drawn])
    expected = gradient_noise(gradients, 6)
    assert variance == pytest.approx(expected.variance, rel=1e-5) and variance > 0
    assert agent.gradient_noise_scale == pytest.approx(expected.scale, rel=1e-4)
    # 20 rows without replacement: the variance of a mean of 6 of them
    spread = np.var(np.tile([1, 2, 3, 4, 5], 4), ddof=1) / 6 * (1 - 6 / 20)
    measured = np.mean([agent.estimate_gradient_variance(6, 200) for _ in range(5)])
    assert measured == pytest.approx(spread, rel=0.1)
    assert agent.estimate_gradient_variance(6, 1) == 0.0
    assert agent.estimate_gradient_variance(1000, 3) == 0.0  # the whole pool, each time


@pytest.mark.parametrize("choices", [{}, {"PR": True}, {"num_steps": 3}])
def test_measuring_changes_nothing(choices: Any) -> None:
    class Odd(Layers):
        """With statistics, and chance, in its forward pass."""

        gamma = 0.9

        def __init__(self) -> None:
            norm = torch.nn.BatchNorm1d(2)
            super().__init__(first=torch.nn.Sequential(norm, torch.nn.Dropout(0.5)))
            self.net.eval()

    noise: list[float] = []
    measures = lambda self: noise.append(self.estimate_gradient_variance(5, 3))  # noqa: E731
    kinds = (Odd, own(Odd, adjust_func=measures))
    one, other = (trained(kind(), 4, **choices) for kind in kinds)
    assert len(noise) > 10 and min(noise) > 0
    assert one.loss_list == other.loss_list
    assert same(one.net.state_dict().values(), other.net.state_dict().values())


def test_adabatch() -> None:
    agent = trained(Line(), 8, batch=4)
    values = []
    estimate, agent._noise = agent._noise, lambda *a: values.append(estimate(*a)) or values[-1]
    low = {"batch_params": {"min": 2, "max": 32}}
    for share in (0.5, 0.25):
        agent.adabatch(10, target_noise=1e9, smooth=share, **low)
    assert agent.ema_noise == pytest.approx(0.25 * values[1][0] + 0.75 * values[0][0])
    assert agent._assembly.learner.schedule.batch_size == 2
    assert agent.adabatch(10, target_noise=1e-9, **low) == 32
    rule = {"rate": 0.1, "smooth": 0.0}
    assert agent.adabatch(10, lr_params=rule, target_noise=agent.ema_noise) == 32


@pytest.mark.parametrize(("target", "sign"), [(1e-6, 1), (1e6, -1)])
def test_signs_of_the_noise(target: float, sign: int) -> None:
    """Where there is more noise than there should be, step sizes fall and exploration rises."""
    agent = trained(Line(), 8, policy=EpsGreedyQPolicy(0.5), PR=True)
    agent.optimizer.param_groups[0]["weight_decay"] = 0.5
    agent.gamma = agent.clip = agent.beta = 0.5
    names = {"alpha": -1, "lr": -1, "eps": 1, "gamma": -1, "clip": -1, "beta": 1, "weight_decay": 1}
    rules = {f"{n}_params": {"rate": 1e-7, "smooth": 0.0} for n in names}
    values = {n: agent_value(agent, n) for n in names}
    agent.adabatch(8, target, **rules)
    moves = {n: np.sign(agent_value(agent, n) - values[n]) for n in names}
    assert moves == {n: way * sign for n, way in names.items()}


def agent_value(agent: Any, name: str) -> float:
    return adaptive.values_of(name, agent, agent._assembly)[0].get()


def test_a_run_that_asks_has_the_noise_scale_of_each_episode(tmp_path: Path) -> None:
    heard: list[Any] = []
    agent, again = Line(), Line()
    hear = LambdaCallback(on_episode_end=lambda i, logs: heard.append(logs["noise_scale"]))
    agent.gradient_noise, agent.callbacks = 6, [hear]
    trained(agent, 5)
    assert len(agent.noise_scale_list) == len(agent.reward_list) == 5
    assert all(np.isfinite(x) and x > 0 for x in agent.noise_scale_list[1:])
    assert heard == agent.noise_scale_list and trained(Line(), 2).noise_scale_list == []
    agent.save(tmp_path / "x.dat")
    again.restore(tmp_path / "x.dat")
    assert again.noise_scale_list == agent.noise_scale_list


def test_files_from_before_load(tmp_path: Path) -> None:
    from tandem.runs import checkpoint

    agent, optimizer = fresh()
    agent.hook = None
    agent.train(optimizer, 4, p=0)
    agent.save(tmp_path / "x.dat")
    file = checkpoint.read(tmp_path / "x.dat")
    data = {n: x for n, x in file.data.items() if n not in ("adjusted", "format")}
    del data["records"]["noise_scale_list"], data["loop"]["learner"]["since"]
    groups = {n: file.group(n) for n in ("param", "engine", "collector", "learner")}
    checkpoint.write(tmp_path / "y.dat", data, groups)
    again, optimizer = fresh()
    again.hook = None
    again.restore(tmp_path / "y.dat")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again.train(optimizer, 2, p=0)
    agent.train(None, 2, p=0)
    assert again.loss_list == agent.loss_list
