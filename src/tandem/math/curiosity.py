"""Random network distillation (Burda et al. 2019, arXiv:1810.12894): the reward of what is new."""

from __future__ import annotations

import numpy as np

from tandem import ops
from tandem.types import Array


def prediction_error(prediction: Array, features: Array) -> Array:
    """How badly features [rows, F] of a random network are predicted, [rows]: the mean of the
    squared differences (section 2.2: the intrinsic reward, and the predictor's loss). No gradient
    is meant to pass through the features."""
    return ops.of(prediction).mean((prediction - features) ** 2, -1)


def kept(draw: Array, offset: Array, share: float) -> Array:
    """Which rows a predictor learns from, [rows]: 1 / share for that share of them, else 0 (the
    paper's "proportion of experience used for training predictor").

    draw: one number in [0, 1) for each row, drawn evenly; offset: one for each update, which makes
    other rows of the same draws."""
    xp = ops.of(draw)
    shifted = draw + offset
    shifted = xp.where(shifted >= 1.0, shifted - 1.0, shifted)
    return xp.where(shifted < share, 1.0 / share, 0.0 * shifted)


def forward_returns(reward: Array, running: Array, gamma: float) -> tuple[Array, Array]:
    """Discounted sums of rewards [T, N] so far, [T, N], and the last of them [N], from `running`
    [N] before the first: what intrinsic rewards are divided by the standard deviation of (section
    2.4). NumPy's."""
    found = np.empty(reward.shape)
    for t, now in enumerate(reward):
        running = running * gamma + now
        found[t] = running
    return found, running
