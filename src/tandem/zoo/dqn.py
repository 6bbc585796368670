"""DQN. The names of the source's settings: train_freq is train_every, gradient_steps is
updates_per_call, exploration_fraction and exploration_final_eps are the end and the fraction of
epsilon. Double targets are on, which the source does not have."""

from __future__ import annotations

from tandem.zoo import Entry

ZOO = "rl-baselines3-zoo 2.9, hyperparams/dqn.yml"

ACROBOT = {
    "steps": 100_000,
    "learning_rate": 6.3e-4,
    "batch_size": 128,
    "buffer_size": 50_000,
    "learning_starts": 0,
    "gamma": 0.99,
    "target_every": 250,
    "train_every": 4,
    "updates_per_call": -1,
    "epsilon": "1:0.1:0.12",
    "hidden": (256, 256),
}

# The source's environments are NoFrameskip-v4, without sticky actions; ours is as its id says.
ATARI = {
    "steps": 10_000_000,
    "learning_rate": 1e-4,
    "batch_size": 32,
    "buffer_size": 100_000,
    "learning_starts": 100_000,
    "gamma": 0.99,
    "target_every": 1_000,
    "train_every": 4,
    "updates_per_call": 1,
    "epsilon": "1:0.01:0.1",
}

ENTRIES = {
    "CartPole-v1": Entry(
        {
            "steps": 50_000,
            "learning_rate": 2.3e-3,
            "batch_size": 64,
            "buffer_size": 100_000,
            "learning_starts": 1_000,
            "gamma": 0.99,
            "target_every": 10,
            "train_every": 256,
            "updates_per_call": 128,
            "epsilon": "1:0.04:0.16",
            "hidden": (256, 256),
        },
        ZOO,
    ),
    "Acrobot-v1": Entry(ACROBOT, ZOO),
    "LunarLander-v3": Entry(
        {**ACROBOT, "steps": 300_000}, ZOO + " (LunarLander-v2; steps 300,000 instead of 100,000)"
    ),
    "MountainCar-v0": Entry(
        {
            "steps": 120_000,
            "learning_rate": 4e-3,
            "batch_size": 128,
            "buffer_size": 10_000,
            "learning_starts": 1_000,
            "gamma": 0.98,
            "target_every": 600,
            "train_every": 16,
            "updates_per_call": 8,
            "epsilon": "1:0.07:0.2",
            "hidden": (256, 256),
        },
        ZOO,
    ),
    **{f"ALE/{game}-v5": Entry(ATARI, ZOO + " (atari)") for game in ("Pong", "Breakout")},
}
