"""Returns and corrections against numbers that the tests of the field's reference libraries assert.
Only numbers are theirs:

rlax      google-deepmind/rlax, rlax/_src/multistep_test.py, vtrace_test.py, value_learning_test.py
trfl      google-deepmind/trfl, trfl/retrace_ops_test.py

Their sequences are rows; ours are columns.
"""

from __future__ import annotations

import numpy as np
import pytest

from tandem.math.returns import generalized_advantage, lambda_return, retrace, vtrace
from tandem.replay.buffer import Ring
from tandem.spaces import Leaf
from tandem.types import Cuts, Trajectory


def columns(*rows: list[float]) -> np.ndarray:
    return np.array(rows, np.float32).T


def never(x: np.ndarray) -> np.ndarray:
    return np.zeros(x.shape, np.bool_)


# multistep_test.py: one set of sequences for lambda-returns, discounted returns and n-step returns.
# v_t is what follows a step.
REWARD = columns([1.0, 0.0, -1.0, 0.0, 1.0], [0.5, 0.8, -0.7, 0.0, 2.1])
DISCOUNT = columns([0.5, 0.9, 1.0, 0.5, 0.8], [0.9, 0.5, 0.3, 0.8, 0.7])
AFTER = columns([3.0, 1.0, 5.0, -5.0, 3.0], [-1.7, 1.2, 2.3, 2.2, 2.7])
# the first state's is asked for by nobody
VALUE = np.concatenate([np.zeros((1, 2), np.float32), AFTER[:-1]])

N_STEP = {
    3: columns([2.8, -3.15, 0.7, 1.7, 3.4], [1.2155, 0.714, 0.2576, 3.192, 3.99]),
    5: columns([1.315, 0.63, 0.7, 1.7, 3.4], [1.33592, 0.9288, 0.2576, 3.192, 3.99]),
    7: columns([1.315, 0.63, 0.7, 1.7, 3.4], [1.33592, 0.9288, 0.2576, 3.192, 3.99]),
}


@pytest.mark.parametrize(
    "lambda_, wanted",
    [
        (
            0.75,
            columns(
                [1.6460547, 0.72281253, 0.7375001, 0.6500001, 3.4],
                [0.7866317, 0.9913063, 0.1101501, 2.834, 3.99],
            ),
        ),
        (
            1.0,
            columns(
                [1.315, 0.63000005, 0.70000005, 1.7, 3.4],
                [1.33592, 0.9288, 0.2576, 3.192, 3.9899998],
            ),
        ),
    ],
)
def test_lambda_and_discounted_returns_of_rlax(lambda_, wanted) -> None:
    np.testing.assert_allclose(
        lambda_return(REWARD, DISCOUNT, never(REWARD), VALUE, AFTER[-1], lambda_), wanted, rtol=1e-5
    )


@pytest.mark.parametrize("n", N_STEP)
def test_n_step_returns_of_rlax_from_the_replay_ring(n) -> None:
    """The ring gives sums of rewards and discounts, and the observation that follows: here the
    row's number, to look up V."""
    steps, envs = REWARD.shape
    number = Leaf("box", (1,), "float32", (), (0.0,), (9.0,))
    ring = Ring(100, envs, number, Leaf("discrete", (), "int64", (2,)))
    obs = np.broadcast_to(
        np.arange(steps + 1, dtype=np.float32)[:, None, None], (steps + 1, envs, 1)
    ).copy()
    none = np.zeros(0, np.int64)
    action, always = np.zeros((steps, envs), np.int64), ~never(REWARD)
    ring.add(
        Trajectory(
            obs[:-1],
            action,
            REWARD,
            DISCOUNT,
            never(REWARD),
            always,
            Cuts(none, none, obs[:0, 0]),
            obs[-1],
        )
    )
    ids = np.arange(steps * envs)
    batch = ring.transitions(ids, n)
    after = AFTER[batch.next_obs[:, 0].astype(int) - 1, ids % envs]
    np.testing.assert_allclose(
        (batch.reward + batch.discount * after).reshape(steps, envs), N_STEP[n], rtol=1e-5
    )


@pytest.mark.parametrize(
    "lambda_, wanted",
    [
        (1.0, columns([-1.45118, -4.4557, 2.5396, 0.5249, -0.49], [3.0, 2.0, 1.0, 0.0, -4.9])),
        (
            0.7,
            columns([-0.676979, -5.248167, 2.4846, 0.6704, -0.49], [2.2899, 1.73, 1.0, 0.0, -4.9]),
        ),
        (0.4, columns([0.56731, -6.042, 2.3431, 0.815, -0.49], [1.725, 1.46, 1.0, 0.0, -4.9])),
    ],
)
def test_advantages_of_rlax(lambda_, wanted) -> None:
    """Its tolerance, 1e-3, is its own; a discount of 0 in the middle of the second row is an
    end."""
    reward = columns([0.0, 0.0, 1.0, 0.0, -0.5], [0.0, 0.0, 0.0, 0.0, 1.0])
    value = columns([1.0, 4.0, -3.0, -2.0, -1.0], [-3.0, -2.0, -1.0, 0.0, 5.0])
    discount = columns([0.99] * 5, [0.9, 0.9, 0.9, 0.0, 0.9])
    for last in (never(reward), discount == 0):
        got = generalized_advantage(
            reward, discount, last, value, np.full(2, -1, np.float32), lambda_
        )
        np.testing.assert_allclose(got, wanted, atol=1e-3)


def test_vtrace_of_rlax() -> None:
    """vtrace_test.py, its sequences of two choices; the ratios of the softmax of its logits."""
    behaviour = np.array(
        [
            [[8.9, 0.7], [5.0, 1.0], [0.6, 0.1], [-0.9, -0.1]],
            [[0.3, -5.0], [1.0, -8.0], [0.3, 1.7], [4.7, 3.3]],
        ]
    )
    target = np.array(
        [
            [[0.4, 0.5], [9.2, 8.8], [0.7, 4.4], [7.9, 1.4]],
            [[1.0, 0.9], [1.0, -1.0], [-4.3, 8.7], [0.8, 0.3]],
        ]
    )
    action = np.array([[0, 1, 0, 0], [1, 0, 0, 1]])
    log_p, log_mu = (x - np.log(np.exp(x).sum(-1, keepdims=True)) for x in (target, behaviour))
    ratio = np.exp(np.take_along_axis(log_p - log_mu, action[..., None], -1))[..., 0].T.astype(
        np.float32
    )
    reward = columns([-1.3, -1.3, 2.3, 42.0], [1.3, 5.3, -3.3, -5.0])
    discount = columns([0.0, 0.89, 0.85, 0.99], [0.88, 1.0, 0.83, 0.95])
    value = columns([2.1, 1.1, -3.1, 0.0], [3.1, 0.1, -1.1, 7.4])
    found, advantage = vtrace(
        reward, discount, discount == 0, value, np.array([8.4, -1.2], np.float32), ratio
    )
    errors = columns(
        [-1.6155143, -3.4973226, 1.8670533, 50.316002],
        [1.4662437, 3.6116405, -8.3327293e-5, -13.54],
    )
    gains = columns(
        [-1.6155143, -3.4973226, 1.8670534, 50.316002],
        [1.4662433, 3.6116405, -8.3369283e-5, -13.54],
    )
    np.testing.assert_allclose(found - value, errors, rtol=1e-3, atol=2e-7)
    np.testing.assert_allclose(advantage, gains, rtol=1e-3, atol=2e-7)


def test_retrace_of_rlax() -> None:
    """value_learning_test.py, the continuous case: half the squared error of each target, with
    traces of 0.9."""
    q = columns([1.1, 1.1, 3.1], [3.1, 9.5, -2.1])
    # of a target network: what the trace looks back on
    target_q = columns([1.2, 0.2, 2.2], [2.2, 1.2, -1.2])
    expected_q = columns([-0.08, 0.84000003, -2.625], [1.2, -1.9, 1.3499999])  # after each step
    reward = columns([-1.3, -1.3, 2.3], [1.3, 5.3, -3.3])
    discount = columns([0.0, 0.89, 0.85], [0.88, 1.0, 0.83])
    log_ratio = columns([2.0794415, -0.4054651, 1.0986122], [0.51082563, -1.2039728, -1.0986123])
    value = np.concatenate([np.zeros((1, 2), np.float32), expected_q[:-1]])
    got = retrace(
        reward, discount, never(reward), target_q, value, expected_q[-1], np.exp(log_ratio), 0.9
    )
    wanted = columns([2.88, 5.643226, 4.594238], [0.04236919, 20.44066, 0.003160141])
    np.testing.assert_allclose(0.5 * (got - q) ** 2, wanted, rtol=2e-5, atol=1e-6)


def test_retrace_of_trfl() -> None:
    """retrace_ops_test.py: its targets, as the sums of numbers that it spells out."""
    target_q = columns([4.0, 6.0, 3.0], [5.0, 2.0, 6.0])  # of the actions taken
    expected_q = columns(
        [
            0.41 * 7 + 0.28 * 6 + 0.31 * 5,
            0.22 * 3 + 0.44 * 5 + 0.34 * 7,
            0.16 * 2 + 0.72 * 8 + 0.12 * 4,
        ],
        [
            0.19 * 4 + 0.77 * 3 + 0.04 * 2,
            0.14 * 4 + 0.25 * 6 + 0.61 * 9,
            0.33 * 9 + 0.30 * 1 + 0.37 * 8,
        ],
    )
    reward = columns([1.9, 3.9, 5.9], [2.9, 4.9, 6.9])
    discount = columns([0.8, 0.7, 0.6], [0.9, 0.8, 0.5])
    ratio = columns([1.0, 0.28 / 0.85, 0.22 / 0.87], [1.0, 0.04 / 0.86, 0.25 / 0.88])
    value = np.concatenate([np.zeros((1, 2), np.float32), expected_q[:-1]])
    got = retrace(reward, discount, never(reward), target_q, value, expected_q[-1], ratio, 0.9)
    third = 5.9 + 0.6 * 6.56, 6.9 + 0.5 * 6.23
    second = (
        3.9 + 0.7 * 5.24 + 0.9 * 0.7 * 0.22 / 0.87 * (third[0] - 3),
        4.9 + 0.8 * 7.55 + 0.9 * 0.8 * 0.25 / 0.88 * (third[1] - 6),
    )
    first = (
        1.9 + 0.8 * 6.1 + 0.9 * 0.8 * 0.28 / 0.85 * (second[0] - 6),
        2.9 + 0.9 * 3.15 + 0.9 * 0.9 * 0.04 / 0.86 * (second[1] - 2),
    )
    np.testing.assert_allclose(got, [first, second, third], rtol=1e-5)
