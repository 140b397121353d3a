"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

PARTIAL_SUFFIX = ".partial"


@contextmanager
def replacing(path: Path) -> Iterator[FileIO]:
    """A file to write into that takes the place of `path` at the end, or vanishes if anything goes wrong before."""
    partial = path.with_name(f"{path.name}.{os.getpid()}{PARTIAL_SUFFIX}")
    try:
        with FileIO(partial, "w") as file:
            yield file
            os.fsync(file.fileno())  # the bytes are on the disk before the name points to them
        partial.replace(path)
    except BaseException:  # a Ctrl-C leaves no rubbish behind either
        with suppress(OSError):  # the first error is the one to tell
            partial.unlink()
        raise
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


def write_text(path: Path, text: str) -> None:
    """Replace a small text file in one step."""
    with replacing(path) as file:
        write_all(file, text.encode())


def reason(error: Exception) -> str:
    """What the system says went wrong, without the path that the message names anyway."""
    return getattr(error, "strerror", None) or str(error)
