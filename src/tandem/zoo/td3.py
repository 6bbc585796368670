"""TD3. What is not given is the default of the paper or its authors' code."""

from __future__ import annotations

from tandem.zoo import Entry

ZOO = "rl-baselines3-zoo 2.9, hyperparams/td3.yml"

ENTRIES = {
    "Pendulum-v1": Entry(
        {
            "steps": 20_000,
            "learning_rate": 1e-3,
            "gamma": 0.98,
            "hidden": (400, 300),
            "buffer_size": 200_000,
            "learning_starts": 1_000,
        },
        ZOO + "; learning starts after 1,000 steps, not 10,000",
    ),
    "HalfCheetah-v5": Entry(
        {"steps": 1_000_000},
        "Fujimoto et al. 2018, section 6.1; the authors' code (HalfCheetah-v2)",
    ),
}
