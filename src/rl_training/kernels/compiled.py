"""Where every op decides between C and torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from rl_training.kernels.library import Library, library

_recorded = False  # whether somebody writes down what torch does


def library_for(*tensors: Tensor) -> Library | None:
    """The compiled library, if it is there and reads such tensors: float32 on the CPU."""
    for tensor in tensors:  # not `all`, which takes as long again
        if tensor.dtype is not torch.float32 or not tensor.is_cpu:
            return None
    return None if _recorded else library()


@contextmanager
def definitions_only() -> Iterator[None]:
    """Ops as torch has them, for whoever records torch's operations: an exporter would take what C gives for a constant."""
    global _recorded  # noqa: PLW0603 (asked at every op, where a context variable would take three times as long)
    before, _recorded = _recorded, True
    try:
        yield
    finally:
        _recorded = before
