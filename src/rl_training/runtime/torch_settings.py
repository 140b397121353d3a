"""Torch and the compiled ops as training wants them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from rl_training.envs.processes import flushes_denormals
from rl_training.kernels.library import library
from rl_training.kernels.threads import use_threads
from rl_training.runtime.heap import keep_freed_memory


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
def torch_settings(num_threads: int, *, torsos: bool = False) -> Iterator[None]:
    """Torch as training wants it; put back as it was afterwards.

    Where ops are compiled these have the threads, and torch has one, unless there are `torsos`: convolutions are torch's.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads if library() is None or torsos else 1)
    keep_freed_memory()
    flushed = flushes_denormals()
    # Adam's moments decay into denormals, which this kind of processor handles tens of times slower
    torch.set_flush_denormal(True)
    try:
        with single_precision(), use_threads(num_threads):
            yield
    finally:
        torch.set_num_threads(before)
        torch.set_flush_denormal(flushed)
