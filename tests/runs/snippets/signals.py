"""Runs that get signals; prints what became of them. Arguments: a folder."""

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path

from tandem import trainer
from tandem.learning.events import TrainEnd
from tandem.runs import checkpoint
from tandem.runs.callbacks import LambdaCallback
from tests.runs.shared import QUICK

folder = Path(sys.argv[1])
# what a shell runs in the background begins with it ignored
signal.signal(signal.SIGINT, signal.default_int_handler)
SETTINGS = QUICK | {"steps": 640, "envs": 2, "rollout": 16, "batch_size": 16, "epochs": 2}
SETTINGS |= {"log_every": 64, "normalize_observations": True}


def begin(name, *callbacks):
    out = folder / name
    return trainer.session("ppo", "CartPole-v1", out=out, callbacks=callbacks, **SETTINGS)


def go(run):
    *_, end = run.events()
    assert isinstance(end, TrainEnd)
    return end


def kill_once(sent, number, event):
    if event.env_steps > 100 and not sent:
        sent.append(event.env_steps)
        os.kill(os.getpid(), number)


whole = begin("whole")
go(whole)
for number in (signal.SIGINT, signal.SIGTERM):
    for moment in ("on_batch_end", "on_episode_end", "on_evaluation", "on_batch_begin"):
        sent = []
        send = partial(kill_once, sent, number)
        name = f"{number.name}-{moment}"
        before = signal.getsignal(number)
        run = begin(name, LambdaCallback(**{moment: send}))
        end = go(run)
        saved = checkpoint.read(folder / name / "checkpoints" / "last.zip").data["collector"]
        resumed = trainer.session(resume=folder / name)
        go(resumed)
        said = {
            "name": name,
            "reason": end.reason,
            "blocks": (end.env_steps - sent[0]) <= 40,
            "early": end.env_steps < 640,
            "saved": saved["env_steps"] == end.env_steps,
            "same": resumed.fingerprint() == whole.fingerprint(),
            "handler": signal.getsignal(number) is before,
        }
        print(json.dumps(said))


# A second interrupt does not wait for the block to end.
def twice(event):
    if event.env_steps > 100:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)


run = begin("twice", LambdaCallback(on_batch_begin=twice))
try:
    go(run)
except KeyboardInterrupt:
    resumed = trainer.session(resume=folder / "twice")
    go(resumed)
    print(json.dumps({"twice": resumed.fingerprint() == whole.fingerprint()}))
