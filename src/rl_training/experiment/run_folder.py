"""Where runs lie, and what a run's directory is called."""

from __future__ import annotations

import logging
import re
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from rl_training.errors import ConfigError
from rl_training.experiment.files import PARTIAL_SUFFIX, at_home, free_name, reason
from rl_training.experiment.locate import is_run_directory
from rl_training.experiment.lock import RunLock

logger = logging.getLogger(__name__)


class RunConfig(Protocol):
    """What a run directory needs to know of a configuration."""

    @property
    def algo(self) -> str: ...
    @property
    def env_id(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def output_dir(self) -> str | Path: ...
    def to_yaml(self) -> str: ...
    def to_dict(self) -> dict[str, Any]: ...


def output_folder(config: RunConfig) -> Path:
    """Where a configuration's runs go, as a path that stays true wherever an environment changes to; ~ is the user's home."""
    try:
        return at_home(config.output_dir).absolute()
    except OSError as error:  # the current folder was removed
        raise ConfigError(f"output_dir {str(config.output_dir)!r}: {reason(error)}") from error


def make_directory(config: RunConfig, folder: Path, suffix: str | None) -> Path:
    """A new one in `folder`; one of the same name stands in its way unless its run never saved anything."""
    if suffix is not None and not re.fullmatch(r"[\w.-]{1,100}", suffix):
        raise ConfigError(f"run suffix {suffix!r}: takes up to 100 letters, digits, '.', '_' and '-'")
    # "ALE/Pong-v5" and "module:Env-v0" are no file names
    env_id = re.sub(r"[^A-Za-z0-9._-]+", "-", config.env_id)[:100]
    stem = f"{config.algo}__{env_id}__seed{config.seed}__"
    now = f"{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    for number in count(1):
        ending = suffix or (now if number == 1 else f"{now}-{number}")
        directory = folder / (stem + ending)
        try:
            directory.mkdir(parents=True)
        except FileExistsError as error:
            if suffix is not None and not _set_aside_unsaved(directory):
                raise ConfigError(
                    f"{directory}: exists and is never overwritten; resume it or give another run suffix"
                ) from error
        except OSError as error:
            raise ConfigError(
                f"output_dir {str(config.output_dir)!r}: {directory.name} cannot be made: {reason(error)}"
            ) from error
        else:
            return directory
    raise AssertionError("count ends never")


def _set_aside_unsaved(directory: Path) -> bool:
    """Whether a run directory was out of the way: that of a run which ended before its first checkpoint cannot be resumed."""
    saved = [path for path in (directory / "checkpoints").glob("*.safetensors*") if path.suffix != PARTIAL_SUFFIX]
    if saved or not is_run_directory(directory):
        return False
    with RunLock(directory):  # or another process is about to save its first
        aside = free_name(directory, "unsaved")
        directory.rename(aside)
    logger.warning("%s: ended before its first checkpoint; it is kept as %s, and the run begins anew", directory, aside.name)
    return True
