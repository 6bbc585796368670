"""TRPO. What is not given is the default of the paper, or sb3-contrib's."""

from __future__ import annotations

from tandem.zoo import Entry

ZOO = "rl-baselines3-zoo 2.9, hyperparams/trpo.yml"

ENTRIES = {
    "CartPole-v1": Entry(
        {"steps": 100_000, "envs": 2, "rollout": 512, "vectorization": "plain", "epochs": 20}, ZOO
    ),
    "Pendulum-v1": Entry(
        {
            "steps": 100_000,
            "envs": 2,
            "rollout": 512,
            "gamma": 0.95,
            "learning_rate": "3e-3:1e-3",
            "epochs": 20,
            "radius": "0.02:0.005",
            "normalize_observations": True,
            "normalize_rewards": True,
        },
        ZOO + "; rollout, gamma, learning_rate, epochs and radius found by trials here",
    ),
}
