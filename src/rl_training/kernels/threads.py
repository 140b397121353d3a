"""How many threads the compiled ops use: one number for the process, as torch has one for its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class _Threads:
    count: int = 1


_threads = _Threads()


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
