"""QMIX. What is not given is the default of the paper, or of `QMIXSettings`."""

from __future__ import annotations

from tandem.zoo import vdn

ENTRIES = dict(vdn.ENTRIES)  # the same serves both
