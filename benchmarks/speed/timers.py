"""Timers that exclude each other: a moment counts for the innermost timed call alone."""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

REST = "the rest"


class Timed(NamedTuple):
    """A function that is looked up as `owner.name` by those who call it, and the part that it belongs to.

    What is called within a `whole` one counts for it as well, whatever it is.
    """

    owner: Any
    name: str
    part: str
    whole: bool = False


class Timers:
    """Puts timers around functions and takes them off again; by the main thread's processor time."""

    def __init__(self, functions: list[Timed]) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.entries: Counter[tuple[str, str]] = Counter()  # from one part into another
        self._part, self._closed, self._since = REST, False, 0.0
        bare = [vars(timed.owner)[timed.name] for timed in functions]
        around = [self._around(function, t.part, whole=t.whole) for t, function in zip(functions, bare, strict=True)]
        self._sites = [(t.owner, t.name, *pair) for t, *pair in zip(functions, bare, around, strict=True)]

    def start(self) -> None:
        for owner, name, _, timed in self._sites:
            setattr(owner, name, timed)
        self._since = time.thread_time()

    def stop(self) -> None:
        self.seconds[REST] += time.thread_time() - self._since
        for owner, name, bare, _ in self._sites:
            setattr(owner, name, bare)

    def own_seconds(self) -> dict[str, float]:
        """What of each part's seconds the timers took themselves, by what they take around an empty function."""
        before, within = overhead()
        own: defaultdict[str, float] = defaultdict(float)
        for (outer, inner), count in self.entries.items():
            own[outer] += before * count
            own[inner] += within * count
        return own

    def _around(self, function: Callable[..., Any], part: str, *, whole: bool) -> Callable[..., Any]:
        clock, seconds, entries = time.thread_time, self.seconds, self.entries

        def timed(*args: Any, **kwargs: Any) -> Any:
            outer = self._part
            if self._closed or outer == part:
                return function(*args, **kwargs)
            entries[outer, part] += 1
            self._part, self._closed = part, whole
            now = clock()
            seconds[outer] += now - self._since
            self._since = now
            try:
                return function(*args, **kwargs)
            finally:
                now = clock()
                seconds[part] += now - self._since
                self._since = now
                self._part, self._closed = outer, False

        return timed


class _Empty:
    @staticmethod
    def call(x: object, y: object) -> None: ...


def overhead(*, calls: int = 5_000, repeats: int = 7) -> tuple[float, float]:
    """Seconds that one timed call adds to the part it is made from, and to its own: of a few loops, the medians."""

    def loop() -> float:
        began = time.thread_time()
        for _ in range(calls):
            _Empty.call(1, 2)
        return time.thread_time() - began

    before, within = [], []
    for _ in range(repeats):
        bare, timers = loop(), Timers([Timed(_Empty, "call", "empty")])
        timers.start()
        with_timers = loop()
        timers.stop()
        within.append(timers.seconds["empty"] / calls)
        before.append((with_timers - bare) / calls - within[-1])
    return statistics.median(before), statistics.median(within)
