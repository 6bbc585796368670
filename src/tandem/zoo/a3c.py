"""A3C. What is not given is the default of the paper, or of `A3CSettings`."""

from __future__ import annotations

from tandem.zoo import Entry

OURS = "found by trials here"

ENTRIES = {
    "CartPole-v1": Entry(
        {"steps": 200_000, "learning_rate": "1e-3:0", "entropy": 0.005, "vectorization": "plain"},
        OURS,
    ),
}
