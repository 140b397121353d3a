"""What all settings share: frozen, strict, and errors that name every problem at once."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import ErrorDetails

from rl_training.errors import ConfigError, did_you_mean, nearest
from rl_training.options._words import choices, given_words, members, plain, range_words, type_words

OptionsT = TypeVar("OptionsT", bound="Options")

LARGEST_INTEGER = 10**15  # counts of anything; more overflows in torch or numpy, and as a float is no exact number
LARGEST_NUMBER = 3.4e38  # of float32, in which learners compute


class Problem(NamedTuple):
    """One thing that is wrong: the key (or keys, when they contradict each other) and what to say about it."""

    keys: tuple[str, ...]
    text: str

    def under(self, path: str) -> Problem:
        """The same problem seen from one level up."""
        return Problem(tuple(f"{path}.{key}" if key else path for key in self.keys or ("",)), self.text) if path else self


class OptionsError(ConfigError):
    """A ConfigError that keeps its problems apart, so that an outer config can list them with its own."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(f"{', '.join(keys)}: {text}" if any(keys) else text for keys, text in self.problems)


@dataclass(frozen=True, slots=True)
class OptionInfo:
    """One row of the options table."""

    name: str
    type: str
    default: Any
    range: str
    description: str


def option(default: Any, description: str, *, words: str | None = None, **bounds: Any) -> Any:
    """A setting with its default, its sentence and its bounds (gt, ge, lt, le); `words` replaces the type's own."""
    return Field(default, description=description, json_schema_extra={"words": words} if words else None, **bounds)


class Options(BaseModel):
    """Frozen and typed settings. Every way of making them checks everything and raises ConfigError."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    noun: ClassVar[str] = "this"

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            problems = dict.fromkeys(p for detail in error.errors() for p in type(self)._problems(detail, values))
            raise OptionsError(problems) from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise ConfigError(f"settings are frozen; use replace({name}={value!r}) for a changed copy")

    @classmethod
    def from_kwargs(cls: type[OptionsT], kwargs: Mapping[str, Any], *, path: str = "algo_kwargs") -> OptionsT:
        """Settings from a mapping; errors name each key below `path`."""
        if not isinstance(kwargs, Mapping):
            raise OptionsError([Problem((path,), f"given {given_words(kwargs)}; possible: {cls.form()}")])
        if strangers := [key for key in kwargs if not isinstance(key, str)]:
            raise OptionsError(Problem((path,), f"{key!r} is no name; names are texts") for key in strangers)
        try:
            return cls(**kwargs)
        except OptionsError as error:
            raise OptionsError(problem.under(path) for problem in error.problems) from None

    def replace(self: OptionsT, **changes: Any) -> OptionsT:
        """A copy with changes, checked as a whole again."""
        return type(self)(**{name: getattr(self, name) for name in self.model_fields_set} | changes)

    def to_dict(self) -> dict[str, Any]:
        """Every setting in JSON's types, defaults included."""
        return {name: plain(getattr(self, name)) for name in type(self).model_fields}

    @classmethod
    def describe(cls) -> list[OptionInfo]:
        """The options table: the class's own settings first, then what it shares with others."""
        shared = [list(base.model_fields) for base in cls.__mro__[1:] if issubclass(base, Options)]
        own_first = sorted(cls.model_fields, key=lambda name: sum(name in names for names in shared))
        return [cls._info(name) for name in own_first]

    @classmethod
    def nested(cls) -> dict[str, type[Options]]:
        """The settings that are groups of settings themselves."""
        groups = ((name, group) for name, field in cls.model_fields.items() for group in members(field.annotation))
        return {name: group for name, group in groups if isinstance(group, type) and issubclass(group, Options)}

    @classmethod
    def expand(cls, value: Any) -> Any:
        """The mapping a shorthand stands for; a class without shorthands leaves the value as it is."""
        return value

    @classmethod
    def form(cls) -> str:
        """How a whole group can be written, in words."""
        return f"mapping {{{', '.join(cls.model_fields)}}}"

    @classmethod
    def unknown_key(cls, key: str, given: Mapping[str, Any]) -> str:  # noqa: ARG003 (subclasses look at the rest)
        """What to say about a key this class does not have; `given` is everything that was passed with it."""
        return f"{cls.noun} has no option {key!r}{did_you_mean(key, cls.model_fields)}"

    def contradictions(self) -> Iterator[Problem]:
        """Pairs of settings that are fine alone but not together; subclasses add theirs to those of `super()`."""
        yield from ()

    @model_validator(mode="after")
    def _refuse_contradictions(self: OptionsT) -> OptionsT:
        if problems := list(self.contradictions()):
            raise OptionsError(problems)
        return self

    @field_validator("*", mode="before")
    @classmethod
    def _adapt_field(cls, value: Any, info: ValidationInfo) -> Any:
        return _adapt(value, cls.model_fields[str(info.field_name)].annotation)

    @classmethod
    def _info(cls, name: str) -> OptionInfo:
        field = cls.model_fields[name]
        words = (field.json_schema_extra or {}).get("words") if not callable(field.json_schema_extra) else None
        default = "required" if field.is_required() else field.get_default(call_default_factory=True)
        limits = range_words(field.annotation, field.metadata)
        return OptionInfo(name, str(words or type_words(field.annotation)), default, limits, field.description or "")

    @classmethod
    def _problems(cls, detail: ErrorDetails, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Our words for one of pydantic's findings; a field is reported once, however many alternatives it failed."""
        key = str(detail["loc"][0]) if detail["loc"] else ""
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, OptionsError):
            yield from (problem.under(key) for problem in cause.problems)
        elif cause is not None:
            yield Problem((key,), str(cause))
        elif detail["type"] == "extra_forbidden":
            yield Problem((key,), cls.unknown_key(key, values))
        else:
            info = cls._info(key)
            possible = f"{info.type}, {info.range}" if info.range else info.type
            given = "it must be given" if detail["type"] == "missing" else f"given {given_words(values[key])}"
            value = values.get(key)
            match = nearest(value, choices(cls.model_fields[key].annotation)) if isinstance(value, str) else None
            guess = _as_list(value, cls.model_fields[key].annotation) if match is None else repr(match)
            yield Problem((key,), f"{given}; possible: {possible}" + (f"; did you mean {guess}?" if guess else ""))


def _as_list(value: Any, annotation: Any) -> str | None:
    """`64,64` as a list is written on a command line, where one is wanted."""
    wants_list = any(get_origin(part) is tuple for part in members(annotation))
    return (
        f"'[{', '.join(item.strip() for item in value.split(','))}]'"
        if wants_list and isinstance(value, str) and "," in value
        else None
    )


def _adapt(value: Any, annotation: Any) -> Any:
    """What strict typing should not refuse: numpy numbers, 1e5 for an integer, lists for tuples, mappings for groups."""
    wanted = members(annotation)
    if isinstance(value, numbers.Real) and not isinstance(value, bool | int | float):
        value = int(value) if isinstance(value, numbers.Integral) else float(value)
    if isinstance(value, float) and int in wanted and float not in wanted:
        return int(value) if math.isfinite(value) and value.is_integer() and abs(value) <= LARGEST_INTEGER else value
    _require_representable(value, wanted)
    for part in wanted:
        if get_origin(part) is tuple and isinstance(value, list | tuple):
            return tuple(_adapt(item, get_args(part)[0]) for item in value)
        if isinstance(part, type) and issubclass(part, Options):
            value = part.expand(value)
            return part.from_kwargs(value, path="") if isinstance(value, Mapping) else value
    return value


def _require_representable(value: Any, wanted: list[Any]) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if int in wanted and isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        raise ConfigError(f"given {given_words(value)}; possible: integer, at most {LARGEST_INTEGER:.0e}")
    if float in wanted and LARGEST_NUMBER < abs(value) < math.inf:
        raise ConfigError(f"given {given_words(value)}; possible: number, at most {LARGEST_NUMBER:.1e}, as float32 holds it")
