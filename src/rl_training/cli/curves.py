"""Learning curves as a picture."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rl_training.cli.pictures import new_figure, save_figure
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_LEGEND = 12  # more names than these would cover the picture


class Point(NamedTuple):
    """One value of a metric, with its spread where that is known."""

    step: int
    value: float
    std: float = 0.0


def find_runs(paths: Iterable[str | Path]) -> list[Path]:
    """Run directories, those inside given folders included; each once."""
    return list(dict.fromkeys(run for path in paths for run in _runs_at(Path(path))))


def _runs_at(path: Path) -> list[Path]:
    if (path / "metrics.jsonl").is_file():
        return [path]
    runs = sorted(file.parent for file in path.glob("*/metrics.jsonl"))
    if not runs:
        what = "holds no run (no metrics.jsonl)" if path.is_dir() else "there is no such folder"
        raise ConfigError(f"{path}: {what}; give the run directory that `train` prints as run_dir=")
    return runs


def read_metrics(run_dir: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The lines of a run's history; one that is not whole (the run is being written, or was killed) is left out."""
    with (run_dir / "metrics.jsonl").open(encoding="utf-8", errors="replace") as lines:
        yield from filter(None, map(_record, lines))


def _record(line: str) -> tuple[int, dict[str, Any]] | None:
    try:
        record = json.loads(line)
        return int(record["step"]), dict(record["metrics"])
    except (ValueError, KeyError, TypeError):
        return None


def curve(history: Iterable[tuple[int, dict[str, Any]]], metric: str, spread: str = "") -> list[Point]:
    """The points of one metric; lines without it, or where it is null, are left out."""
    found = [
        (step, metrics[metric], metrics.get(spread) or 0.0) for step, metrics in history if metrics.get(metric) is not None
    ]
    return [Point(step, float(value), float(std)) for step, value, std in found]


def draw_curves(runs: Sequence[Path], out: str | Path) -> Path:
    """Evaluations as lines with a band, training episodes thin, one colour per run."""
    figure = new_figure(out)
    axes = figure.add_subplot()
    names = ["evaluation (mean ± std)"] if len(runs) == 1 else [run.resolve().name for run in runs]
    drawn = sum(_draw(axes, run, colour=f"C{number % 10}", label=names[number]) for number, run in enumerate(runs))
    if not drawn:
        raise ConfigError(f"{', '.join(map(str, runs))}: nothing to draw yet: neither an evaluation nor a finished episode")
    axes.set(xlabel="environment steps", ylabel="return", title=_title(runs))
    axes.plot([], [], color="C0" if len(runs) == 1 else "grey", lw=0.8, alpha=0.7, label="training (last 100 episodes)")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if len(runs) <= MAX_LEGEND:
        axes.legend(frameon=False, fontsize="small")
    return save_figure(figure, out)


def _draw(axes: Axes, run: Path, *, colour: str, label: str) -> bool:
    history = list(read_metrics(run))
    episodes = curve(history, "episode_return")
    evaluations = curve(history, "eval_return_mean", "eval_return_std")
    if episodes:
        axes.plot([p.step for p in episodes], [p.value for p in episodes], color=colour, lw=0.8, alpha=0.7)
    if evaluations:
        steps = [point.step for point in evaluations]
        axes.plot(steps, [point.value for point in evaluations], color=colour, lw=1.8, marker="o", ms=3, label=label)
        low, high = [p.value - p.std for p in evaluations], [p.value + p.std for p in evaluations]
        axes.fill_between(steps, low, high, color=colour, alpha=0.15, lw=0)
    return bool(episodes or evaluations)


def _title(runs: Sequence[Path]) -> str:
    """The run's algorithm and environment, when all share them."""
    stems = {tuple(run.resolve().name.split("__")[:2]) for run in runs}
    return " on ".join(next(iter(stems))) if len(stems) == 1 else f"{len(runs)} runs"
