"""SAC. What is not given is the default of the paper."""

from __future__ import annotations

from tandem.zoo import Entry

ZOO = "rl-baselines3-zoo 2.9, hyperparams/sac.yml"

ENTRIES = {
    "Pendulum-v1": Entry({"steps": 20_000, "learning_rate": 1e-3}, ZOO),
    "LunarLanderContinuous-v3": Entry(
        {
            "steps": 500_000,
            "learning_rate": "7.3e-4:0",
            "tau": 0.01,
            "learning_starts": 10_000,
            "hidden": (400, 300),
        },
        ZOO + " (LunarLanderContinuous-v2)",
    ),
    "HalfCheetah-v5": Entry({"steps": 1_000_000, "learning_starts": 10_000}, ZOO + " (HalfCheetah-v4)"),
}
