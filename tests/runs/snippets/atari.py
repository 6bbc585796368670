"""A DQN run on an Atari game, whole and in sittings. Argument: a folder."""

import json
import sys
from pathlib import Path

import tandem
from tandem import trainer
from tandem.collect.evaluation import evaluate as play
from tandem.learning.events import EpisodeEnd
from tests.runs.shared import QUICK

folder = Path(sys.argv[1])
GAME = "ALE/Breakout-v5"
SETTINGS = QUICK | {"hidden": (512,), "steps": 240, "envs": 2, "train_every": 8, "batch_size": 4}
SETTINGS |= {"learning_starts": 40, "buffer_size": 100, "eval_every": 120, "seed": 2}
SETTINGS |= {"frame_stack": 3, "frame_skip": 5, "noop_max": 5}


def finished(run, stop_at=None):
    lives = [e.episode.length for e in run.events(stop_at) if isinstance(e, EpisodeEnd)]
    return run, lives


whole, lives = finished(trainer.session("dqn", GAME, out=folder / "whole", **SETTINGS))
finished(trainer.session("dqn", GAME, out=folder / "parts", **SETTINGS), 90)
parts, _ = finished(trainer.session(resume=folder / "parts"))
agent = tandem.load(folder / "whole", which="last")
evaluation = tandem.evaluate(agent, GAME, episodes=1, seed=3)
config = json.loads((folder / "whole" / "config.json").read_text(encoding="utf-8"))
game, _ = play(agent.actor, GAME, 1, 3, kwargs=agent.env_kwargs)[:2]
found = {
    "fingerprints": [run.fingerprint() for run in (whole, parts)],
    "rings": [
        {n: x.tobytes().hex()[-4000:] for n, x in run.loop.learner.ring.state()[1].items()}
        for run in (whole, parts)
    ],
    "updates": whole.loop.learner.updates,
    "observation": whole.observation.shape,
    "ring": list(whole.loop.learner.ring._columns["obs"].shape),
    "reads": [whole.environments.clips, type(whole.environments).__name__],
    "env_kwargs": config["env_kwargs"],
    "lives": lives,
    "game": list(whole.last_evaluation.lengths),
    "again": game == list(evaluation.returns),
}
print(json.dumps(found))
