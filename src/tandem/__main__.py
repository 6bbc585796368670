"""`python -m tandem` is `tandem`."""

from __future__ import annotations

import os
import sys

from tandem.settings import FOLDERS

if sys.path and os.path.abspath(sys.path[0]) == os.getcwd():  # which Python puts first
    FOLDERS.add(os.getcwd())
    sys.path.append(sys.path.pop(0))

from tandem.cli import main

sys.exit(main())
