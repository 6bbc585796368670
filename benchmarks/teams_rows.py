"""What `python -m benchmarks.teams` measures: the same work, said in tandem's words and in
XuanCe's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# --- tandem's names of what XuanCe's settings say -------------------------------------------------

MAPPO: dict[str, Any] = {
    "envs": 16,
    "rollout": 25,
    "epochs": 1,
    "batch_size": 400,  # steps of the whole team: a rollout is one batch
    "hidden": (64, 64),
    "activation": "relu",
    "learning_rate": 7e-4,
    "gamma": 0.95,
    "gae_lambda": 0.95,
    "clip": 0.2,
    "value_clip": 0.2,
    "value_weight": 0.5,
    "value_huber": 10.0,
    "value_norm": "norm",
    "entropy": 0.01,
    "max_grad_norm": 10.0,
    "normalize_advantage": True,
    "log_std": -1.0,
    "adam_epsilon": 1e-5,
    "centralized": True,
    "share": True,
    "rewards": "own",
}
MADDPG: dict[str, Any] = {
    "envs": 16,
    "batch_size": 256,  # steps of the whole team
    "buffer_size": 100_000,
    "learning_starts": 1_000,
    "train_every": 400,
    "updates_per_call": 1,
    "hidden": (64, 64),
    "activation": "relu",
    "learning_rate": "1e-3:5e-4",  # XuanCe halves both over a run, though its file does not say so
    "actor_learning_rate": "1e-2:5e-3",
    "gamma": 0.95,
    "tau": 0.001,
    "logit_penalty": 0.0,
    "max_grad_norm": 1e9,  # XuanCe does not clip here
    "adam_epsilon": 1e-5,
    "share": True,
}

# --- what XuanCe is told on top of its own file ---------------------------------------------------

# its file puts a layer normalisation behind each hidden layer; we have none
PLAIN_MAPPO: dict[str, Any] = {"normalize": None}
PLAIN_MADDPG: dict[str, Any] = {"activation": "relu"}  # its file says leaky_relu, which we have not


@dataclass(frozen=True)
class TeamRow:
    """A piece of work: `ours` and `theirs` say the same. `steps` is the length of a short run, a
    multiple of what is between updates on both sides."""

    name: str
    algorithm: str
    title: str
    ours: dict[str, Any]
    theirs: dict[str, Any]
    steps: int
    notes: str = ""


ROWS = (
    TeamRow(
        "mappo",
        "mappo",
        "MAPPO as XuanCe ships it: 16 environments × 25, 1 epoch of 1 batch, 64-64 relu, shared "
        "by the agents",
        MAPPO,
        PLAIN_MAPPO,
        steps=9_600,
    ),
    TeamRow(
        "mappo-paper",
        "mappo",
        "MAPPO as in its paper (Yu et al. 2022): 128 environments × 25, 10 epochs of 1 batch, "
        "64-64 relu, shared by the agents",
        {**MAPPO, "envs": 128, "epochs": 10, "batch_size": 3_200},
        {**PLAIN_MAPPO, "parallels": 128, "buffer_size": 3_200, "n_epochs": 10},
        steps=9_600,
    ),
    TeamRow(
        "maddpg",
        "maddpg",
        "MADDPG as XuanCe ships it: 16 environments, an update of 256 every 400 steps, 64-64 "
        "relu, shared by the agents",
        MADDPG,
        PLAIN_MADDPG,
        steps=12_000,
        notes="XuanCe's settings file specifies an update every 25 steps. However, XuanCe checks "
        "only once per step of all 16 environments whether its step count is a multiple of 25, so "
        "it updates every 400 steps.",
    ),
    TeamRow(
        "maddpg-often",
        "maddpg",
        "MADDPG with an update of 256 every 16 steps, once for each step of 16 environments, "
        "64-64 relu, shared by the agents",
        {**MADDPG, "train_every": 16},
        {**PLAIN_MADDPG, "training_frequency": 16},
        steps=9_600,
    ),
    TeamRow(
        "maddpg-paper",
        "maddpg",
        "MADDPG as in its paper (Lowe et al. 2017): 1 environment, an update of 1,024 every 100 "
        "steps, 64-64 relu, an actor "
        "and a critic for each agent",
        {**MADDPG, "envs": 1, "batch_size": 1_024, "train_every": 100, "tau": 0.01, "share": False},
        {
            **PLAIN_MADDPG,
            "parallels": 1,
            "batch_size": 1_024,
            "training_frequency": 100,
            "tau": 0.01,
            "use_parameter_sharing": False,
        },
        steps=6_000,
    ),
)


def find(name: str) -> TeamRow:
    return next(row for row in ROWS if row.name == name)
