"""When numpy's OpenBLAS makes matrix products in place of torch's MKL.

It does so for the large products of an update on AMD's processors: MKL's kernels are tuned to Intel's. And it does so for
batches of tiny matrices everywhere: torch's way to each is longer.

Both need OpenBLAS held to one thread. With more it keeps threads of its own beside torch's, and they get in each other's
way; then, and where numpy has another library, products stay with torch. `docs/decisions/0007` has the figures.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rl_training.models.blas import products_by_numpy


class OpenBLAS(NamedTuple):
    """The two functions of the library under numpy that we call; its products are called by numpy."""

    get_threads: Any
    set_threads: Any


@contextmanager
def products_for(num_threads: int) -> Iterator[None]:
    """Choose who makes products while torch has so many threads; afterwards everything is as it was."""
    library = openblas()
    if library is None:
        with products_by_numpy(tiny=False, large=False):
            yield
        return
    threads = library.get_threads()
    library.set_threads(1)
    alone = num_threads == 1
    try:
        with products_by_numpy(tiny=alone, large=alone and large_by_numpy()):
            yield
    finally:
        library.set_threads(threads)


def large_by_numpy() -> bool:
    """Whether a thread that is alone with a large product has it made by numpy."""
    return openblas() is not None and is_amd()


@lru_cache(maxsize=1)
def openblas() -> OpenBLAS | None:
    """The OpenBLAS that numpy's own builds bring along and have loaded; None where numpy has another library."""
    for path in sorted((Path(np.__file__).parent.parent / "numpy.libs").glob("libscipy_openblas*")):
        try:
            library = ctypes.CDLL(str(path))
        except OSError:
            continue
        for ending in ("64_", ""):
            get_threads = getattr(library, f"scipy_openblas_get_num_threads{ending}", None)
            set_threads = getattr(library, f"scipy_openblas_set_num_threads{ending}", None)
            if get_threads is not None and set_threads is not None:
                return OpenBLAS(get_threads, set_threads)
    return None


@lru_cache(maxsize=1)
def is_amd() -> bool:
    """Whether the processor is one of AMD's, as far as this system tells."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
