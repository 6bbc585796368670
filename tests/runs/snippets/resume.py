"""Runs each case uninterrupted, and in sittings; prints what differs between the two: one JSON
object a case. Arguments: a folder, the engine, names of cases."""

import json
import sys
from pathlib import Path

from tandem import trainer
from tandem.testing import team_games

folder, engine = Path(sys.argv[1]), sys.argv[2]
QUIET = {
    "plots": False,
    "tensorboard": False,
    "eval_episodes": 2,
    "final_episodes": 2,
    "log_every": 64,
    "keep": 1,
}
CASES = {
    "dqn": (
        "dqn",
        "CartPole-v1",
        {
            "steps": 900,
            "train_every": 12,
            "updates_per_call": 3,
            "learning_starts": 60,
            "buffer_size": 300,
            "hidden": (16, 16),
            "prioritized": True,
            "dueling": True,
            "n_step": 3,
            "target_every": 60,
            "batch_size": 16,
            "envs": 3,
            "vectorization": "native",
        },
        (7, 350, 380),
    ),
    "ppo": (
        "ppo",
        "CartPole-v1",
        {
            "steps": 1500,
            "envs": 4,
            "rollout": 32,
            "batch_size": 32,
            "epochs": 2,
            "hidden": (16,),
            "max_kl": 0.02,
            "normalize_observations": True,
            "normalize_rewards": True,
            "vectorization": "native",
        },
        (1, 500, 1100),
    ),
    "ppo_plain": (
        "ppo",
        "Pendulum-v1",
        {
            "steps": 1500,
            "envs": 2,
            "rollout": 50,
            "batch_size": 50,
            "epochs": 2,
            "hidden": (16,),
            "clip": "0.2:0",
        },
        (130, 777),
    ),
    "sac": (
        "sac",
        "Pendulum-v1",
        {
            "steps": 420,
            "hidden": (16, 16),
            "batch_size": 16,
            "learning_starts": 50,
            "buffer_size": 300,
        },
        (30, 201, 333),
    ),
    "td3": (
        "td3",
        "Pendulum-v1",
        {
            "steps": 300,
            "hidden": (16, 16),
            "batch_size": 16,
            "learning_starts": 50,
            "buffer_size": 200,
            "policy_delay": 3,
        },
        (101, 204),
    ),
    "a2c_lstm": (
        "a2c",
        "CartPole-v1",
        {
            "steps": 400,
            "envs": 2,
            "rollout": 8,
            "recurrent": 6,
            "memory": "lstm",
            "sequence": 4,
            "hidden": (8,),
        },
        (90, 230),
    ),
    "acer": (
        "acer",
        "CartPole-v1",
        {
            "steps": 600,
            "envs": 2,
            "rollout": 6,
            "hidden": (8,),
            "replay_ratio": 1.0,
            "replay_size": 30,
            "replay_starts": 4,
            "recurrent": 4,
        },
        (100, 333),
    ),
    "qmix": (
        "qmix",
        team_games.TwoStep,
        {
            "steps": 400,
            "envs": 2,
            "hidden": (8,),
            "embedding": 4,
            "hyper": 4,
            "recurrent": 4,
            "sequence": 4,
            "batch_size": 16,
            "buffer_size": 100,
            "learning_starts": 20,
            "train_every": 4,
            "target_every": 40,
        },
        (90, 213),
    ),
    "maddpg": (
        "maddpg",
        team_games.Landmarks,
        {
            "steps": 300,
            "envs": 2,
            "hidden": (8,),
            "batch_size": 16,
            "buffer_size": 99,
            "learning_starts": 20,
            "train_every": 4,
        },
        (90, 213),
    ),
    "mappo": (
        "mappo",
        team_games.Leaving,
        {
            "steps": 400,
            "envs": 2,
            "rollout": 8,
            "batch_size": 8,
            "epochs": 2,
            "hidden": (8,),
            "recurrent": 4,
            "sequence": 4,
            "value_norm": "popart",
        },
        (90, 213),
    ),
}


def final(run):
    arrays = {
        f"{g}/{n}": x for g, group in run.state(replay=True)[1].items() for n, x in group.items()
    }
    return arrays, run.state(replay=True)[0]


def train(name, out=None, resume=None, stop_at=None):
    algorithm, env, settings, _ = CASES[name]
    if resume:
        run = trainer.session(resume=resume, env=None if isinstance(env, str) else env)
    else:
        run = trainer.session(
            algorithm, env, framework=engine, out=out, seed=3, **settings, **QUIET
        )
    for _ in run.events(stop_at):
        pass
    return run


for name in sys.argv[3:]:
    *_, stops = CASES[name]
    whole, whole_data = final(train(name, out=folder / f"{name}-whole"))
    run = train(name, out=folder / name, stop_at=stops[0])
    ends = [run.loop.env_steps]
    for stop in (*stops[1:], None):
        run = train(name, resume=folder / name, stop_at=stop)
        ends.append(run.loop.env_steps)
    parts, parts_data = final(run)
    same = {k for k in whole if k in parts and whole[k].tobytes() == parts[k].tobytes()}
    differing = sorted((set(whole) | set(parts)) - same)
    for data in (whole_data, parts_data):
        for key in ("seconds",):
            data["collector"].pop(key)
        data["counters"] = {"episodes": data["counters"]["episodes"]}
    same_data = [
        k
        for k in ("collector", "learner", "generators", "counters", "session")
        if whole_data[k] != parts_data[k]
    ]
    files = [folder / f / "progress.csv" for f in (f"{name}-whole", name)]
    rows = [
        [line.split(",") for line in file.read_text(encoding="utf-8").splitlines()]
        for file in files
    ]
    drop = rows[0][0].index("seconds")
    tables = [[[c for i, c in enumerate(row) if i != drop] for row in table] for table in rows]
    print(
        json.dumps(
            {
                "case": name,
                "ends": ends,
                "arrays": differing,
                "data": same_data,
                "updates": run.loop.learner.updates,
                "rows": len(rows[0]),
                "same_table": tables[0] == tables[1],
            }
        )
    )
