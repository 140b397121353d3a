"""The C library's heap, told not to give back what the next update asks for again."""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
LARGEST_BLOCK = 32 * 2**20  # glibc takes no more; what is larger, such as a replay buffer, is still given back when freed
KEPT = 512 * 2**20


@lru_cache(maxsize=1)
def keep_freed_memory() -> bool:
    """Keep freed blocks for the next ones of their size; whether this C library can be told so.

    An update frees some megabytes of activations. By default glibc returns them to the system at once, and every page of the
    next update is then a fault: 700 of them in one update of SAC, a sixth of its time.
    """
    if os.name != "posix":
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):
        return False
    told = [library.mallopt(M_MMAP_THRESHOLD, LARGEST_BLOCK), library.mallopt(M_TRIM_THRESHOLD, KEPT)]
    return all(told)
