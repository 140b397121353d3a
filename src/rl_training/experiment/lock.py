"""One process at a time works in a run directory."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import socket
import weakref
from pathlib import Path
from types import TracebackType

from rl_training.errors import RLTrainingError, RunBusyError
from rl_training.experiment.files import plain, reason

logger = logging.getLogger(__name__)
_held: weakref.WeakSet[RunLock] = weakref.WeakSet()


class RunLock:
    """Held from construction until `release`; the system frees it when the process dies, however it dies.

    The file stays: removing it would let two processes hold locks on two files of the same name.
    """

    def __init__(self, run_dir: str | Path) -> None:
        self.path = Path(run_dir) / ".lock"
        self._handle: int | None = None
        try:
            handle = plain(str(self.path), os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise RLTrainingError(f"{run_dir}: cannot be worked in: {reason(error)}") from error
        try:
            self._lock(handle)
            os.ftruncate(handle, 0)
            os.pwrite(handle, _signature().encode(), 0)
        except BaseException as error:
            os.close(handle)
            if isinstance(error, OSError):
                raise RLTrainingError(f"{run_dir}: cannot be worked in: {reason(error)}") from error
            raise
        self._handle = handle
        _held.add(self)

    def _lock(self, handle: int) -> None:
        try:
            # flock and not lockf: it belongs to this open file, so the same process cannot take it twice either
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(handle, 200, 0).decode(errors="replace").strip() or "another process"
            holder += " (this very process)" if holder == _signature() else ""
            raise RunBusyError(
                f"{self.path.parent}: in use by {holder}. Wait until that ends or stop it; "
                "or begin a new run directory with another run suffix or output_dir"
            ) from error
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                raise RLTrainingError(f"{self.path}: cannot be locked: {reason(error)}") from error
            logger.warning("%s: this file system has no locks; see to it that only one process works here", self.path.parent)

    @property
    def in_place(self) -> bool:
        """Whether the locked file is still the one in the directory; false once that was removed or made anew."""
        if self._handle is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._handle), self.path.lstat())
        except OSError:
            return False

    def release(self) -> None:
        """Free it; a second call does nothing."""
        handle, self._handle = self._handle, None
        if handle is not None:
            fcntl.flock(handle, fcntl.LOCK_UN)  # closing would not do if a child still has the handle
            os.close(handle)

    def __del__(self) -> None:
        self.release()

    def __enter__(self) -> RunLock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()

    def _forget(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)


def is_locked(run_dir: str | Path) -> bool:
    """Whether a process on this machine works in a run directory now, found out without touching its lock.

    Taking the lock for a moment would tell more surely, and would refuse a training that begins in that very moment.
    """
    try:
        inode = (Path(run_dir) / ".lock").lstat().st_ino
        lines = Path("/proc/locks").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    return any("FLOCK" in line and f":{inode} " in line for line in lines)


def _signature() -> str:
    return f"process {os.getpid()} on host {socket.gethostname()}"


def _leave_to_parent() -> None:
    for lock in list(_held):
        lock._forget()


# an environment worker that outlives its killed parent must not keep the lock that it inherited
os.register_at_fork(after_in_child=_leave_to_parent)
