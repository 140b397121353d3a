"""Batches drawn in C (`native/sampling.h`): the numbers that numpy's generator would give, and the gathering, in one call."""

from __future__ import annotations

import ctypes

import numpy as np
import torch
from torch import Tensor

from rl_training import native

MOST_ROWS = 2**32 - 1  # from there on numpy draws in another way


class NativeDraws:
    """Rows of a matrix, drawn with replacement by a generator, which is left as its `integers` would have left it."""

    def __init__(self, rng: np.random.Generator) -> None:
        passes, generator = native.library(), rng.bit_generator.ctypes
        assert passes is not None
        self._draw, self.rng = passes.draw_rows, rng  # as long as it is here, its state is where it was
        self._next = ctypes.cast(generator.next_uint32, ctypes.c_void_p).value
        self._state = generator.state_address

    def __call__(self, rows: Tensor, population: int, count: int) -> Tensor:
        """`count` of the first `population` rows of a contiguous matrix of float32, each as likely."""
        width = rows.shape[1]
        drawn = torch.empty(count, width, dtype=torch.float32)
        self._draw(rows.data_ptr(), population, width, self._next, self._state, count, drawn.data_ptr())
        return drawn
