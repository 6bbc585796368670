"""SIGINT, SIGTERM and SIGHUP as requests to end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from tandem.platforms import ENDING, FROM_TERMINAL, UNHEARD

HANGUP = getattr(signal, "SIGHUP", None)  # there is none on Windows
_entered: list[Signals] = []


class Signals:
    """While entered, a SIGINT, SIGTERM or SIGHUP calls `stop` with its name; a second SIGINT or
    SIGTERM does what it did before. A second SIGHUP is ignored, since a closing terminal and its
    shell both send one; where the process ignored it before (nohup), the first one is, too.

    A process forked meanwhile, such as a vector's, ends by its first SIGTERM; it ignores its first
    SIGINT or SIGHUP, which a terminal sends to all."""

    def __init__(self, stop: Callable[[str], None]) -> None:
        self.stop, self.process = stop, os.getpid()
        self._old: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        # only there Python lets handlers be set
        if threading.current_thread() is threading.main_thread():
            for number in ENDING:
                if number == HANGUP and signal.getsignal(number) == signal.SIG_IGN:
                    continue
                self._old[number] = signal.signal(number, self._caught)
        _entered.append(self)
        if UNHEARD:
            self.stop(signal.Signals(UNHEARD[0]).name)
        return self

    def _caught(self, number: int, frame: object) -> None:
        if os.getpid() == self.process:
            self.stop(signal.Signals(number).name)
        signal.signal(number, signal.SIG_IGN if number == HANGUP else self._old[number])
        if os.getpid() != self.process and number not in FROM_TERMINAL:
            signal.raise_signal(number)

    def __exit__(self, *_: object) -> None:
        _entered.remove(self)
        for number, old in self._old.items():
            # sessions may end in another order than they began: one that began later restores it
            if later := [one for one in _entered if one._old.get(number) == self._caught]:
                later[0]._old[number] = old
            else:
                signal.signal(number, old)


def exit_code(name: str) -> int:
    """What a command ends with that the signal of this name ended."""
    return 128 + signal.Signals[name].value


def raise_again(name: str, result: object = None) -> None:
    """Hands a signal on that ended a run, when the run is over: KeyboardInterrupt for SIGINT, with
    `result` as its attribute of that name; any other goes to the handler that it had before. Comes
    back where that one lets the program go on."""
    if name == "SIGINT":
        interrupt = KeyboardInterrupt(name)
        interrupt.result = result  # type: ignore[attr-defined]
        raise interrupt
    signal.raise_signal(signal.Signals[name])
