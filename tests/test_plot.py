"""Learning curves as pictures: which lines and bands are drawn, and that the files are fit for print."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from conftest import REPOSITORY
from report_runs import make_run
from rl_training.cli import curves, main
from rl_training.cli.curves import PlotStyle, draw_curves, smoothed
from rl_training.cli.pictures import PALETTE
from rl_training.experiment.recorded_runs import find_runs, read_run
from rl_training.experiment.run_groups import group_runs


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that would be saved."""
    figures: list[Figure] = []
    monkeypatch.setattr(curves, "save_figure", lambda figure, out, dpi: figures.append(figure) or Path(out))
    return figures


def draw(folder: Path, *metrics: str, **style) -> None:
    groups = group_runs([read_run(run) for run in find_runs([folder])])
    draw_curves(groups, "a.png", metrics, PlotStyle(**style))


def test_seeds_are_one_line_with_their_interval(tmp_path: Path, drawn: list[Figure]):
    for seed in (1, 2, 3):
        make_run(tmp_path, seed=seed, final=100.0 * seed)
        make_run(tmp_path, seed=seed, algo="ppg", final=10.0)
    draw(tmp_path)
    (axes,) = drawn[0].axes
    ppg, ppo = axes.get_lines()
    assert (ppg.get_label(), ppo.get_label()) == ("ppg (3 runs)", "ppo (3 runs)")
    assert axes.get_ylabel() == "evaluation return\n(IQM over runs, 95 % interval)"
    assert ppo.get_ydata()[-1] == 200
    at_the_end = axes.collections[1].get_paths()[0].vertices
    edges = at_the_end[at_the_end[:, 0] == 20_000][:, 1]
    assert (edges.min(), edges.max()) == (100, 300)
    assert (ppg.get_color(), ppo.get_color()) == PALETTE[:2]
    assert axes.get_title() == "CartPole-v1"


def test_a_run_alone_has_the_spread_of_its_episodes_and_its_training_curve(tmp_path: Path, drawn: list[Figure]):
    make_run(tmp_path)
    draw(tmp_path)
    (axes,) = drawn[0].axes
    evaluation, training = axes.get_lines()
    assert training.get_ydata()[-1] == evaluation.get_ydata()[-1] / 2 == 250
    assert axes.collections[0].get_paths()[0].vertices[:, 1].max() == 512.5
    assert evaluation.get_label() == "ppo (1 run, ± std over episodes)"


def test_there_is_a_panel_for_each_task_and_metric(tmp_path: Path, drawn: list[Figure]):
    make_run(tmp_path)
    make_run(tmp_path, algo="sac", env_id="Pendulum-v1")
    draw(tmp_path, "eval_return_mean", "loss", log_scale=True, title="all of it")
    panels = [(axes.get_title(), axes.get_ylabel()) for axes in drawn[0].axes]
    assert panels == [(task, name) for name in ("evaluation return", "loss") for task in ("CartPole-v1", "Pendulum-v1")]
    assert {axes.get_yscale() for axes in drawn[0].axes} == {"log"}
    assert drawn[0].get_suptitle() == "all of it"


def test_long_names_go_below_the_curves_and_not_over_them(tmp_path: Path, drawn: list[Figure]):
    for number, gamma in enumerate((0.9, 0.99)):
        make_run(tmp_path, suffix=str(number), gamma=gamma, hidden_sizes=[64] * (10 + number))
        make_run(tmp_path, suffix=f"{number}a", gamma=gamma, hidden_sizes=[32] * (20 + number))
    draw(tmp_path)
    figure = drawn[0]
    figure.draw_without_rendering()
    axes = figure.axes[0]
    assert axes.get_legend().get_window_extent().y1 < axes.get_window_extent().y0
    assert axes.get_window_extent().width > 0.6 * figure.bbox.width


def test_single_runs_are_drawn_when_asked_for(tmp_path: Path, drawn: list[Figure]):
    for seed in (1, 2):
        make_run(tmp_path, seed=seed)
        make_run(tmp_path, seed=seed, algo="ppg")
    draw(tmp_path, single_runs=True)
    assert len(drawn[0].axes[0].get_lines()) == 2 * (2 + 1)


def test_runs_never_evaluated_are_drawn_by_their_training(tmp_path: Path, drawn: list[Figure]):
    make_run(tmp_path, evaluated=False)
    draw(tmp_path)
    assert drawn[0].axes[0].get_ylabel() == "training return (last 100 episodes)"


def test_smoothing_keeps_a_constant_and_a_slope_and_flattens_a_spike():
    steps = np.linspace(0, 1000, 101)
    assert smoothed(steps, np.full(101, 3.0), 0.5) == pytest.approx(np.full(101, 3.0))
    assert smoothed(steps, steps, 0.3)[50] == pytest.approx(500)  # no lag
    spike = np.zeros(101)
    spike[50] = 1.0
    assert smoothed(steps, spike, 0.5).max() < 0.2
    assert smoothed(steps, spike, 0.0) is spike


def test_the_same_runs_give_the_same_file_and_pdfs_carry_whole_fonts(tmp_path: Path):
    make_run(tmp_path / "runs")
    for name in ("a.svg", "b.svg", "a.pdf", "b.pdf"):
        assert main(["plot", str(tmp_path / "runs"), "--out", str(tmp_path / name), "--size", "4x3", "--smooth", "0.1"]) == 0
    for kind in ("svg", "pdf"):
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()
    assert b"/FontFile2" in (tmp_path / "a.pdf").read_bytes()  # TrueType, not Type 3
    assert b"/Type3" not in (tmp_path / "a.pdf").read_bytes()


def test_dpi_and_size_decide_the_pixels(tmp_path: Path):
    make_run(tmp_path / "runs")
    assert main(["plot", str(tmp_path / "runs"), "--out", str(tmp_path / "a.png"), "--size", "3x2", "--dpi", "100"]) == 0
    header = (tmp_path / "a.png").read_bytes()[16:24]
    assert (int.from_bytes(header[:4], "big"), int.from_bytes(header[4:], "big")) == (300, 200)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--metric", "los"], "did you mean 'loss'?"),
        (["--smooth", "2"], "0 to 1"),
        (["--size", "6"], "such as 6.4x4.2"),
        (["--dpi", "1"], "20 to 2400"),
    ],
)
def test_what_makes_no_sense_is_refused(words: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    make_run(tmp_path)
    assert main(["plot", str(tmp_path), "--out", str(tmp_path / "a.png"), *words]) == 2
    assert expected in capsys.readouterr().err
    assert not (tmp_path / "a.png").exists()


def test_plots_and_the_report_have_the_same_colours():
    style = (REPOSITORY / "src" / "rl_training" / "assets" / "report" / "report.css").read_text()
    light = style.partition("@media")[0]
    assert tuple(re.findall(r"--c\d: (#\w+);", light)) == PALETTE
