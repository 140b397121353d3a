"""Ranges to search for settings in: plain data beside each algorithm's options, for whatever tunes them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from rl_training.errors import ConfigError


@dataclass(frozen=True)
class Real:
    """A number between two ends; with `log`, every power of ten is as likely as the next."""

    low: float
    high: float
    log: bool = False

    def ends(self) -> tuple[Any, ...]:
        """Values that must all be allowed for every value to be."""
        return self.low, self.high

    def contains(self, value: Any) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high

    def nearest(self, value: Any) -> Any:
        """The allowed value next to it; None where there is no such thing."""
        return min(max(value, self.low), self.high) if isinstance(value, int | float) else None


@dataclass(frozen=True)
class Whole:
    """An integer between two ends, both included."""

    low: int
    high: int
    log: bool = False

    def ends(self) -> tuple[Any, ...]:
        return self.low, self.high

    def contains(self, value: Any) -> bool:
        return isinstance(value, int) and self.low <= value <= self.high

    def nearest(self, value: Any) -> Any:
        return min(max(value, self.low), self.high) if isinstance(value, int) else None


@dataclass(frozen=True)
class Choice:
    """One of a few values, in JSON's types."""

    values: tuple[Any, ...]

    def ends(self) -> tuple[Any, ...]:
        return self.values

    def contains(self, value: Any) -> bool:
        return label(value) in map(label, self.values)

    def nearest(self, value: Any) -> Any:
        return value if self.contains(value) else None


Range: TypeAlias = "Real | Whole | Choice"
SearchSpace: TypeAlias = "Mapping[str, Range]"


def one_of(*values: Any) -> Choice:
    return Choice(values)


def label(value: Any) -> str:
    """A value as text that is equal for equal values; lists and tuples are one."""
    return json.dumps(value)


def range_words(found: Range) -> str:
    """As `parse_range` reads it."""
    if isinstance(found, Choice):
        return ", ".join(label(value) for value in found.values)
    return f"{'log:' if found.log else ''}{found.low:g}..{found.high:g}"


def to_plain(space: SearchSpace) -> dict[str, Any]:
    """In JSON's types, with the kind of each range."""
    return {name: {"kind": type(found).__name__, **json.loads(json.dumps(asdict(found)))} for name, found in space.items()}


def from_plain(values: Mapping[str, Mapping[str, Any]]) -> dict[str, Range]:
    """The inverse of `to_plain`."""
    return {name: _from_plain(dict(found)) for name, found in values.items()}


def _from_plain(found: dict[str, Any]) -> Range:
    kind = found.pop("kind")
    if kind == "Choice":
        return Choice(tuple(found["values"]))
    return Whole(**found) if kind == "Whole" else Real(**found)


def parse_range(text: str, *, whole: bool) -> Real | Whole:
    """`0.9..0.999`, or `log:1e-5..1e-2`; integers where the option takes no others."""
    kind, _, ends = text.rpartition(":")
    first, dots, last = ends.partition("..")
    try:
        low, high = float(first), float(last)
    except ValueError:
        low = high = math.nan
    if not dots or kind not in ("", "log") or not low < high or (kind and low <= 0):
        example = "log:1e-5..1e-2 (above 0), or a list in brackets such as [0.9, 0.99]"
        raise ConfigError(f"given {text!r}; possible: LOW..HIGH with LOW below HIGH, as in 0.9..0.999 or {example}")
    if whole:
        if not low.is_integer() or not high.is_integer():
            raise ConfigError(f"given {text!r}; this option takes integers")
        return Whole(int(low), int(high), log=bool(kind))
    return Real(low, high, log=bool(kind))
