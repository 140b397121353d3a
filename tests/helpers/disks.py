"""Small disks that really fill up. They need the right to mount; without it, tests that want one are skipped and say so."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class Disk:
    """A mounted tmpfs."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self) -> None:
        """To the last byte."""
        with (self.path / "filler").open("wb", buffering=0) as file:
            try:
                while file.write(b"\0" * 4096):
                    pass
            except OSError:
                return

    def remount(self, options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", str(self.path)], check=True)


@contextmanager
def small_disk(folder: Path, *, size: str) -> Iterator[Disk]:
    """A file system of its own with `size` bytes (as `300k`)."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False)
    except OSError as error:
        pytest.skip(f"NOT TESTED, a small disk could not be mounted: {error}")
    if mounted.returncode != 0:
        pytest.skip(f"NOT TESTED, a small disk could not be mounted (root may): {mounted.stderr.decode().strip()}")
    try:
        yield Disk(folder)
    finally:
        os.chdir(Path(__file__).parent)
        subprocess.run(["umount", str(folder)], check=True)
