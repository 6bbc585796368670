"""SAC. What is not given is the default of the paper."""

from __future__ import annotations

from tandem.zoo import Entry

ZOO = "rl-baselines3-zoo 2.9, hyperparams/sac.yml"

ENTRIES = {
    "CartPole-v1": Entry(
        {
            "steps": 100_000,
            "learning_starts": 1_000,
            "batch_size": 64,
            "buffer_size": 50_000,
            "hidden": (64, 64),
            "learning_rate": 3e-4,
            "train_every": 4,
            "updates_per_call": 4,
            "target_entropy": 0.1,
        },
        "ours: small networks, and a low entropy to aim at, since 0.98 log 2 would keep the "
        "policy next to even",
    ),
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
    "HalfCheetah-v5": Entry(
        {"steps": 1_000_000, "learning_starts": 10_000}, ZOO + " (HalfCheetah-v4)"
    ),
}
