"""`python -m tandem.testing`: self-test of the installation, in about a minute.

Each installed backend trains short runs of PPO and DQN on the CPU, loads, resumes and reproduces
them bit for bit, and trains them with worker processes. Each check prints one line with its
duration. The exit code is 0 if all checks pass, 1 if one fails, 2 for invalid arguments."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tandem.backends import ENGINES, installed
from tandem.errors import SettingError, TandemError, UnknownNameError
from tandem.types import JSONDict
from tandem.version import __version__

PATIENCE = 600.0  # seconds per backend, after which it is assumed to hang
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYGAME_HIDE_SUPPORT_PROMPT": "1"}
ABOUT = """Train short runs on each installed backend, and check that they learn, save, resume,
reproduce and run in several processes as documented."""
CHILD = ("-m", "tandem.testing.engine_checks")  # module run in a backend's process
EXTRAS = {"keras-torch": "torch,jax"}  # extras that install a backend, if named differently
LAST = 25  # lines of a backend's output to show after an abnormal end


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments, run the checks, and return the exit code."""
    parser = argparse.ArgumentParser("python -m tandem.testing", description=ABOUT)
    parser.add_argument(
        "engines", nargs="*", metavar="ENGINE", help=f"of {', '.join(ENGINES)} [all installed]"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=PATIENCE,
        metavar="SECONDS",
        help=f"time limit per backend [{PATIENCE:g}]",
    )
    parser.add_argument("--keep", metavar="DIR", help="keep the runs in a new folder [deleted]")
    args = parser.parse_args(argv)
    try:
        return self_test(args.engines, args.timeout, args.keep)
    except TandemError as error:
        print(error, file=sys.stderr)
        return 2


def self_test(
    engines: Sequence[str] = (),
    patience: float = PATIENCE,
    keep: str | None = None,
    tell: Callable[[str], None] = print,
) -> int:
    """Check these backends, or all installed ones. Return the exit code.

    Args:
        engines: Names of backends.
        patience: Time limit per backend, in seconds.
        keep: New folder for the runs, which are deleted otherwise.
        tell: Receives each line of output.

    Raises:
        UnknownNameError: A backend is unknown.
        SettingError: `patience` is not positive, or `keep` exists.
    """
    for name in engines:
        if name not in ENGINES:
            raise UnknownNameError("backend", name, ENGINES)
    if not patience > 0:
        raise SettingError(
            f"--timeout {patience:g}.", "a positive number of seconds", "leave --timeout out."
        )
    began, passed, failed = time.perf_counter(), 0, 0
    tell(f"tandem {__version__}, Python {platform.python_version()}, {platform.platform()}")
    with _folder(keep) as folder:
        for name in dict.fromkeys(engines or ENGINES):
            if name not in installed():
                failed += name in engines
                text = f"not installed: pip install 'tandem-rl[{EXTRAS.get(name, name)}]'"
                tell(_line(name, "", "FAULT" if name in engines else "skip", text))
                continue
            for answer in _answers(name, folder / name, patience):
                fault = answer.get("fault")
                passed, failed = passed + (fault is None), failed + (fault is not None)
                mark, said = ("ok", answer.get("said", "")) if fault is None else ("FAULT", fault)
                tell(_line(name, answer["check"], mark, said, answer["seconds"]))
                for line in answer.get("trace", "").splitlines():
                    tell(f"    {line}")
    seconds = time.perf_counter() - began
    if not passed and not failed:
        tell("no backend is installed. Fix: pip install 'tandem-rl[jax]'")
        failed = 1
    tell(f"{passed} passed, {failed} failed, in {seconds:.0f} s")
    return int(failed > 0)


def _line(engine: str, check: str, mark: str, said: str, seconds: float | None = None) -> str:
    took = "" if seconds is None else f"{seconds:.1f} s"
    return f"{engine:<12}{check:<16}{mark:<6}{took:>8}  {said}".rstrip()


@contextmanager
def _folder(keep: str | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="tandem-testing-", ignore_cleanup_errors=True) as f:
            yield Path(f)
        return
    folder = Path(keep)
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise SettingError(
            f"--keep {keep}: {error.strerror or error}.",
            "a folder that can be created",
            "choose another folder.",
        ) from error
    yield folder


def _answers(name: str, folder: Path, patience: float) -> Iterator[JSONDict]:
    """Run the checks of a backend in a process and yield their results; an abnormal end is a
    fault."""
    folder.mkdir()
    keras = {} if ENGINES[name] is None else {"KERAS_BACKEND": str(ENGINES[name])}
    command = [sys.executable, "-P", *CHILD, name, str(folder)]
    began, late = time.perf_counter(), threading.Event()
    with (folder / "log.txt").open("w+", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            encoding="utf-8",
            env={**QUIET, **os.environ, **keras},
        )

        def give_up() -> None:
            late.set()
            process.kill()

        watch = threading.Timer(patience, give_up)
        watch.start()
        assert process.stdout is not None
        try:
            for line in process.stdout:
                yield json.loads(line)
            code = process.wait()
        finally:
            watch.cancel()
            process.kill()
            process.wait()
            process.stdout.close()
        if late.is_set() or code:
            how = f"still ran after {patience:g} s" if late.is_set() else f"ended with code {code}"
            yield {
                "check": "",
                "fault": f"its process {how}",
                "seconds": time.perf_counter() - began,
                "trace": _end_of(log),
            }


def _end_of(log: IO[str]) -> str:
    log.seek(0)
    return "\n".join(log.read().splitlines()[-LAST:])
