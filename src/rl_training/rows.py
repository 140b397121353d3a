"""An observation as one row of numbers, whatever its space: the form in which it is stepped, stored and learnt from.

Numbers stand first, vectors as they are and choices one-hot, then images. Images of whole numbers stay bytes: a row with such
is uint8 and holds its other numbers, which are float32, by their bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, reduce
from math import prod
from operator import getitem
from typing import Any, NamedTuple

import numpy as np

from rl_training.types import EnvSpec, ObsPart

FLOAT_BYTES = 4


class Piece(NamedTuple):
    """Where a part stands: columns of the floats of a row, or of its bytes."""

    part: ObsPart
    start: int
    end: int


class ObservationError(ValueError):
    """An observation is not what its space declares."""


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
        in_bytes = end > self.first_byte
        self.dtype = np.dtype(np.uint8 if in_bytes else np.float32)
        # floats are read where they lie, so each row has to begin at a multiple of their size
        self.width = self.num_floats if not in_bytes else end if not self.num_floats else end + -end % FLOAT_BYTES
        self.pieces = [Piece(part, starts[part], starts[part] + columns_of(part)) for part in self.parts]

    @property
    def is_vector(self) -> bool:
        """Whether the observation is a flat vector, and the row itself."""
        part = self.parts[0]
        return not part.path and part.kind == "box" and len(part.shape) == 1

    @staticmethod
    def _place(parts: Sequence[ObsPart], start: int, starts: dict[ObsPart, int]) -> int:
        for part in parts:
            starts[part] = start
            start += columns_of(part)
        return start

    def zeros(self, count: int) -> np.ndarray:
        """Rows (count, width) that hold nothing yet."""
        return np.zeros((count, self.width), dtype=self.dtype)

    def write(self, obs: Any, rows: np.ndarray) -> None:
        """Put observations (n, ...) into `rows` (n, width); ObservationError names the part that is not as declared."""
        floats = self.floats(rows)
        for part, start, end in self.pieces:
            columns = rows[:, start:end] if part.in_bytes else floats[:, start:end]
            _write(part, _part_of(obs, part), columns)

    def floats(self, rows: np.ndarray) -> np.ndarray:
        """The columns that are floats, as a view."""
        if self.dtype == np.float32:
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


def num_observations(obs: Any, layout: RowLayout) -> int | None:
    """How many observations stand in `obs` along a first axis; None for a single one without that axis."""
    part = layout.parts[0]
    value = np.asarray(_part_of(obs, part))
    return None if value.ndim == len(part.shape) else len(value)


def _part_of(obs: Any, part: ObsPart) -> Any:
    try:
        return reduce(getitem, part.path, obs)
    except (KeyError, IndexError, TypeError) as error:
        has = f"there are {', '.join(map(str, obs))}" if isinstance(obs, Mapping) else f"given is a {type(obs).__name__}"
        raise ObservationError(f"{part.name} is missing; {has}") from error


def _write(part: ObsPart, value: Any, columns: np.ndarray) -> None:
    try:
        array = np.asarray(value)
    except Exception as error:
        raise ObservationError(f"{part.name} is no array: {type(value).__name__}") from error
    count, found = len(columns), f"{part.name} has shape {array.shape[1:]} and dtype {array.dtype}"
    if array.shape != (count, *part.shape) or array.dtype.kind not in "fiub":
        raise ObservationError(f"{found}; declared are numbers of shape {part.shape}")
    if part.choices:
        _write_choices(part, array.reshape(count, -1), columns)
        return
    if part.in_bytes and array.dtype not in (np.uint8, np.bool_) and not _fits_bytes(array):
        raise ObservationError(f"{found}; declared is {part.dtype}, whole numbers from 0 to {part.high:g}")
    columns[...] = array.reshape(count, -1)


def _fits_bytes(array: np.ndarray) -> bool:
    return array.dtype.kind in "iu" and (array.size == 0 or (array.min() >= 0 and array.max() <= np.iinfo(np.uint8).max))


def _write_choices(part: ObsPart, array: np.ndarray, columns: np.ndarray) -> None:
    """One-hot, choice after choice."""
    chosen = array.astype(np.int64) - np.asarray(part.start)
    if (chosen != array - np.asarray(part.start)).any() or (chosen < 0).any() or (chosen >= np.asarray(part.choices)).any():
        raise ObservationError(f"{part.name} is {array.tolist()[0]}; declared are choices of {list(part.choices)}")
    columns[...] = 0
    offsets = np.cumsum(part.choices) - part.choices
    np.put_along_axis(columns, chosen + offsets, 1, axis=1)


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
