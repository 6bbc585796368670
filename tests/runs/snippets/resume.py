"""What differs between a run and its sittings. Arguments: a folder, the engine, names of cases."""

import json
import sys
from pathlib import Path

from tandem import trainer
from tandem.testing import team_games
from tests.runs.shared import QUICK, finished, rows

folder, engine = Path(sys.argv[1]), sys.argv[2]
SETTINGS = QUICK | {"log_every": 64, "keep": 1, "eval_episodes": 2, "final_episodes": 2}
OFF = {"batch_size": 16, "learning_starts": 50, "buffer_size": 300}
TEAM = {"envs": 2, "learning_starts": 20, "train_every": 4, "batch_size": 16, "buffer_size": 100}
MEMORY = {"recurrent": 4, "sequence": 4}
CASES = {  # algorithm, environment, where the sittings end
    "dqn": ("dqn", "CartPole-v1", (7, 350, 380)),
    "ppo": ("ppo", "CartPole-v1", (1, 500, 1100)),
    "ppo_plain": ("ppo", "Pendulum-v1", (130, 777)),
    "sac": ("sac", "Pendulum-v1", (30, 201, 333)),
    "td3": ("td3", "Pendulum-v1", (101, 204)),
    "a2c_lstm": ("a2c", "CartPole-v1", (90, 230)),
    "acer": ("acer", "CartPole-v1", (100, 333)),
    "qmix": ("qmix", team_games.TwoStep, (90, 213)),
    "maddpg": ("maddpg", team_games.Landmarks, (90, 213)),
    "mappo": ("mappo", team_games.Leaving, (90, 213)),
}
PPO = {"steps": 1500, "epochs": 2, "hidden": (16,)}
GIVEN = {
    "dqn": OFF | {"steps": 900, "train_every": 12, "updates_per_call": 3, "learning_starts": 60},
    "ppo": PPO | {"envs": 4, "rollout": 32, "batch_size": 32, "clip": "0.2:0"},
    "ppo_plain": PPO | {"envs": 2, "rollout": 50, "batch_size": 50, "clip": "0.2:0"},
    "sac": OFF | {"steps": 420, "hidden": (16, 16)},
    "td3": OFF | {"steps": 300, "hidden": (16, 16), "buffer_size": 200, "policy_delay": 3},
    "a2c_lstm": {"steps": 400, "envs": 2, "rollout": 8, "recurrent": 6, "memory": "lstm"},
    "acer": {"steps": 600, "envs": 2, "rollout": 6, "replay_ratio": 1.0, "replay_size": 30},
    "qmix": TEAM | MEMORY | {"steps": 400, "embedding": 4, "hyper": 4, "target_every": 40},
    "maddpg": TEAM | {"steps": 300, "buffer_size": 99},
    "mappo": MEMORY | {"steps": 400, "envs": 2, "rollout": 8, "batch_size": 8, "epochs": 2},
}
GIVEN["dqn"] |= {"hidden": (16, 16), "prioritized": True, "dueling": True, "n_step": 3}
GIVEN["dqn"] |= {"target_every": 60, "envs": 3, "vectorization": "native"}
GIVEN["ppo"] |= {"normalize_observations": True, "normalize_rewards": True}
GIVEN["ppo"] |= {"vectorization": "native", "max_kl": 0.02}
GIVEN["a2c_lstm"] |= {"sequence": 4}
GIVEN["acer"] |= {"replay_starts": 4, "recurrent": 4}
GIVEN["mappo"] |= {"value_norm": "popart"}


def final(run):
    data, groups = run.state(replay=True)
    return {f"{g}/{n}": x for g, group in groups.items() for n, x in group.items()}, data


def train(name, out=None, resume=None, stop_at=None):
    algorithm, env, _ = CASES[name]
    if resume:
        run = trainer.session(resume=resume, env=None if isinstance(env, str) else env)
    else:
        given = SETTINGS | GIVEN[name] | {"framework": engine}
        run = trainer.session(algorithm, env, out=out, seed=3, **given)
    return finished(run, stop_at)


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
        data["collector"].pop("seconds")
        data["counters"] = {"episodes": data["counters"]["episodes"]}
    parts_of_it = ("collector", "learner", "generators", "counters", "session")
    tables = [rows(folder / f) for f in (f"{name}-whole", name)]
    for row in (*tables[0], *tables[1]):
        row.pop("seconds")
    said = {"case": name, "ends": ends, "arrays": differing, "updates": run.loop.learner.updates}
    said["data"] = [k for k in parts_of_it if whole_data[k] != parts_data[k]]
    said |= {"rows": len(tables[0]), "same_table": tables[0] == tables[1]}
    print(json.dumps(said))
