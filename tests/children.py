"""Python processes that have imported what many snippets need. Each snippet runs in a fork of one:
it has a process of its own, without the seconds that importing a framework and tandem takes."""

import atexit
import contextlib
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
OURS = ("tandem.trainer", "tandem.agents.rl")
MODULES = {
    "torch": ("torch", "tandem.backends.torch", *OURS),
    "jax": ("jax", "keras", "tandem.backends.keras_jax", *OURS),
    "tensorflow": ("tensorflow", "keras", "tandem.backends.keras_tensorflow", *OURS),
    "keras-torch": ("torch", "keras", "tandem.backends.keras_torch", *OURS),
}
MOST = 6  # parents at a time
# Of the snippets of parents that run: this process counts those of parents that it has waited for.
seconds: dict[subprocess.Popen[bytes], float] = {}
_parents: dict[str, subprocess.Popen[bytes]] = {}


def run(
    engine: str,
    command: Sequence[str],
    env: Mapping[str, str],
    files: Sequence[Path],
    timeout: float,
) -> int | None:
    """The status of a script, which reads nothing and writes to the two files; None after
    `timeout` seconds, when it and its processes have been killed.

    command: the script and its arguments. env: all environment variables.
    """
    parent = _parent(engine, env)
    assert parent.stdin is not None
    parent.stdin.write((json.dumps([*map(str, files), *command]) + "\n").encode())
    pid = _answer(parent, None)
    answer = None
    try:
        answer = _answer(parent, timeout)
    finally:  # also if pytest's own timeout raises: the next snippet must not read this answer
        if answer is None:
            os.killpg(pid, signal.SIGKILL)
            answer = [None, _answer(parent, None)[1]]
    seconds[parent] += answer[1]
    return answer[0]


def _parent(engine: str, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """The process that snippets with these variables are forked from."""
    key = json.dumps([engine, sorted(env.items())])
    if key not in _parents:
        if len(_parents) == MOST:
            _end(_parents.pop(next(iter(_parents))))
        command = [sys.executable, "-m", "tests.children", *MODULES[engine]]
        pipe = subprocess.PIPE
        _parents[key] = subprocess.Popen(
            command,
            stdin=pipe,
            stdout=pipe,
            bufsize=0,  # else a line that was read ahead would be waited for
            cwd=ROOT,
            env=dict(env),
            start_new_session=True,
        )
        seconds[_parents[key]] = 0.0
    return _parents[key]


@atexit.register
def _end_all() -> None:
    for parent in _parents.values():
        _end(parent)


def _end(parent: subprocess.Popen[bytes]) -> None:
    """Waits for it, so that its seconds count."""
    assert parent.stdin is not None
    # A process that a test has forked and not ended keeps the pipe open: closing would not do.
    with contextlib.suppress(BrokenPipeError):
        parent.stdin.write(b"\n")
    parent.stdin.close()
    parent.wait()
    del seconds[parent]


def _answer(parent: subprocess.Popen[bytes], timeout: float | None) -> Any:
    """The next answer of the process; None after `timeout` seconds without one."""
    assert parent.stdout is not None
    if not select.select([parent.stdout], [], [], timeout)[0]:
        return None
    return json.loads(parent.stdout.readline())


def main(modules: Sequence[str]) -> None:
    """Forks a process for each request: a list of two files for its output and the command."""
    for name in modules:
        importlib.import_module(name)
    while line := sys.stdin.readline().strip():
        out, err, *command = json.loads(line)
        if not (pid := os.fork()):
            _snippet(out, err, command)
            break
        print(pid, flush=True)
        _, status, used = os.wait4(pid, 0)
        seconds = used.ru_utime + used.ru_stime
        print(json.dumps([os.waitstatus_to_exitcode(status), seconds]), flush=True)


def _snippet(out: str, err: str, command: list[str]) -> None:
    os.setsid()
    for number, file in enumerate((os.devnull, out, err)):
        os.dup2(os.open(file, os.O_WRONLY if number else os.O_RDONLY), number)
    sys.argv = command
    sys.path[0] = str(Path(command[0]).parent)
    runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
