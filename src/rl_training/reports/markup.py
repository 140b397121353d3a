"""HTML that cannot be broken into: every text is escaped unless it was made here."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(tag: str, *children: str | Iterable[str], **attributes: str | int | float | None) -> Markup:
    """`element("td", "a < b", class_="num")`; an attribute that is None is left out, children may come in lists."""
    named = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    inside = "".join(_escaped(child) for child in _flat(children))
    return Markup(f"<{tag}{named}>" if tag == "img" else f"<{tag}{named}>{inside}</{tag}>")


def breakable(text: str) -> Markup:
    """A long name that may go on in the next line after `=`, `/`, `,` and `__`, rather than in the middle of a word."""
    return Markup(re.sub(r"(?<=[=/,])(?=[^\s=/,])|(?<=__)(?=[^_])", "<wbr>", html.escape(text)))


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Iterable[int] = (), wrapped: Iterable[int] = ()
) -> Markup:
    """A table that scrolls on a narrow screen; the columns `numbers` stand to the right, the columns `wrapped` may break."""
    right, broken = set(numbers), set(wrapped)
    classes = ["num" if i in right else "wrap" if i in broken else None for i in range(len(header))]
    head = element("tr", [element("th", name, class_=classes[i]) for i, name in enumerate(header)])
    body = [
        element("tr", [element("td", _soft(cell) if i in broken else cell, class_=classes[i]) for i, cell in enumerate(row)])
        for row in rows
    ]
    return element("div", element("table", element("thead", head), element("tbody", body)), class_="scroll", tabindex=0)


def _soft(cell: str) -> str:
    return cell if isinstance(cell, Markup) else breakable(cell)


def _flat(children: Iterable[str | Iterable[str]]) -> Iterable[str]:
    for child in children:
        if isinstance(child, str):
            yield child
        else:
            yield from child


def _escaped(text: str) -> str:
    return text if isinstance(text, Markup) else html.escape(text)
