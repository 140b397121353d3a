"""A benchmark suite: which presets or files are trained, with which changes, on which seeds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias

from pydantic import Field, field_validator

from rl_training.errors import ConfigError, did_you_mean
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.overrides import apply_overrides
from rl_training.experiment.yaml_loader import load_config_values, load_yaml
from rl_training.options.base import Options, OptionsError, Problem, option
from rl_training.resources import find_preset

Seeds: TypeAlias = tuple[Annotated[int, Field(ge=0, lt=2**32)], ...]

_DECIDED_ELSEWHERE = {"seed": "seeds lists them", "output_dir": "--out says where runs go"}


class Reference(Options):
    """What others report for the same task."""

    noun: ClassVar[str] = "a reference"

    value: float = option(..., "The return reported.")
    source: str = option(..., "Who reports it, in a few words.", min_length=1)
    steps: int | None = option(None, "Environment steps after which it was reached; none where that is not told.", ge=1)


class Entry(Options):
    """One row of the results: a configuration, trained once per seed."""

    noun: ClassVar[str] = "an entry"

    name: str | None = option(None, "What the row is called; none means the preset's or the file's name.", min_length=1)
    preset: str | None = option(None, "Name of a preset, as `rl-training list` shows it.", min_length=1)
    config: str | None = option(None, "In place of a preset: a config file, relative to the suite's.", min_length=1)
    task: str | None = option(None, "Entries of one task are compared with each other; none means env_id.", min_length=1)
    overrides: dict[str, Any] = option({}, "Settings to change, by full or short name, as key=value on the command line.")
    seeds: Seeds | None = option(None, "The entry's own seeds; none means the suite's.", min_length=1)
    threshold: float | None = option(None, "Return at which the task counts as solved; steps and seconds to it are told.")
    reference: Reference | None = option(None, "A figure to stand beside the result.")
    published: tuple[Reference, ...] = option((), "Figures on the way there, each with its steps, to stand beside the curve.")

    @property
    def label(self) -> str:
        """The row's name."""
        return self.name or self.preset or Path(self.config or "").stem

    @property
    def slug(self) -> str:
        """The row's name as part of a path."""
        return re.sub(r"[^A-Za-z0-9._-]+", "-", self.label)

    def resolve(self, *, beside: Path) -> TrainConfig:
        """The configuration with every default written out, checked; its seed and output_dir are still to be set."""
        try:
            values = load_config_values(self._source(beside))
            # JSON is YAML, so the pairs go the way that those of the command line go
            pairs = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in self.overrides.items()]
            return TrainConfig.from_dict(apply_overrides(values, pairs) | {"seed": 0, "output_dir": "."}).resolved()
        except ConfigError as error:
            raise ConfigError("\n".join(f"entry {self.label!r}: {line}" for line in str(error).splitlines())) from None

    def _source(self, beside: Path) -> Path:
        if self.preset is not None:
            return find_preset(self.preset)
        assert self.config is not None
        return beside / self.config if (beside / self.config).is_file() else Path(self.config)

    def contradictions(self) -> Iterator[Problem]:
        """It is one configuration, and each seed counts once."""
        if (self.preset is None) == (self.config is None):
            yield Problem(("preset", "config"), "give one of the two")
        yield from _repeated(self.seeds or ())
        if any(reference.steps is None for reference in self.published):
            yield Problem(("published",), "each needs steps, for it stands beside the curve there")
        for key in self.overrides.keys() & _DECIDED_ELSEWHERE.keys():
            yield Problem((f"overrides.{key}",), f"is not an entry's to set: {_DECIDED_ELSEWHERE[key]}")


class Suite(Options):
    """Entries × seeds."""

    noun: ClassVar[str] = "the suite"

    name: str = option(..., "What the results are called; the default of --out is bench/<name>.", min_length=1)
    seeds: Seeds = option((1, 2, 3, 4, 5), "Seeds of every entry that has none of its own.", min_length=1)
    eval_episodes: int = option(50, "Episodes on which the last policy of each run is evaluated.", ge=1)
    listed: bool = option(True, "Whether its rows belong into overall tables; those of an ablation do not.")
    entries: tuple[Entry, ...] = option(..., "The rows.", words="list of mappings {preset, overrides, ...}", min_length=1)

    def seeds_of(self, entry: Entry) -> tuple[int, ...]:
        """Its own seeds, or the suite's."""
        return self.seeds if entry.seeds is None else entry.seeds

    def entry(self, name: str) -> Entry:
        """The entry of that name, or ConfigError with the nearest."""
        found = {entry.label: entry for entry in self.entries}
        if name not in found:
            raise ConfigError(f"suite {self.name!r} has no entry {name!r}{did_you_mean(name, found)}")
        return found[name]

    @field_validator("name")
    @classmethod
    def _is_a_folder_name(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", value):
            raise ConfigError(f"given {value!r}; possible: up to 100 letters, digits, '.', '_' and '-', for it names a folder")
        return value

    @field_validator("entries", mode="before")
    @classmethod
    def _say_which_entry(cls, value: Any) -> Any:
        """A problem inside an entry is told with the entry's name or place."""
        if not isinstance(value, list | tuple):
            return value
        entries: list[Entry] = []
        problems: list[Problem] = []
        for number, item in enumerate(value, start=1):
            given = item if isinstance(item, Mapping) else {}
            name = given.get("name") or given.get("preset") or number
            try:
                entries.append(item if isinstance(item, Entry) else Entry.from_kwargs(item, path=str(name)))
            except OptionsError as error:
                problems += error.problems
        if problems:
            raise OptionsError(problems)
        return tuple(entries)

    def contradictions(self) -> Iterator[Problem]:
        """Two rows of one name would share their runs."""
        yield from _repeated(self.seeds)
        slugs = [entry.slug for entry in self.entries]
        for slug in sorted({slug for slug in slugs if slugs.count(slug) > 1}):
            yield Problem(("entries",), f"{slugs.count(slug)} are called {slug!r}; give each a name of its own")


def _repeated(seeds: tuple[int, ...]) -> Iterator[Problem]:
    twice = sorted({seed for seed in seeds if seeds.count(seed) > 1})
    if twice:
        yield Problem(("seeds",), f"{', '.join(map(str, twice))} stands there twice; two runs of one seed are the same run")


def load_suite(path: str | Path) -> Suite:
    """The checked suite in a YAML file."""
    try:
        return Suite.from_kwargs(load_yaml(path), path="")
    except OptionsError as error:
        raise ConfigError("\n".join(f"{path}: {line}" for line in str(error).splitlines())) from None
