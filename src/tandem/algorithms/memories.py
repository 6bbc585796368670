"""Settings of recurrent layers, and recurrent states at the start of episodes. See
networks/recurrent.py for the networks, and recurrent_batches.py for the training data."""

from __future__ import annotations

from typing import Any

import numpy as np

from tandem.networks.recurrent import state_size
from tandem.settings import Needs, setting
from tandem.types import Tree

GRU = "Cho et al. 2014, arXiv:1406.1078"
LSTM = "Hochreiter & Schmidhuber 1997"


NEEDED = Needs(recurrent=64)  # any number but 0; errors show 64


def units(where: str = "between feature extractor and head", source: str = GRU) -> Any:
    """Return the setting for the size of the recurrent layer, at this place in the network."""
    return setting(0, f"units of the recurrent layer {where}; 0: none", source, minimum=0)


def kind() -> Any:
    """Return the setting for its type, a key of `networks.recurrent.MEMORIES`."""
    return setting("gru", "with recurrent: GRU or LSTM layer", LSTM, needs=NEEDED)


def begin(settings: Any, *rows: int) -> Tree:
    """Return the recurrent states [*rows, size] at the start of episodes; () if not recurrent."""
    size = state_size(settings)
    return np.zeros((*rows, size), np.float32) if size else ()
