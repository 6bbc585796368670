"""The processes that make runs of several seeds: each makes one after the other, since engines take
seconds to start."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from tandem.platforms import check_processes, keep_to, parent_watch
from tandem.runs import progress

CORES = "TANDEM_CORES"  # those that a process may use, as numbers
PATIENCE = 10.0  # seconds for a process that is to end
LINE = 0.5  # seconds between two lines of a run that is shown live


class Worker:
    """A process that makes runs, one after the other: engines start once. It ends with whoever
    began it."""

    def __init__(self, share: list[int], live: bool) -> None:
        """share: the cores that it may use, or none for all."""
        check_processes()
        environment = os.environ | {"PYTHONIOENCODING": "utf-8"}  # of the log
        if share:
            environment[CORES] = ",".join(map(str, share))
        command = [
            sys.executable,
            "-P",
            "-m",
            "tandem.cli.seed_worker",
            "live" if live else "plain",
        ]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            # a terminal's Ctrl-C comes from this process, once
            start_new_session=True,
        )
        self._lines = queue.SimpleQueue[bytes]()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def give(self, words: list[str], log: Path) -> None:
        """A run to make: the command, and where it writes what it has to say."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended, as `code` says
            self.process.stdin.write(json.dumps([str(log.absolute()), *words]).encode() + b"\n")
            self.process.stdin.flush()

    def stop(self, signal_name: str) -> None:
        """The run under way is to end with a checkpoint, as by this signal."""
        self.process.send_signal(signal.Signals[signal_name])

    def code(self) -> int | None:
        """The exit code of the run that it makes, None while that is under way."""
        try:
            line = self._lines.get_nowait()
        except queue.Empty:
            return None
        return int(line) if line.strip() else self.process.wait() or 1

    def _read(self) -> None:
        """Takes what it says, line by line, and an empty one at its end: some systems cannot ask
        a pipe whether there is something."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def end(self, at_once: bool = False) -> None:
        """It has nothing more to do; or it is killed, whatever it does."""
        assert self.process.stdin is not None and self.process.stdout is not None
        if at_once:
            self.process.kill()
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(PATIENCE)
        self.process.stdout.close()


def work(how: str) -> int:
    """In a worker: makes the runs that come in, one a line, and says the exit code of each. The run
    under way ends with a checkpoint when whoever began it is no more."""
    if how == "live":
        progress.LINE = LINE
    if mine := os.environ.get(CORES, ""):
        keep_to([int(core) for core in mine.split(",")])
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    from tandem.cli import main

    answers = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # a run's results are in its folder
    here = os.getcwd()
    # a file of its own: the interpreter, when it ends, waits for nobody who reads sys.stdin
    for line in os.fdopen(os.dup(0)):
        os.chdir(here)  # which an environment may have changed
        log, *words = json.loads(line)
        file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.dup2(file, 2)
        os.close(file)
        code = main(["train", *words])
        sys.stderr.flush()
        print(code, file=answers, flush=True)
    return 0


def _end_with(parent: int) -> None:
    is_there = parent_watch(parent)
    while is_there(1.0):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60.0)  # for a checkpoint
    os._exit(1)


if __name__ == "__main__":
    sys.exit(work(sys.argv[1]))
