"""acer."""

from __future__ import annotations

from tandem.zoo import Entry

ENTRIES: dict[str, Entry] = {}
