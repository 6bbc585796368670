"""Arrays whose shapes do not fit are refused where they come in, by name, instead of being
broadcast."""

import numpy as np
import pytest

from tandem.errors import SpaceError
from tandem.math import masks, optimization, policy_losses, returns, special, values
from tandem.math.moments import Moments
from tandem.spaces import MASK, Leaf

T, N, A = 4, 2, 3
LEFT_OR_RIGHT = Leaf("discrete", (), "int64", (A,), masked=True)


def row() -> np.ndarray:
    return np.ones((T, N), np.float32)


RETURNS = {"reward": row(), "discount": row(), "last": row() < 0, "bootstrap": row()[0]}
OF_STATES = RETURNS | {"value": row()}
EACH = np.ones((T, N, A), np.float32)
OF_CHOICES = {"q": EACH, "action": np.zeros((T, N), np.int64), "reward": row(), "discount": row()}
OF_CHOICES |= {"next_q": EACH}

# function, and arguments that fit; the first array decides the shape of the others
CASES = {
    "generalized_advantage": (returns.generalized_advantage, OF_STATES | {"lambda_": 0.9}),
    "lambda_return": (returns.lambda_return, OF_STATES | {"lambda_": 0.9}),
    "lambda_return, a lambda a step": (returns.lambda_return, OF_STATES | {"lambda_": row()}),
    "multi_step": (returns.multi_step, RETURNS),
    "vtrace": (returns.vtrace, OF_STATES | {"ratio": row()}),
    "retrace": (returns.retrace, OF_STATES | {"q": row(), "ratio": row()}),
    "accumulate": (returns.accumulate, {"x": row(), "decay": row(), "end": row()[0]}),
    "q_learning": (values.q_learning, OF_CHOICES | {"selector": EACH}),
    "q_learning under a policy": (values.q_learning, OF_CHOICES | {"policy": EACH}),
    "epsilon_greedy_value": (
        values.epsilon_greedy_value,
        {"q": EACH, "best": np.zeros((T, N), np.int64), "epsilon": row(), "mask": EACH},
    ),
    "munchausen": (
        values.munchausen,
        OF_CHOICES | {"alpha": 0.9, "temperature": 0.03, "lowest": -1.0},
    ),
    "clipped_value_loss": (
        values.clipped_value_loss,
        {"value": row(), "old_value": row(), "target": row(), "clip": 0.2},
    ),
    "clipped_surrogate": (
        policy_losses.clipped_surrogate,
        {"ratio": row(), "advantage": row(), "clip": 0.2},
    ),
    "standardize": (policy_losses.standardize, {"x": row(), "weight": row()}),
    "log_beta": (special.log_beta, {"a": row(), "b": row()}),
}


@pytest.mark.parametrize("name", CASES)
def test_every_array_that_does_not_fit_is_refused_by_name(name) -> None:
    function, arguments = CASES[name]
    function(**arguments)
    others = [n for n, x in arguments.items() if isinstance(x, np.ndarray)][1:]
    for other in others:
        wrong = arguments[other][..., :1]  # NumPy would broadcast most of these
        with pytest.raises(SpaceError, match=rf"{other} has shape .*; expected shape .*\nFix: "):
            function(**arguments | {other: wrong})
        with pytest.raises(SpaceError, match=f"{other} has shape"):
            function(**arguments | {other: arguments[other][None]})


def test_masks_rows_and_vectors_that_do_not_fit_are_refused() -> None:
    out = np.ones((5, A), np.float32)
    masks.masked(out, {MASK: np.ones((5, A), np.int8)}, LEFT_OR_RIGHT)
    with pytest.raises(SpaceError, match=r"mask has shape \(5, 2\); expected shape \(5, 3\)"):
        masks.masked(out, {MASK: np.ones((5, 2), np.int8)}, LEFT_OR_RIGHT)
    with pytest.raises(SpaceError, match=r"rows has shape \(5, 1\); expected shape \(any, 2\)"):
        Moments(2).add(np.ones((5, 1)))
    with pytest.raises(SpaceError, match="b has shape"):
        optimization.conjugate_gradient(abs, np.ones((2, 1)), 1, lambda n, body, state: state)
