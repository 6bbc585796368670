"""DDPG. What is not given is the default of the paper."""

from __future__ import annotations

from tandem.zoo import Entry

ZOO = "rl-baselines3-zoo 2.9, hyperparams/ddpg.yml"

ENTRIES = {
    "Pendulum-v1": Entry(
        {
            "steps": 20_000,
            "learning_rate": 1e-3,
            "actor_learning_rate": 1e-3,
            "gamma": 0.98,
            "hidden": (400, 300),
            "buffer_size": 200_000,
            "batch_size": 256,
            "tau": 0.005,
            "learning_starts": 1_000,
        },
        ZOO + "; learning starts after 1,000 steps, not 10,000",
    ),
}
