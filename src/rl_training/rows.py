"""An observation as one row of numbers, whatever its space: the form in which it is stepped, stored and learnt from.

Numbers stand first, vectors as they are and choices one-hot, then images. Images of whole numbers stay bytes: a row with such
is uint8 and holds its other numbers, which are float32, by their bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial, reduce
from math import prod
from typing import Any, NamedTuple

import numpy as np

from rl_training.errors import shown, words_of
from rl_training.types import EnvSpec, ObsPart

FLOAT_BYTES = 4


class Piece(NamedTuple):
    """Where a part stands: columns of the floats of a row, or of its bytes."""

    part: ObsPart
    start: int
    end: int


class ObservationError(ValueError):
    """An observation is not what its space declares; the text goes on behind "returned" or "given is"."""


class RowLayout:
    """What stands where in a row."""

    def __init__(self, parts: Sequence[ObsPart]) -> None:
        self.parts = tuple(parts)
        self.pieces: list[Piece] = []  # in the order of the parts
        numbers = [part for part in parts if not part.image]
        float_images = [part for part in parts if part.image and not part.in_bytes]
        starts: dict[ObsPart, int] = {}
        self.num_numbers = self._place(numbers, 0, starts)  # what a normaliser sees
        self.num_floats = self._place(float_images, self.num_numbers, starts)
        self.first_byte = FLOAT_BYTES * self.num_floats
        end = self._place([part for part in parts if part.in_bytes], self.first_byte, starts)
        self.num_bytes = end - self.first_byte
        self.dtype = np.dtype(np.uint8 if self.num_bytes else np.float32)
        self.width = end if self.num_bytes else self.num_floats
        if self.num_bytes and self.num_floats:  # floats are read where they lie: each row begins at a multiple of their size
            self.width += -end % FLOAT_BYTES
        first = self.parts[0]
        # of an observation that is one array of numbers and the row but for its shape; None for all others
        self.shape = first.shape if first.kind == "box" and not first.path else None
        self.is_vector = self.shape is not None and len(self.shape) == 1  # a flat vector is its row
        self.pieces = [Piece(part, starts[part], starts[part] + columns_of(part)) for part in self.parts]

    @staticmethod
    def _place(parts: Sequence[ObsPart], start: int, starts: dict[ObsPart, int]) -> int:
        for part in parts:
            starts[part] = start
            start += columns_of(part)
        return start

    def empty(self, count: int) -> np.ndarray:
        """Rows (count, width) to be written; what lies between their parts is 0, as rows are compared by their bytes."""
        return self.zeros(count) if self.shape is None else np.empty((count, self.width), dtype=self.dtype)

    def zeros(self, count: int) -> np.ndarray:
        """Rows (count, width) that hold nothing yet."""
        return np.zeros((count, self.width), dtype=self.dtype)

    def write(self, obs: Any, rows: np.ndarray, *, single: bool = False) -> None:
        """Put observations (n, ...), or a `single` one without that axis, into `rows` (n, width); ObservationError names the
        part that is not as declared."""
        floats = self.floats(rows)
        for part, start, end in self.pieces:
            columns = rows[:, start:end] if part.in_bytes else floats[:, start:end]
            _write(part, _part_of(obs, part), columns, single=single)

    def floats(self, rows: np.ndarray) -> np.ndarray:
        """The columns that are floats, as a view."""
        if not self.num_bytes:  # nearly always, and at every step
            return rows
        view: np.ndarray = rows[:, : self.first_byte].view(np.float32)
        return view

    def place(self, column: int) -> str:
        """Which number a column of the floats is, in words."""
        if self.is_vector:
            return f"column {column}"
        part, start, _ = next(piece for piece in self.pieces if not piece.part.in_bytes and piece.start <= column < piece.end)
        index = np.unravel_index(column - start, part.shape if part.shape and not part.choices else (columns_of(part),))
        return f"{part.name}[{', '.join(str(int(i)) for i in index)}]"


def layout_of(spec: EnvSpec) -> RowLayout:
    """Of the rows that an environment's observations are put into."""
    return _layout(spec.observation or (ObsPart((), "box", (spec.obs_dim,)),))


@lru_cache(maxsize=64)
def _layout(parts: tuple[ObsPart, ...]) -> RowLayout:
    return RowLayout(parts)


def columns_of(part: ObsPart) -> int:
    """How many columns a part takes."""
    return sum(part.choices) if part.choices else prod(part.shape)


def as_rows(obs: Any, layout: RowLayout) -> tuple[np.ndarray, bool]:
    """Observations with a first axis, or a single one without it, as rows; and whether it was a single one."""
    part = layout.parts[0]
    first = np.asarray(_part_of(obs, part))
    single = first.ndim == len(part.shape)
    rows = layout.zeros(1 if single or not first.ndim else len(first))
    layout.write(obs, rows, single=single)
    return rows, single


def _part_of(obs: Any, part: ObsPart) -> Any:
    return reduce(partial(_inside, part), part.path, obs)


def _inside(part: ObsPart, obs: Any, key: str | int) -> Any:
    try:
        return obs[key]
    except (KeyError, IndexError, TypeError) as error:
        has = f"with {', '.join(map(str, obs))}" if isinstance(obs, Mapping) else f"that is a {type(obs).__name__}"
        raise ObservationError(f"an observation {has}; {part.name} is declared") from error


def _write(part: ObsPart, value: Any, columns: np.ndarray, *, single: bool) -> None:
    whose = f"an observation with {part.name}" if part.path else "an observation"
    try:
        array = np.asarray(value)
    except Exception as error:
        # a tensor with a graph says in its error what to do
        raise ObservationError(f"{whose} that is no array: {shown(value)} ({words_of(error)})") from error
    shape = array.shape if single else array.shape[1:]
    found, count = f"{whose} of shape {shape} and dtype {array.dtype}", len(columns)
    if array.shape != (part.shape if single else (count, *part.shape)) or array.dtype.kind not in "fiub":
        raise ObservationError(f"{found}; declared are numbers of shape {part.shape}")
    rows = array.reshape(count, -1)
    if part.choices:
        _write_choices(part, rows, columns)
    elif part.in_bytes and array.dtype not in (np.uint8, np.bool_) and not _fits_bytes(array):
        raise ObservationError(f"{found}; declared is {part.dtype}, whole numbers up to {part.high:g}")
    else:
        columns[...] = rows


def _fits_bytes(array: np.ndarray) -> bool:
    return array.dtype.kind in "iu" and (array.size == 0 or (array.min() >= 0 and array.max() <= np.iinfo(np.uint8).max))


def _write_choices(part: ObsPart, rows: np.ndarray, columns: np.ndarray) -> None:
    """One-hot, choice after choice."""
    chosen = rows - np.asarray(part.start)
    wrong = (chosen < 0) | (chosen >= np.asarray(part.choices)) | (chosen != np.floor(chosen))
    if wrong.any():
        declared = f"{part.choices[0]} choices" if len(part.choices) == 1 else f"choices of {list(part.choices)}"
        raise ObservationError(
            f"{part.name} = {rows[wrong.any(axis=1)][0].tolist()}; declared are {declared} from {part.start[0]} on"
        )
    columns[...] = 0
    np.put_along_axis(columns, chosen.astype(np.int64) + np.cumsum(part.choices) - part.choices, 1, axis=1)


# images, as networks read them


def channels_first(part: ObsPart) -> bool:
    """Whether the channels are an image's first axis: the shorter of the first and the last, the last where they are equal."""
    frame = part.shape[-3:]
    return len(frame) == 3 and frame[0] < frame[2]


def image_shape(part: ObsPart) -> tuple[int, int, int]:
    """(channels, height, width); the frames of a stack are channels, and two axes one channel."""
    if len(part.shape) == 2:
        return (1, *part.shape)
    stack = part.shape[0] if len(part.shape) == 4 else 1
    frame = part.shape[-3:]
    channels, height, width = frame if channels_first(part) else (frame[2], *frame[:2])
    return stack * channels, height, width
