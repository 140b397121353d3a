"""Log records and warnings as one line each on stderr."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

FORMATS = {False: "%(levelname)s: %(message)s", True: "%(asctime)s %(levelname)s %(name)s: %(message)s"}


class _Lowercase(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        record.levelname = record.levelname.lower()
        return super().format(record)


class _StderrHandler(logging.StreamHandler[Any]):
    """Asks for stderr at each record, since a live progress bar puts itself in between."""

    def __init__(self, *, verbose: bool) -> None:
        logging.Handler.__init__(self)
        self.setFormatter(_Lowercase(FORMATS[verbose], datefmt="%H:%M:%S"))

    @property
    def stream(self) -> Any:
        return sys.stderr

    @stream.setter
    def stream(self, _: Any) -> None:
        raise AttributeError("it is always stderr")


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
