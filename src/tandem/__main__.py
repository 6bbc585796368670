"""`python -m tandem` is `tandem`."""

from __future__ import annotations

import os
import sys

is_here = bool(sys.path) and os.path.abspath(sys.path[0]) == os.getcwd()
if is_here:  # Python put it first
    sys.path.append(sys.path.pop(0))

from tandem.cli import main  # noqa: E402
from tandem.settings import FOLDERS  # noqa: E402

if is_here:
    FOLDERS.add(os.getcwd())

sys.exit(main())
