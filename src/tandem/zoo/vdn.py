"""VDN. What is not given is the default of the paper, or of `VDNSettings`."""

from __future__ import annotations

from tandem.zoo import Entry

OURS = "found by trials here, see benchmarks/results/learn.md"

ENTRIES = {
    "mpe/simple_spread_v3": Entry(
        {
            "envs": 16,
            "train_every": 16,
            "gamma": 0.9,
            "learning_rate": "1e-3:1e-4",
            "target_every": 16,
            "tau": 0.01,
            "epsilon": "1:0.05:0.3",
        },
        OURS,
    ),
}
