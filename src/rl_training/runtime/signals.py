"""Ending a run by a signal without losing a step."""

from __future__ import annotations

import logging
import shlex
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from rl_training.errors import TrainingInterrupted
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.trust import needs_trust
from rl_training.types import TrainResult

log = logging.getLogger(__name__)


class Abandoned(KeyboardInterrupt):
    """A signal came while something was under way of which nothing counts before it is done."""


class StopSignals:
    """Within it, SIGINT and SIGTERM are only noted in `received`; a second SIGINT leaves at once.

    Signals belong to the main thread; in any other this does nothing.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._breaking = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def breaking(self) -> Iterator[None]:
        """In here a signal is not only noted: what is under way may last for ever, so it is left by `Abandoned`."""
        if self.received is not None:
            raise Abandoned
        self._breaking = True
        try:
            yield
        finally:
            self._breaking = False

    def heed(self) -> None:
        """Leave by `Abandoned` if a signal has come; for what can be left at some places only."""
        if self.received is not None:
            raise Abandoned

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = self.received or number
        if self._breaking:
            log.warning("%s: leaving what is under way and saving what was before it", signal.Signals(number).name)
            raise Abandoned
        log.warning("%s: finishing the turn and saving; Ctrl-C again leaves at once", signal.Signals(number).name)


def interruption(
    signum: int, result: TrainResult, config: TrainConfig, *, made_on: Sequence[str] | None
) -> TrainingInterrupted:
    """What ends a run that is saved, with the way to go on; by command only where an id says what the environment is."""
    trusted = needs_trust(config, result.run_dir)  # as whoever goes on will be asked again
    command = f"rl-training resume --checkpoint {shlex.quote(str(result.run_dir))}{' --trust' if trusted else ''}"
    if made_on is not None:
        again = ", trust=True" if trusted else ""
        command = f"rl_training.runtime.workflows.resume_training({str(result.run_dir)!r}, env=...{again})"
    message = f"interrupted at step {result.metrics['global_step']}; everything is saved. Go on with:\n  {command}"
    return TrainingInterrupted(message, signum=signum, result=result)
