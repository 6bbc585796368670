"""Random network distillation (Burda et al. 2019, arXiv:1810.12894): rewards for novelty."""

from __future__ import annotations

import numpy as np

from tandem import ops
from tandem.types import Array


def prediction_error(prediction: Array, features: Array) -> Array:
    """Return the error of predicted features [rows, F] of a random network, [rows]: the mean
    squared difference (section 2.2: the intrinsic reward, and the predictor's loss). Features
    should carry no gradient."""
    return ops.of(prediction).mean((prediction - features) ** 2, -1)


def kept(draw: Array, offset: Array, share: float) -> Array:
    """Return weights [rows] that select the rows a predictor learns from: 1 / share for this share
    of them, else 0 (the paper's "proportion of experience used for training predictor").

    draw: one uniform number in [0, 1) per row. offset: one per update, which selects other rows
    with the same draws.
    """
    xp = ops.of(draw)
    shifted = draw + offset
    shifted = xp.where(shifted >= 1.0, shifted - 1.0, shifted)
    return xp.where(shifted < share, 1.0 / share, 0.0 * shifted)


def forward_returns(reward: Array, running: Array, gamma: float) -> tuple[Array, Array]:
    """Return the discounted sums of rewards [T, N] up to each step, [T, N], and the last of them
    [N], continuing from `running` [N]. Intrinsic rewards are divided by their standard deviation
    (section 2.4). NumPy only."""
    found = np.empty(reward.shape)
    for t, now in enumerate(reward):
        running = running * gamma + now
        found[t] = running
    return found, running
