import numpy as np
import pytest
from scipy import special, stats

from tandem.math.distributions import (
    Beta,
    Categorical,
    DeterministicDistribution,
    Gaussian,
    MultiCategorical,
    Spherical,
    TanhGaussian,
    tanh_normal,
)
from tandem.math.products import for_actions
from tandem.testing import fakes

LOGITS = np.array([1.0, -0.5, 0.3, 2.0, 0.0, -1.0], np.float32)
DRAWS = 40_000


def noise_of(distribution, shape=(DRAWS,)):
    noise = distribution.noise(np.random.default_rng(0), shape)
    assert noise.dtype == np.float32
    return noise


def test_categorical() -> None:
    d, p = Categorical(6), special.softmax(LOGITS)
    drawn = np.bincount(d.sample(LOGITS, noise_of(d)), minlength=6) / DRAWS
    np.testing.assert_allclose(drawn, p, atol=4 * np.sqrt(0.25 / DRAWS))
    log_p = [d.log_prob(LOGITS, np.array(i)) for i in range(6)]
    np.testing.assert_allclose(log_p, np.log(p), rtol=1e-5)
    np.testing.assert_allclose(d.entropy(LOGITS), stats.entropy(p), rtol=1e-5)
    assert d.mode(LOGITS) == 3 and d.width == 6


def test_multi_categorical() -> None:
    d, parts = MultiCategorical((2, 4)), (special.softmax(LOGITS[:2]), special.softmax(LOGITS[2:]))
    drawn = d.sample(np.tile(LOGITS, (DRAWS, 1)), noise_of(d))
    joint = np.histogram2d(*drawn.T, bins=(range(3), range(5)))[0] / DRAWS
    # and independent of one another
    np.testing.assert_allclose(joint, np.outer(*parts), atol=4 * np.sqrt(0.25 / DRAWS))
    action = np.array([[0, 1], [1, 3]])
    expected = [np.log(parts[0][a] * parts[1][b]) for a, b in action]
    np.testing.assert_allclose(d.log_prob(np.tile(LOGITS, (2, 1)), action), expected, rtol=1e-5)
    np.testing.assert_allclose(d.entropy(LOGITS), sum(map(stats.entropy, parts)), rtol=1e-5)
    np.testing.assert_array_equal(d.mode(LOGITS), [0, 1])


def test_gaussian() -> None:
    d, out = Gaussian(2), np.array([1.0, -2.0, np.log(0.5), np.log(3.0)], np.float32)
    drawn = d.sample(out, noise_of(d))
    for i, (mean, std) in enumerate([(1.0, 0.5), (-2.0, 3.0)]):
        assert stats.kstest(drawn[:, i], stats.norm(mean, std).cdf).pvalue > 1e-3
    normal = stats.multivariate_normal([1, -2], np.diag([0.25, 9.0]))
    expected = normal.logpdf(drawn[:20])
    np.testing.assert_allclose(d.log_prob(out, drawn[:20]), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(d.entropy(out), normal.entropy(), rtol=1e-6)
    np.testing.assert_array_equal(d.mode(out), out[:2])
    assert d.width == 4


def test_tanh_normal_by_the_change_of_variables_and_far_out() -> None:
    """The normal's density, divided by how much tanh stretches: here by finite differences."""
    noise = np.linspace(-2.5, 2.5, 11)[:, None]
    mean, log_std = np.full_like(noise, 0.3), np.full_like(noise, -0.4)
    action, log_prob = tanh_normal(mean, log_std, noise)
    u, step = mean + np.exp(log_std) * noise, 1e-5
    stretch = (np.tanh(u + step) - np.tanh(u - step)) / (2 * step)
    expected = stats.norm(0.3, np.exp(-0.4)).logpdf(u) - np.log(stretch)
    np.testing.assert_allclose(action, np.tanh(u))
    np.testing.assert_allclose(log_prob, expected[:, 0], rtol=1e-6, atol=1e-6)
    noise = np.array([[-8.0], [8.0]], np.float32)
    action, log_prob = tanh_normal(np.zeros_like(noise), np.full_like(noise, 2.0), noise)
    assert np.abs(action).max() <= 1 and np.isfinite(log_prob).all()
    # log(1 - tanh(u)^2) -> log 4 - 2u
    expected = stats.norm(0, np.exp(2)).logpdf(59.1124) - (np.log(4) - 2 * 59.1124)
    np.testing.assert_allclose(log_prob, expected, rtol=1e-3)


EVERY = (Categorical(3), MultiCategorical((2, 3)), Gaussian(2), Spherical(2))
EVERY += (Beta(2), TanhGaussian(2), DeterministicDistribution(2))


@pytest.mark.parametrize("d", EVERY, ids=str)
def test_every_distribution(d) -> None:
    out = 5 * np.random.default_rng(1).standard_normal((50, 4, d.width), dtype=np.float32)
    noise = noise_of(d, (50, 4))
    assert noise.shape[:2] == (50, 4) and np.isfinite(noise).all()
    sample, mode = d.sample(out, noise), d.mode(out)
    assert sample.shape[:2] == (50, 4) and not np.array_equal(mode, sample)
    np.testing.assert_array_equal(d.act(out, None), mode)
    np.testing.assert_array_equal(d.act(out, noise), sample)
    modes = {"as_is": (Categorical, MultiCategorical), "clip": (Gaussian, Spherical)}
    assert isinstance(d, modes.get(d.action_mode, (Beta, TanhGaussian, DeterministicDistribution)))
    assert np.abs(sample).max() <= 1 or d.action_mode != "unit"


def test_a_tanh_gaussian_is_tanh_of_a_gaussian_whose_deviation_is_bounded() -> None:
    out = np.array([[0.3, -0.2, -1.0, 9.0]], np.float32)
    noise = np.array([[0.5, -0.1]], np.float32)
    d, cut = TanhGaussian(2), np.array([[0.3, -0.2, -1.0, 2.0]], np.float32)
    sample = np.tanh(Gaussian(2).sample(cut, noise))
    np.testing.assert_allclose(d.sample(out, noise), sample)
    np.testing.assert_allclose(d.mode(out), np.tanh(out[:, :2]))
    action, log_prob = d.sample_log_prob(out, noise)
    expected = tanh_normal(cut[:, :2], cut[:, 2:], noise)
    np.testing.assert_allclose(action, expected[0])
    np.testing.assert_allclose(log_prob, expected[1])


def test_the_distribution_of_a_space() -> None:
    assert for_actions(fakes.DISCRETE) == Categorical(2)
    assert for_actions(fakes.MULTI) == MultiCategorical((2, 3))
    assert for_actions(fakes.BOX) == Gaussian(2)


def test_divergences_by_their_definition() -> None:
    """KL(old || new) = E_old[log old - log new]: a sum over choices, a quadrature of normals."""
    rng = np.random.default_rng(3)
    old, new = rng.normal(size=(2, 6))
    p = special.softmax(old)
    wanted = sum(p[i] * (np.log(p[i]) - np.log(special.softmax(new)[i])) for i in range(6))
    np.testing.assert_allclose(Categorical(6).kl(old, new), wanted, rtol=1e-6)
    parts = Categorical(2).kl(old[:2], new[:2]) + Categorical(4).kl(old[2:], new[2:])
    np.testing.assert_allclose(MultiCategorical((2, 4)).kl(old, new), parts, rtol=1e-6)
    # means, log deviations
    before, after = np.array([0.5, -1.0, -0.3, 0.2]), np.array([0.1, -0.7, 0.1, 0.0])
    x = np.linspace(-12, 12, 200_001)
    total = 0.0
    for i in range(2):
        one, other = (stats.norm(out[i], np.exp(out[i + 2])) for out in (before, after))
        total += np.trapezoid(one.pdf(x) * (one.logpdf(x) - other.logpdf(x)), x)
    np.testing.assert_allclose(Gaussian(2).kl(before, after), total, rtol=1e-6)
    for d, out in ((Categorical(6), old), (MultiCategorical((2, 4)), old), (Gaussian(3), old)):
        np.testing.assert_allclose(d.kl(out, out), 0.0, atol=1e-12)
