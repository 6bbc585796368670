"""PPO. The names of the source's settings: n_steps is rollout, n_envs is envs, ent_coef is entropy,
"lin_x" is "x:0"."""

from __future__ import annotations

from tandem.zoo import Entry

ZOO = "rl-baselines3-zoo 2.9, hyperparams/ppo.yml"
LANDER = {
    "steps": 1_000_000,
    "envs": 16,
    "rollout": 1024,
    "batch_size": 64,
    "gae_lambda": 0.98,
    "gamma": 0.999,
    "epochs": 4,
    "entropy": 0.01,
}
# The source's environments are NoFrameskip-v4, without sticky actions; ours is as its id says.
ATARI = {
    "steps": 10_000_000,
    "envs": 8,
    "rollout": 128,
    "batch_size": 256,
    "epochs": 4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "learning_rate": "2.5e-4:0",
    "clip": "0.1:0",
    "entropy": 0.01,
    "value_weight": 0.5,
    "max_grad_norm": 0.5,
    "shared": True,
}
# A game of few moves: what counts is who wins, and the copies that it plays against have to go on
# trying what is odd.
BOARD = {
    "steps": 300_000,
    "envs": 32,
    "rollout": 64,
    "batch_size": 512,
    "epochs": 8,
    "gamma": 1.0,
    "gae_lambda": 0.95,
    "learning_rate": "1.5e-3:2e-4",
    "entropy": 0.15,
    "hidden": (128, 128),
    "activation": "relu",
}

ENTRIES = {
    "CartPole-v1": Entry(
        {
            "steps": 100_000,
            "envs": 8,
            "rollout": 32,
            "batch_size": 256,
            "gae_lambda": 0.8,
            "gamma": 0.98,
            "epochs": 20,
            "entropy": 0.0,
            "learning_rate": "1e-3:0",
            "clip": "0.2:0",
            "vectorization": "plain",
        },
        ZOO + " (its environments are plain ones, too)",
    ),
    "tandem/CartPolePositions-v0": Entry(
        {
            "steps": 200_000,
            "envs": 8,
            "rollout": 128,
            "batch_size": 256,
            "sequence": 16,
            "recurrent": 64,
            "hidden": (64,),
            "gae_lambda": 0.95,
            "gamma": 0.98,
            "epochs": 10,
            "entropy": 0.0,
            "learning_rate": "1e-3:0",
            "vectorization": "plain",
        },
        "ours: CartPole-v1's step size and discount, rollouts of eight sequences",
    ),
    "Acrobot-v1": Entry(
        {
            "steps": 1_000_000,
            "envs": 16,
            "rollout": 256,
            "gae_lambda": 0.94,
            "gamma": 0.99,
            "epochs": 4,
            "entropy": 0.0,
            "normalize_observations": True,
            "normalize_rewards": True,
        },
        ZOO,
    ),
    "MountainCar-v0": Entry(
        {
            "steps": 1_000_000,
            "envs": 16,
            "rollout": 16,
            "gae_lambda": 0.98,
            "gamma": 0.99,
            "epochs": 4,
            "entropy": 0.0,
            "normalize_observations": True,
            "normalize_rewards": True,
        },
        ZOO,
    ),
    "LunarLander-v3": Entry(LANDER, ZOO + " (LunarLander-v2)"),
    "LunarLanderContinuous-v3": Entry(LANDER, ZOO + " (LunarLanderContinuous-v2)"),
    "Pendulum-v1": Entry(
        {
            "steps": 100_000,
            "envs": 4,
            "rollout": 1024,
            "gae_lambda": 0.95,
            "gamma": 0.9,
            "epochs": 10,
            "entropy": 0.0,
            "learning_rate": 1e-3,
            "clip": 0.2,
        },
        ZOO + " (without its state-dependent exploration, which is not here)",
    ),
    "HalfCheetah-v5": Entry(
        {
            "steps": 1_000_000,
            "envs": 1,
            "rollout": 512,
            "batch_size": 64,
            "gamma": 0.98,
            "learning_rate": 2.0633e-05,
            "entropy": 0.000401762,
            "clip": 0.1,
            "epochs": 20,
            "gae_lambda": 0.92,
            "max_grad_norm": 0.8,
            "value_weight": 0.58096,
            "log_std": -2.0,
            "orthogonal": False,
            "activation": "relu",
            "hidden": (256, 256),
            "normalize_observations": True,
            "normalize_rewards": True,
        },
        ZOO + " (HalfCheetah-v4)",
    ),
    **{
        name: Entry(BOARD, "ours, for --opponents 100: every copy of the run")
        for name in ("tandem/TicTacToe-v0", "classic/tictactoe_v3")
    },
    **{
        f"ALE/{game}-v5": Entry(ATARI, ZOO + " (atari; as Huang et al. 2022, nine details)")
        for game in ("Pong", "Breakout")
    },
}
