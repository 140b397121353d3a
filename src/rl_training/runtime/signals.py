"""Ending a run by a signal without losing a step."""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType
from typing import Any

log = logging.getLogger(__name__)


class StopSignals:
    """Within it, SIGINT and SIGTERM are only noted in `received`; a second SIGINT leaves at once.

    Signals belong to the main thread; in any other this does nothing.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = self.received or number
        log.warning("%s: finishing the turn and saving; Ctrl-C again leaves at once", signal.Signals(number).name)
