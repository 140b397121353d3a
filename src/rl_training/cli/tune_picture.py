"""A search as a picture: which settings mattered, and how it got better."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rl_training.cli.pictures import new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from rl_training.tuning.tune import Tuned


def draw_tuning(tuned: Tuned, out: Path) -> Path:
    """Importances as bars, and every trial with the best so far."""
    figure = new_figure(out, width=11, height=max(3.5, 0.35 * len(tuned.importances) + 1.5))
    bars, history = figure.subplots(1, 2)
    _bars(bars, tuned)
    _history(history, tuned)
    config = tuned.plan.config
    figure.suptitle(f"{config.algo} on {config.env_id}: {len(tuned.finished())} trials")
    for axes in (bars, history):
        axes.spines[["top", "right"]].set_visible(False)
    return save_figure(figure, out)


def _bars(axes: Axes, tuned: Tuned) -> None:
    names, shares = list(tuned.importances)[::-1], list(tuned.importances.values())[::-1]
    axes.barh(names, shares, color="C0")
    for row, share in enumerate(shares):
        axes.text(share, row, f" {share:.2f}", va="center", fontsize="small")
    axes.set(xlabel="importance (PED-ANOVA)", xlim=(0, max([*shares, 0.01]) * 1.15))


def _history(axes: Axes, tuned: Tuned) -> None:
    for state, colour in (("complete", "C0"), ("pruned", "lightgrey")):
        shown = [(trial.number, trial.score) for trial in tuned.trials if trial.state == state and trial.score is not None]
        axes.scatter([x for x, _ in shown], [y for _, y in shown], s=18, color=colour, label=state)
    best: list[tuple[int, float]] = []
    for trial in tuned.trials:
        if trial.state == "complete" and trial.score is not None:
            best.append((trial.number, max(trial.score, best[-1][1] if best else trial.score)))
    axes.step([x for x, _ in best], [y for _, y in best], where="post", color="C1", label="best so far")
    axes.set(xlabel="trial", ylabel="return at its end")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize="small")
