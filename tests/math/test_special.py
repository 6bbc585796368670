"""The gamma function's relatives against SciPy's; the Beta distribution made of them."""

import numpy as np
import pytest
from scipy import integrate, special, stats

from tandem.math.distributions import Beta
from tandem.math.special import HALF_LOG_2PI, digamma, log_beta, stirling_remainder

X = np.concatenate([np.linspace(1, 5, 300), np.geomspace(5, 1e5, 200)])


def lgamma(x: np.ndarray) -> np.ndarray:
    return (x - 0.5) * np.log(x) - x + x.dtype.type(HALF_LOG_2PI) + stirling_remainder(x)


@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-7), (np.float32, 1e-6)])
def test_they_are_the_functions_that_they_are_named_for(dtype, tolerance) -> None:
    x = X.astype(dtype)
    for mine, theirs in ((lgamma, special.gammaln), (digamma, special.digamma)):
        got, wanted = mine(x), theirs(x.astype(np.float64))
        assert got.dtype == dtype
        assert (np.abs(got - wanted) <= tolerance * np.maximum(1, np.abs(wanted))).all(), mine
    a, b = np.meshgrid(x[x < 100][::7], x[x < 100][::7])
    wanted = special.betaln(a.astype(np.float64), b.astype(np.float64))
    np.testing.assert_allclose(log_beta(a, b), wanted, tolerance, 5 * tolerance)


OUTPUTS = np.array([[-9.0, -9.0], [0.0, 0.0], [3.0, -1.0], [50.0, 20.0]], np.float32)


@pytest.mark.parametrize("out", OUTPUTS, ids=str)
def test_beta_is_scipys(out) -> None:
    d, known = Beta(1), stats.beta(*(np.log1p(np.exp(out.astype(np.float64))) + 1), -1, 2)
    noise = d.noise(np.random.default_rng(0), (20_000,))
    drawn = d.sample(np.tile(out, (20_000, 1)), noise)
    assert drawn.dtype == noise.dtype == np.float32 and np.abs(drawn).max() <= 1
    assert stats.kstest(drawn[:, 0], known.cdf).pvalue > 1e-3
    log_prob = d.log_prob(out, drawn[:50])
    np.testing.assert_allclose(log_prob, known.logpdf(drawn[:50, 0]), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(d.entropy(out), known.entropy(), atol=1e-4)
    np.testing.assert_allclose(d.mode(out), [known.mean()], atol=1e-6)


def test_beta_divergence_by_quadrature_and_several_dimensions_add_up() -> None:
    old, new = np.array([0.5, -1.0]), np.array([2.0, 1.5])
    one, other = (stats.beta(*(np.log1p(np.exp(o)) + 1), -1, 2) for o in (old, new))
    wanted = integrate.quad(lambda x: one.pdf(x) * (one.logpdf(x) - other.logpdf(x)), -1, 1)[0]
    np.testing.assert_allclose(Beta(1).kl(old, new), wanted, rtol=1e-5)
    np.testing.assert_allclose(Beta(1).kl(old, old), 0, atol=1e-12)
    both = lambda x, y: np.array([x[0], y[0], x[1], y[1]])  # noqa: E731
    two, action = both(old, new), np.array([0.3, -0.8])
    there_and_back = Beta(1).kl(old, new) + Beta(1).kl(new, old)
    np.testing.assert_allclose(Beta(2).kl(two, both(new, old)), there_and_back)
    parts = [Beta(1).log_prob(o, a) for o, a in ((old, action[:1]), (new, action[1:]))]
    np.testing.assert_allclose(Beta(2).log_prob(two, action), sum(parts))
    np.testing.assert_allclose(Beta(2).entropy(two), Beta(1).entropy(old) + Beta(1).entropy(new))
    assert Beta(2).width == 4


def test_at_the_bounds_and_far_out_everything_stays_finite() -> None:
    out = np.array([[-100.0, 100.0], [3000.0, -100.0]], np.float32)
    noise = Beta(1).noise(np.random.default_rng(1), (2,))
    ends = np.array([[-1.0], [1.0]], np.float32)
    d = Beta(1)
    found = d.log_prob(out, ends), d.entropy(out), d.sample(out, noise), d.kl(out, out[::-1])
    assert all(np.isfinite(x).all() for x in found)
