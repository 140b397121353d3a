"""How a worker process is begun: clean where it can be, as a fork of this one where it must."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import platform
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from functools import partial
from multiprocessing import connection, resource_tracker
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy as np

from rl_training.errors import EnvError

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # what asks a run to end; how to is for its main process to say
POLL_SECONDS = 0.005
PR_SET_PDEATHSIG = 1  # of <linux/prctl.h>
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
    """Start it without running the user's script again, and without python 3.12's warning about threads and forks.

    Ctrl-C on a terminal reaches every process, also one that does not know yet that this is not its business: so signals are
    held back from it until it does (`leave_signals_to_parent`).
    """
    if method != "fork":
        resource_tracker.ensure_running()  # a start does this, and lets signals through again
    with _without_main() if method != "fork" else warnings.catch_warnings():
        if method == "fork":
            warnings.simplefilter("ignore", DeprecationWarning)  # a worker calls nothing but its environments
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ended_within(process: Any, seconds: float) -> bool:
    """Whether it ends in so many seconds. The system is asked, for `join` also waits for the children of a process that has
    ended, where they have inherited its pipes."""
    deadline = time.monotonic() + seconds
    while process.exitcode is None:
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def leave_signals_to_parent() -> None:
    """In a group of its own, this process and what its environments start do not hear a terminal's Ctrl-C; a signal to this
    process alone does nothing. Its children are given back the usual ways, or an environment could not end its helpers."""
    with suppress(OSError):
        os.setpgid(0, 0)
    for number in ENDING:
        signal.signal(number, lambda *_: None)  # to ignore it would be for its children too, whatever they execute
        usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        os.register_at_fork(after_in_child=partial(signal.signal, number, usual))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)  # `start` holds them back


def kill(process: Any) -> None:
    """At once, with all that it has started and that stayed in its group."""
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()  # it may not have got as far as to have a group
    process.join()


def end_with_parent(*, by_kernel: bool) -> None:
    """Have this process die with the one that began it, whatever it is stuck in.

    On Linux the kernel sees to it (`by_kernel`), even where C code holds the interpreter's lock. It takes the end of the
    thread that began this process for the end of the parent, so that should be the main one; in other cases, and on other
    systems, a thread watches.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    if by_kernel and sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent.pid:  # it ended before
            os._exit(1)
    threading.Thread(target=_watch, args=(parent.sentinel,), daemon=True).start()


def _watch(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


def keep_to_itself(pipe: Any) -> None:
    """Have no child of this process hold the pipe open: its other end is to see when this process ends."""
    os.set_inheritable(pipe.fileno(), False)
    os.register_at_fork(after_in_child=pipe.close)


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
