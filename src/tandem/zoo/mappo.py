"""MAPPO. What is not given is the default of the paper, or of `MAPPOSettings`."""

from __future__ import annotations

from tandem.zoo import Entry

OURS = "found by trials here, see benchmarks/results/learn.md"

ENTRIES = {
    "mpe/simple_spread_v3": Entry(
        {
            "envs": 64,
            "rollout": 25,
            "gamma": 0.9,
            "epochs": 15,
            "learning_rate": "2e-3:2e-4",
            "activation": "relu",
            "entropy": 0.0,
            "rewards": "team",
        },
        OURS + "; rollouts are whole episodes",
    ),
}
