"""n-step Q-learning. What is not given is the default of the paper, or of `NStepQSettings`."""

from __future__ import annotations

from tandem.zoo import Entry

OURS = "found by trials here"

ENTRIES = {
    "CartPole-v1": Entry(
        {
            "steps": 200_000,
            "learning_rate": "1e-3:0",
            "epsilon": "1:0.02:0.3",
            "target_updates": 200,
            "replay": "uniform",
            "replay_ratio": 1.0,
            "replay_size": 4_000,
            "replay_starts": 400,
            "vectorization": "plain",
        },
        OURS,
    ),
}
