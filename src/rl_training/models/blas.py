"""Matrix products by numpy's OpenBLAS, where that is faster than torch's MKL.

It is for the large products of an update on AMD's processors: MKL's kernels are tuned to Intel's, and there OpenBLAS was
faster by 8 % at 256×256 and by half at the batches of a planner. It is for batches of tiny matrices everywhere: torch's
way to each is a few times longer.

Both need OpenBLAS held to one thread. With more it keeps threads of its own beside torch's, and they get in each other's
way; then, and where numpy has another library, products stay with torch. `docs/decisions/0007` has the figures.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

LARGE = 128  # least rows, columns and inner length of a product that is worth the way through numpy


@dataclass(slots=True)
class _Asked:
    """Which products numpy is asked for at the moment; one for the process, like the number of torch's threads."""

    tiny: bool = False
    large: bool = False


_asked = _Asked()


class OpenBLAS(NamedTuple):
    """The two functions of the library under numpy that we call; its products are called by numpy."""

    get_threads: Any
    set_threads: Any


@contextmanager
def products_for(num_threads: int) -> Iterator[None]:
    """Choose who makes products while torch has so many threads; afterwards everything is as it was."""
    library = openblas() if num_threads == 1 else None
    if library is None:
        yield
        return
    before, threads = (_asked.tiny, _asked.large), library.get_threads()
    library.set_threads(1)
    _asked.tiny, _asked.large = True, is_amd()
    try:
        yield
    finally:
        _asked.tiny, _asked.large = before
        library.set_threads(threads)


def by_numpy(x: Tensor, weight: Tensor) -> bool:
    """Whether numpy is to make this product, or these products side by side."""
    return _asked.large and x.is_cpu and min(*x.shape[-2:], weight.shape[-1]) >= LARGE


def tiny_by_numpy(x: Tensor) -> bool:
    """Whether numpy is to make products of matrices that are tiny and many."""
    return _asked.tiny and x.is_cpu


def multiply(x: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    """x · weight into `out`, by numpy, for one pair of matrices or for several side by side; outside of autograd."""
    np.matmul(x.numpy(), weight.numpy(), out=out.numpy())
    return out


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
