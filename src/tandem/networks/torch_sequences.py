"""Modules to use after an `nn.LSTM` in an `nn.Sequential`: they keep the outputs and drop the
state.

nn.Sequential(nn.LSTM(3, 64, batch_first=True), LastStep(), nn.Linear(64, 64), nn.Tanh())
"""

from __future__ import annotations

from torch import nn

from tandem.types import Array


class EveryStep(nn.Module):
    """The outputs in (outputs [B, T, units], state), the result of nn.LSTM."""

    def forward(self, given: tuple[Array, Array]) -> Array:
        return given[0]


class LastStep(nn.Module):
    """The last output [B, units] in (outputs [B, T, units], state), the result of nn.LSTM with
    batch_first=True."""

    def forward(self, given: tuple[Array, Array]) -> Array:
        return given[0][:, -1]
