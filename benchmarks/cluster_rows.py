"""What benchmarks.cluster measures: each row is one piece of work, said to us and to RLlib in the
words of each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

RUNNERS = 2  # who collect, on both sides
ENVS = 8  # environments in all: four with each runner

DQN: dict[str, Any] = {
    "envs": ENVS,
    "vectorization": "plain",
    "batch_size": 64,
    "buffer_size": 100_000,
    "learning_starts": 1_000,
    "train_every": 256,
    "updates_per_call": 128,
    "target_every": 10,
    "hidden": (256, 256),
    "activation": "relu",
    "learning_rate": 2.3e-3,
    "gamma": 0.99,
    "max_grad_norm": 10.0,
    "epsilon": "1:0.04:0.16",
    "double": False,
    "dueling": False,
    "prioritized": False,
}
PPO: dict[str, Any] = {
    "envs": ENVS,
    "vectorization": "plain",
    "rollout": 64,
    "batch_size": 64,
    "epochs": 20,
    "hidden": (256, 256),
    "activation": "relu",
    "shared": False,
    "learning_rate": 2.0633e-05,
    "gamma": 0.98,
    "gae_lambda": 0.92,
    "clip": 0.1,
    "entropy": 0.000401762,
    "value_weight": 0.58096,
    "max_grad_norm": 0.8,
    # RLlib has a filter for observations and nothing for rewards; here neither side has any
    "normalize_observations": False,
    "normalize_rewards": False,
}

# Of every RLlib run. The runners' policies take their weights after every call of updates, as ours
# do.
EACH_RUNNER: dict[str, Any] = {
    "num_env_runners": RUNNERS,
    "num_envs_per_env_runner": ENVS // RUNNERS,
    "num_cpus_per_env_runner": 1,
    "gym_env_vectorize_mode": "sync",  # plain environments side by side in the runner, as ours
    "create_local_env_runner": False,  # no third one, which would only be there
    "batch_mode": "truncate_episodes",
}


@dataclass(frozen=True)
class ClusterRow:
    """A piece of work. `ours` are settings of ours; `theirs` what RLlib's configuration is told,
    method by method. A run goes on for `warm` steps, with the first updates and all compilation
    among them, before `steps` of it are measured."""

    name: str
    algorithm: str
    env: str
    title: str
    ours: dict[str, Any]
    theirs: dict[str, dict[str, Any]]
    warm: int = 4_096
    steps: int = 16_384

    @property
    def block(self) -> int:
        """Environment steps between two calls of updates."""
        return int(self.ours.get("train_every") or self.ours["envs"] * self.ours["rollout"])

    @property
    def updates_per_step(self) -> float:
        """What both sides are asked for."""
        s = self.ours
        return float(
            s["updates_per_call"] / s["train_every"]
            if "train_every" in s
            else s["epochs"] / s["batch_size"]
        )


ROWS = (
    ClusterRow(
        "dqn",
        "dqn",
        "CartPole-v1",
        "DQN CartPole-v1, 8 environments, 128 updates of 64 after every 256 steps, 256-256 relu, "
        "neither double nor dueling",
        DQN,
        {
            "training": {
                "lr": 2.3e-3,
                "gamma": 0.99,
                "grad_clip": 10.0,
                "grad_clip_by": "global_norm",
                "train_batch_size_per_learner": 64,
                # 128 updates a round of 2 x 4 x 32 steps. By the documentation this is steps
                # replayed by steps sampled, 32; but it is divided by a round of three runners, a
                # local one too, which does not collect. Hence two thirds of it.
                "training_intensity": 128 * 64 / (32 * 4 * 3),
                "num_steps_sampled_before_learning_starts": 1_000,
                "target_network_update_freq": 10,
                "tau": 1.0,
                "double_q": False,
                "dueling": False,
                "noisy": False,
                "num_atoms": 1,
                "n_step": 1,
                "td_error_loss_fn": "huber",
                "epsilon": [[0, 1.0], [8_000, 0.04]],
                "replay_buffer_config": {"type": "EpisodeReplayBuffer", "capacity": 100_000},
            },
            "env_runners": {**EACH_RUNNER, "rollout_fragment_length": 32},
            "model": {
                "fcnet_hiddens": [256, 256],
                "fcnet_activation": "relu",
                "head_fcnet_hiddens": [],
            },
        },
        steps=8_192,  # RLlib takes minutes for more
    ),
    ClusterRow(
        "ppo",
        "ppo",
        "HalfCheetah-v5",
        "PPO HalfCheetah-v5, 8 environments × 64, 20 epochs of 64, 256-256 relu for each of actor "
        "and critic",
        PPO,
        {
            "training": {
                "lr": 2.0633e-05,
                "gamma": 0.98,
                "lambda_": 0.92,
                "grad_clip": 0.8,
                "grad_clip_by": "global_norm",
                "train_batch_size_per_learner": 512,
                "minibatch_size": 64,
                "num_epochs": 20,
                "shuffle_batch_per_epoch": True,
                "clip_param": 0.1,
                "vf_clip_param": math.inf,
                "vf_loss_coeff": 0.58096,
                "entropy_coeff": 0.000401762,
                "use_kl_loss": False,  # ours has none: less work for RLlib
                "use_critic": True,
                "use_gae": True,
            },
            "env_runners": {**EACH_RUNNER, "rollout_fragment_length": 64},
            "model": {
                "fcnet_hiddens": [256, 256],
                "fcnet_activation": "relu",
                "head_fcnet_hiddens": [],
                "vf_share_layers": False,
                "free_log_std": True,
            },
        },
    ),
)


def find(name: str) -> ClusterRow:
    return next(row for row in ROWS if row.name == name)
