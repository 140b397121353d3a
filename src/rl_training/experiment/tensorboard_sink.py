"""Scalars for TensorBoard, by its own record writer; torch's wrapper takes long to import."""

from __future__ import annotations

import logging
import os
import socket
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rl_training.experiment.files import reason
from rl_training.experiment.sinks import BatchingSink, Row

logger = logging.getLogger(__name__)


class TensorBoardSink(BatchingSink):
    """`RUN/tensorboard/`. On by default: where TensorBoard is not installed it says so once and does nothing."""

    def __init__(self, **batching: Any) -> None:
        super().__init__(**batching)
        self.directory = Path("tensorboard")
        self._writer: Any = None
        self._gave_up = False

    def open(self, run_dir: Path, config: Mapping[str, Any]) -> None:  # noqa: ARG002 (the run's own files have it)
        self.directory = run_dir / "tensorboard"

    def write(self, rows: Sequence[Row]) -> None:
        """TensorBoard is imported at the first time."""
        if self._gave_up:
            return
        try:
            self._write(rows)
        except ImportError:
            self._gave_up = True
            logger.info("tensorboard is not installed; metrics go to metrics.jsonl only (pip install 'rl-training[report]')")
        except OSError as error:  # a second record of what metrics.jsonl holds is no reason to stop a run
            self._gave_up = True
            logger.warning("%s: TensorBoard's record ends here: %s", self.directory, reason(error))

    def _write(self, rows: Sequence[Row]) -> None:
        with warnings.catch_warnings():  # its own imports are not our users' concern
            warnings.simplefilter("ignore")
            from tensorboard.compat.proto.event_pb2 import Event, SessionLog
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.record_writer import RecordWriter
        if self._writer is None:
            self.directory.mkdir(exist_ok=True)  # a run directory that was removed is not made again
            name = f"events.out.tfevents.{time.time_ns():019d}.{socket.gethostname()}.{os.getpid()}"
            self._writer = RecordWriter((self.directory / name).open("xb"))
            self._writer.write(Event(wall_time=rows[0].wall_time, file_version="brain.Event:2").SerializeToString())
        for wall_time, step, scalars in rows:
            event = Event(wall_time=wall_time, step=step)
            if scalars is None:  # the mark by which TensorBoard drops what it had read of this step and later ones
                event.session_log.status = SessionLog.START
            else:
                event.summary.value.extend(Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items())
            self._writer.write(event.SerializeToString())
        self._writer.flush()

    def close(self) -> None:
        super().close()
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(OSError):  # told by write already
                writer.close()
