"""A run on disk: its configuration, its metrics, its checkpoints."""

from __future__ import annotations

import logging
import math
import re
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from rl_training.errors import CheckpointError, ConfigError, RLTrainingError
from rl_training.experiment.checkpoint import CheckpointState, begin_checkpoint, read_header, save_checkpoint
from rl_training.experiment.checkpoint_file import finish_file
from rl_training.experiment.files import LINK, PARTIAL_SUFFIX, Errand, Replacement, reason, settle, write_text
from rl_training.experiment.locate import step_files, step_of
from rl_training.experiment.lock import RunLock
from rl_training.experiment.metadata import append_resume, numeric_environment, read_metadata, run_metadata, write_metadata
from rl_training.experiment.run_logger import RunLogger
from rl_training.experiment.sinks import MetricsSink

logger = logging.getLogger(__name__)

_ASIDE_SUFFIX = ".aside"
# what a run and its sinks write in its directory
WRITTEN = (".lock", "config.yaml", "metadata.json", "metrics.jsonl", "checkpoints", "tensorboard", "wandb", "wandb_id.txt")


class RunConfig(Protocol):
    """What a run directory needs to know of a configuration."""

    @property
    def algo(self) -> str: ...
    @property
    def env_id(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def output_dir(self) -> str | Path: ...
    def to_yaml(self) -> str: ...
    def to_dict(self) -> dict[str, Any]: ...


class Run:
    """A run directory that this process, and no other, works in until `close`."""

    def __init__(
        self,
        directory: Path,
        lock: RunLock,
        *,
        sinks: Iterable[MetricsSink] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.directory = directory
        self._lock = lock
        self._errand = Errand()
        self._logger = RunLogger(directory, sinks=sinks or (), tensorboard=sinks is None, config=config)
        self._environment = numeric_environment()
        # a run begun from another's checkpoint counts on from that history, but does not hold it
        self._lines_elsewhere = _count(read_metadata(directory), "history_lines_elsewhere")
        self.best_score = _best_score(directory / "checkpoints" / "best.safetensors")

    @classmethod
    def create(cls, config: RunConfig, *, suffix: str | None = None, sinks: Iterable[MetricsSink] | None = None) -> Run:
        """Begin a new directory; one that exists is never written into. Without `sinks` TensorBoard is one."""
        directory = _make_directory(config, suffix)
        lock = RunLock(directory)
        try:
            (directory / "checkpoints").mkdir()
            write_text(directory / "config.yaml", config.to_yaml())
            write_metadata(directory, {**run_metadata(), "exact": True, "resume_history": []})
            return cls(directory, lock, sinks=sinks, config=config.to_dict())
        except BaseException as error:
            lock.release()
            shutil.rmtree(directory, ignore_errors=True)  # nothing was learnt in it, and its name would stay taken
            if isinstance(error, OSError):
                raise RLTrainingError(f"{directory}: the run cannot be begun: {reason(error)}") from error
            raise

    @classmethod
    def open(
        cls, directory: str | Path, *, sinks: Iterable[MetricsSink] | None = None, config: Mapping[str, Any] | None = None
    ) -> Run:
        """Go on in a directory that `create` made; `config` is for the sinks."""
        directory = Path(directory)
        if not (directory / "config.yaml").is_file():
            raise CheckpointError(f"{directory}: is not a run directory: there is no config.yaml in it")
        _refuse_links(directory)
        lock = RunLock(directory)
        try:
            (directory / "checkpoints").mkdir(exist_ok=True)
            return cls(directory, lock, sinks=sinks, config=config)
        except BaseException as error:
            lock.release()
            if isinstance(error, OSError):
                raise RLTrainingError(f"{directory}: the run cannot go on: {reason(error)}") from error
            raise

    @property
    def num_lines(self) -> int:
        """How many lines the metrics history has."""
        return self._logger.num_lines

    @property
    def history_lines(self) -> int:
        """How many lines there are since training began, in whichever run directories."""
        return self._lines_elsewhere + self.num_lines

    def continue_history(self, lines: int) -> None:
        """Go on after line `lines` since training began: drop later ones here, or note that the earlier are elsewhere."""
        if self.num_lines == 0 and self._lines_elsewhere == 0 and not self.checkpoints():
            self._lines_elsewhere = lines
            self._note(history_lines_elsewhere=lines)
        else:
            self.cut_history(lines - self._lines_elsewhere)

    def checkpoint_metadata(self) -> dict[str, Any]:
        """What a checkpoint should know of the software that wrote it."""
        return {"environment": self._environment}

    def note_resume(self, config: RunConfig, *, step: int, changes: dict[str, Any], differences: list[str]) -> None:
        """Write down that the run goes on: from where, with which settings changed, and in what other software."""
        append_resume(self.directory, {"step": step, "changes": changes, "differences": differences})
        if changes:
            try:
                write_text(self.directory / "config.yaml", config.to_yaml())
            except OSError as error:
                raise RLTrainingError(f"{self.directory}: the run cannot go on: {reason(error)}") from error

    def note_inexact(self) -> None:
        """From here on the run is not, bit for bit, what an uninterrupted one would have been."""
        self._note(exact=False)

    def _note(self, **values: Any) -> None:
        write_metadata(self.directory, {**read_metadata(self.directory), **values})

    def log(self, metrics: Mapping[str, Any], *, step: int) -> None:
        """Append one line to the history."""
        self._logger.log_metrics(metrics, step=step)

    def cut_history(self, num_lines: int) -> None:
        """Forget what was logged after the checkpoint that is resumed, so that one joined history results."""
        self._logger.cut(num_lines)

    def save_checkpoint(self, state: CheckpointState, *, step: int, keep: int, wait: bool = True) -> Path:
        """Write the checkpoint of a step, then remove all but the last `keep`.

        Without `wait` a thread does what is the disk's part of it: the file has its name a moment later, and what goes
        wrong then is told by whatever touches the checkpoints next.
        """
        self._require_directory()
        self._await_errand()
        path = self.directory / "checkpoints" / f"step_{step:09d}.safetensors"
        written = begin_checkpoint(path, state)
        self._errand.start(lambda: self._settle(written, step, max(keep, 1)))
        if wait:
            self._await_errand()
        return path

    def _settle(self, written: Replacement, step: int, keep: int) -> None:
        # the checkpoint knows how many lines there are: they must not be lost when it is not
        finish_file(written, before=self._logger.sync)
        settle(written.path.parent, self._superseded(step, keep))

    def save_best(self, state: CheckpointState, *, score: float, step: int) -> Path:
        """Write the policy alone, to act with and not to resume from."""
        self._require_directory()
        self._await_errand()
        metadata = {**state.metadata, "kind": "policy", "score": score, "step": step}
        policy = replace(state, buffer_state={}, trainer_state={}, metadata=metadata)
        path = save_checkpoint(self.directory / "checkpoints" / "best.safetensors", policy)
        self.best_score = score
        return path

    def checkpoints(self) -> list[Path]:
        """Newest first; the best policy is not among them."""
        self._await_errand()
        return step_files(self.directory / "checkpoints")

    def close(self) -> None:
        """Write what waits and let others in; a second call does nothing."""
        try:
            try:
                self._await_errand()
            finally:
                self._logger.close()
        finally:
            self._lock.release()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _require_directory(self) -> None:
        if not self._lock.in_place:
            raise CheckpointError(
                f"{self.directory}: nothing can be saved: the run directory was removed or replaced, or is closed"
            )

    def _await_errand(self) -> None:
        try:
            self._errand.wait()
        except OSError as error:
            raise CheckpointError(f"{self.directory}: a checkpoint's name may not last: {reason(error)}") from error

    def _superseded(self, step: int, keep: int) -> list[Path]:
        """What may go now that the checkpoint of `step` is there."""
        folder = self.directory / "checkpoints"
        files = step_files(folder)
        for path in [path for path in files if step_of(path) > step]:
            # the run went on from an earlier checkpoint: these are of a future that did not happen, but may be dear to someone
            logger.warning("%s: is later than the checkpoint just saved; set aside with the ending %s", path, _ASIDE_SUFFIX)
            with suppress(OSError):
                path.replace(path.with_name(path.name + _ASIDE_SUFFIX))
        past = [path for path in files if step_of(path) <= step]
        aside = sorted(folder.glob(f"step_*{_ASIDE_SUFFIX}"), reverse=True)
        # we hold the lock, so whoever began a partial file is dead
        return [*past[keep:], *aside[keep:], *folder.glob(f"*{PARTIAL_SUFFIX}")]


def _refuse_links(directory: Path) -> None:
    """Archives carry links, and what is written through one lands elsewhere."""
    for name in WRITTEN:
        if (directory / name).is_symlink():
            raise CheckpointError(f"{directory / name}: {LINK}; put there what it leads to, or go on with another run suffix")


def _count(metadata: Mapping[str, Any], name: str) -> int:
    """A number in metadata that anybody may have written; what is none is told and counts as 0."""
    value = metadata.get(name, 0)
    if type(value) is int and 0 <= value < 2**53:
        return value
    logger.warning("metadata.json: %s is %s, no count; 0 is taken", name, repr(value)[:80])
    return 0


def _best_score(path: Path) -> float:
    try:
        score = read_header(path).metadata.get("score") if path.exists() else None
    except CheckpointError as error:
        logger.warning("the best policy so far is lost: %s", error)
        return -math.inf
    return float(score) if isinstance(score, int | float) else -math.inf


def _make_directory(config: RunConfig, suffix: str | None) -> Path:
    if suffix is not None and not re.fullmatch(r"[\w.-]{1,100}", suffix):
        raise ConfigError(f"run suffix {suffix!r}: takes up to 100 letters, digits, '.', '_' and '-'")
    # "ALE/Pong-v5" and "module:Env-v0" are no file names
    env_id = re.sub(r"[^A-Za-z0-9._-]+", "-", config.env_id)[:100]
    stem = f"{config.algo}__{env_id}__seed{config.seed}__"
    now = f"{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    for number in count(1):
        ending = suffix or (now if number == 1 else f"{now}-{number}")
        directory = Path(config.output_dir) / (stem + ending)
        try:
            directory.mkdir(parents=True)
        except FileExistsError as error:
            if suffix is not None:
                raise ConfigError(
                    f"{directory}: exists and is never overwritten; resume it or give another run suffix"
                ) from error
        except OSError as error:
            raise ConfigError(
                f"output_dir {str(config.output_dir)!r}: {directory.name} cannot be made: {reason(error)}"
            ) from error
        else:
            return directory
    raise AssertionError("count ends never")
