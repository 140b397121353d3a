"""Metrics on their way to disk: `metrics.jsonl` at once, TensorBoard and whatever else is added in their own time."""

from __future__ import annotations

import json
import logging
import math
import os
import socket
import time
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any

from rl_training.errors import RLTrainingError
from rl_training.experiment.files import reason, write_all

logger = logging.getLogger(__name__)


class MetricsSink:
    """Somewhere metrics can go. Values are plain: numbers, texts, booleans, lists; None for what is not finite."""

    def log_metrics(self, metrics: Mapping[str, Any], *, step: int) -> None:
        """Take the metrics of one step."""

    def rewind(self, step: int) -> None:
        """Whatever came after this step never happened: a run goes on from an earlier checkpoint."""

    def close(self) -> None:
        """Write what is still in memory."""


class RunLogger:
    """Appends to a run's history. A line is with the system when `log_metrics` returns, so a killed process loses none."""

    def __init__(self, run_dir: str | Path, *, sinks: Iterable[MetricsSink] = (), tensorboard: bool = True) -> None:
        self.path = Path(run_dir) / "metrics.jsonl"
        self._sinks: list[MetricsSink] = [*([TensorBoardSink(self.path.parent / "tensorboard")] if tensorboard else []), *sinks]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = FileIO(self.path, "a")
        except OSError as error:
            raise RLTrainingError(f"{self.path}: cannot be written: {reason(error)}") from error
        self.num_lines = 0
        self._size = 0
        self._truncate(None)  # a line torn by a kill would swallow the next one

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
        for sink in self._sinks:
            sink.log_metrics(plain, step=int(step))

    def cut(self, num_lines: int) -> None:
        """Forget all but the first lines: the run goes on from the checkpoint that knew just these."""
        if num_lines > self.num_lines:
            logger.warning("%s: has %d lines, the checkpoint knew %d; some are lost", self.path, self.num_lines, num_lines)
        last_step = self._truncate(num_lines)
        for sink in self._sinks:
            sink.rewind(last_step)

    def sync(self) -> None:
        """Have the lines last through a power failure; a checkpoint that counts them does this first."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise RLTrainingError(f"{self.path}: cannot be written: {reason(error)}") from error

    def close(self) -> None:
        """Finish all sinks; a second call does nothing."""
        self._file.close()
        sinks, self._sinks = self._sinks, []
        for sink in sinks:
            sink.close()

    def __enter__(self) -> RunLogger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _truncate(self, num_lines: int | None) -> int:
        """Keep so many whole lines (None: all), in one system call; returns the step of the last one kept."""
        count, size, last = 0, 0, b""
        try:
            with self.path.open("rb") as lines:
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


class TensorBoardSink(MetricsSink):
    """Scalars for TensorBoard, written in batches by its own record writer; torch's wrapper takes long to import."""

    def __init__(self, directory: Path, *, batch_size: int = 64, max_seconds: float = 10.0) -> None:
        self.directory = directory
        self.batch_size = batch_size  # log calls
        self.max_seconds = max_seconds
        self._waiting: list[tuple[float, int, dict[str, float] | None]] = []
        self._writer: Any = None
        self._gave_up = False

    def log_metrics(self, metrics: Mapping[str, Any], *, step: int) -> None:
        scalars = {name: float(value) for name, value in metrics.items() if isinstance(value, bool | int | float)}
        self._append(step, scalars)
        if len(self._waiting) >= self.batch_size or time.time() - self._waiting[0][0] >= self.max_seconds:
            self.flush()

    def rewind(self, step: int) -> None:
        self._append(step + 1, None)

    def _append(self, step: int, scalars: dict[str, float] | None) -> None:
        self._waiting.append((time.time(), step, scalars))

    def flush(self) -> None:
        """Write what has come together. TensorBoard is imported at the first time."""
        waiting, self._waiting = self._waiting, []
        if self._gave_up or not waiting:
            return
        try:
            self._write(waiting)
        except ImportError:
            self._gave_up = True
            logger.info("tensorboard is not installed; metrics go to metrics.jsonl only (pip install 'rl-training[report]')")
        except OSError as error:  # a second record of what metrics.jsonl holds is no reason to stop a run
            self._gave_up = True
            logger.warning("%s: TensorBoard's record ends here: %s", self.directory, reason(error))

    def _write(self, waiting: list[tuple[float, int, dict[str, float] | None]]) -> None:
        with warnings.catch_warnings():  # its own imports are not our users' concern
            warnings.simplefilter("ignore")
            from tensorboard.compat.proto.event_pb2 import Event, SessionLog
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.record_writer import RecordWriter
        if self._writer is None:
            self.directory.mkdir(exist_ok=True)  # a run directory that was removed is not made again
            name = f"events.out.tfevents.{time.time_ns():019d}.{socket.gethostname()}.{os.getpid()}"
            self._writer = RecordWriter((self.directory / name).open("xb"))
            self._writer.write(Event(wall_time=waiting[0][0], file_version="brain.Event:2").SerializeToString())
        for wall_time, step, scalars in waiting:
            event = Event(wall_time=wall_time, step=step)
            if scalars is None:  # the mark by which TensorBoard drops what it had read of this step and later ones
                event.session_log.status = SessionLog.START
            else:
                event.summary.value.extend(Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items())
            self._writer.write(event.SerializeToString())
        self._writer.flush()

    def close(self) -> None:
        self.flush()
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(OSError):  # told by flush already
                writer.close()
