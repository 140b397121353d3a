"""Metrics on their way to disk: `metrics.jsonl` at once, TensorBoard and whatever else is added in their own time."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Iterable, Mapping
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any

from rl_training.errors import RLTrainingError
from rl_training.experiment.files import open_plain, plain, reason, write_all
from rl_training.experiment.sinks import MetricsSink, SinkGroup
from rl_training.experiment.tensorboard_sink import TensorBoardSink

logger = logging.getLogger(__name__)


class RunLogger:
    """Appends to a run's history. A line is with the system when `log_metrics` returns, so a killed process loses none."""

    def __init__(
        self,
        run_dir: str | Path,
        *,
        sinks: Iterable[MetricsSink] = (),
        tensorboard: bool = True,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.path = Path(run_dir) / "metrics.jsonl"
        self._sinks = SinkGroup([*([TensorBoardSink()] if tensorboard else []), *sinks])
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = FileIO(self.path, "a", opener=plain)
        except OSError as error:
            raise RLTrainingError(f"{self.path}: cannot be written: {reason(error)}") from error
        self.num_lines = 0
        self._size = 0
        try:
            self._truncate(None)  # a line torn by a kill would swallow the next one
            self._sinks.open(self.path.parent, config or {})
        except BaseException:
            self._file.close()
            raise

    def log_metrics(self, metrics: Mapping[str, Any], *, step: int) -> None:
        """Append `{"step": n, "metrics": {...}}`; numbers may be 0-d tensors or numpy's, what is not finite becomes null."""
        plain = {name: plain_value(value) for name, value in metrics.items()}
        line = json.dumps({"step": int(step), "metrics": plain}, allow_nan=False).encode() + b"\n"
        try:
            if os.fstat(self._file.fileno()).st_nlink == 0:  # writing would succeed, to nowhere
                raise RLTrainingError(f"{self.path}: was removed while the run was writing to it")
            write_all(self._file, line)
        except (OSError, ValueError) as error:
            self._undo_torn_line()
            raise RLTrainingError(f"{self.path}: cannot be written: {reason(error)}") from error
        self._size += len(line)
        self.num_lines += 1
        self._sinks.log_metrics(plain, step=int(step))

    def cut(self, num_lines: int) -> None:
        """Forget all but the first lines: the run goes on from the checkpoint that knew just these."""
        if num_lines > self.num_lines:
            logger.warning("%s: has %d lines, the checkpoint knew %d; some are lost", self.path, self.num_lines, num_lines)
        last_step = self._truncate(num_lines)
        self._sinks.rewind(last_step)

    def sync(self) -> None:
        """Have the lines last through a power failure; a checkpoint that counts them does this first."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise RLTrainingError(f"{self.path}: cannot be written: {reason(error)}") from error

    def close(self) -> None:
        """Finish all sinks; a second call does nothing."""
        self._file.close()
        self._sinks.close()

    def __enter__(self) -> RunLogger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _truncate(self, num_lines: int | None) -> int:
        """Keep so many whole lines (None: all), in one system call; returns the step of the last one kept."""
        count, size, last = 0, 0, b""
        try:
            with open_plain(self.path) as lines:
                for line in lines:
                    if count == num_lines or not line.endswith(b"\n"):
                        break
                    count, size, last = count + 1, size + len(line), line
            os.ftruncate(self._file.fileno(), size)
        except OSError as error:
            raise RLTrainingError(f"{self.path}: cannot be cut to {size} bytes: {reason(error)}") from error
        self.num_lines, self._size = count, size
        try:
            return int(json.loads(last)["step"])
        except (ValueError, KeyError, TypeError):
            return -1

    def _undo_torn_line(self) -> None:
        try:
            os.ftruncate(self._file.fileno(), self._size)
        except (OSError, ValueError):
            logger.debug("%s: the torn line stays; the next to open the file drops it", self.path)


def plain_value(value: Any) -> Any:
    """What JSON can hold of a metric."""
    if hasattr(value, "tolist"):  # torch's and numpy's; one without dimensions gives a number
        value = value.tolist()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None  # JSON has no word for it
    if isinstance(value, Mapping):
        return {str(key): plain_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(item) for item in value]
    return str(value)
