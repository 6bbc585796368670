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
    "LunarLander-v3": Entry(
        {
            "steps": 1_000_000,
            "learning_rate": "7e-4:0",
            "entropy": 0.01,
            "replay_ratio": 2.0,
            "replay_size": 2_500,
            "shared": False,
        },
        OURS,
    ),
}
