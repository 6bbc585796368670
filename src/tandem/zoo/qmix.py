"""QMIX. What is not given is the default of the paper, or of `QMIXSettings`."""

from __future__ import annotations

from tandem.zoo import Entry

ENTRIES: dict[str, Entry] = {}
