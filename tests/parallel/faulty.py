"""Environments that go wrong once, in a worker and never in the test's own process."""

import ctypes
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from tandem.testing.environments import Game


class Faulty(Game):
    """Pays for the sign of what is seen. The first to come to step `at` of its life goes wrong."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)
    length, generation = 17, 0

    def __init__(self, folder: str, fault: str, parent: int, at: int = 100, times: int = 1) -> None:
        self.folder, self.fault, self.parent, self.at, self.times = folder, fault, parent, at, times

    def begin(self) -> None:
        self.x = self.np_random.uniform(-1, 1, 2).astype(np.float32)

    def observe(self) -> Any:
        return self.x.copy()

    def play(self, action: Any) -> tuple[float, bool]:
        self.generation += 1
        if self.generation == self.at and os.getpid() != self.parent and self._first():
            self._go_wrong()
        reward = float(action == (self.x[0] > 0))
        self.begin()
        return reward, self.t == 13

    def _first(self) -> bool:
        for i in range(self.times):
            try:
                os.close(os.open(Path(self.folder) / f"fault-{i}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            return True
        return False

    def _go_wrong(self) -> None:
        if self.fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.fault == "exits":
            os._exit(3)
        elif self.fault == "raises":
            raise ZeroDivisionError("the simulator diverged")
        elif self.fault == "stands still":
            time.sleep(3600)
        elif self.fault == "stands still in C":
            ctypes.PyDLL(None).sleep(3600)  # and keeps the interpreter's lock
