"""What a search is about: the configuration, the ranges, the seeds. Written down once, and read by every process of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rl_training.errors import ConfigError, did_you_mean
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.files import write_text
from rl_training.experiment.yaml_loader import dump_yaml, parse_yaml
from rl_training.options._search import Choice, Range, SearchSpace, from_plain, label, parse_range, range_words, to_plain
from rl_training.options._words import members
from rl_training.options.base import CommonOptions, OptionsError

PLAN_FILE = "plan.json"
METRIC = "eval_return_mean"


@dataclass(frozen=True)
class TunePlan:
    """Everything that decides which trials are made, but for their number."""

    directory: Path
    config: TrainConfig
    space: SearchSpace
    seeds: tuple[int, ...]
    pruner: Literal["median", "none"] = "median"
    sampler_seed: int = 0

    def trial_config(self, values: Mapping[str, Any], *, seed: int) -> TrainConfig:
        """The configuration of one run of a trial."""
        options = {**self.config.algo_kwargs, **values}
        return self.config.replace(
            algo_kwargs=options,
            seed=seed,
            output_dir=self.directory / "runs",
            keep_checkpoints=1,
            tags=(*self.config.tags, "tune"),
        )

    def baseline(self) -> dict[str, Any]:
        """The configuration's own values, those outside their range moved to its nearest end: the first trial, to compare
        with. What is no number is left to the sampler."""
        own = self.config.options.to_dict()
        near = {name: found.nearest(own[name]) for name, found in self.space.items()}
        return {name: value for name, value in near.items() if value is not None}

    def best_yaml(self, values: Mapping[str, Any], *, about: Sequence[str]) -> str:
        """A file that `train --config` takes."""
        best = self.config.replace(algo_kwargs={**self.config.algo_kwargs, **values})
        plain = {name: value for name, value in best.to_dict().items() if name in best.model_fields_set}
        return "".join(f"# {line}\n" for line in about) + dump_yaml(plain)

    def to_dict(self) -> dict[str, Any]:
        return {
            "config": self.config.to_dict(),
            "space": to_plain(self.space),
            "seeds": list(self.seeds),
            "pruner": self.pruner,
            "sampler_seed": self.sampler_seed,
        }

    def write(self) -> None:
        """Begin a search in an empty directory, or make sure that the one in it is this one."""
        path = self.directory / PLAN_FILE
        if path.exists():
            differences = _differences(json.loads(path.read_text(encoding="utf-8")), self.to_dict())
            if differences:
                listed = "".join(f"\n  {line}" for line in differences)
                raise ConfigError(f"{self.directory}: holds another search; give another --out, or the same settings{listed}")
            return
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            write_text(path, json.dumps(self.to_dict(), indent=1) + "\n")
        except OSError as error:
            raise ConfigError(f"{self.directory}: cannot be written: {error.strerror}") from error

    @classmethod
    def read(cls, directory: Path) -> TunePlan:
        values = json.loads((directory / PLAN_FILE).read_text(encoding="utf-8"))
        config, space = TrainConfig.from_dict(values["config"]), from_plain(values["space"])
        return cls(directory, config, space, tuple(values["seeds"]), values["pruner"], values["sampler_seed"])


def make_space(config: TrainConfig, wanted: Sequence[str]) -> dict[str, Range]:
    """The ranges declared beside the algorithm's options, or those of the options in `wanted`: `KEY` for the declared one,
    `KEY=RANGE` for one of the user's own."""
    options = type(config.options)
    if not wanted:
        declared = [name for name in options.search_space if not _decided_by_schedule(config.options, name)]
        return {name: _with_own(_fitting(options.search_space[name], config, name), config, name) for name in declared}
    space = dict(_wanted(options, text) for text in wanted)
    for name, found in space.items():
        require_allowed(options, name, found)
    return space


def _fitting(found: Range, config: TrainConfig, name: str) -> Range:
    """Rollouts are done whole: with one as long as training, a trial would get far more steps than the others."""
    if name != "num_steps" or not isinstance(found, Choice):
        return found
    longest = config.total_timesteps // (4 * config.num_envs)
    return Choice(tuple(value for value in found.values if value <= longest))


def _with_own(found: Range, config: TrainConfig, name: str) -> Range:
    """A choice has the configuration's own value among its values."""
    own = config.options.to_dict()[name]
    return Choice((own, *found.values)) if isinstance(found, Choice) and not found.contains(own) else found


def _decided_by_schedule(options: CommonOptions, name: str) -> bool:
    """Where a schedule says itself where it begins, the option's own value has no effect."""
    schedule = getattr(options, f"{name}_schedule", None)
    return schedule is not None and schedule.start is not None


def _wanted(options: type[CommonOptions], text: str) -> tuple[str, Range]:
    name, equals, given = text.partition("=")
    name = name.removeprefix("algo_kwargs.").strip()
    if name not in options.model_fields:
        raise ConfigError(f"--search {text}: {options.algo} has no option {name!r}{did_you_mean(name, options.model_fields)}")
    if not equals:
        if name not in options.search_space:
            known = ", ".join(options.search_space)
            raise ConfigError(
                f"--search {name}: no range is declared for it; give one, {name}=LOW..HIGH. Declared are: {known}"
            )
        return name, options.search_space[name]
    try:
        return name, _read_range(options, name, given.strip())
    except ConfigError as error:
        raise ConfigError(f"--search {text}: {error}") from error


def _read_range(options: type[CommonOptions], name: str, text: str) -> Range:
    if text.startswith("["):
        values = parse_yaml(text, source=name)
        if not isinstance(values, list) or not values:
            raise ConfigError(f"given {text!r}; a list of values is not empty")
        return Choice(tuple(values))
    kinds = members(options.model_fields[name].annotation)
    return parse_range(text, whole=int in kinds and float not in kinds)


def require_allowed(options: type[CommonOptions], name: str, found: Range) -> None:
    """ConfigError when an end of the range is no value the option takes."""
    problems = [problem for value in found.ends() for problem in _problems(options, name, value)]
    if problems:
        raise ConfigError(f"--search {name}={range_words(found)}: {problems[0]}")


def _problems(options: type[CommonOptions], name: str, value: Any) -> list[str]:
    """What is wrong with one value by itself; two options that clash are a trial's affair."""
    try:
        options.from_kwargs({name: value}, path="")
    except OptionsError as error:
        return [problem.text for problem in error.problems if problem.keys == (name,)]
    return []


def _differences(old: Any, new: Any, path: str = "") -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        keys = dict.fromkeys([*old, *new])
        return [line for key in keys for line in _differences(old.get(key), new.get(key), f"{path}.{key}".lstrip("."))]
    return [] if label(old) == label(new) else [f"{path}: {label(old)} then, {label(new)} now"]
