"""Programs in processes of their own, and whether processes are there."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from tests.helpers import ROOT, runs


def program(code: str, *args: Any, **env: str) -> subprocess.Popen[str]:
    """Begun, with what it prints in a pipe."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), **env}
    command = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=env, text=True)


def gone(pids: Sequence[int], seconds: float = 5.0) -> bool:
    limit = time.monotonic() + seconds
    while any(map(runs, pids)) and time.monotonic() < limit:
        time.sleep(0.02)
    return not any(map(runs, pids))
