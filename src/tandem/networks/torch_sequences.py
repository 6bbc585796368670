"""Modules to put after an `nn.LSTM` in an `nn.Sequential`: they keep the outputs, not the state.

nn.Sequential(nn.LSTM(3, 64, batch_first=True), LastStep(), nn.Linear(64, 64), nn.Tanh())
"""

from __future__ import annotations

from torch import nn

from tandem.types import Array


class EveryStep(nn.Module):
    """From (outputs [B, T, units], state), as nn.LSTM gives them, to the outputs."""

    def forward(self, given: tuple[Array, Array]) -> Array:
        return given[0]


class LastStep(nn.Module):
    """From (outputs [B, T, units], state), as nn.LSTM with batch_first=True gives them, to the last
    output [B, units]."""

    def forward(self, given: tuple[Array, Array]) -> Array:
        return given[0][:, -1]
