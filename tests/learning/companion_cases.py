"""Runs on two devices of torch that go wrong, as a user's script without a guard: case, folder."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import tandem
from tandem.errors import TandemError, WorkerError
from tandem.runs.folder import read_run
from tandem.runs.result import Result

MAIN = os.getpid()
GIVEN: dict[str, Any] = dict(
    framework="torch", device="cpu", devices=2, steps=304, learning_starts=60, batch_size=32
)
GIVEN |= dict(hidden=(16,), train_every=8, updates_per_call=4, eval_every=150, eval_episodes=1)
GIVEN |= dict(final_episodes=1, log_every=50, checkpoint_seconds=0.0, plots=False)
GIVEN["tensorboard"] = False


def children() -> list[int]:
    text = Path(f"/proc/self/task/{MAIN}/children").read_text(encoding="utf-8")
    return [int(pid) for pid in text.split()]


def dropping(space: Any) -> nn.Module:
    """A body with dropout, whose first weights are drawn anew in each process."""
    return nn.Sequential(nn.Linear(*space.shape, 8), nn.Dropout(0.2), nn.ReLU())


class Falling(nn.Linear):
    """Raises when it is called for the 30th time, in processes other than the run's only."""

    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls == 30 and os.getpid() != MAIN:
            raise OSError("the device has fallen off the bus")
        return super().forward(x)


def falling(space: Any) -> nn.Module:
    return nn.Sequential(Falling(*space.shape, 8), nn.ReLU())


def session(**given: Any) -> Any:
    return tandem.session("dqn", "CartPole-v1", **{**GIVEN, **given})


def prints(run: Path) -> list[str]:
    return list(read_run(run).table["fingerprint"])


def lost(folder: Path, number: int, **given: Any) -> dict[str, Any]:
    """A run whose companion is sent a signal (0: none) after a while; then it goes on."""
    run, began, error = session(out=folder, **given), 0.0, None
    (pid,) = children()
    try:
        for event in run:
            if number and not began and event.updates >= 40:
                os.kill(pid, number)
                began = time.monotonic()
    except WorkerError as caught:
        error = caught
    seconds, left = time.monotonic() - began, children()
    own = {"network": given["network"]} if "network" in given else {}
    result = tandem.train(resume=folder, **own) if number else None
    steps = result.summary["env_steps"] if isinstance(result, Result) else 0
    found = {"error": str(error), "seconds": seconds, "left": left}
    return found | {"steps": steps, "prints": prints(folder)}


def killed(folder: Path) -> dict[str, Any]:
    tandem.train("dqn", "CartPole-v1", out=folder / "whole", **GIVEN)
    return lost(folder / "run", signal.SIGKILL) | {"whole": prints(folder / "whole")}


def still(folder: Path) -> dict[str, Any]:
    return lost(folder / "run", signal.SIGSTOP, device_timeout=5.0)


def raised(folder: Path) -> dict[str, Any]:
    return lost(folder / "run", 0, network=falling)


def unfit(folder: Path) -> dict[str, Any]:
    """A network that cannot travel, and settings that do not divide: nothing is left of either."""
    errors = []
    for given in ({"network": lambda space: (lock, falling(space))[1]}, {"batch_size": 33}):
        try:
            session(out=folder / "run", **given)
        except TandemError as error:
            errors.append(str(error))
    return {"errors": errors, "left": ended()}


lock = threading.Lock()  # which cannot be pickled


def callback(folder: Path) -> dict[str, Any]:
    def wrong(event: Any) -> None:
        if event.updates >= 40:
            raise ZeroDivisionError("of the callback")

    try:
        tandem.train("dqn", "CartPole-v1", out=folder / "run", callbacks=[wrong], **GIVEN)
        said = ""
    except ZeroDivisionError as error:
        said = str(error)
    return {"said": said, "left": ended()}


def ended(seconds: float = 3.0) -> list[int]:
    limit = time.monotonic() + seconds
    while children() and time.monotonic() < limit:
        time.sleep(0.05)
    return children()


def own(folder: Path) -> dict[str, Any]:
    more = {"network": dropping, "workers": 1, "envs": 2, **GIVEN}
    tandem.train("dqn", "CartPole-v1", out=folder / "whole", **more)
    tandem.train("dqn", "CartPole-v1", out=folder / "parts", stop_at=160, **more)
    tandem.train(resume=folder / "parts", network=dropping)
    return {"whole": prints(folder / "whole"), "parts": prints(folder / "parts"), "left": ended()}


def waiting(folder: Path) -> dict[str, Any]:
    """Says who its companion is, and goes on until it is ended."""
    run = session(out=folder / "run", steps=10**7, eval_every=10**7, compile="no")
    print(json.dumps(children()), flush=True)
    list(run)
    return {}


if len(sys.argv) > 1:
    print(json.dumps(globals()[sys.argv[1]](Path(sys.argv[2]))), flush=True)
