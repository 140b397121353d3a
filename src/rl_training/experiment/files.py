"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from itertools import count
from pathlib import Path
from threading import Thread
from types import TracebackType

PARTIAL_SUFFIX = ".partial"


class Replacement:
    """A file written beside `path` that takes its place when it is told to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._partial = path.with_name(f"{path.name}.{os.getpid()}{PARTIAL_SUFFIX}")
        self.file = FileIO(self._partial, "w")

    def sync(self) -> None:
        """Have the bytes on the disk: they must be there before the name points to them."""
        os.fsync(self.file.fileno())

    def take_place(self) -> None:
        """A power failure may still bring back what had the name before, until the directory is synced too."""
        self.file.close()
        self._partial.replace(self.path)

    def __enter__(self) -> Replacement:
        """For any part of the work on it: if that fails, or a Ctrl-C comes, no rubbish is left behind."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            self.file.close()
            with suppress(OSError):  # the first error is the one to tell
                self._partial.unlink()


@contextmanager
def replacing(path: Path) -> Iterator[FileIO]:
    """A file to write into that takes the place of `path` at the end, or vanishes if anything goes wrong before."""
    with Replacement(path) as replacement:
        yield replacement.file
        replacement.sync()
        replacement.take_place()
    sync_directory(path.parent)


def write_all(file: FileIO, data: bytes | memoryview) -> None:
    """Write straight from the memory given; the system may take less than asked for in one call (2 GB on Linux)."""
    rest = memoryview(data)
    while rest.nbytes:
        rest = rest[file.write(rest) :]


def sync_directory(directory: Path) -> None:
    """Make names in it last through a power failure."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot do it
            raise
    finally:
        os.close(handle)


def settle(folder: Path, superseded: Iterable[Path]) -> None:
    """Have the newest name last, and only then drop the old ones. Failing to remove a file is no reason to stop a run."""
    sync_directory(folder)
    for path in superseded:
        with suppress(OSError):
            path.unlink()


class Errand:
    """Work for the disk that a thread does while its owner goes on; one at a time, and what fails is told at the next."""

    def __init__(self) -> None:
        self._thread: Thread | None = None
        self._error: Exception | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Wait for the one before, then begin."""
        self.wait()
        self._thread = Thread(target=self._do, args=(work,), name="rl_training errand")
        self._thread.start()

    def wait(self) -> None:
        """Until nothing is under way; raises what went wrong, once."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 (told by `wait`)
            self._error = error


def free_name(path: Path, word: str) -> Path:
    """A name beside `path` that nothing has yet: PATH.WORD-1, or the first number that is free."""
    return next(other for number in count(1) if not (other := path.with_name(f"{path.name}.{word}-{number}")).exists())


def write_text(path: Path, text: str) -> None:
    """Replace a small text file in one step."""
    with replacing(path) as file:
        write_all(file, text.encode())


def at_home(path: str | Path) -> Path:
    """The path, a leading ~ being the user's home: in a config file no shell has seen to that."""
    try:
        return Path(path).expanduser()
    except RuntimeError:  # nobody of that name
        return Path(path)


def reason(error: Exception) -> str:
    """What the system says went wrong, without the path that the message names anyway."""
    return getattr(error, "strerror", None) or str(error)
