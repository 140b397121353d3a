"""The command line. Importing it imports nothing heavy; a command is imported when it is used."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from rl_training.experiment.config import TrainConfig

__all__ = ["load_config", "main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit code (0 done, 1 failure, 2 bad input, 3 run directory busy, 130/143 interrupted)."""
    from rl_training.cli.exits import run_command

    return run_command(sys.argv[1:] if argv is None else argv)


def load_config(path: str | Path) -> TrainConfig:
    """The checked configuration in a YAML file or in a preset (`ppo/cartpole`)."""
    from rl_training.experiment.yaml_loader import load_config_file

    return load_config_file(path)
