"""The command line. Each command is a module that is imported on use; this one only dispatches. May
import any package but `examples`.

Exit codes: 0 success; 1 error while running, or a fault found by `check` or `verify`; 2 invalid
request; 129, 130 and 143 ended by SIGHUP, SIGINT and SIGTERM, with a checkpoint; 141 the reader of
the output has closed it.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import threading
import traceback
from ast import literal_eval
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from importlib import import_module
from itertools import pairwise
from typing import Any

from tandem.cli import output
from tandem.cli.output import echo
from tandem.errors import (
    EngineError,
    EnvironmentFault,
    NetworkError,
    NetworkFault,
    PluginError,
    ResumeError,
    RunFolderError,
    SettingError,
    SpaceError,
    TandemError,
    UnknownNameError,
)
from tandem.platforms import ENDING, FULL, UNHEARD
from tandem.streams import Display
from tandem.version import __version__

REFUSED = (
    UnknownNameError,
    SettingError,
    SpaceError,
    NetworkError,
    RunFolderError,
    ResumeError,
    EngineError,
    PluginError,
)
FAULTS = (EnvironmentFault, NetworkFault)  # in the user's code
COMMANDS = {  # name -> (module, description); a module `list` would hide the built-in here
    "train": ("train", "train an agent, or resume a run"),
    "evaluate": ("evaluate", "evaluate an agent on new episodes"),
    "watch": ("watch", "watch an agent play, in a window or as a GIF or MP4"),
    "find": ("find", "find the best learning rate, optimizer or algorithm"),
    "sweep": ("sweep", "tune the settings of an algorithm with Optuna"),
    "plot": ("plot", "plot the learning curves of one or more runs"),
    "compare": ("compare", "compare final scores of algorithms with confidence intervals"),
    "report": ("report", "write a self-contained HTML report of a run"),
    "config": ("config", "write all settings of a run to a file for train --config"),
    "list": ("catalogue", "list algorithms, tuned settings and backends"),
    "check": ("check", "check an environment for errors before training"),
    "export": ("export", "export an agent to ONNX or NumPy, to run without a framework"),
    "completion": (
        "completion",
        "print a completion script for bash, zsh or fish",
    ),
    "record": ("record", "record episodes of an agent as a Minari dataset"),
    "push": ("push", "upload a run to the Hugging Face Hub, with a model card"),
    "pull": ("pull", "download a run from the Hugging Face Hub"),
    "cache": ("cache", "show or clear the cache of compiled updates"),
    "verify": ("verify", "repeat a training run and compare its weights"),
}


CALL = re.compile(r"(tandem\.\w+\([^()]*\))")  # calls stay unchanged
LOAD = re.compile(  # except this one
    r"(?:import \w+, then )?tandem\.load\('[^']*', (network|algorithm)='?([\w.:]+)'?\)"
)
# a setting and its value in advice
VALUE = re.compile(
    r"(?<!--vary )(?<!\()\b(\w+)=(\[[^]]+\]|'[^']*'|-?\d+(?:[.e][\d-]+)*|True|False)"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    _quieten(words)
    with _displays():
        return _run(words)


@contextmanager
def _displays() -> Iterator[None]:
    """Make commands robust to streams that are missing, have lost their terminal, or lack a
    character. Only a closed reader of stdout ends them, as in `tandem list | head -1`."""
    err = Display(sys.stderr)
    with redirect_stderr(err), output.reserved():
        try:
            yield
        finally:
            err.end()


def _run(words: list[str]) -> int:
    """Run one command, report its errors, and return the exit code."""
    try:
        with _terminable():
            code = _command(words)
        output.stream().flush()
        return code
    except TandemError as error:
        # show where the user's code raised it
        if isinstance(error, FAULTS) and error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        print(f"tandem: {_in_flags(error, words)}", file=sys.stderr)
        return 2 if isinstance(error, REFUSED) else 1
    except KeyboardInterrupt:
        print("tandem: interrupted.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader has closed, as in `tandem list | head -1`
        return 141
    except OSError as error:
        if error.errno not in FULL:
            raise
        print(f"tandem: cannot write: {error}.\nFix: free some space.", file=sys.stderr)
        return 1
    finally:
        if (runs := sys.modules.get("tandem.runs.new_folders")) is not None:
            runs.drop_unused()


@contextmanager
def _terminable() -> Iterator[None]:
    """Leave the block on a SIGTERM or SIGHUP that nothing else handles, so that environments are
    closed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _: Any) -> None:
        UNHEARD.append(number)
        sys.exit(128 + number)

    UNHEARD.clear()
    before = {
        number: signal.signal(number, leave)
        for number in ENDING
        if number != signal.SIGINT and signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        UNHEARD.clear()
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _command(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        echo(_overview())
        return 0 if words else 2
    if words[0] == "--version":
        echo(f"tandem {__version__}")
        return 0
    name, *rest = words
    if name not in COMMANDS:
        raise UnknownNameError("command", name, COMMANDS)
    import_module("tandem.settings").IMPORTED.clear()  # left by an earlier command
    try:
        return int(import_module(f"tandem.cli.{COMMANDS[name][0]}").run(rest))
    except SystemExit as end:  # from argparse after --help
        return int(end.code or 0)


def _overview() -> str:
    lines = [f"  tandem {name:<12}{what}" for name, (_, what) in COMMANDS.items()]
    return "\n".join(
        [
            "Reinforcement learning on Keras 3 and PyTorch.",
            "",
            *lines,
            "",
            "`tandem COMMAND --help` shows the flags of a command, "
            "`tandem train ppo --help settings` all settings of PPO.",
            "Get started: tandem train ppo CartPole-v1",
        ]
    )


def _in_flags(error: TandemError, words: Sequence[str]) -> str:
    """Return the message with its fix for the command line: settings become flags, and a call that
    loads an agent becomes the command of these `words` with the missing flag."""
    from tandem import algorithms, trainer  # slow to import: only on errors
    from tandem.settings import flag, hints_of

    names = {n for kind in algorithms.built_in().values() for n in hints_of(kind.Settings)}
    names |= trainer.TAKEN

    def loaded(found: re.Match[str]) -> str:
        given = found[2] if ":" in found[2] else f"MODULE:{found[2].replace('...', 'FUNCTION')}"
        return f"{shlex.join(['tandem', *words])} --{found[1]} {given}"

    def flagged(found: re.Match[str]) -> str:
        name = {"wrappers": "wrapper"}.get(found[1], found[1])
        return flag(name, literal_eval(found[2])) if found[1] in names else found[0]

    wrong, line, fix = str(error).partition("\nFix: ")
    parts = CALL.split(LOAD.sub(loaded, fix))
    parts = [x if CALL.fullmatch(x) else VALUE.sub(flagged, x) for x in parts]
    return wrong + line + re.sub(r", (?=--\w)", " ", "".join(parts))


def _quieten(words: list[str]) -> None:
    """Set environment variables that NumPy and the frameworks read once on import: one thread
    unless the user sets it (on small networks a second one costs more than it gains), and no log
    messages of libraries."""
    asked = next((b for a, b in pairwise(words) if a == "--threads"), None)
    asked = asked or next((a.partition("=")[2] for a in words if a.startswith("--threads=")), None)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        if asked is not None and asked.isdigit():
            os.environ[name] = asked
        else:
            os.environ.setdefault(name, "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
