"""Every error this library raises on purpose: one family, so that one `except` is enough.

A message says what was given, what is possible and what to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

Raised = TypeVar("Raised", bound="RLTrainingError")


class RLTrainingError(Exception):
    """Base of the family."""

    checkpoint_path: Path | None = None  # from where the run that it ended can go on

    def resumable_from(self: Raised, path: Path | None) -> Raised:
        """The same error, knowing a checkpoint."""
        self.checkpoint_path = path
        return self


class ConfigError(RLTrainingError, ValueError):
    """A setting is unknown, of the wrong type, out of range, or contradicts another."""


class EnvError(RLTrainingError, RuntimeError):
    """An environment could not be made, raised, or returned something no environment should. What it says of that may be
    anything; here it is readable."""

    def __init__(self, message: object = "") -> None:
        super().__init__(readable(str(message)))


class UnsupportedSpace(EnvError, TypeError):  # noqa: N818 (the public name)
    """The environment works, but this algorithm cannot learn in its spaces."""


class DatasetError(RLTrainingError, ValueError):
    """Offline data cannot be used as it is."""


class CheckpointError(RLTrainingError, ValueError):
    """A checkpoint is missing, damaged, foreign or does not fit."""


class MisfitError(CheckpointError):
    """A checkpoint is sound, but not of what it is to be used for."""


class UntrustedError(CheckpointError):
    """A checkpoint names code to run, and nobody has answered for it."""


class RunBusyError(RLTrainingError, RuntimeError):
    """Another process is working in this run directory."""


class NumericsError(RLTrainingError, ArithmeticError):
    """Training produced a number that is not finite."""


class EnvNumericsError(EnvError, NumericsError):
    """An environment returned a number that is not finite."""


class MissingExtraError(RLTrainingError, ImportError):
    """An optional dependency is needed for what was asked."""

    def __init__(self, package: str, *, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package {package!r}; install it with: pip install 'rl-training[{extra}]'")


class TrainingInterrupted(KeyboardInterrupt):
    """A signal ended training after its current turn; everything up to there is saved.

    It derives from KeyboardInterrupt so that a notebook or script stops as after any Ctrl-C.
    """

    def __init__(self, message: str, *, signum: int, result: Any) -> None:
        super().__init__(message)
        self.signum = signum
        self.result = result


# what moves a terminal's cursor, colours, rings or hides rather than being read; line breaks and tabs are text
_UNREADABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def readable(text: str, *, most: int = 4_000) -> str:
    """Somebody else's text as people can read it: control characters by their numbers, and without the middle if it is long."""
    if len(text) > most:
        text = f"{text[: most // 2]} ... ({len(text):,} characters) ... {text[-most // 4 :]}"
    return _UNREADABLE.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that looks most like `name`, whatever its case, if any looks like it at all."""
    names = {other.lower(): other for other in known}
    matches = get_close_matches(name.lower(), names, n=1, cutoff=0.6)
    return names[matches[0]] if matches else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A clause to put behind an error message: the nearest known name, or all of them."""
    names = sorted(known)
    match = nearest(name, names)
    return f"; did you mean {match!r}?" if match else f"; there are: {', '.join(names)}"
