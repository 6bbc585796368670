"""`python -m tandem` is `tandem`."""

from __future__ import annotations

import sys

from tandem.cli import main

sys.exit(main())
