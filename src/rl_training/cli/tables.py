"""What a person reads: plain text, with a little emphasis on a terminal. Nothing else in the library prints."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

from rl_training.errors import readable

if TYPE_CHECKING:
    from rich.console import Console

MOST_TEXT = 20_000  # characters of one message
PIPED_WIDTH = 160  # a file has no width; wide enough that hardly anything wraps


def say(text: str = "") -> None:
    """One line (or several) on stdout, at once and exactly as given."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def say_error(message: str, *, label: str = "error") -> None:
    """A block on stderr."""
    marked = emphasis(f"{label}:", "1;31", sys.stderr) + " " if label else ""
    sys.stderr.write(f"{marked}{readable(message, most=MOST_TEXT)}\n")
    sys.stderr.flush()


def is_terminal(stream: TextIO | None = None) -> bool:
    """Whether a person looks at it, and on something that understands more than text."""
    stream = sys.stdout if stream is None else stream
    return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


def emphasis(text: str, code: str = "1", stream: TextIO | None = None) -> str:
    """Bold or coloured where that can be seen and is wanted (see no-color.org)."""
    return f"\x1b[{code}m{text}\x1b[0m" if is_terminal(stream) and not os.environ.get("NO_COLOR") else text


def heading(text: str) -> None:
    say(emphasis(readable(text)))


def facts(rows: Iterable[tuple[str, str]]) -> None:
    """Label and value, one pair per line, never wrapped: paths and commands stay whole."""
    pairs = list(rows)
    width = max((len(label) for label, _ in pairs), default=0)
    for label, value in pairs:
        first, *rest = readable(value, most=MOST_TEXT).splitlines() or [""]
        say(f"  {emphasis(f'{label:<{width}}')}  {first}")
        for line in rest:
            say(f"  {'':<{width}}  {line}")


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns that wrap within the terminal's width."""
    from rich.table import Table
    from rich.text import Text

    shape = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, header in enumerate(headers):
        shape.add_column(header, overflow="fold", no_wrap=number == 0)
    for row in rows:
        shape.add_row(*(Text(readable(cell), style="cyan" if number == 0 else "") for number, cell in enumerate(row)))
    console = make_console(margin=2)
    with console.capture() as captured:
        console.print(shape)
    say("\n".join(f"  {line.rstrip()}".rstrip() for line in captured.get().splitlines()))


def make_console(*, margin: int = 0) -> Console:
    """Rich on stdout; it honours NO_COLOR itself."""
    from rich.console import Console

    terminal = is_terminal()
    width = shutil.get_terminal_size().columns - margin if terminal and margin else None if terminal else PIPED_WIDTH
    return Console(force_terminal=terminal, width=width, highlight=False, markup=False, emoji=False)


def survive_any_encoding() -> None:
    """A terminal without UTF-8 shows question marks in place of an error."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None and (stream.encoding or "").lower().replace("-", "") != "utf8":
            reconfigure(errors="replace")
