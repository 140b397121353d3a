"""Threads of the compiled ops: how many, one number for the process as torch has one; and scratch memory for each caller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import local

import torch


@dataclass(slots=True)
class _Threads:
    count: int = 1


_threads = _Threads()


class _Scratch(local):
    """Memory that a call of C wants for itself; each Python thread keeps one, as asking anew costs more than a small pass."""

    memory = torch.empty(0, dtype=torch.float32)


_scratch = _Scratch()


def scratch(size: int) -> int:
    """The address of so many floats at least, which are this thread's until it asks again."""
    if _scratch.memory.numel() < size:
        _scratch.memory = torch.empty(size, dtype=torch.float32)
    return _scratch.memory.data_ptr()


def num_threads() -> int:
    return _threads.count


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Give the compiled ops so many threads. Torch should have one then: its own would wait busily on the same cores for
    milliseconds after every operation they shared."""
    before, _threads.count = _threads.count, max(1, count)
    try:
        yield
    finally:
        _threads.count = before
