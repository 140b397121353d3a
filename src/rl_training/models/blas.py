"""Matrix products by numpy, for those who have found its library to be the faster one (`runtime/openblas.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np
import torch
from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")

LARGE = 128  # least rows, columns and inner length of a product that is worth the way through numpy
FEW = 64  # rows up to which a pass through a small network is a matter of calls, not of arithmetic


@dataclass(slots=True)
class _Asked:
    """Which products numpy is asked for at the moment; one for the process, like the number of torch's threads."""

    tiny: bool = False
    large: bool = False


_asked = _Asked()


def unwarned(function: Callable[P, R]) -> Callable[P, R]:
    """Let what overflows or is no number come out of numpy without a word, as it does of torch: whoever trains looks for it."""

    @wraps(function)
    def quietly(*args: P.args, **kwargs: P.kwargs) -> R:
        with np.errstate(all="ignore"):
            return function(*args, **kwargs)

    return quietly


@contextmanager
def products_by_numpy(*, tiny: bool, large: bool) -> Iterator[None]:
    """Ask numpy for products of many tiny matrices, for large ones, or for both."""
    before = _asked.tiny, _asked.large
    _asked.tiny, _asked.large = tiny, large
    try:
        yield
    finally:
        _asked.tiny, _asked.large = before


def by_numpy(x: Tensor, weight: Tensor) -> bool:
    """Whether numpy is to make this product, or these products side by side."""
    return _asked.large and x.is_cpu and min(*x.shape[-2:], weight.shape[-1]) >= LARGE


def tiny_by_numpy(x: Tensor) -> bool:
    """Whether numpy is to make products of matrices that are tiny and many."""
    return _asked.tiny and x.is_cpu


class Twin:
    """A matrix as torch and as numpy see it, in the same memory: either can make a product of it without a crossing."""

    __slots__ = ("array", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.array = tensor, tensor.numpy()


def product_of_twins(*, rows: int) -> Callable[[Twin, Twin, Twin], object]:
    """x · y into `out`, as it is best made at the moment for networks over so many rows; `out` lies in one piece."""
    return _numpy_product if (_asked.tiny if rows <= FEW else _asked.large) else _torch_product


def _numpy_product(x: Twin, y: Twin, out: Twin) -> object:
    return np.dot(x.array, y.array, out=out.array)


def _torch_product(x: Twin, y: Twin, out: Twin) -> object:
    return torch.mm(x.tensor, y.tensor, out=out.tensor)


def multiply(x: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    """x · weight into `out`, by numpy, for one pair of matrices or for several side by side; outside of autograd."""
    np.matmul(x.numpy(), weight.numpy(), out=out.numpy())
    return out
