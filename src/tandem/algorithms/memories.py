"""What algorithms share whose networks may have a memory: its settings, and its state where an
episode begins. See networks/recurrent.py, and recurrent_batches.py for what is learned from."""

from __future__ import annotations

from typing import Any

import numpy as np

from tandem.networks.recurrent import state_size
from tandem.settings import Needs, setting
from tandem.types import Tree

GRU = "Cho et al. 2014, arXiv:1406.1078"
LSTM = "Hochreiter & Schmidhuber 1997"


NEEDED = Needs(recurrent=64)


def units(where: str = "between feature extractor and head", source: str = GRU) -> Any:
    """The setting for how large a memory is, and where it stands."""
    return setting(0, f"units of the recurrent layer {where}; 0: none", source, minimum=0)


def kind() -> Any:
    """The setting for which memory it is, a key of `networks.recurrent.MEMORIES`."""
    return setting("gru", "with recurrent: GRU or LSTM layer", LSTM, needs=NEEDED)


def begin(settings: Any, *rows: int) -> Tree:
    """The states [*rows, size] where episodes begin; () without a memory."""
    size = state_size(settings)
    return np.zeros((*rows, size), np.float32) if size else ()
