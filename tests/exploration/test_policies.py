import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from tandem import exploration as e
from tandem.errors import NonFiniteError, SettingError

Q = np.array([1.0, 3.0, 2.0, -1.0])
MANY = np.broadcast_to(Q, (40_000, 4))
ALL = [kind for name, kind in vars(e).items() if name.endswith("Policy") and kind is not e.Policy]


def softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum()


def shares(policy: e.Policy, values: Any = MANY, step: int = 0) -> np.ndarray:
    return np.bincount(policy.choose(values, step), minlength=4) / len(values)


def near(found: np.ndarray, expected: Any) -> None:
    """Within five standard deviations of a share of 40,000."""
    np.testing.assert_allclose(found, expected, atol=5 * 0.5 / 200)


def test_greedy_and_eps_greedy() -> None:
    assert e.GreedyQPolicy().select_action(np.array([0.0, 2.0, 2.0])) == 1  # the first of the best
    # their squares are infinite
    assert e.GreedyQPolicy().select_action(np.array([1e30, 3e30, -1e38], np.float32)) == 1
    near(shares(e.EpsGreedyQPolicy(0.4, seed=0)), [0.1, 0.7, 0.1, 0.1])
    assert (e.EpsGreedyQPolicy(0.0).choose(MANY) == 1).all()
    policy = e.AdaptiveEpsGreedyPolicy(0.9, 0.1, 1e-3, seed=0)  # decays with the step
    found = shares(policy, step=1000)
    near(found, (1 - policy.eps) * np.eye(4)[1] + policy.eps / 4)
    assert policy.eps == pytest.approx(0.1 + 0.8 * np.exp(-1))
    near(shares(policy, step=10**6), [0.025, 0.925, 0.025, 0.025])


@pytest.mark.parametrize("actions", [1, 2, 3, 18, 1000])
def test_one_choice_draws_what_many_draw(actions: int) -> None:
    one, rng = e.EpsGreedyQPolicy(0.5, seed=7), np.random.default_rng(7)
    values = np.arange(actions, dtype=np.float32)
    for shape in [(), (1,), (1, 1)] * 100:
        explore, action = rng.random((1,)) < 0.5, rng.integers(actions, size=(1,))
        found = one.choose(np.broadcast_to(values, (*shape, actions)))
        assert found.shape == shape and found.dtype == np.int64
        assert found == np.where(explore, action, actions - 1)
    assert one.rng.bit_generator.state == rng.bit_generator.state


def test_softmax_in_either_documented_way_and_boltzmann_with_its_clip() -> None:
    p = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
    near(shares(e.SoftmaxPolicy(seed=0), np.broadcast_to(p, (40_000, 4))), p)
    assert e.SoftmaxPolicy(seed=3).select_action(4, p) == e.SoftmaxPolicy(seed=3).select_action(p)
    assert e.SoftmaxPolicy().select_action(np.array([0.0, 0.0, 1.0])) == 2
    with pytest.raises(SettingError, match=r"not probabilities(.|\n)*BoltzmannQPolicy"):
        e.SoftmaxPolicy().select_action(Q)
    near(shares(e.BoltzmannQPolicy(2.0, seed=0)), softmax(Q / 2))
    near(shares(e.BoltzmannQPolicy(clip=(-0.5, 1.5), seed=0)), softmax(Q.clip(-0.5, 1.5)))
    # both at the clip; no overflow
    assert e.BoltzmannQPolicy(1e-3).select_action(np.array([1e5, 1e5 + 1e4])) in (0, 1)
    mixed = 0.3 * softmax(Q / 2) + 0.7 * np.eye(4)[1]
    near(shares(e.MaxBoltzmannQPolicy(0.3, 2.0, seed=0)), mixed)
    # by softmax or anything
    near(shares(e.GumbelSoftmaxPolicy(eps=0.2, seed=0)), 0.8 * softmax(Q) + 0.05)


def test_boltzmann_gumbel_counts_and_begins_anew_at_step_0() -> None:
    policy, rng = e.BoltzmannGumbelQPolicy(2.0, seed=5), np.random.default_rng(5)
    counts = np.ones(4)
    for step in range(20):
        expected = (Q + 2.0 / np.sqrt(counts) * rng.gumbel(size=4)).argmax()
        assert policy.select_action(Q, step) == expected
        counts[expected] += 1
    assert policy.counts.tolist() == counts.tolist() and counts.sum() == 24
    policy.select_action(Q, 0)
    assert policy.counts.sum() == 5


@pytest.mark.parametrize("hard", [True, False])
def test_gumbel_softmax_lets_gradients_through(hard: bool) -> None:
    import torch

    policy = e.GumbelSoftmaxPolicy(temperature=0.5, seed=0)
    noise, q = policy.noise((3, 4)), np.tile(Q, (3, 1))
    logits = torch.tensor(q, dtype=torch.float32, requires_grad=True)
    sample = policy.relaxed(logits, torch.as_tensor(noise), hard)
    soft = torch.softmax((logits + torch.as_tensor(noise)) / 0.5, -1)
    expected = torch.nn.functional.one_hot(soft.argmax(-1), 4) if hard else soft
    for found in (sample.detach().numpy(), policy.relaxed(q, noise, hard)):
        np.testing.assert_allclose(found, expected.detach().numpy(), atol=1e-6)
    weights = torch.arange(12.0).reshape(3, 4)
    (found,) = torch.autograd.grad((sample * weights).sum(), logits)
    (wanted,) = torch.autograd.grad((soft * weights).sum(), logits)
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), atol=1e-5)


@pytest.mark.parametrize("kind", ALL)
def test_seeds_shapes_and_saved_states(kind: type[e.Policy]) -> None:
    values = softmax(Q) if kind is e.SoftmaxPolicy else Q
    several = np.broadcast_to(values, (2, 3, 4))
    first, second = kind(seed=1), kind(seed=1)
    assert first.choose(several).shape == (2, 3) and first.choose(several, 7).dtype == np.int64
    second.choose(several)
    saved = json.loads(json.dumps(second.state()))
    third = kind(seed=9)
    third.load_state(saved)
    second.choose(several, 7)
    after = [[p.select_action(values, step) for step in range(8, 30)] for p in (first, second)]
    third.choose(several, 7)
    assert after[0] == after[1] == [third.select_action(values, step) for step in range(8, 30)]
    assert all(type(a) is int and 0 <= a < 4 for a in after[0])


def test_an_eps_that_was_assigned_is_saved() -> None:
    first, second = (e.AdaptiveEpsGreedyPolicy(seed=s) for s in (0, 1))
    first.choose(Q, 5000)
    decayed, first.eps = first.eps, 0.25
    second.load_state(json.loads(json.dumps(first.state())))
    assert second.eps == 0.25
    second.eps = None
    assert second.eps == decayed < 1
    second.load_state({"rng": first.state()["rng"]})  # as older files have it
    assert second.eps == decayed


@pytest.mark.parametrize("kind", ALL)
def test_what_cannot_be_chosen_from_is_refused(kind: type[e.Policy]) -> None:
    for bad in (np.nan, np.inf, -np.inf):
        with pytest.raises(NonFiniteError, match=kind.__name__):
            kind().choose(np.array([[0.5, bad, 0.5]], np.float32))
    with pytest.raises(NonFiniteError, match=kind.__name__):
        kind().select_action(np.array([0.5, np.nan, 0.5]))
    with pytest.raises(SettingError, match=r"shape \(1, 4\)"):
        kind().select_action(Q[None])


@pytest.mark.parametrize(
    "make, odd",
    [
        (e.EpsGreedyQPolicy, {"eps": 1.5}),
        (e.AdaptiveEpsGreedyPolicy, {"min_eps": -0.1, "decay_rate": float("nan")}),
        (e.BoltzmannQPolicy, {"tau": 0.0, "clip": (1.0, -1.0)}),
        (e.BoltzmannGumbelQPolicy, {"C": 0}),
        (e.GumbelSoftmaxPolicy, {"temperature": -1.0}),
        (partial(e.GaussianWhiteNoiseProcess, sigma=0.1), {"sigma": -1.0, "sigma_min": 0.2}),
        (e.GaussianWhiteNoiseProcess, {"n_steps_annealing": 0}),
        (partial(e.OrnsteinUhlenbeckProcess, theta=0.15), {"dt": 0.0, "theta": -0.15}),
    ],
)
def test_numbers_out_of_range_are_named(make: Any, odd: dict[str, Any]) -> None:
    for name, x in odd.items():
        says = re.escape(f"{name}={x}")
        with pytest.raises(SettingError, match=f"{says}(.|\n)*; expected(.|\n)*Fix"):
            make(**{name: x})


# noise

MAKES: dict[str, Callable[..., e.RandomProcess]] = dict(
    white=lambda seed=0, **more: e.GaussianWhiteNoiseProcess(0.5, 2.0, size=3, seed=seed, **more),
    ou=lambda seed=0, **more: e.OrnsteinUhlenbeckProcess(0.15, 0.5, 2.0, size=3, seed=seed, **more),
)


def test_white_noise_is_drawn_from_its_normal() -> None:
    process = e.GaussianWhiteNoiseProcess(0.5, 2.0, size=4, seed=0)
    x = np.array([process.sample() for _ in range(10_000)])
    np.testing.assert_allclose(x.mean(0), 0.5, atol=5 * 2.0 / 100)
    np.testing.assert_allclose(x.std(0), 2.0, atol=0.1)
    assert abs(np.corrcoef(x[1:, 0], x[:-1, 0])[0, 1]) < 0.05


def test_ornstein_uhlenbeck_by_its_formula() -> None:
    process = e.OrnsteinUhlenbeckProcess(0.3, 1.0, 0.5, dt=0.1, size=2, seed=4)
    rng = np.random.default_rng(4)
    x = rng.normal(1.0, 0.5, 2)
    for _ in range(5):
        x = x + 0.3 * (1.0 - x) * 0.1 + 0.5 * np.sqrt(0.1) * rng.standard_normal(2)
        found = process.sample()
        np.testing.assert_allclose(found, x)
        found += 100.0  # it is the caller's
    process.reset_states()
    np.testing.assert_array_equal(process.x, rng.normal(1.0, 0.5, 2))


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_the_deviation_falls_and_stays(make: Callable[..., e.RandomProcess]) -> None:
    process = make(sigma_min=0.5, n_steps_annealing=10)
    sigmas = []
    for _ in range(15):
        sigmas.append(process.current_sigma)
        process.sample()
    np.testing.assert_allclose(sigmas, [2.0 - 0.15 * k for k in range(10)] + [0.5] * 5)
    process.reset_states()
    assert process.current_sigma == 0.5  # annealing goes on over episodes
    constant = make()
    for _ in range(2000):
        constant.sample()
    assert constant.current_sigma == 2.0


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_seeds_and_saved_states(make: Callable[..., e.RandomProcess]) -> None:
    first, second, other = (make(seed=s, sigma_min=0.1, n_steps_annealing=20) for s in (1, 1, 2))
    assert first.sample().tolist() == second.sample().tolist() != other.sample().tolist()
    other.load_state(json.loads(json.dumps(first.state())))
    rest = [[one.sample().tolist() for _ in range(5)] for one in (first, second, other)]
    assert rest[0] == rest[1] == rest[2]
