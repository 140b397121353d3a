"""Which line is which: a legend inside each panel while it is small, one for the whole picture below it otherwise."""

from __future__ import annotations

import logging
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rl_training.cli.pictures import PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DASHES = ("-", (0, (5, 2)), (0, (1, 1.5)))  # where colours come round again
MAX_LEGEND = len(PALETTE) * len(DASHES)  # further lines look like earlier ones
MAX_INSIDE = 4  # names in a panel
INSIDE_LETTERS = {True: 40, False: 20}  # of a name, in a panel that is alone and in one of several
LETTER, LINE = 0.072, 0.17  # inches of small text
MARK = 0.6  # inches: a legend's line and the space beside it
MAX_SHARE = 0.5  # of the picture's height

log = logging.getLogger(__name__)


class LegendEntry(NamedTuple):
    """A line in a panel, or what all bands are: `name` is the same in all panels, `words` say what it is in this one."""

    artist: Any
    name: str
    words: str = ""


@dataclass(frozen=True)
class SharedLegend:
    """The legend of a whole picture, laid out for its width."""

    artists: list[Any]
    names: list[str]
    num_columns: int

    @property
    def height(self) -> float:
        """In inches."""
        columns = np.array_split([name.count("\n") + 1 for name in self.names], self.num_columns)  # as matplotlib fills them
        return LINE * int(max(lines.sum() for lines in columns)) + 0.15


def add_legends(
    figure: Figure, panels: Sequence[tuple[Axes, Sequence[LegendEntry]]], *, size_given: bool = False
) -> tuple[float, float]:
    """Give the picture its legends; the size in inches that is left to its panels.

    A legend below makes the picture higher, unless its size was given: then it may take up to half of that.
    """
    width, height = figure.get_size_inches()
    if all(_fits_inside(entries, alone=len(panels) == 1) for _, entries in panels):
        for axes, entries in panels:
            if entries:
                axes.legend([entry.artist for entry in entries], [_text(entry) for entry in entries], loc="best", **_LOOKS)
        return width, height
    legend = _shared(panels, width)
    if legend is None or (size_given and legend.height > MAX_SHARE * height):
        names = {entry.name for _, entries in panels for entry in entries}
        log.warning("no legend: %d names are too many for the picture; draw fewer, or give it another --size", len(names))
        return width, height
    figure.legend(legend.artists, legend.names, loc="outside lower center", ncols=legend.num_columns, **_LOOKS)
    if size_given:
        return width, height - legend.height
    figure.set_size_inches(width, height + legend.height)
    return width, height


_LOOKS: dict[str, Any] = {"frameon": False, "fontsize": "small", "handlelength": 1.6}


def _fits_inside(entries: Sequence[LegendEntry], *, alone: bool) -> bool:
    return len(entries) <= MAX_INSIDE and all(len(_text(entry)) <= INSIDE_LETTERS[alone] for entry in entries)


def _text(entry: LegendEntry) -> str:
    return f"{entry.name} ({entry.words})" if entry.words else entry.name


def _shared(panels: Sequence[tuple[Axes, Sequence[LegendEntry]]], width: float) -> SharedLegend | None:
    """Every name once, with what is said of it in any panel; None for more names than can be told apart."""
    artists: dict[str, Any] = {}
    words: dict[str, dict[str, None]] = {}
    # what has no words of its own explains the others, and comes after them
    for entry in sorted((entry for _, entries in panels for entry in entries), key=lambda entry: not entry.words):
        artists.setdefault(entry.name, entry.artist)
        words.setdefault(entry.name, {})[entry.words] = None
    if not 0 < len(artists) <= MAX_LEGEND:
        return None
    texts = [_text(LegendEntry(None, name, " or ".join(filter(None, said)))) for name, said in words.items()]
    letters = max(10, int((width - MARK) / LETTER))
    names = ["\n".join(textwrap.wrap(text, letters)) for text in texts]
    longest = max(len(line) for name in names for line in name.split("\n"))
    across = max(1, min(len(names), math.floor(width / (LETTER * longest + MARK))))
    # as even as the number of rows allows: 3 + 3 rather than 5 + 1
    return SharedLegend(list(artists.values()), names, math.ceil(len(names) / math.ceil(len(names) / across)))
