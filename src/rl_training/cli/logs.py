"""Log records and warnings as one line each on stderr."""

from __future__ import annotations

import logging
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from rl_training.errors import readable


class _StderrHandler(logging.Handler):
    """Asks for stderr at each record, since a live progress bar puts itself in between."""

    def __init__(self, *, verbose: bool) -> None:
        super().__init__()
        self.verbose = verbose

    def format(self, record: logging.LogRecord) -> str:
        text = readable(super().format(record))
        level = record.levelname.lower()
        if not self.verbose:
            return f"{level}: {text}"
        return f"{time.strftime('%H:%M:%S', time.localtime(record.created))} {level} {record.name}: {text}"

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(f"{self.format(record)}\n")
            sys.stderr.flush()
        except Exception:  # noqa: BLE001 (as every handler: a message that cannot be told must not end a training)
            self.handleError(record)


@contextmanager
def logging_to_stderr(*, verbose: bool) -> Iterator[None]:
    """WARNING and above, INFO of this library too with `verbose`; all put back afterwards, for `main` is also a function."""
    library, root, handler = logging.getLogger("rl_training"), logging.getLogger(), _StderrHandler(verbose=verbose)
    level, show = library.level, warnings.showwarning
    root.addHandler(handler)
    library.setLevel(logging.INFO if verbose else logging.WARNING)
    warnings.showwarning = lambda message, *_args, **_rest: logging.getLogger("warnings").warning("%s", message)
    try:
        yield
    finally:
        warnings.showwarning = show
        library.setLevel(level)
        root.removeHandler(handler)
