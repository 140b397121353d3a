"""Torch, and the library under numpy, as training wants them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from rl_training.kernels.library import library
from rl_training.kernels.threads import use_threads
from rl_training.models.crew import crew_of
from rl_training.runtime.heap import keep_freed_memory
from rl_training.runtime.openblas import large_by_numpy, products_for


@contextmanager
def single_precision() -> Iterator[None]:
    """Tensors that nobody gave a type are float32, as ours are, whatever default the user has set; put back afterwards."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def torch_settings(num_threads: int, *, by_passes: bool = False) -> Iterator[None]:
    """Torch as training wants it; put back as it was afterwards.

    Where the networks go through the compiled passes, these have the threads and torch has one.
    """
    before = torch.get_num_threads()
    passes = num_threads if by_passes and library() is not None else 1
    of_torch = num_threads // passes
    torch.set_num_threads(of_torch)
    keep_freed_memory()
    # Adam's moments decay into denormals, which this kind of processor handles tens of times slower
    torch.set_flush_denormal(True)
    try:
        crew = crew_of(num_threads, large_by_numpy=large_by_numpy())
        with single_precision(), products_for(of_torch), use_threads(passes), crew:
            yield
    finally:
        torch.set_num_threads(before)
        torch.set_flush_denormal(False)
