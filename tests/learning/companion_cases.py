"""Runs on two devices of torch that go wrong, as a user's script without a guard; fails with what
is wrong. Arguments: case, folder."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tandem
from tandem.errors import TandemError, WorkerError
from tandem.runs.folder import Run

MAIN = os.getpid()
GIVEN: dict[str, Any] = dict(
    framework="torch", device="cpu", devices=2, steps=304, learning_starts=60, batch_size=32
)
GIVEN |= dict(hidden=(16,), train_every=8, updates_per_call=4, eval_every=150, eval_episodes=1)
GIVEN |= dict(final_episodes=1, log_every=50, checkpoint_seconds=0.0, plots=False)
GIVEN["tensorboard"] = False
lock = threading.Lock()  # which cannot be pickled


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
    return list(Run(run).table["fingerprint"])


def lost(folder: Path, number: int, *said: str, within: float, **given: Any) -> None:
    """A run whose companion is sent a signal (0: none) after a while says this and leaves no
    process; then it continues."""
    run, began, error = session(out=folder, **given), 0.0, None
    (pid,) = children()
    try:
        for event in run:
            if number and not began and event.updates >= 40:
                os.kill(pid, number)
                began = time.monotonic()
    except WorkerError as caught:
        error = caught
    seconds, timeout = time.monotonic() - began, given.get("device_timeout", 0.0)
    assert not children() and all(words in str(error) for words in said), error
    if number:
        assert timeout <= seconds < within, seconds
        assert tandem.train(resume=folder).summary["env_steps"] >= 304


def killed(folder: Path) -> None:
    tandem.train("dqn", "CartPole-v1", out=folder / "whole", **GIVEN)
    said = "the process of rank 1, of devices=2, was killed (SIGKILL), possibly for lack of memory"
    said += "; expected processes that run until the end"
    fix = "Fix: continue from the run's last checkpoint with resume="
    lost(folder / "run", signal.SIGKILL, said, fix, within=10)
    same = prints(folder / "run") == prints(folder / "whole")
    assert same, "resumed after the loss, the run was another"


def still(folder: Path) -> None:
    said = "rank 1, of devices=2, did not respond: it did not reach an all-reduce within 5 s"
    fix = "device_timeout=10"
    lost(folder / "run", signal.SIGSTOP, said, fix, within=15, device_timeout=5.0)


def raised(folder: Path) -> None:
    said = "rank 1, of devices=2, raised OSError: the device has fallen off the bus"
    lost(folder / "run", 0, said, "forward", "Fix: fix the code", within=0, network=falling)


def unfit(folder: Path) -> None:
    """A network that cannot travel, and settings that do not divide: nothing is left of either."""
    own = {"network": lambda space: (lock, falling(space))[1]}
    for given, said in ((own, "cannot be pickled"), ({"batch_size": 33}, "use batch_size=32")):
        with pytest.raises(TandemError, match=said):
            session(out=folder / "run", **given)
    assert not ended()


def callback(folder: Path) -> None:
    def wrong(event: Any) -> None:
        if event.updates >= 40:
            raise ZeroDivisionError("of the callback")

    with pytest.raises(ZeroDivisionError, match="of the callback"):
        tandem.train("dqn", "CartPole-v1", out=folder / "run", callbacks=[wrong], **GIVEN)
    assert not ended()


def ended(seconds: float = 3.0) -> list[int]:
    limit = time.monotonic() + seconds
    while children() and time.monotonic() < limit:
        time.sleep(0.05)
    return children()


def own(folder: Path) -> None:
    more = {"network": dropping, "workers": 1, "envs": 2, **GIVEN}
    tandem.train("dqn", "CartPole-v1", out=folder / "whole", **more)
    tandem.train("dqn", "CartPole-v1", out=folder / "parts", stop_at=160, **more)
    tandem.train(resume=folder / "parts", network=dropping)
    assert prints(folder / "parts") == prints(folder / "whole") and not ended()
    assert len(prints(folder / "whole")) >= 5


def waiting(folder: Path) -> None:
    run = session(out=folder / "run", steps=10**7, eval_every=10**7, compile="no")
    print(json.dumps(children()), flush=True)
    list(run)


if len(sys.argv) > 1:
    globals()[sys.argv[1]](Path(sys.argv[2]))
