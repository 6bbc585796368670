from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from tandem.exploration import GaussianWhiteNoiseProcess, OrnsteinUhlenbeckProcess, RandomProcess

MAKES: dict[str, Callable[..., RandomProcess]] = dict(
    white=lambda seed=0, **more: GaussianWhiteNoiseProcess(0.5, 2.0, size=3, seed=seed, **more),
    ou=lambda seed=0, **more: OrnsteinUhlenbeckProcess(0.15, 0.5, 2.0, size=3, seed=seed, **more),
)


def test_white_noise_is_drawn_from_its_normal() -> None:
    process = GaussianWhiteNoiseProcess(0.5, 2.0, size=4, seed=0)
    x = np.array([process.sample() for _ in range(10_000)])
    np.testing.assert_allclose(x.mean(0), 0.5, atol=5 * 2.0 / 100)
    np.testing.assert_allclose(x.std(0), 2.0, atol=0.1)
    assert abs(np.corrcoef(x[1:, 0], x[:-1, 0])[0, 1]) < 0.05


def test_ornstein_uhlenbeck_by_its_formula() -> None:
    process = OrnsteinUhlenbeckProcess(0.3, 1.0, 0.5, dt=0.1, size=2, seed=4)
    rng = np.random.default_rng(4)
    x = rng.normal(1.0, 0.5, 2)
    for _ in range(5):
        x = x + 0.3 * (1.0 - x) * 0.1 + 0.5 * np.sqrt(0.1) * rng.standard_normal(2)
        np.testing.assert_allclose(process.sample(), x)
    process.reset_states()
    np.testing.assert_array_equal(process.x, rng.normal(1.0, 0.5, 2))


def test_a_sample_stays_what_it_was() -> None:
    process = OrnsteinUhlenbeckProcess(0.3, seed=0)
    first = process.sample()
    kept = first.copy()
    first += 100.0
    assert abs(process.sample() - kept) < 1.0


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_the_deviation_falls_and_stays(make: Callable[..., RandomProcess]) -> None:
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
def test_seeds_and_saved_states(make: Callable[..., RandomProcess]) -> None:
    first, second, other = (make(seed=s, sigma_min=0.1, n_steps_annealing=20) for s in (1, 1, 2))
    assert first.sample().tolist() == second.sample().tolist() != other.sample().tolist()
    other.load_state(json.loads(json.dumps(first.state())))
    rest = [[one.sample().tolist() for _ in range(5)] for one in (first, second, other)]
    assert rest[0] == rest[1] == rest[2]
