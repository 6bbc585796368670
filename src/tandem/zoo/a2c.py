"""A2C. What is not given is the default of the paper, or Stable-Baselines3's."""

from __future__ import annotations

from tandem.zoo import Entry

ZOO = "rl-baselines3-zoo 2.9, hyperparams/a2c.yml"

ENTRIES = {
    "CartPole-v1": Entry({"steps": 500_000, "entropy": 0.0, "vectorization": "plain"}, ZOO),
    "Acrobot-v1": Entry(
        {"steps": 500_000, "envs": 16, "entropy": 0.0, "normalize_observations": True}, ZOO
    ),
    "Pendulum-v1": Entry(
        {
            "steps": 1_000_000,
            "gae_lambda": 0.9,
            "gamma": 0.9,
            "entropy": 0.0,
            "value_weight": 0.4,
            "learning_rate": "7e-4:0",
            "normalize_observations": True,
            "normalize_rewards": True,
            "log_std": -2.0,
        },
        ZOO + " (its state-dependent exploration is not used)",
    ),
}
