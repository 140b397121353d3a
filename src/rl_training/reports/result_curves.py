"""Results as a picture: one panel per task, for each entry the interquartile mean over seeds with its band."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.errors import ConfigError, MissingExtraError
from rl_training.experiment.files import reason
from rl_training.reports.statistics import CurveBand, aggregate_curves, same_draws

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_COLUMNS = 3


def draw_result_curves(results: Mapping[str, Any], path: str | Path, *, label: str | None = None) -> Path:
    """Draw the curves in `results`; a `label` is kept invisibly in a png, to tell later what it was drawn from."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", extra="report", purpose="drawing the curves") from error
    bands = entry_bands(results["entries"])
    tasks = list(dict.fromkeys(entry["task"] for entry in results["entries"] if entry["name"] in bands))
    if not tasks:
        raise ConfigError(f"suite {results['suite']!r}: there is no curve to draw: no run was evaluated while it trained")
    figure: Figure = Figure(figsize=_size(len(tasks)), layout="constrained")
    shape = math.ceil(len(tasks) / MAX_COLUMNS), min(len(tasks), MAX_COLUMNS)
    for number, task in enumerate(tasks, start=1):
        own = [entry for entry in results["entries"] if entry["task"] == task and entry["name"] in bands]
        _draw_panel(figure.add_subplot(*shape, number), task, own, bands)
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(target, dpi=120, metadata={"Description": label} if label else None)
    except OSError as error:
        raise ConfigError(f"{target}: cannot be written: {reason(error)}") from error
    return target


def entry_bands(entries: Sequence[Mapping[str, Any]]) -> dict[str, CurveBand]:
    """By entry's name; those whose runs were not evaluated at common steps are left out."""
    bands: dict[str, CurveBand] = {}
    for entry in entries:
        curves = [(run["curve"]["steps"], run["curve"]["returns"]) for run in entry["runs"] if run["curve"]["steps"]]
        try:
            bands[entry["name"]] = aggregate_curves(curves, rng=same_draws())
        except ConfigError:  # no curves, or none that overlap
            continue
    return bands


def _draw_panel(axes: Axes, task: str, entries: Sequence[Mapping[str, Any]], bands: Mapping[str, CurveBand]) -> None:
    for number, entry in enumerate(entries):
        band, colour = bands[entry["name"]], f"C{number % 10}"
        marker = "o" if len(band.steps) == 1 else ""  # one point makes no line
        axes.plot(band.steps, band.iqm, color=colour, lw=1.8, marker=marker, label=f"{entry['name']} ({band.num_runs} seeds)")
        axes.fill_between(band.steps, band.low, band.high, color=colour, alpha=0.2, lw=0)
        _draw_published(axes, entry.get("published", ()), colour)
    for value in sorted({entry["threshold"]["value"] for entry in entries if entry["threshold"]}):
        axes.axhline(value, color="grey", lw=1, ls="--")
    axes.set(title=task, xlabel="environment steps", ylabel="return (IQM, 95 % interval)")
    axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:g}k" if x >= 1000 else f"{x:g}")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small")


def _draw_published(axes: Axes, points: Sequence[Mapping[str, Any]], colour: str) -> None:
    """Each source a row of crosses in the colour of the entry they stand beside."""
    for number, source in enumerate(dict.fromkeys(point["source"] for point in points)):
        own = [(point["steps"], point["value"]) for point in points if point["source"] == source]
        axes.plot(*zip(*own, strict=True), "x+12"[number % 4], ls=":", lw=0.8, color=colour, label=source)


def _size(num_panels: int) -> tuple[float, float]:
    return 5.2 * min(num_panels, MAX_COLUMNS), 3.6 * math.ceil(num_panels / MAX_COLUMNS)
