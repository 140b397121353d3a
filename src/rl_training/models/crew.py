"""Threads that share work of many equal parts, such as the plans of a search: each takes whole parts.

Torch's own threads meet after every operation, which suits few large ones. Parts that are long chains of small operations
are done sooner by one thread each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TypeVar

import numpy as np
import torch

from rl_training.kernels.threads import use_threads
from rl_training.models.blas import products_by_numpy

Item = TypeVar("Item")
Result = TypeVar("Result")


class Crew:
    """The caller and up to `size - 1` threads, which are begun when they are first needed and wait in between."""

    def __init__(self, size: int, *, large_by_numpy: bool) -> None:
        self.size, self._large_by_numpy = size, large_by_numpy
        self._helpers = ThreadPoolExecutor(max(1, size - 1), thread_name_prefix="rl_training crew", initializer=_keep_to_itself)

    def do(self, tasks: Sequence[Callable[[], Result]]) -> list[Result]:
        """All at once, the first by the caller; there are at most `size` of them."""
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with products_by_numpy(tiny=False, large=self._large_by_numpy), use_threads(1):
                others = [self._helpers.submit(task) for task in tasks[1:]]
                try:
                    first = tasks[0]()
                finally:
                    wait(others)  # even if one has failed: they read memory of the caller's
                return [first, *(other.result() for other in others)]
        finally:
            torch.set_num_threads(before)

    def dismiss(self) -> None:
        self._helpers.shutdown(wait=False)


def _keep_to_itself() -> None:
    """What is each thread's own affair, all four."""
    np.seterr(all="ignore")  # as in `unwarned`
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.set_grad_enabled(False)


_crews: list[Crew] = []  # the innermost of those asked for is at work


@contextmanager
def crew_of(size: int, *, large_by_numpy: bool) -> Iterator[None]:
    """Have `shared_map` use so many threads; within it large products are numpy's where that is said to be faster."""
    crew = Crew(size, large_by_numpy=large_by_numpy)
    _crews.append(crew)
    try:
        yield
    finally:
        _crews.remove(crew)
        crew.dismiss()


def shared_map(function: Callable[[Item], Result], items: Sequence[Item], *, device: torch.device) -> list[Result]:
    """The function's result for each item, in their order, where it computes on `device`.

    It is called outside of autograd, in whichever thread, and does not call `shared_map` itself.
    """
    size = min(_crews[-1].size, len(items)) if _crews and device.type == "cpu" else 1
    if size < 2:
        return [function(item) for item in items]
    waiting: SimpleQueue[int] = SimpleQueue()
    for i in range(len(items)):
        waiting.put(i)
    results: dict[int, Result] = {}

    def take_parts() -> None:
        """Whoever is free takes the next: cores that others use as well are not equally fast."""
        while True:
            try:
                i = waiting.get_nowait()
            except Empty:
                return
            results[i] = function(items[i])

    _crews[-1].do([take_parts] * size)
    return [results[i] for i in range(len(items))]
