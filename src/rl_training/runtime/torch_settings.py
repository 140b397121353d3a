"""Torch, and the library under numpy, as training wants them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from rl_training.models.crew import crew_of
from rl_training.runtime.heap import keep_freed_memory
from rl_training.runtime.openblas import large_by_numpy, products_for


@contextmanager
def torch_settings(num_threads: int) -> Iterator[None]:
    """Torch as training wants it; put back as it was afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    keep_freed_memory()
    # Adam's moments decay into denormals, which this kind of processor handles tens of times slower
    torch.set_flush_denormal(True)
    try:
        with products_for(num_threads), crew_of(num_threads, large_by_numpy=large_by_numpy()):
            yield
    finally:
        torch.set_num_threads(before)
        torch.set_flush_denormal(False)
