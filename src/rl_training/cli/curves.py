"""Learning curves as a picture for a paper: one panel per task and metric, one colour per group of runs."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rl_training.cli.pictures import PALETTE, new_figure, save_figure
from rl_training.errors import ConfigError, did_you_mean
from rl_training.experiment.recorded_runs import RETURN, RecordedRun
from rl_training.experiment.report_data import SPREAD, metric_label, metric_names
from rl_training.experiment.run_groups import RunGroup

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from rl_training.experiment.statistics import FloatArray

MAX_LEGEND = 12  # more names than these would cover the picture
LEGEND_WIDTH = 40  # characters
MAX_COLUMNS = 3
TRAINING = "episode_return"
_DASHES = ("-", (0, (5, 2)), (0, (1, 1.5)))  # where colours come round again


@dataclass(frozen=True)
class PlotStyle:
    """What a reader may want otherwise."""

    smooth: float = 0.0  # width of the Gaussian mean, 1 being a tenth of the axis
    single_runs: bool = False
    log_scale: bool = False
    title: str | None = None
    size: tuple[float, float] | None = None  # inches
    dpi: int = 200


class Line(NamedTuple):
    """What is drawn of a group: a line and the two edges of its band, if it has one."""

    steps: FloatArray
    values: FloatArray
    low: FloatArray | None
    high: FloatArray | None
    words: str


def draw_curves(
    groups: Sequence[RunGroup], out: str | Path, metrics: Sequence[str] = (), style: PlotStyle | None = None
) -> Path:
    """Of each group the interquartile mean with its 95 % interval; of a single run its evaluations ± std over episodes."""
    style = style or PlotStyle()
    chosen = _known_metrics(groups, metrics)
    tasks = list(dict.fromkeys(group.task for group in groups))
    panels = [(metric, task) for metric in chosen for task in tasks]
    across = min(len(tasks) if len(tasks) > 1 else len(panels), MAX_COLUMNS)
    down = math.ceil(len(panels) / across)
    width, height = style.size or ((6.4, 4.2) if len(panels) == 1 else (4.2 * across, 3.2 * down))
    figure = new_figure(out, width=width, height=height)
    for place, (metric, task) in enumerate(panels, start=1):
        _draw_panel(figure.add_subplot(down, across, place), groups, task=task, metric=metric, style=style)
    if style.title:
        figure.suptitle(style.title)
    return save_figure(figure, out, dpi=style.dpi)


def _known_metrics(groups: Sequence[RunGroup], asked: Sequence[str]) -> list[str]:
    runs = [run for group in groups for run in group.runs]
    known = metric_names(runs)
    unknown = [name for name in asked if name not in known]
    if unknown and known:
        raise ConfigError(f"--metric: the runs have no metric {unknown[0]!r}{did_you_mean(unknown[0], known)}")
    default = next((name for name in (RETURN, TRAINING) if name in known), None)
    found = list(dict.fromkeys(asked)) or ([] if default is None else [default])
    if not known or not found:
        names = ", ".join(str(run.directory) for run in runs)
        raise ConfigError(f"{names}: nothing to draw yet: neither an evaluation nor a finished episode")
    return found


def _draw_panel(axes: Axes, groups: Sequence[RunGroup], *, task: str, metric: str, style: PlotStyle) -> None:
    labels = list(dict.fromkeys(group.label for group in groups))
    own = [(group, labels.index(group.label)) for group in groups if group.task == task]
    for group, number in own:
        _draw_group(axes, group, number, metric, style)
    if len(own) == 1 and metric == RETURN:
        _draw_training(axes, own[0][0], own[0][1], style)
    several = any(len(group.runs) > 1 for group, _ in own)
    statistic = "\n(IQM over runs, 95 % interval)" if several else ""
    axes.set(xlabel="environment steps", ylabel=metric_label(metric) + statistic, title=task)
    if style.log_scale:
        axes.set_yscale("log")
    axes.xaxis.set_major_formatter(lambda x, _: _short(x))
    axes.margins(x=0.02)
    axes.grid(alpha=0.25, lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    _add_legend(axes)


def _add_legend(axes: Axes) -> None:
    """Inside while it is small; names that would cover the curves go below them, in short lines."""
    handles, names = axes.get_legend_handles_labels()
    if not 0 < len(names) <= MAX_LEGEND:
        return
    wrapped = ["\n".join(textwrap.wrap(name, LEGEND_WIDTH)) for name in names]
    small = len(names) <= 4 and all(len(name) <= LEGEND_WIDTH for name in names)
    place = {"loc": "best"} if small else {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2)}
    axes.legend(handles, wrapped, frameon=False, fontsize="small", handlelength=1.6, **place)


def _draw_group(axes: Axes, group: RunGroup, number: int, metric: str, style: PlotStyle) -> None:
    colour, dashes = PALETTE[number % len(PALETTE)], _DASHES[min(number // len(PALETTE), len(_DASHES) - 1)]
    if style.single_runs and len(group.runs) > 1:
        for run in group.runs:
            if metric in run.curves:
                steps, values = (np.asarray(column, dtype=float) for column in run.curves[metric][:2])
                axes.plot(steps, smoothed(steps, values, style.smooth), color=colour, lw=0.7, alpha=0.45)
    line = _line(group, metric)
    if line is None:
        return
    marker = "o" if len(line.steps) <= 16 else ""  # few points are seen as such
    values = smoothed(line.steps, line.values, style.smooth)
    axes.plot(line.steps, values, color=colour, ls=dashes, lw=1.8, marker=marker, ms=3, label=f"{group.label} ({line.words})")
    if line.low is not None and line.high is not None:
        low, high = (smoothed(line.steps, edge, style.smooth) for edge in (line.low, line.high))
        axes.fill_between(line.steps, low, high, color=colour, alpha=0.18, lw=0)


def _line(group: RunGroup, metric: str) -> Line | None:
    runs = [run for run in group.runs if metric in run.curves]
    if len(runs) == 1:
        return _single_line(runs[0], metric)
    band = group.band(metric)
    if band is None:
        return None
    count = f"{band.num_runs} runs" if band.num_runs == len(group.runs) else f"{band.num_runs} of {len(group.runs)} runs"
    return Line(band.steps, band.iqm, band.low, band.high, count)


def _single_line(run: RecordedRun, metric: str) -> Line:
    steps, values = (np.asarray(column, dtype=float) for column in run.curves[metric][:2])
    spread = run.curves.get(SPREAD) if metric == RETURN else None
    if spread is None:
        return Line(steps, values, None, None, "1 run")
    std = np.interp(steps, spread.steps, spread.returns)
    return Line(steps, values, values - std, values + std, "1 run, ± std over episodes")


def _draw_training(axes: Axes, group: RunGroup, number: int, style: PlotStyle) -> None:
    """What the exploring policy got meanwhile, thin: where it stays below, exploration is what is paid for."""
    band = group.band(TRAINING, num_resamples=1)
    if band is not None:
        values = smoothed(band.steps, band.iqm, style.smooth)
        axes.plot(
            band.steps, values, color=PALETTE[number % len(PALETTE)], lw=0.9, alpha=0.6, label="training, last 100 episodes"
        )


def smoothed(steps: FloatArray, values: FloatArray, amount: float) -> FloatArray:
    """A Gaussian mean over neighbouring steps, as in the report: no lag, and 1 is a tenth of the axis wide."""
    width = 0.1 * amount * (steps[-1] - steps[0])
    if width <= 0:
        return values
    weights = np.exp(-0.5 * ((steps[:, None] - steps[None, :]) / width) ** 2)
    smooth: FloatArray = weights @ values / weights.sum(axis=1)
    return smooth


def _short(number: float) -> str:
    """1.5k, 2M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:g}{unit}"
    return f"{number:g}"
