"""A dataset as a picture: returns of its episodes and how its actions are spread."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rl_training.cli.pictures import new_figure, save_figure

if TYPE_CHECKING:
    from rl_training.data.dataset_report import DatasetReport
    from rl_training.data.recorded_data import RecordedData

MAX_ACTIONS = 8  # histograms in one picture


def draw_dataset(report: DatasetReport, data: RecordedData, out: str | Path) -> Path:
    """One histogram of returns, one of each action."""
    actions = data.actions.reshape(len(data), -1)[:, :MAX_ACTIONS]
    panels = [("return of an episode", report.returns)] if len(report.returns) else []
    panels += [(f"action {number}", column) for number, column in enumerate(actions.T)]
    across = min(3, len(panels))
    down = -(-len(panels) // across)
    figure = new_figure(out, width=4 * across, height=3 * down)
    figure.suptitle(f"{Path(data.origin).name}: {report.rows:,} rows")
    for place, (name, values) in enumerate(panels, start=1):
        axes = figure.add_subplot(down, across, place)
        axes.hist(values, bins=min(50, max(10, len(values) // 5)), color="C0" if name.startswith("action") else "C1")
        axes.set(xlabel=name, ylabel="rows" if name.startswith("action") else "episodes")
        axes.spines[["top", "right"]].set_visible(False)
    return save_figure(figure, out)
