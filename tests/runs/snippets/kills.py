"""Kills runs that write checkpoints all the time. Arguments: a folder, the number of kills."""

import json
import os
import random
import shutil
import signal
import sys
import zipfile
from pathlib import Path

from tandem import trainer
from tandem.runs import atomic_files, checkpoint
from tandem.runs.writers import read_table
from tests.runs.shared import QUICK

folder, kills = Path(sys.argv[1]), int(sys.argv[2])
SETTINGS = QUICK | {"steps": 500, "train_every": 10, "updates_per_call": 2, "learning_starts": 50}
SETTINGS |= {"buffer_size": 500, "batch_size": 8, "prioritized": True, "epsilon": "0.5"}
SETTINGS |= {"tensorboard": True, "eval_every": 200, "log_every": 50, "keep": 2}
SETTINGS |= {"checkpoint_seconds": 0.0}


def say(**what):
    print(json.dumps(what), flush=True)


def begun(name):
    return (folder / name / "checkpoints" / "last.zip").is_file()


def sitting(name, tamper=None, later=None):
    """The child that goes on with the run `name`, or begins it."""
    if pid := os.fork():
        return pid
    try:
        out = folder / name
        if tamper:
            tamper()
        new = {"algorithm": "dqn", "env": "CartPole-v1", "out": out, **SETTINGS}
        run = trainer.session(**{"resume": out} if begun(name) else new)
        if later:
            later()
        for _ in run.events():
            run.checkpoints.pause = 0.0  # or the time of writing would stretch the intervals
        say(run=name, fingerprint=run.fingerprint(), steps=run.loop.env_steps)
        os._exit(0)
    except BaseException as error:
        say(run=name, raised=repr(error))
        os._exit(1)


def whole(name):
    """What is wrong with a run's files: nothing, it is hoped."""
    out, wrong = folder / name, []
    if not begun(name):
        return wrong
    for file in (out / "checkpoints").glob("*.zip"):
        saved = checkpoint.read(file)
        with zipfile.ZipFile(file) as inner:
            wrong += [f"{file.name}: {inner.testzip()}"] if inner.testzip() else []
        for group in ("networks", "engine"):
            saved.group(group)
        trainer.load(file)
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    wrong += [] if config["settings"]["steps"] == 500 else ["config.json"]
    columns, rows = read_table(out / "progress.csv")
    wrong += [f"row {row}" for row in rows if len(row) != len(columns)]
    return wrong


def table(name):
    columns, rows = read_table(folder / name / "progress.csv")
    return [[c for k, c in zip(columns, row, strict=True) if k != "seconds"] for row in rows]


def killed(pid):
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def at_call(number):
    """Dies at that call of any function."""

    def tamper():
        left = [number]

        def count(frame, event, arg):
            left[0] -= 1
            if left[0] == 0:
                die()

        sys.setprofile(count)

    return tamper


def at(number, owner, name, counts=lambda *args, **given: True, half=False):
    """Dies at that call of a function, or, by half, amid it."""

    def tamper():
        real, left = getattr(owner, name), [number]

        def dying(*args, **given):
            left[0] -= counts(*args, **given)
            if left[0] == 0 and half:
                file, entry, data = args
                real(file, entry, data[: len(data) // 2])
                file.fp.flush()
            if left[0] == 0:
                die()
            return real(*args, **given)

        setattr(owner, name, dying)

    return tamper


AMID_WRITING = at(17, zipfile.ZipFile, "writestr", half=True)
AMID_CONFIG = at(1, json, "dumps", lambda data, **given: "indent" in given)
INSIDE = [
    ("amid_config", AMID_CONFIG),  # these two come before the first checkpoint
    ("amid_writing", at(1, zipfile.ZipFile, "writestr", half=True)),
    ("amid_writing", AMID_WRITING),
    ("before_renaming", at(4, os, "replace", lambda _, target: str(target).endswith("last.zip"))),
    ("after_renaming", at(9, atomic_files, "flush_folder")),
    ("amid_config", AMID_CONFIG),
    ("amid_writing", AMID_WRITING),
]
assert not killed(sitting("whole"))
rng, done = random.Random(0), 0
while done < kills:
    call = rng.randrange(1_000, 500_000)
    if not killed(sitting("random", later=at_call(call))):
        shutil.rmtree(folder / "random")  # it came to its end: once more
        continue
    done += 1
    say(kill=call, wrong=whole("random"))
killed(sitting("random"))
for name, tamper in INSIDE:
    assert killed(sitting("inside", tamper)), name
    parts = [f.name for f in (folder / "inside").rglob(".*.part")]
    say(inside=name, parts=parts, wrong=whole("inside"))
killed(sitting("inside"))
left = [str(f) for f in folder.rglob("*.part")]
say(left=left, tables=table("whole") == table("random") == table("inside"), kills=done)
