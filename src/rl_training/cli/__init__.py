"""The command line. Importing it imports nothing heavy; a command is imported when it is used."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rl_training.experiment.config import TrainConfig

__all__ = ["load_config", "main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit code (0 done, 1 failure, 2 bad input, 3 run directory busy, 129/130/143 interrupted)."""
    from rl_training.cli.exits import run_command

    with current_folder_imported():
        return run_command(sys.argv[1:] if argv is None else argv)


@contextmanager
def current_folder_imported() -> Iterator[None]:
    """Find modules in the current folder, as `python -m` does, so that env_id=module:Name-v0 can name a file beside you."""
    folder = _current_folder()
    if folder is None or getattr(sys.flags, "safe_path", False) or {"", folder} & set(sys.path):
        yield
        return
    sys.path.append(folder)  # last, or a file called like an installed module would be taken for it
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def _current_folder() -> str | None:
    try:
        return str(Path.cwd())
    except OSError:  # it was removed
        return None


def load_config(path: str | Path) -> TrainConfig:
    """The checked configuration in a YAML file or in a preset (`ppo/cartpole`)."""
    from rl_training.experiment.yaml_loader import load_config_file

    return load_config_file(path)
