"""What saved state must look like: said beside whoever owns it, and checked as a whole before anything is restored from a file.

A form is called with a value and its place in the tree, and raises MisfitError where the value is none of that form. Parts that
a form does not name are left alone: nobody reads them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

import numpy as np

from rl_training.errors import MisfitError

Form: TypeAlias = Callable[[Any, str], None]

MOST = 10**15  # of anything that is counted


@dataclass(frozen=True)
class Whole:
    """A whole number from `least` to `most`; true and false are none."""

    least: int = 0
    most: int = MOST

    def __call__(self, value: Any, where: str) -> None:
        if type(value) is not int or not self.least <= value <= self.most:
            refuse(value, where, f"a whole number from {self.least} to {self.most}")


COUNT = Whole()


@dataclass(frozen=True)
class Number:
    """A finite number from `least` to `most`."""

    least: float = -math.inf
    most: float = math.inf

    def __call__(self, value: Any, where: str) -> None:
        if type(value) not in (int, float) or not (math.isfinite(value) and self.least <= value <= self.most):
            limits = "" if self == NUMBER else f" from {self.least:g} to {self.most:g}"
            refuse(value, where, f"a finite number{limits}")


NUMBER = Number()


def metric(value: Any, where: str) -> None:
    """Any number, not-a-number too, true or false."""
    if type(value) not in (int, float, bool):
        refuse(value, where, "a number")


def flag(value: Any, where: str) -> None:
    """True or false."""
    if type(value) is not bool:
        refuse(value, where, "true or false")


def text(value: Any, where: str) -> None:
    """A text."""
    if type(value) is not str:
        refuse(value, where, "a text")


def anything(value: Any, where: str) -> None:
    """Whatever its owner makes of it."""


@dataclass(frozen=True)
class Maybe:
    """None, or what `form` takes."""

    form: Form

    def __call__(self, value: Any, where: str) -> None:
        if value is not None:
            self.form(value, where)


@dataclass(frozen=True)
class Record:
    """A mapping with these parts, and perhaps those that are `optional`, which older versions do not have. `relation` says what
    is wrong with the parts beside one another, if anything is."""

    parts: Mapping[str, Form]
    optional: Mapping[str, Form] = field(default_factory=dict)
    relation: Callable[[Mapping[str, Any]], str | None] | None = None

    def __call__(self, value: Any, where: str) -> None:
        if not isinstance(value, Mapping):
            refuse(value, where, "a mapping")
        for name in self.parts:
            if name not in value:
                raise MisfitError(f"{where} has no {name}")
        for name, form in {**self.optional, **self.parts}.items():
            if name in value:
                form(value[name], f"{where}/{name}")
        problem = self.relation(value) if self.relation is not None else None
        if problem is not None:
            raise MisfitError(f"{where}: {problem}")

    def with_parts(self, **parts: Form) -> Record:
        """The same with more parts."""
        return Record({**self.parts, **parts}, self.optional, self.relation)


@dataclass(frozen=True)
class Named:
    """A mapping from texts to values of one form."""

    form: Form

    def __call__(self, value: Any, where: str) -> None:
        if not isinstance(value, Mapping):
            refuse(value, where, "a mapping")
        for name, item in value.items():
            text(name, f"{where}, a key")
            self.form(item, f"{where}/{name}")


@dataclass(frozen=True)
class Each:
    """A list of values of one form, at most so many."""

    form: Form
    most: int = MOST

    def __call__(self, value: Any, where: str) -> None:
        if not isinstance(value, list | tuple) or len(value) > self.most:
            refuse(value, where, "a list" if self.most == MOST else f"a list of at most {self.most}")
        for number, item in enumerate(value):
            self.form(item, f"{where}/{number}")


@dataclass(frozen=True)
class Row:
    """A list with a form for each place."""

    forms: tuple[Form, ...]

    def __call__(self, value: Any, where: str) -> None:
        if not isinstance(value, list | tuple) or len(value) != len(self.forms):
            refuse(value, where, f"a list of {len(self.forms)}")
        for number, (form, item) in enumerate(zip(self.forms, value, strict=True)):
            form(item, f"{where}/{number}")


@dataclass(frozen=True)
class Array:
    """A tensor or a numpy array: sizes (None is any), kind of number ("f" float, "i" integer, "b" bool), all of them finite
    (unless they need not be) and from `least` to `most`."""

    shape: tuple[int | None, ...]
    kind: str = "f"
    least: float = -math.inf
    most: float = math.inf
    finite: bool = True

    def __call__(self, value: Any, where: str) -> None:
        if not is_array(value) or kind_of(value) != self.kind or not self._fits(tuple(value.shape)):
            sizes = ", ".join("any" if size is None else str(size) for size in self.shape)
            refuse(value, where, f"{_KINDS[self.kind]} of shape ({sizes})")
        if math.prod(value.shape) == 0 or self.kind == "b":
            return
        if self.kind == "f" and self.finite and not _all_finite(value):
            refuse(value, where, "of finite numbers")
        if (math.isfinite(self.least) and value.min() < self.least) or (math.isfinite(self.most) and value.max() > self.most):
            refuse(value, where, f"of numbers from {self.least:g} to {self.most:g}")

    def _fits(self, shape: tuple[int, ...]) -> bool:
        sizes = zip(shape, self.shape, strict=False)
        return len(shape) == len(self.shape) and all(wanted in (None, size) for size, wanted in sizes)


_KINDS = {"f": "floats", "i": "integers", "b": "true or false"}


def scalar(value: Any, where: str) -> None:
    """One finite number, as a tensor or plain."""
    if is_array(value):
        Array((), kind_of(value))(value, where)
    else:
        NUMBER(value, where)


def _odd(state: Mapping[str, Any]) -> str | None:
    return None if state["inc"] % 2 else "inc is even, and PCG64 has odd ones only"


def _pcg64(value: Any, where: str) -> None:
    if value != "PCG64":
        refuse(value, where, "'PCG64'")


_BITS_128 = Whole(0, 2**128 - 1)
GENERATOR = Record(
    {
        "bit_generator": _pcg64,
        "state": Record({"state": _BITS_128, "inc": _BITS_128}, relation=_odd),
        "has_uint32": Whole(0, 1),
        "uinteger": Whole(0, 2**32 - 1),
    }
)
"""The state of numpy's default generator."""


def like(fresh: Any) -> Form:  # noqa: PLR0911 (one for each kind)
    """The form of what is saved by that which gives `fresh` when it has just been made: the same parts, kinds and shapes. What
    is empty or None in it may be anything later."""
    if is_array(fresh):
        shape = tuple(size or None for size in fresh.shape)
        return Array(shape, kind_of(fresh), finite=False)
    if isinstance(fresh, Mapping):
        return Record({name: like(value) for name, value in fresh.items()}) if fresh else anything
    if isinstance(fresh, list | tuple):
        return Row(tuple(like(value) for value in fresh)) if fresh else anything
    if isinstance(fresh, bool):
        return flag
    if isinstance(fresh, int):
        return Whole(min(fresh, 0))
    if isinstance(fresh, float):
        return NUMBER
    return text if isinstance(fresh, str) else anything


def form_of(owner: Any, steps: int) -> Form:
    """What the state of an object must look like after so many environment steps of a run, if it says so."""
    declared: Callable[[int], Form] | None = getattr(owner, "state_form", None)
    return anything if declared is None else declared(steps)


def is_array(value: Any) -> bool:
    """A numpy array, or a tensor; torch need not be imported for this."""
    return isinstance(value, np.ndarray) or (hasattr(value, "layout") and hasattr(value, "dtype"))


def kind_of(array: Any) -> str:
    """Float, integer or bool, whatever its width."""
    name = str(array.dtype).removeprefix("torch.")
    return "b" if name == "bool" else "f" if "float" in name else "i"


def refuse(value: Any, where: str, wanted: str) -> NoReturn:
    """MisfitError that says what stands where, and what should."""
    raise MisfitError(f"{where} is {_shown(value)}; it must be {wanted}")


def _shown(value: Any) -> str:
    if is_array(value):
        return f"an array of shape {tuple(value.shape)} and {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, float | bool | str | type(None)) or (type(value) is int and abs(value) < MOST**4):
        return repr(value)[:80]
    return f"of type {type(value).__name__}"


def _all_finite(array: Any) -> bool:
    with np.errstate(over="ignore", invalid="ignore"):
        if math.isfinite(float(array.sum())):  # many times as fast as looking at each number
            return True
    return bool((np.isfinite(array) if isinstance(array, np.ndarray) else array.isfinite()).all())
