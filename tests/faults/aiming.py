"""SIGKILL at a chosen instant of the writing of a checkpoint. The process sends it to itself: nobody else could aim so well."""

from __future__ import annotations

import os
import signal
from io import FileIO
from pathlib import Path

from rl_training.experiment import checkpoint, checkpoint_file, files

POINTS = ("byte", "written", "synced", "renamed")  # after which part of the work


def aim_into_write(*, save: int, point: str, byte: int = 0) -> None:
    """Die in the `save`-th write (from 0) of a checkpoint file: after `byte` bytes, or after one of the later `POINTS`."""
    assert point in POINTS
    seen = {"save": -1, "position": 0, "open": False}
    write_all, fsync, sync_directory = checkpoint_file.write_all, os.fsync, files.sync_directory

    def aimed(at: str) -> bool:
        return seen["open"] and seen["save"] == save and point == at

    def dying_write(file: FileIO, data: bytes | memoryview) -> None:
        if not file.tell():
            seen.update(save=seen["save"] + 1, position=0, open=True)
        rest = byte - seen["position"]
        if aimed("byte") and rest < memoryview(data).nbytes:
            write_all(file, memoryview(data).cast("B")[:rest])
            _die()
        write_all(file, data)
        seen["position"] += memoryview(data).nbytes

    def dying_sync(handle: int) -> None:
        if aimed("written") or aimed("byte"):  # a file shorter than `byte` ends here
            _die()
        fsync(handle)
        if aimed("synced"):
            _die()

    def dying_sync_directory(directory: Path) -> None:
        if aimed("renamed"):
            _die()
        seen["open"] = False
        sync_directory(directory)

    checkpoint_file.write_all = dying_write
    files.os.fsync = dying_sync
    files.sync_directory = checkpoint.sync_directory = dying_sync_directory


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
