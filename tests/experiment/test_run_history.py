"""Metrics on disk: exact, whole after a kill, one joined history after a resume."""

from __future__ import annotations

import json
import logging
import math
import signal
import struct
import subprocess
import sys
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from run_helpers import SOURCES, Config, history, state

from rl_training.errors import RLTrainingError
from rl_training.experiment.run import Run
from rl_training.experiment.run_logger import MetricsSink, RunLogger


@pytest.fixture
def run(tmp_path: Path):
    with Run.create(Config(tmp_path), suffix="a") as made:
        yield made


# --- history ---


def test_numbers_of_every_kind_are_written_exactly(run: Run):
    run.log(
        {
            "python": 0.1,
            "torch": torch.tensor(0.1, requires_grad=True),
            "numpy": np.float32(0.1),
            "count": np.int64(2**60 + 1),
            "flag": np.bool_(True),
            "nan": math.nan,
            "inf": torch.tensor(math.inf),
            "many": np.array([1.0, math.nan]),
        },
        step=7,
    )
    line = (run.directory / "metrics.jsonl").read_text()
    assert "NaN" not in line
    rounded = struct.unpack("f", struct.pack("f", 0.1))[0]
    assert json.loads(line) == {
        "step": 7,
        "metrics": {
            "python": 0.1,
            "torch": rounded,
            "numpy": rounded,
            "count": 2**60 + 1,
            "flag": True,
            "nan": None,
            "inf": None,
            "many": [1.0, None],
        },
    }


def test_a_killed_process_loses_no_line(tmp_path: Path):
    code = f"""
import os, signal, sys; sys.path.insert(0, {SOURCES!r})
from rl_training.experiment.run_logger import RunLogger
logger = RunLogger({str(tmp_path)!r})
for step in range(100):
    logger.log_metrics({{"loss": step / 3}}, step=step)
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    assert [(line["step"], line["metrics"]["loss"]) for line in history(tmp_path)] == [(step, step / 3) for step in range(100)]


def test_a_resumed_history_is_cut_to_what_the_checkpoint_knew_and_goes_on(run: Run):
    for step in range(5):
        run.log({"loss": 1.0}, step=step)
    run.close()
    with (run.directory / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "metr')  # torn by a kill
    with Run.open(run.directory) as again:
        assert again.num_lines == 5
        again.cut_history(3)
        assert again.num_lines == 3
        again.log({"loss": 2.0}, step=3)
        assert again.num_lines == 4
    assert [(line["step"], line["metrics"]["loss"]) for line in history(run.directory)] == [(0, 1), (1, 1), (2, 1), (3, 2)]


def test_a_run_begun_from_anothers_checkpoint_counts_on_without_its_lines(run: Run, tmp_path: Path):
    for step in range(5):
        run.log({}, step=step)
    assert run.history_lines == 5
    with Run.create(Config(tmp_path), suffix="b") as other:
        other.continue_history(3)
        other.log({}, step=3)
        assert (other.num_lines, other.history_lines) == (1, 4)
        other.save_checkpoint(state(3), step=3, keep=1)
        other.log({}, step=4)
    with Run.open(other.directory) as other:  # and resumed in its own directory
        other.continue_history(4)
        assert (other.num_lines, other.history_lines) == (1, 4)
    assert [line["step"] for line in history(other.directory)] == [3]
    assert run.num_lines == 5


def test_a_torn_line_never_joins_the_next_one(tmp_path: Path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "metrics": {}}\n{"step": 2')
    with RunLogger(tmp_path) as logger:
        logger.log_metrics({}, step=2)
    assert [line["step"] for line in history(tmp_path)] == [1, 2]


def test_a_history_shorter_than_the_checkpoint_remembers_is_told(run: Run, caplog: pytest.LogCaptureFixture):
    run.log({}, step=1)
    run.cut_history(4)
    assert run.num_lines == 1
    assert "has 1 lines, the checkpoint knew 4" in caplog.text


class Memory(MetricsSink):
    def __init__(self) -> None:
        self.seen: list[object] = []

    def log_metrics(self, metrics: Mapping[str, Any], *, step: int) -> None:
        self.seen.append((step, dict(metrics)))

    def rewind(self, step: int) -> None:
        self.seen.append(("rewind", step))

    def close(self) -> None:
        self.seen.append("closed")


def test_a_sink_of_ones_own_sees_plain_numbers_rewinds_and_the_end(tmp_path: Path):
    sink = Memory()
    with RunLogger(tmp_path, sinks=[sink]) as logger:
        logger.log_metrics({"a": torch.tensor(0.5)}, step=10)
        logger.log_metrics({"a": math.nan}, step=20)
        logger.cut(1)
    assert sink.seen == [(10, {"a": 0.5}), (20, {"a": None}), ("rewind", 10), "closed"]


def scalars(folder: Path) -> list[tuple[int, float]]:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder)).Reload()
    return [(event.step, event.value) for event in events.Scalars("loss")]


def test_tensorboard_shows_the_same_joined_history(tmp_path: Path):
    with RunLogger(tmp_path) as logger:
        for step in (10, 20, 30):
            logger.log_metrics({"loss": step / 4, "note": "text", "lost": math.nan}, step=step)
    assert scalars(tmp_path / "tensorboard") == [(10, 2.5), (20, 5.0), (30, 7.5)]
    with RunLogger(tmp_path) as logger:
        logger.cut(1)
        logger.log_metrics({"loss": -1.0}, step=20)
    assert scalars(tmp_path / "tensorboard") == [(10, 2.5), (20, -1.0)]


def test_a_missing_tensorboard_is_told_once_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    with caplog.at_level(logging.INFO), RunLogger(tmp_path) as logger:
        for step in range(200):
            logger.log_metrics({"loss": 1.0}, step=step)
    assert caplog.text.count("tensorboard is not installed") == 1
    assert len(history(tmp_path)) == 200
    assert not (tmp_path / "tensorboard").exists()


def test_logging_imports_neither_torch_nor_tensorboard(tmp_path: Path):
    code = f"""
import sys; sys.path.insert(0, {SOURCES!r})
from rl_training.experiment.run import Run
from rl_training.experiment.run_logger import RunLogger
RunLogger({str(tmp_path)!r}).log_metrics({{"loss": 1.0}}, step=1)
assert not {{"torch", "tensorboard", "gymnasium", "pydantic"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_full_disk_stops_the_log_without_a_torn_line(tmp_path: Path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"a small disk could not be mounted: {mounted.stderr.decode().strip()}")
    try:
        with RunLogger(disk, tensorboard=False) as logger:
            with pytest.raises(RLTrainingError, match="No space left on device"):
                _log_for_ever(logger)
            steps = [line["step"] for line in history(disk)]
            assert steps == list(range(logger.num_lines))
            assert len(steps) > 50
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def _log_for_ever(logger: RunLogger) -> None:
    for step in count():
        logger.log_metrics({"text": "x" * 700}, step=step)
