"""SIGINT, SIGTERM and SIGHUP as requests to stop."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from tandem.platforms import ENDING, FROM_TERMINAL, UNHEARD

HANGUP = getattr(signal, "SIGHUP", None)  # missing on Windows
_entered: list[Signals] = []


class Signals:
    """Context manager in which SIGINT, SIGTERM or SIGHUP calls `stop` with its name. A second
    SIGINT or SIGTERM is handled as before entering. A second SIGHUP is ignored, since a closing
    terminal and its shell both send one; if the process already ignored it (nohup), so is the first
    one.

    A process forked meanwhile, such as one of a vector environment, ends at its first SIGTERM and
    ignores its first SIGINT or SIGHUP, which a terminal sends to all processes.
    """

    def __init__(self, stop: Callable[[str], None]) -> None:
        self.stop, self.process = stop, os.getpid()
        self._old: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        # Python only allows handlers in the main thread
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
            # sessions may end in any order: one that began later restores the handler
            if later := [one for one in _entered if one._old.get(number) == self._caught]:
                later[0]._old[number] = old
            else:
                signal.signal(number, old)


def exit_code(name: str) -> int:
    """Return the exit code of a command ended by this signal."""
    return 128 + signal.Signals[name].value


def raise_again(name: str, result: object = None) -> None:
    """Raise a signal again after the run it ended: KeyboardInterrupt for SIGINT, with `result` as
    its attribute; any other signal goes to its previous handler. Returns if that handler lets the
    program continue."""
    if name == "SIGINT":
        interrupt = KeyboardInterrupt(name)
        interrupt.result = result  # type: ignore[attr-defined]
        raise interrupt
    signal.raise_signal(signal.Signals[name])
