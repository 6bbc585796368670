"""MADDPG. What is not given is the default of the paper, or of `MADDPGSettings`."""

from __future__ import annotations

from tandem.zoo import Entry

ENTRIES: dict[str, Entry] = {}
