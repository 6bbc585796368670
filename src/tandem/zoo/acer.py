"""ACER. What is not given is the default of the paper, or of `ACERSettings`."""

from __future__ import annotations

from tandem.zoo import Entry

OURS = "found by trials here, see benchmarks/results/learn.md"

ENTRIES = {
    "CartPole-v1": Entry(
        {
            "steps": 300_000,
            "rollout": 5,
            "learning_rate": "1e-3:0",
            "replay_ratio": 1.0,
            "replay_size": 4_000,
            "replay_starts": 400,
            "vectorization": "plain",
        },
        OURS,
    ),
}
