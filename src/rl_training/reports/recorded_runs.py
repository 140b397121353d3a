"""Runs as they lie on disk: finished, still going, or cut off in the middle of a line."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.files import is_plain, read_plain
from rl_training.experiment.lock import is_locked
from rl_training.experiment.suite_jobs import flat_settings
from rl_training.experiment.yaml_loader import load_yaml
from rl_training.reports.results import Curve, History, curve_of, elapsed_seconds, read_history

MAX_DEPTH = 4  # folders below the one given in which runs are looked for; `bench` puts them three deep
RETURN = "eval_return_mean"
_NOT_DRAWN = {"global_step", "eval_episodes"}  # the axis itself, and a setting

RunState = Literal["finished", "running", "ended early"]


@dataclass(frozen=True)
class RecordedRun:
    """What a run directory says; a part that is missing or damaged is empty."""

    directory: Path
    settings: Mapping[str, Any]
    metadata: Mapping[str, Any]
    history: History
    bench_result: Mapping[str, Any]
    locked: bool

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def algo(self) -> str:
        return str(self.settings.get("algo", "?"))

    @property
    def task(self) -> str:
        return str(self.settings.get("env_id", "?"))

    @property
    def seed(self) -> str:
        return str(self.settings.get("seed", "?"))

    @property
    def tags(self) -> list[str]:
        tags = self.settings.get("tags")
        return [str(tag) for tag in tags] if isinstance(tags, list | tuple) else []

    @property
    def last_step(self) -> int:
        return self.history[-1][0] if self.history else 0

    @property
    def state(self) -> RunState:
        """Early stopping, a signal and a kill look alike here: the run ended before its budget was spent."""
        if self.locked:
            return "running"
        budgets = (("total_timesteps", self.last_step), ("algo_kwargs.max_updates", self.last("updates") or 0))
        spent = any(isinstance(limit := self.settings.get(key), int) and done >= limit for key, done in budgets)
        return "finished" if spent else "ended early"

    @cached_property
    def seconds(self) -> float:
        """Of training, its evaluations included."""
        return elapsed_seconds(self.history)[-1] if self.history else 0.0

    @property
    def steps_per_second(self) -> float | None:
        return self.last_step / self.seconds if self.seconds > 0 and self.last_step else None

    @cached_property
    def curves(self) -> dict[str, Curve]:
        """By metric; of two values at one step (a run resumed at its end) the later counts, what is not finite none."""
        points: dict[str, dict[int, tuple[float, float]]] = {}
        for (step, metrics), seconds in zip(self.history, elapsed_seconds(self.history), strict=True):
            for name, value in metrics.items():
                if name not in _NOT_DRAWN:
                    points.setdefault(name, {})[step] = (float(value), seconds)
        return {name: curve_of(found) for name, found in points.items()}

    def last(self, metric: str) -> float | None:
        """The newest value of a metric."""
        return next((float(metrics[metric]) for _, metrics in reversed(self.history) if metric in metrics), None)

    @property
    def final_return(self) -> float | None:
        """Of the last policy: what `bench` found on its own episodes if that is of this step, or the last evaluation."""
        mean = self.bench_result.get("return_mean")
        if mean is not None and is_number(mean) and self.bench_result.get("steps") == self.last_step:
            return float(mean)
        return self.last(RETURN)

    @property
    def best_return(self) -> float | None:
        """Of any evaluation, the one of the last policy included."""
        curve = self.curves.get(RETURN)
        found = [*(curve.returns if curve else ()), *([] if self.final_return is None else [self.final_return])]
        return max(found, default=None)

    @property
    def videos(self) -> list[Path]:
        """Recordings of the policy, in the run directory or its folder `videos`."""
        folders = [folder for folder in (self.directory, self.directory / "videos") if not folder.is_symlink()]
        files = sorted(path for folder in folders for path in folder.glob("*.*"))
        # a page is made to be shared: what a link leads to does not get into it
        return [path for path in files if path.suffix.lower() in VIDEO_TYPES and is_plain(path)]


VIDEO_TYPES = {".mp4": "video/mp4", ".webm": "video/webm", ".gif": "image/gif"}


def is_number(value: Any) -> bool:
    """A finite one; true and false are none."""
    # compared, not converted: an integer may be too large for a float, and not-a-number lies nowhere
    return type(value) in (int, float) and -1e300 < value < 1e300


def find_runs(paths: Iterable[str | Path]) -> list[Path]:
    """Run directories, those inside given folders included; each once."""
    found = {run.resolve(): run for path in paths for run in _runs_at(Path(path))}
    return list(found.values())


def _runs_at(path: Path) -> list[Path]:
    runs = sorted(_walk(path)) if path.is_dir() else []  # os.walk raises at a NUL in a name
    if not runs:
        what = "holds no run (no metrics.jsonl)" if path.is_dir() else "there is no such folder"
        raise ConfigError(f"{path}: {what}; give the run directory that `train` prints as run_dir=")
    return runs


def _walk(path: Path) -> Iterable[Path]:
    for folder, names, files in os.walk(path):
        here = Path(folder)
        if "metrics.jsonl" in files:
            yield here
        if "metrics.jsonl" in files or len(here.relative_to(path).parts) >= MAX_DEPTH:
            names.clear()


def read_run(directory: Path) -> RecordedRun:
    """Everything but the pictures; whatever cannot be read is left empty, as a run may be just beginning."""
    return RecordedRun(
        directory=directory.resolve(),
        settings=_settings(directory.resolve()),
        metadata=_json(directory / "metadata.json"),
        history=_numbers(read_history(directory / "metrics.jsonl")),
        bench_result=_json(directory / "result.json"),
        locked=is_locked(directory),
    )


def _numbers(history: History) -> History:
    """The lines of a history with their finite numbers alone; a foreign file may hold anything."""
    return [
        (step, {name: value for name, value in metrics.items() if is_number(value)})
        for step, metrics in history
        if 0 <= step < 2**53
    ]


def _settings(directory: Path) -> dict[str, Any]:
    """Resolved where the config still loads; of another version, as it is written; lost, what the directory's name says."""
    path, values = directory / "config.yaml", {}
    try:
        values = load_yaml(path) if is_plain(path) else {}
        config = TrainConfig.from_dict(values)
    except ConfigError:
        parts = directory.name.split("__")
        named = {"algo": parts[0], "env_id": parts[1], "seed": parts[2].removeprefix("seed")} if len(parts) >= 3 else {}
        return {**named, **_as_written(values)}
    return {**flat_settings(config), "tags": config.tags}


def _as_written(values: dict[str, Any]) -> dict[str, Any]:
    options = values.get("algo_kwargs")
    inner = {f"algo_kwargs.{name}": value for name, value in options.items()} if isinstance(options, dict) else {}
    return {name: value for name, value in values.items() if name != "algo_kwargs"} | inner


def _json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(read_plain(path).decode(errors="replace"))
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}
