"""Learning curves as a picture for a paper: one panel per task and metric, one colour per group of runs."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rl_training.cli.legends import DASHES, LegendEntry, add_legends
from rl_training.cli.pictures import PALETTE, new_figure, save_figure
from rl_training.errors import ConfigError, did_you_mean
from rl_training.reports.recorded_runs import RETURN, RecordedRun
from rl_training.reports.report_data import SPREAD, metric_label, metric_names
from rl_training.reports.run_groups import RunGroup

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from rl_training.reports.statistics import FloatArray

MAX_COLUMNS = 3
LETTER = 0.095  # inches of a label or title
TRAINING = "episode_return"


@dataclass(frozen=True)
class PlotStyle:
    """What a reader may want otherwise."""

    smooth: float = 0.0  # width of the Gaussian mean, 1 being a tenth of the axis
    single_runs: bool = False
    log_scale: bool = False
    title: str | None = None
    size: tuple[float, float] | None = None  # inches
    dpi: int = 200
    log_steps: bool = False


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
    rows = _rows(panels, in_a_line=len(tasks) if len(tasks) > 1 else len(panels))
    across, down = max(len(row) for row in rows), len(rows)
    width, height = style.size or ((6.4, 4.2) if len(panels) == 1 else (4.2 * across, 3.2 * down))
    figure = new_figure(out, width=width, height=height)
    drawn = []
    for place, (metric, task) in ((y * across + x + 1, panel) for y, row in enumerate(rows) for x, panel in enumerate(row)):
        axes = figure.add_subplot(down, across, place)
        drawn.append((axes, _draw_panel(axes, groups, task=task, metric=metric, style=style)))
    width, height = add_legends(figure, drawn, size_given=style.size is not None)
    for axes, (metric, task) in zip(figure.axes, panels, strict=True):
        several = any(group.task == task and len(group.runs) > 1 for group in groups)
        statistic = "IQM of " if several else ""
        _label(axes, title=task, ylabel=statistic + metric_label(metric), width=width / across, height=height / down)
    if style.title:
        figure.suptitle(style.title)
    return save_figure(figure, out, dpi=style.dpi)


def _rows(panels: Sequence[tuple[str, str]], *, in_a_line: int) -> list[Sequence[tuple[str, str]]]:
    """Every metric's panels begin a row, and rows are as even as they can be: four are 2 + 2, not 3 + 1."""
    across = math.ceil(in_a_line / math.ceil(in_a_line / MAX_COLUMNS))
    lines = [panels[begin : begin + in_a_line] for begin in range(0, len(panels), in_a_line)]
    return [line[begin : begin + across] for line in lines for begin in range(0, len(line), across)]


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


def _draw_panel(axes: Axes, groups: Sequence[RunGroup], *, task: str, metric: str, style: PlotStyle) -> list[LegendEntry]:
    labels = list(dict.fromkeys(group.label for group in groups))
    own = [(group, labels.index(group.label)) for group in groups if group.task == task]
    entries = [entry for group, number in own for entry in _draw_group(axes, group, number, metric, style)]
    if len(own) == 1 and metric == RETURN:
        entries += _draw_training(axes, own[0][0], own[0][1], style)
    if any(len(group.runs) > 1 for group, _ in own):
        from matplotlib.patches import Patch

        entries.append(LegendEntry(Patch(color="grey", alpha=0.3, lw=0), "95 % interval"))
    if style.log_scale:
        axes.set_yscale("log")
    if style.log_steps:
        _put_steps_on_a_log_axis(axes)
    axes.xaxis.set_major_formatter(lambda x, _: _short(x))
    axes.margins(x=0.02)
    axes.grid(alpha=0.25, lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return entries


def _put_steps_on_a_log_axis(axes: Axes) -> None:
    """With 1, 2 and 5 of each power where powers alone would be too few."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 100 * low else (1.0,)))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _label(axes: Axes, *, title: str, ylabel: str, width: float, height: float) -> None:
    """Names in as many lines as a panel of so many inches needs for them."""
    beside, above = (max(8, int(0.75 * inches / LETTER)) for inches in (height, width))
    if len(ylabel) > beside:
        ylabel = "\n".join(textwrap.fill(part, beside) for part in ylabel.replace(" (", "\n(").split("\n"))
    axes.set(xlabel="environment steps", ylabel=ylabel, title=textwrap.fill(title, above))


def _draw_group(axes: Axes, group: RunGroup, number: int, metric: str, style: PlotStyle) -> list[LegendEntry]:
    colour, dashes = PALETTE[number % len(PALETTE)], DASHES[min(number // len(PALETTE), len(DASHES) - 1)]
    if style.single_runs and len(group.runs) > 1:
        for run in group.runs:
            if metric in run.curves:
                steps, values = (np.asarray(column, dtype=float) for column in run.curves[metric][:2])
                axes.plot(steps, smoothed(steps, values, style.smooth), color=colour, lw=0.7, alpha=0.45)
    line = _line(group, metric)
    if line is None:
        return []
    marker = "o" if len(line.steps) <= 16 else ""  # few points are seen as such
    values = smoothed(line.steps, line.values, style.smooth)
    (drawn,) = axes.plot(line.steps, values, color=colour, ls=dashes, lw=1.8, marker=marker, ms=3, label=group.label)
    if line.low is not None and line.high is not None:
        low, high = (smoothed(line.steps, edge, style.smooth) for edge in (line.low, line.high))
        axes.fill_between(line.steps, low, high, color=colour, alpha=0.18, lw=0)
    return [LegendEntry(drawn, group.label, line.words)]


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


def _draw_training(axes: Axes, group: RunGroup, number: int, style: PlotStyle) -> list[LegendEntry]:
    """What the exploring policy got meanwhile, thin: where it stays below, exploration is what is paid for."""
    band = group.band(TRAINING, num_resamples=1)
    if band is None:
        return []
    values = smoothed(band.steps, band.iqm, style.smooth)
    (line,) = axes.plot(band.steps, values, color=PALETTE[number % len(PALETTE)], lw=0.9, alpha=0.6)
    return [LegendEntry(line, "training, last 100 episodes")]


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
