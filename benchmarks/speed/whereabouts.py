"""In whose machine code a process is: a signal at every tick of its processor time notes where the processor stands.

For x86-64 Linux with a C compiler. Ticks come every 4 ms or so whatever is asked for, as the kernel counts no finer. What
calls whom is not asked: a product that numpy hands on to OpenBLAS is OpenBLAS's.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MOST = 1_000_000  # samples
INTERVAL = 1_000  # microseconds that are asked for

SOURCE = r"""
#define _GNU_SOURCE
#include <signal.h>
#include <sys/time.h>
#include <ucontext.h>
static unsigned long *places, room, count;
static void look(int number, siginfo_t *info, void *context) {
    unsigned long at = __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
    if (at < room) places[at] = (unsigned long)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
}
void begin(unsigned long *memory, unsigned long size, long microseconds) {
    struct sigaction action = {.sa_sigaction = look, .sa_flags = SA_SIGINFO | SA_RESTART};
    struct itimerval every = {{0, microseconds}, {0, microseconds}};
    places = memory, room = size, count = 0;
    sigaction(SIGPROF, &action, 0);
    setitimer(ITIMER_PROF, &every, 0);
}
unsigned long end(void) {
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_PROF, &never, 0);
    return count < room ? count : room;
}
"""

# part of a library's path -> whose it is; the first that fits
OWNERS = (
    ("rl_training/kernels/c/", "our C"),
    ("libtorch_python", "Python"),  # reads arguments and makes objects
    ("/torch/", "torch"),
    ("numpy.libs", "BLAS"),  # with the Fortran library it is linked to
    ("openblas", "BLAS"),
    ("/numpy/", "numpy"),
    ("libm.so", "C's functions"),
    ("mujoco", "MuJoCo"),
    ("libffi", "Python"),  # ctypes calls our C with it
    ("libstdc++", "system"),  # torch and MuJoCo share it
    ("python", "Python"),
)
UNNAMED = "torch"  # machine code without a file: oneDNN writes its own
ELSEWHERE = "system"  # the C library: memory, copies, files; the kernel shows as the place that called it
MATHEMATICS = ("our C", "torch", "BLAS", "numpy", "C's functions")
KINDS = (*MATHEMATICS, "MuJoCo", "Python", ELSEWHERE)


def owner(path: str) -> str:
    if not path:
        return UNNAMED
    return next((whose for part, whose in OWNERS if part in path), ELSEWHERE)


class Whereabouts:
    """Counts samples by whose code they were in."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    @contextmanager
    def watched(self) -> Iterator[None]:
        with tempfile.TemporaryDirectory() as folder:
            source, made = Path(folder) / "look.c", Path(folder) / "look.so"
            source.write_text(SOURCE)
            subprocess.run(["cc", "-O2", "-shared", "-fPIC", str(source), "-o", str(made)], check=True)
            library = ctypes.CDLL(str(made))
        memory = (ctypes.c_ulong * MOST)()
        library.begin(memory, MOST, INTERVAL)
        try:
            yield
        finally:
            count = library.end()
            self._attribute(memory[:count])

    def shares(self) -> dict[str, Any]:
        total = self.counts.total()
        math = sum(self.counts[kind] for kind in MATHEMATICS)
        code = {kind: round(self.counts[kind] / total, 4) for kind in KINDS}
        return {"math": round(math / total, 4), "code": code, "samples": total}

    def _attribute(self, places: list[int]) -> None:
        begins, ends, owners = [], [], []
        for line in Path("/proc/self/maps").read_text().splitlines():
            span, permissions, _, _, _, *path = line.split(maxsplit=5)
            if "x" in permissions:
                begin, end = (int(word, 16) for word in span.split("-"))
                begins.append(begin)
                ends.append(end)
                owners.append(owner(path[0] if path else ""))
        for place in places:
            i = bisect_right(begins, place) - 1
            self.counts[owners[i] if i >= 0 and place < ends[i] else ELSEWHERE] += 1
