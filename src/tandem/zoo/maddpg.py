"""MADDPG. What is not given is the default of the paper, or of `MADDPGSettings`."""

from __future__ import annotations

from tandem.zoo import Entry

OURS = "found by trials here, see benchmarks/results/learn.md"

SPREAD = {
    "envs": 16,
    "train_every": 16,
    "batch_size": 256,
    "learning_starts": 2_000,
    "learning_rate": "1e-3:1e-4",
    "actor_learning_rate": "1e-3:1e-4",
}
ENTRIES = {
    "mpe/simple_spread_v3": Entry(SPREAD | {"share": True}, OURS),
    "mpe/simple_adversary_v3": Entry(SPREAD, OURS),
}
