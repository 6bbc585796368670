"""Chromium without a window, for the tests of pages."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="no chromium is installed (make test does so, as root on Debian)"
)
OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND"


def start(folder: Path, address: str, *options: str) -> subprocess.Popen[str]:
    """A browser that shows an address; its profile is in `folder`."""
    assert BROWSER is not None
    command = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", *options]
    command += [f"--user-data-dir={folder / 'profile'}", address]
    pipe, env = subprocess.PIPE, {**os.environ, "HOME": str(folder)}
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=env)


def shown(folder: Path, address: str, *options: str) -> tuple[str, str]:
    """What a browser without a network prints of a page, and its log."""
    return start(folder, address, OFFLINE, *options).communicate(timeout=200)
