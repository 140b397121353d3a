"""Which checkpoint somebody means: by a file, a run directory or its folder of checkpoints."""

from __future__ import annotations

import logging
import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from rl_training.errors import CheckpointError, did_you_mean
from rl_training.experiment.checkpoint import verify_checkpoint
from rl_training.experiment.files import reason

logger = logging.getLogger(__name__)

T = TypeVar("T")
LOOKS = 10  # at a run that writes checkpoints and deletes them meanwhile
RUN_FILES = ("config.yaml", "metadata.json", "metrics.jsonl")
_STEP_FILE = re.compile(r"step_(\d{9,})\.safetensors")


def latest_good_checkpoint(run_dir: str | Path, *, parts: Iterable[str] | None = None) -> tuple[Path, list[str]]:
    """The newest checkpoint that verifies, and a line about each newer one that does not."""
    folder = _checkpoint_folder(Path(run_dir))
    parts = None if parts is None else tuple(parts)
    for _ in range(LOOKS):
        skipped: list[str] = []
        for path in step_files(folder):
            error = _damage(path, parts)
            if error is None:
                return path, skipped
            if not path.exists():
                break  # a run that goes on has just deleted it, and written a newer one before
            skipped.append(str(error))
        else:
            break
    if skipped:
        raise CheckpointError(f"{folder}: none of its {len(skipped)} checkpoints can be read:\n  " + "\n  ".join(skipped))
    raise CheckpointError(f"{folder}: there is no checkpoint in it{_begin_again(folder.parent / 'config.yaml')}")


def resolve_checkpoint(path: str | Path, *, parts: Iterable[str] | None = None) -> Path:
    """The checkpoint meant by a file, a run directory or its `checkpoints` folder; `parts` of it have been verified."""
    path = Path(path)
    parts = None if parts is None else tuple(parts)
    if path.is_dir():
        found, skipped = latest_good_checkpoint(path, parts=parts)
        for line in skipped:
            logger.warning("skipped, an older checkpoint is used: %s", line)
        return found
    if not path.exists():
        raise CheckpointError(f"{path}: there is no such file or folder{_near(path)}")
    error = _damage(path, parts)
    if error is not None:
        good = next((other for other in step_files(path.parent) if _damage(other, parts) is None), None)
        raise CheckpointError(f"{error}. The newest good checkpoint beside it: {good}" if good else f"{error}{_instead(path)}")
    return path


def read_newest(path: str | Path, read: Callable[[Path], T], *, parts: Iterable[str] | None = None) -> tuple[Path, T]:
    """The checkpoint meant by `path`, and what `read` makes of it; one that a training run deletes just then gives way to the
    newest that is there now."""
    parts = None if parts is None else tuple(parts)
    for _ in range(LOOKS - 1):
        file = resolve_checkpoint(path, parts=parts)
        try:
            return file, read(file)
        except CheckpointError:
            if file.exists():
                raise
    file = resolve_checkpoint(path, parts=parts)
    return file, read(file)


def run_directory_of(checkpoint: str | Path) -> Path | None:
    """The run a checkpoint file lies in; None for one that was copied elsewhere."""
    folder = Path(checkpoint).absolute().parent
    return folder.parent if folder.name == "checkpoints" and is_run_directory(folder.parent) else None


def is_run_directory(folder: Path) -> bool:
    """Also if one of its files was lost."""
    return any((folder / name).is_file() for name in RUN_FILES)


def _damage(path: Path, parts: tuple[str, ...] | None) -> CheckpointError | None:
    try:
        verify_checkpoint(path, parts=parts)
    except CheckpointError as error:
        return error
    return None


def step_of(path: Path) -> int:
    """The step in a checkpoint's name; -1 for any other file."""
    match = _STEP_FILE.fullmatch(path.name)
    return int(match[1]) if match else -1


def step_files(folder: Path) -> list[Path]:
    """The checkpoints in a folder, newest first; the best policy is not among them."""
    try:
        return sorted((path for path in folder.iterdir() if step_of(path) >= 0), key=step_of, reverse=True)
    except OSError as error:
        raise CheckpointError(f"{folder}: cannot be read: {reason(error)}") from error


def _checkpoint_folder(directory: Path) -> Path:
    if (directory / "checkpoints").is_dir():
        return directory / "checkpoints"
    if not directory.is_dir():
        raise CheckpointError(f"{directory}: there is no such folder{_near(directory)}")
    if directory.name != "checkpoints" and not step_files(directory):
        runs = sorted(path.parent.name for path in directory.glob("*/checkpoints"))
        known = f"; it holds the runs {', '.join(runs[:10])}" if runs else ""
        raise CheckpointError(f"{directory}: is neither a run directory nor a folder of checkpoints{known}")
    return directory


def _begin_again(config: Path) -> str:
    """A clause for a run that ended before its first checkpoint: begun anew it gives the same numbers."""
    suffix = config.parent.name.rpartition("__")[2]
    command = f"rl-training train --config {shlex.quote(str(config))} --run-suffix {shlex.quote(suffix)}"
    return f"; begin again with: {command}" if config.is_file() else ""


def _instead(path: Path) -> str:
    """A clause on what was probably meant by a file that is no checkpoint."""
    if (path.parent / "checkpoints").is_dir():
        return f"; give the run directory, {path.parent}, or a file below its checkpoints/"
    is_config = path.suffix in (".yaml", ".yml")
    return f"; begin a run with: rl-training train --config {shlex.quote(str(path))}" if is_config else ""


def _near(path: Path) -> str:
    """A clause on what there is instead."""
    parent = next((folder for folder in path.parents if folder.is_dir()), Path())
    try:
        entries = sorted(parent.iterdir())
    except OSError:
        return ""
    names = [entry.name for entry in entries if entry.suffix == ".safetensors" or (entry / "checkpoints").is_dir()]
    return f"; in {parent}{did_you_mean(path.name, names[-10:])}" if names else ""
