"""The standard streams, in whatever state somebody left them: closed, on a full disk, with few letters in their encoding."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TextIO

STREAMS = ("stdin", "stdout", "stderr")  # by their numbers
_lost: set[str] = set()


def prepare_streams() -> None:
    """Have all three. The number of one that was closed (`>&-`) would be that of the next file that is opened, and whatever a
    library prints would go into that. A terminal without UTF-8 shows question marks in place of an error."""
    _lost.clear()
    for number, name in enumerate(STREAMS):
        try:
            os.fstat(number)
        except OSError:
            _to_nowhere(number)
        if getattr(sys, name) is None:
            nowhere = Path(os.devnull).open("r" if name == "stdin" else "w", encoding="utf-8")  # noqa: SIM115 (for good)
            setattr(sys, name, nowhere)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None and (stream.encoding or "").lower().replace("-", "") != "utf8":
            reconfigure(errors="replace")


def write(text: str, stream: TextIO) -> None:
    """At once. Where the disk is full, say, the rest goes to nowhere: that is told once, and is no reason to end a training."""
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:  # nobody reads, which is not told to nobody
        raise
    except OSError as error:
        drop(stream)
        if stream is sys.stdout:
            _lost.add("stdout")
            first = text.strip().partition("\n")[0]
            write(f"warning: stdout cannot be written: {error.strerror}; the first that is lost: {first}\n", sys.stderr)


def output_is_lost() -> bool:
    """Whether something could not be told on stdout."""
    return "stdout" in _lost


def drop(stream: TextIO) -> None:
    """Send the rest to nowhere, or python would complain about it when it flushes at its end."""
    _to_nowhere(stream.fileno())
    with suppress(OSError):
        stream.flush()


def _to_nowhere(number: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    if null != number:  # it is, where `number` was the lowest that is free
        os.dup2(null, number)
        os.close(null)
