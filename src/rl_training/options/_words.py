"""Types and ranges in words, and values in the one plain form that JSON and YAML can hold."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from types import FunctionType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from rl_training.errors import ConfigError
from rl_training.imports import import_path_of
from rl_training.options._foreign import SCHEDULES

MAX_DEPTH = 30  # a config in YAML may nest 32 deep, and two levels stand above these values
_NAMES = {int: "integer", float: "number", bool: "true or false", str: "text", NoneType: "none"}
_PLURALS = {int: "integers", float: "numbers", str: "texts"}


def counted(number: int, noun: str) -> str:
    """1 run, 1,000 runs."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def members(annotation: Any) -> list[Any]:
    """The alternatives of a type: unions opened, `Annotated` taken off."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return members(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return [member for part in get_args(annotation) for member in members(part)]
    return [annotation]


def choices(annotation: Any) -> list[str]:
    """The texts a `Literal` inside the type allows."""
    return [choice for part in members(annotation) if get_origin(part) is Literal for choice in get_args(part)]


def type_words(annotation: Any) -> str:
    """`float | Literal["auto"]` becomes "number or 'auto'"."""
    words = [word for part in members(annotation) for word in _part_words(part)]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _part_words(part: Any) -> list[str]:
    if get_origin(part) is Literal:
        return [repr(choice) for choice in get_args(part)]
    if get_origin(part) is tuple:
        item = members(get_args(part)[0])[0]
        return [f"list of {_PLURALS.get(item, 'values')}"]
    if get_origin(part) is dict:
        return ["mapping from text to values"]
    if isinstance(part, type) and issubclass(part, PurePath):
        return ["path"]
    form = getattr(part, "form", None)  # nested options say themselves how they can be written
    return [form()] if form else [_NAMES.get(part, str(part))]


def range_words(annotation: Any, metadata: Iterable[Any]) -> str:
    """Bounds on the field and on the parts of its type, in words; empty when there are none."""
    bounds: dict[str, Any] = {}
    for entry in [*metadata, *_nested_metadata(annotation)]:
        bounds |= {key: getattr(entry, key) for key in ("gt", "ge", "lt", "le", "min_length") if hasattr(entry, key)}
    each = "each " if any(get_origin(part) is tuple for part in members(annotation)) else ""
    if bounds.keys() >= {"ge", "le"}:
        return f"{each}from {bounds['ge']} to {bounds['le']}"
    words = {"gt": "more than", "ge": "at least", "lt": "less than", "le": "at most"}
    parts = [f"{word} {bounds[key]}" for key, word in words.items() if bounds.get(key) is not None]
    parts += ["not empty"] if bounds.get("min_length") else []
    return each + " and ".join(parts) if parts else ""


def _nested_metadata(annotation: Any) -> Iterator[Any]:
    if get_origin(annotation) is Annotated:
        for entry in get_args(annotation)[1:]:
            yield from entry.metadata if isinstance(entry, FieldInfo) else [entry]
    if get_origin(annotation) is not Literal:
        for part in get_args(annotation):
            yield from _nested_metadata(part)


def given_words(value: Any) -> str:
    """The value and its type as an error message shows them, cut when long."""
    try:
        text = repr(value)
    except ValueError:  # python does not write out integers of more than 4300 digits
        text = "a huge value"
    return f"{text if len(text) <= 80 else text[:77] + '...'} ({type(value).__name__})"


def plain(value: Any, *, depth: int = 0) -> Any:
    """The same value in JSON's types, so that a run, its file and its checkpoint see one thing (a tuple is a list)."""
    if depth > MAX_DEPTH:
        raise ConfigError(f"values nested deeper than {MAX_DEPTH} levels")
    if value is None or isinstance(value, bool | str | type):
        return import_path_of(value) if isinstance(value, type) else value
    if isinstance(value, numbers.Real):  # numpy's numbers too
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, list | tuple):
        return [plain(item, depth=depth + 1) for item in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: plain(item, depth=depth + 1) for key, item in value.items()}
    to_dict = getattr(value, "to_dict", None)
    if to_dict is not None:
        return plain(to_dict(), depth=depth)
    if isinstance(value, FunctionType):
        raise ConfigError(f"given a function, which fits into no config file; {SCHEDULES}")
    raise ConfigError(
        f"given {given_words(value)}; possible: none, true or false, numbers, texts, "
        "lists of these and mappings from text to these (it must fit into a config file)"
    )
