"""Files that are there whole or not at all, and that are what they seem: no link to elsewhere, no pipe."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, FileIO
from pathlib import Path
from threading import Thread
from types import TracebackType

from rl_training.errors import ConfigError

PARTIAL_SUFFIX = ".partial"
LINK = "is a symbolic link, and nothing is read or written through one in a run directory"


class Replacement:
    """A file written beside `path` that takes its place, and its mode, when it is told to. A link of that name gives way: what
    it leads to stays as it is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._partial = partial_name(path)
        self.file = FileIO(self._partial, "x")
        try:
            status = os.lstat(path)
            if stat.S_ISREG(status.st_mode):
                os.fchmod(self.file.fileno(), stat.S_IMODE(status.st_mode))
        except FileNotFoundError:
            pass
        except BaseException:
            self._leave()
            raise

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
            self._leave()

    def _leave(self) -> None:
        self.file.close()
        with suppress(OSError):  # the first error is the one to tell
            self._partial.unlink()


def partial_name(path: Path) -> Path:
    """A name beside `path` that nobody can have laid a link under."""
    return path.with_name(f"{path.name}.{secrets.token_hex(4)}{PARTIAL_SUFFIX}")


def plain(path: str, flags: int) -> int:
    """To open with (`opener=plain`) in a folder that may be a stranger's: OSError for a link, which would lead elsewhere, and
    for a pipe or a device, which might never answer."""
    try:
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, LINK, path) from None
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "is not a plain file", path)
    return handle


def open_plain(path: Path) -> BufferedReader:
    """To read a file that is one."""
    return BufferedReader(FileIO(path, "r", opener=plain))


def read_plain(path: Path) -> bytes:
    """All of it."""
    with open_plain(path) as file:
        return file.read()


def is_plain(path: Path) -> bool:
    """Whether it is a file that can be read at once, in the place where it is said to be."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return False


def no_link(path: Path) -> Path:
    """The same path; ConfigError where what is written there would land elsewhere."""
    if path.is_symlink():
        raise ConfigError(f"{path}: {LINK}; put there what it leads to, or name another place")
    return path


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


def write_text(path: Path, text: str) -> None:
    """Replace a small text file in one step."""
    with replacing(path) as file:
        write_all(file, text.encode())


def reason(error: Exception) -> str:
    """What the system says went wrong, without the path that the message names anyway."""
    return getattr(error, "strerror", None) or str(error)
