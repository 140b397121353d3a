"""Around code that is not ours: whatever an environment raises or changes stays its own affair."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import gymnasium as gym

from rl_training.errors import EnvError, RLTrainingError, words_of

log = logging.getLogger(__name__)


def close_env(env: gym.Env[Any, Any]) -> None:
    """Close it; if it cannot be closed, others still can, and whatever went before matters more."""
    try:
        env.close()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 (it may be anything)
        log.warning("%s: close raised %s", type(env.unwrapped).__name__, words_of(error))


@contextmanager
def folder_kept() -> Iterator[None]:
    """Wherever an environment changes to in here (`os.chdir`), afterwards the current folder is the one it was."""
    try:
        before = Path.cwd()
    except OSError:  # it was removed: there is nothing to come back to
        yield
        return
    try:
        yield
    finally:
        with suppress(OSError):
            os.chdir(before)


@contextmanager
def as_env_error(what: str) -> Iterator[None]:
    """Within it runs code that is not ours. Whatever it raises is told as an error of the environment, sys.exit() too, which
    would otherwise end a training as if all were well. Ctrl-C is nobody's fault."""
    try:
        yield
    except (RLTrainingError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise EnvError(f"{what}: {words_of(error)}") from error


def is_registered(env_id: str | None) -> bool:
    """Whether making it imports nothing but what registered it: no id of the form `module:Id`, which imports the module."""
    return env_id is not None and ":" not in env_id and env_id in gym.registry
