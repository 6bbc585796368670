"""Settings of the C library's malloc, so that the process keeps freed memory instead of returning
it after every update."""

from __future__ import annotations

import ctypes
import os
from functools import cache

from tandem.platforms import LINUX, system

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
LARGEST = 32 * 2**20  # bytes of the largest block that malloc can keep


@cache
def keep_freed() -> bool:
    """Make glibc keep freed blocks of up to 32 MiB. Return True on success. Image arrays are that
    large, and getting their pages from the system again for every update takes 5% to 17% of its
    time. User settings in MALLOC_... or GLIBC_TUNABLES take precedence; other systems are not
    changed."""
    if system() != LINUX or any(
        name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ
    ):
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGEST) and mallopt(M_TRIM_THRESHOLD, 2**31 - 1))
