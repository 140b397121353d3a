"""How a worker process is begun: clean where it can be, as a fork of this one where it must."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import platform
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy as np

from rl_training.errors import EnvError

PLAIN = (type(None), bool, int, float, complex, bytes, np.generic, Path)


def start_method(recipe: Any, name: str) -> str:
    """The start method that can bring `recipe` to a worker."""
    if travels(recipe):
        # not fork: it copies locks and threads (torch's) in whatever state they are, and keeps a run directory's lock alive;
        # not forkserver: it saves about 0.1 s of a start, but leaves its socket behind when this process is killed
        return "spawn"
    if "fork" in multiprocessing.get_all_start_methods():
        return "fork"
    raise EnvError(f"{name} cannot be sent to a worker process; define its factory in a module, at the top level")


def start(process: Any, *, method: str) -> None:
    """Start it without running the user's script again, and without python 3.12's warning about threads and forks."""
    with _without_main() if method != "fork" else warnings.catch_warnings():
        if method == "fork":
            warnings.simplefilter("ignore", DeprecationWarning)  # a worker calls nothing but its environments
        process.start()


def travels(value: Any) -> bool:
    """Whether a clean process can be given `value`: plain data, and what can be imported by name."""
    if isinstance(value, type | FunctionType | BuiltinFunctionType):
        return _importable(value)
    if isinstance(value, partial):
        return travels((value.func, value.args, value.keywords))
    if isinstance(value, str):
        return not value.startswith("__main__:")  # an entry point
    if isinstance(value, dict):
        return all(map(travels, value.items()))
    if isinstance(value, list | tuple | set | frozenset):
        parts: Any = value
    elif is_dataclass(value):
        parts = [getattr(value, field.name) for field in fields(value)]
    else:
        return isinstance(value, PLAIN) or (isinstance(value, np.ndarray) and not value.dtype.hasobject)
    return _importable(type(value)) and all(map(travels, parts))


def flushes_denormals() -> bool:
    """Whether this thread takes numbers too small for full precision for 0, as training does."""
    return bool(np.multiply(np.float64(1e-310), 1.0) == 0.0)


def flush_denormals() -> None:
    """Take them for 0 in this thread, as the parent does, or simulators would compute other numbers here.

    Torch can do it, but importing torch takes a second and 200 MB of every worker. So the processor's control word is
    changed through the C library, where its place in `fenv_t` is known.
    """
    if platform.machine() != "x86_64" or platform.libc_ver()[0] != "glibc":
        import torch

        torch.set_flush_denormal(True)
        return
    library = ctypes.CDLL("libm.so.6")
    words = (ctypes.c_uint32 * 8)()
    library.fegetenv(words)
    words[7] |= 0x8040  # mxcsr: denormal results and denormal operands are 0
    library.fesetenv(words)


def num_processors() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def exit_text(code: int | None) -> str:
    """How a process ended, in words."""
    return f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"


def _importable(value: Any) -> bool:
    found: Any = sys.modules.get(value.__module__ or "")
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value and value.__module__ != "__main__"


@contextmanager
def _without_main() -> Iterator[None]:
    # what travels needs nothing of the user's script, so the script need not guard itself against being run in the worker
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
