"""TrainConfig: everything that decides what a run does, checked before any work is done."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import ValidationInfo, field_validator

from rl_training.errors import ConfigError, did_you_mean, nearest
from rl_training.experiment.sinks import require_sink_names
from rl_training.options import load_options_class
from rl_training.options._words import given_words, plain
from rl_training.options.base import CommonOptions, Options, OptionsError, Problem, option

DEFAULT_ENV_TIMEOUT = 600.0
# what a configuration has that is begun from an algorithm and an environment alone
WITHOUT_PRESET = {"seed": 0, "total_timesteps": 100_000, "output_dir": "runs"}
_DEVICE = re.compile(r"auto|cpu|cuda(:(0|[1-9][0-9]*))?")


class TrainConfig(Options):
    """One run, completely described. Knows the algorithm's settings (`options`), but no environment, file or device."""

    noun: ClassVar[str] = "the config"

    algo: str = option(..., "Name of the algorithm, as `rl-training list` shows it.", words="name of an algorithm")
    env_id: str = option(..., "Gymnasium id of the environment.", min_length=1)
    seed: int = option(..., "Everything random in the run follows from it.", ge=0, lt=2**32)
    total_timesteps: int = option(..., "Environment steps of the whole run, over all environments.", ge=1)
    output_dir: Path = option(..., "Folder in which the run makes its own directory.")
    execution_backend: Literal["local_sync", "local_async", "batched", "ray"] = option(
        "local_sync",
        "Where environments run: in this process, in processes of their own, many at once in numpy, or on a Ray cluster.",
    )
    ray_address: str | None = option(
        None,
        "HOST:PORT of a running Ray cluster, or auto; none means RAY_ADDRESS, else a cluster started here for the run.",
        min_length=1,
    )
    ray_workers: int | None = option(
        None, "Ray workers that a population is spread over; none means one for every core of the cluster.", ge=1
    )
    device: str = option(
        "auto", "Where networks live; auto takes a GPU if there is one.", words="'auto', 'cpu', 'cuda' or 'cuda:N'"
    )
    num_envs: int = option(1, "Environments stepped side by side.", ge=1, le=10_000)
    num_threads: int | None = option(None, "Threads to compute with; none means the algorithm's own default.", ge=1, le=1_024)
    eval_episodes: int = option(5, "Episodes in each evaluation; 0 means no evaluation.", ge=0, le=1_000_000)
    log_interval: int = option(1_000, "Environment steps between two lines of metrics.", ge=1)
    checkpoint_interval: int = option(10_000, "Environment steps between two checkpoints.", ge=1)
    keep_checkpoints: int = option(3, "Newest checkpoints that are kept; the best and the last always are.", ge=1)
    on_nan: Literal["stop", "skip"] | None = option(
        None,
        "When a number is not finite: end the run with a checkpoint from before, or take the turn back and go on; none means "
        "stop, but evolution leaves out the pair of episodes that met it.",
    )
    max_skips: int = option(10, "Turns in a row that `on_nan: skip` takes back before it ends the run after all.", ge=1)
    env_timeout: float | None = option(
        None,
        "Seconds for one step or reset of an environment in a process of its own: under local_async (none means 600), and "
        "under ray where it is given.",
        gt=0,
        le=86_400,
    )
    tags: tuple[str, ...] = option((), "Words to find the run by.")
    benchmark: dict[str, Any] = option({}, "Notes for benchmark reports; training does not look at them.")
    algo_kwargs: dict[str, Any] = option({}, "The algorithm's own options, as `rl-training show ALGO` lists them.")
    env_kwargs: dict[str, Any] = option({}, "Arguments for the environment, such as max_episode_steps.")
    sinks: tuple[str, ...] = option(
        ("tensorboard",), "Where metrics go beside metrics.jsonl: tensorboard, wandb, or package.module:Class of your own."
    )
    sink_kwargs: dict[str, Any] = option({}, "Arguments for sinks, by the sink's name, as in {wandb: {mode: offline}}.")

    @cached_property
    def options(self) -> CommonOptions:
        """The algorithm's typed settings, defaults filled in."""
        return load_options_class(self.algo).from_kwargs(self.algo_kwargs)

    @property
    def budget(self) -> int:
        """Timesteps of the whole run, of a second phase as well where the algorithm has one."""
        return self.options.budget(self.total_timesteps)

    @property
    def threads(self) -> int:
        """The number of threads this run computes with."""
        return self.options.default_num_threads if self.num_threads is None else self.num_threads

    @property
    def envs_apart(self) -> bool:
        """Whether environments run in processes that can be ended from outside."""
        return self.execution_backend == "local_async" or self.env_timeout is not None

    @property
    def step_timeout(self) -> float:
        """Seconds that an environment in a worker process has for a step or a reset."""
        return DEFAULT_ENV_TIMEOUT if self.env_timeout is None else self.env_timeout

    def contradictions(self) -> Iterator[Problem]:
        """Only what runs in another process can be ended from outside, only Ray has an address, and only evaluations can end a
        run early; the algorithm has a word as well."""
        yield from super().contradictions()
        for key in ("ray_address", "ray_workers"):
            if getattr(self, key) is not None and self.execution_backend != "ray":
                yield Problem((key,), f"belongs to execution_backend 'ray'; given is {self.execution_backend!r}")
        if self.env_timeout is not None and self.execution_backend not in ("local_async", "ray"):
            text = f"a time-out needs execution_backend 'local_async' or 'ray'; it is {self.execution_backend!r}"
            yield Problem(("env_timeout", "execution_backend"), text)
        yield from self.options.contradictions_with_run(num_envs=self.num_envs, execution_backend=self.execution_backend)
        if self.eval_episodes == 0 and self.options.early_stopping is not None:
            text = (
                "early_stopping looks at evaluations, and 0 means there are none; give eval_episodes, or early_stopping: null"
            )
            yield Problem(("eval_episodes", "algo_kwargs.early_stopping"), text)

    def resolved(self) -> TrainConfig:
        """The same run with every default written out, so that it stays the same when defaults change."""
        return self.replace(**self.to_dict() | {"algo_kwargs": self.options.to_dict(), "num_threads": self.threads})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainConfig:
        """The inverse of `to_dict`."""
        return cls.from_kwargs(values, path="")

    def to_yaml(self) -> str:
        """A config file that loads as this config."""
        from rl_training.experiment.yaml_loader import dump_yaml

        return dump_yaml(self.to_dict())

    @classmethod
    def unknown_key(cls, key: str, given: Mapping[str, Any]) -> str:
        """The options of the algorithm are often written one level too high: say so rather than name a lookalike."""
        known = _known_options(given.get("algo"))
        if key in known:
            return f"the config has no option {key!r}, but {given['algo']} has: write algo_kwargs.{key}"
        match = nearest(key, cls.model_fields) or nearest(key, known)
        if match in known:
            return f"the config has no option {key!r}; did you mean 'algo_kwargs.{match}'?"
        return super().unknown_key(key, given)

    @field_validator("output_dir", mode="before")
    @classmethod
    def _to_path(cls, value: Any) -> Any:
        if value == "":
            raise ConfigError("given '' (str); possible: path; write '.' for the current folder")
        if isinstance(value, str | Path) and not _can_be_a_file_name(str(value)):
            raise ConfigError(f"given {given_words(str(value))}; possible: path, without characters that no file name can have")
        return Path(value) if isinstance(value, str) else value

    @field_validator("algo")
    @classmethod
    def _has_options(cls, value: str) -> str:
        load_options_class(value)
        return value

    @field_validator("device")
    @classmethod
    def _is_a_device(cls, value: str) -> str:
        if not _DEVICE.fullmatch(value):
            possible = ["auto", "cpu", "cuda", "cuda:0"]
            raise ConfigError(f"given {given_words(value)}; possible: auto, cpu, cuda or cuda:N{did_you_mean(value, possible)}")
        return value

    @field_validator("benchmark", "algo_kwargs", "env_kwargs", "sink_kwargs", mode="before")
    @classmethod
    def _to_plain(cls, value: Any) -> Any:
        """A copy in JSON's types: what a checkpoint gives back is then what this run used."""
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            return value
        return {key: _plain_item(key, item) for key, item in value.items()}

    @field_validator("sinks")
    @classmethod
    def _are_sinks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        require_sink_names(value)
        return value

    @field_validator("sink_kwargs")
    @classmethod
    def _fit_the_sinks(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        names = info.data.get("sinks", tuple(value))
        for name, arguments in value.items():
            if name not in names:
                raise ConfigError(f"{name!r} is not among the sinks; sinks: {', '.join(names) or 'none'}")
            if not isinstance(arguments, Mapping):
                raise ConfigError(f"{name}: given {given_words(arguments)}; possible: a mapping of the sink's arguments")
        return value

    @field_validator("algo_kwargs")
    @classmethod
    def _fit_the_algorithm(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if "algo" not in info.data:  # its own error is reported already
            return value
        options_class = load_options_class(info.data["algo"])
        misplaced = value.keys() & (cls.model_fields.keys() - options_class.model_fields.keys())
        text = "{} has no option {!r}; it is one of the config: write it beside algo_kwargs, not in it"
        problems = [Problem((key,), text.format(options_class.algo, key)) for key in sorted(misplaced)]
        try:
            options_class.from_kwargs({key: item for key, item in value.items() if key not in misplaced}, path="")
        except OptionsError as error:
            problems += error.problems
        if problems:
            raise OptionsError(problems)
        return value


def _can_be_a_file_name(text: str) -> bool:
    try:
        return b"\x00" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _plain_item(key: str, value: Any) -> Any:
    try:
        return plain(value)
    except ConfigError as error:
        raise OptionsError([Problem((key,), str(error))]) from None


def _known_options(algo: Any) -> set[str]:
    try:
        return set(load_options_class(algo).model_fields)
    except ConfigError:
        return set()
