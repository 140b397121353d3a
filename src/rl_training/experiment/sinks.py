"""Where metrics can go beside `metrics.jsonl`: what a sink is, and how those of a configuration are found.

A sink is any class below `MetricsSink`. It is named in the configuration (`sinks: [tensorboard, my_package.logs:MySink]`, its
arguments below `sink_kwargs`) or handed over as an object (`agent.learn(sinks=[MySink()])`).
"""

from __future__ import annotations

import logging
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from rl_training.errors import ConfigError, did_you_mean

logger = logging.getLogger(__name__)

# name: the class; imported when it is asked for
KNOWN = {
    "tensorboard": "rl_training.experiment.tensorboard_sink:TensorBoardSink",
    "wandb": "rl_training.experiment.wandb_sink:WandbSink",
}
_IMPORT_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


class MetricsSink:
    """Somewhere metrics can go. Values are plain: numbers, texts, booleans, lists; None for what is not finite.

    Override what you need. `log_metrics` is called in the training loop, so it must be quick: derive from `BatchingSink` if
    writing is not. One that raises is told and left out from there on: a second record is no reason to stop a run.
    """

    def open(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        """The run begins, or goes on: its directory, and its configuration in JSON's types."""

    def log_metrics(self, metrics: Mapping[str, Any], *, step: int) -> None:
        """Take the metrics of one step."""

    def rewind(self, step: int) -> None:
        """Whatever came after this step never happened: a run goes on from an earlier checkpoint."""

    def close(self) -> None:
        """Write what is still in memory."""


class Row(NamedTuple):
    """The numbers of one log call; None for the mark of a rewind to just before `step`."""

    wall_time: float
    step: int
    scalars: dict[str, float] | None


class BatchingSink(MetricsSink, ABC):
    """Keeps numbers back and writes them together, so that logging costs the training loop next to nothing."""

    def __init__(self, *, batch_size: int = 64, max_seconds: float = 10.0) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size: given {batch_size}; possible: at least 1")
        self.batch_size = batch_size  # log calls
        self.max_seconds = max_seconds
        self._waiting: list[Row] = []

    @abstractmethod
    def write(self, rows: Sequence[Row]) -> None:
        """Write what has come together."""

    def log_metrics(self, metrics: Mapping[str, Any], *, step: int) -> None:
        scalars = {name: float(value) for name, value in metrics.items() if isinstance(value, bool | int | float)}
        self._waiting.append(Row(time.time(), step, scalars))
        if len(self._waiting) >= self.batch_size or time.time() - self._waiting[0].wall_time >= self.max_seconds:
            self.flush()

    def rewind(self, step: int) -> None:
        self._waiting.append(Row(time.time(), step + 1, None))

    def flush(self) -> None:
        """Write now."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            self.write(waiting)

    def close(self) -> None:
        self.flush()


class SinkGroup:
    """Several sinks as one, none of which can stop a run."""

    def __init__(self, sinks: Iterable[MetricsSink]) -> None:
        self._sinks = list(sinks)

    def open(self, run_dir: Path, config: Mapping[str, Any]) -> None:
        """An error here is raised: nothing is lost yet, and the user can put it right."""
        for count, sink in enumerate(self._sinks):
            try:
                sink.open(run_dir, config)
            except BaseException:  # noqa: PERF203 (opened once a run)
                self._sinks = self._sinks[:count]
                self.close()
                raise

    def log_metrics(self, metrics: Mapping[str, Any], *, step: int) -> None:
        self._each("log_metrics", metrics, step=step)

    def rewind(self, step: int) -> None:
        self._each("rewind", step)

    def close(self) -> None:
        """A second call does nothing."""
        self._each("close")
        self._sinks = []

    def _each(self, method: str, *arguments: Any, **named: Any) -> None:
        for sink in list(self._sinks):
            try:
                getattr(sink, method)(*arguments, **named)
            except Exception as error:  # noqa: PERF203 (a user's own class may raise anything)
                self._sinks.remove(sink)
                told = (type(sink).__name__, method, type(error).__name__, error)
                logger.warning("%s: failed in %s and gets no more metrics: %s: %s", *told)
                logger.debug("the traceback", exc_info=True)
                if method != "close":  # what it had opened (files, a W&B run) is not left open until the run ends
                    SinkGroup([sink]).close()


def require_sink_names(names: Iterable[str]) -> None:
    """ConfigError for a name that is neither known nor an import path."""
    for name in names:
        if name not in KNOWN and not _IMPORT_PATH.fullmatch(name):
            raise ConfigError(f"there is no sink {name!r}{did_you_mean(name, KNOWN)} Your own is written package.module:Class")


def make_sinks(names: Iterable[str], arguments: Mapping[str, Mapping[str, Any]]) -> list[MetricsSink]:
    """The sinks of a configuration; whatever is wrong with them is said here, before a run directory is made."""
    return [_make(name, arguments.get(name, {})) for name in names]


def _make(name: str, arguments: Mapping[str, Any]) -> MetricsSink:
    module, _, attribute = KNOWN.get(name, name).partition(":")
    try:
        kind = getattr(import_module(module), attribute)
    except (ModuleNotFoundError, AttributeError) as error:
        raise ConfigError(f"sinks: {name!r} could not be imported: {error}") from error
    if not isinstance(kind, type) or not issubclass(kind, MetricsSink):
        raise ConfigError(f"sinks: {name!r} is no class below rl_training.experiment.MetricsSink")
    try:
        return kind(**arguments)
    except TypeError as error:
        raise ConfigError(f"sink_kwargs.{name}: {error}") from error
