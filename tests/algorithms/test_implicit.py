"""How implicit quantiles act; what munchausen implies."""

from __future__ import annotations

import numpy as np

from tandem import trainer
from tandem.math.values import munchausen, q_learning
from tandem.networks.plan import Flatten
from tandem.spaces import Leaf
from tandem.testing import fakes

SMALL = {"fractions": 5, "target_fractions": 4, "acting_fractions": 6, "cosines": 7}


def test_it_acts_by_the_mean_at_midpoints_and_always_alike() -> None:
    algorithm, _ = fakes.build("dqn", "torch", fakes.DISCRETE, values="implicit", **SMALL)
    obs = fakes.values(fakes.VECTOR, (9,), np.random.default_rng(0))
    network, fractions = algorithm.q.predict, (np.arange(6, dtype=np.float32) + 0.5) / 6
    rows = np.tile(fractions, (9, 1))
    quantiles = network({"obs": obs, "fractions": rows})
    assert quantiles.shape == (9, 6, 2) and np.ptp(quantiles, 1).min() > 1e-4
    one = [network({"obs": obs, "fractions": rows[:, i : i + 1]})[:, 0] for i in range(6)]
    np.testing.assert_allclose(quantiles, np.stack(one, 1), rtol=1e-5, atol=1e-6)
    act = lambda: algorithm.act(  # noqa: E731
        algorithm.settings, fakes.DISCRETE, {"q": network}, obs, (), None
    )
    np.testing.assert_array_equal(act()[0], quantiles.mean(1).argmax(-1))
    np.testing.assert_array_equal(act()[0], act()[0])


def test_the_default_network_has_fractions_before_its_last_hidden_layer() -> None:
    """psi and f of Dabney et al. 2018b, section 3.1; of pictures psi is the convolutions."""
    by_role = fakes.sources("dqn", fakes.DISCRETE, values="implicit", hidden=(16, 8))
    product, hidden, out = by_role["q"].plan
    assert [x.units for x in product.plans["obs"] if hasattr(x, "units")] == [16]
    assert product.plans["fractions"][1].units == hidden.inputs == 16
    assert (hidden.units, out.units) == (8, 2)
    image = Leaf("box", (36, 36, 1), "uint8", (), (0.0,) * 1296, (255.0,) * 1296)
    by_role = fakes.sources("dqn", fakes.DISCRETE, image, values="implicit", dueling=True)
    product, streams = by_role["q"].plan
    assert isinstance(product.plans["obs"][-1], Flatten)
    assert product.plans["fractions"][1].units == streams.value[0].inputs == 64
    assert streams.advantage[0].units == 512


def test_munchausen_by_hand() -> None:
    q = np.array([[1.0, 0.0]], np.float32)
    later = np.array([[2.0, 2.0]], np.float32)
    one = np.ones(1, np.float32)
    told = (q, np.array([1]), one, 0.5 * one, later)
    reward, policy = munchausen(*told, alpha=0.9, temperature=0.5, lowest=-1.0)
    # temperature log pi(1 | s) = -1 - 0.5 log(1 + exp(-2)), below the clip; entropy log 2
    np.testing.assert_allclose(reward, 1.0 - 0.9 + 0.5 * 0.5 * np.log(2), rtol=1e-6)
    np.testing.assert_allclose(policy, [[0.5, 0.5]])
    reward, _ = munchausen(*told, alpha=0.9, temperature=0.5, lowest=-9.0)
    bonus = -1.0 - 0.5 * np.log1p(np.exp(-2.0))
    np.testing.assert_allclose(reward, 1.0 + 0.9 * bonus + 0.25 * np.log(2), rtol=1e-6)
    mean = q_learning(q, np.array([1]), one, one, np.array([[4.0, 2.0]]), policy=policy)
    np.testing.assert_allclose(mean, [1.0 + 3.0])


def test_munchausen_has_no_double_targets_unless_asked_which_is_refused() -> None:
    for given, double in (({}, False), ({"double": True}, True), ({"munchausen": False}, True)):
        settings, *_ = trainer.resolve("dqn", "CartPole-v1", {"munchausen": True, **given})
        assert settings.double is double
