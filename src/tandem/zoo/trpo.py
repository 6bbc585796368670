"""TRPO. What is not given is the default of the paper, or sb3-contrib's."""

from __future__ import annotations

from tandem.zoo import Entry

ZOO = "rl-baselines3-zoo 2.9, hyperparams/trpo.yml"

ENTRIES = {
    "CartPole-v1": Entry({"steps": 100_000, "envs": 2, "rollout": 512, "vectorization": "plain", "epochs": 20}, ZOO),
    "Pendulum-v1": Entry(
        {
            "steps": 100_000,
            "envs": 2,
            "rollout": 1_024,
            "gamma": 0.9,
            "epochs": 15,
            "normalize_observations": True,
            "normalize_rewards": True,
        },
        ZOO + " (its state-dependent exploration is not used)",
    ),
}
