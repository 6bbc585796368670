"""The C library's memory, kept by the process instead of given back after every update."""

from __future__ import annotations

import ctypes
import os
from functools import cache

from tandem.platforms import LINUX, system

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
LARGEST = 32 * 2**20  # bytes of a block that malloc keeps at all; it allows no more


@cache
def keep_freed() -> bool:
    """Tells glibc to keep freed blocks of up to 32 MiB; whether it will. Arrays of pictures are as
    large as that, and fetching their pages from the system anew for every update takes a twentieth
    to a sixth of its time. What the user has set by MALLOC_... or GLIBC_TUNABLES stands; other
    systems are left alone."""
    if system() != LINUX or any(
        name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ
    ):
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGEST) and mallopt(M_TRIM_THRESHOLD, 2**31 - 1))
