"""Learning curves as pictures: which lines and bands are drawn, and that the files are fit for print."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from report_runs import make_run

from conftest import REPOSITORY
from rl_training.cli import curves, main
from rl_training.cli.curves import PlotStyle, draw_curves, smoothed
from rl_training.cli.pictures import PALETTE
from rl_training.reports.recorded_runs import find_runs, read_run
from rl_training.reports.run_groups import group_runs


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that would be saved."""
    figures: list[Figure] = []
    monkeypatch.setattr(curves, "save_figure", lambda figure, out, dpi: figures.append(figure) or Path(out))
    return figures


def draw(folder: Path, *metrics: str, **style) -> None:
    groups = group_runs([read_run(run) for run in find_runs([folder])])
    draw_curves(groups, "a.png", metrics, PlotStyle(**style))


def legend_of(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_seeds_are_one_line_with_their_interval(tmp_path: Path, drawn: list[Figure]):
    for seed in (1, 2, 3):
        make_run(tmp_path, seed=seed, final=100.0 * seed)
        make_run(tmp_path, seed=seed, algo="ppg", final=10.0)
    draw(tmp_path)
    (axes,) = drawn[0].axes
    ppg, ppo = axes.get_lines()
    assert legend_of(axes) == ["ppg (3 runs)", "ppo (3 runs)", "95 % interval"]
    assert axes.get_ylabel() == "IQM of evaluation return"
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
    assert legend_of(axes) == ["ppo (1 run, ± std over episodes)", "training, last 100 episodes"]


def test_there_is_a_panel_for_each_task_and_metric(tmp_path: Path, drawn: list[Figure]):
    make_run(tmp_path)
    make_run(tmp_path, algo="sac", env_id="Pendulum-v1")
    draw(tmp_path, "eval_return_mean", "loss", log_scale=True, title="all of it")
    panels = [(axes.get_title(), axes.get_ylabel()) for axes in drawn[0].axes]
    assert panels == [(task, name) for name in ("evaluation return", "loss") for task in ("CartPole-v1", "Pendulum-v1")]
    assert {axes.get_yscale() for axes in drawn[0].axes} == {"log"}
    assert drawn[0].get_suptitle() == "all of it"


def test_steps_on_a_log_axis_have_several_ticks_however_short_the_run(tmp_path: Path, drawn: list[Figure]):
    make_run(tmp_path, points=6)  # 1,000 to 6,000: one power of ten
    draw(tmp_path, log_steps=True)
    (axes,) = drawn[0].axes
    assert axes.get_xscale() == "log"
    drawn[0].draw_without_rendering()
    low, high = axes.get_xlim()
    labels = [tick.label1.get_text() for tick in axes.xaxis.get_major_ticks() if low <= tick.get_loc() <= high]
    assert labels == ["1k", "2k", "5k"]


def test_four_tasks_are_two_rows_of_two_and_each_metric_begins_a_row(tmp_path: Path, drawn: list[Figure]):
    for number in range(5):
        make_run(tmp_path / "five", env_id=f"Task{number}-v0")
        if number < 4:
            make_run(tmp_path / "four", env_id=f"Task{number}-v0")
    draw(tmp_path / "four")
    draw(tmp_path / "five", "loss", "eval_return_mean")
    four, five = ([axes.get_subplotspec().get_geometry()[:3] for axes in figure.axes] for figure in drawn)
    assert four == [(2, 2, 0), (2, 2, 1), (2, 2, 2), (2, 2, 3)]
    assert five == [(4, 3, place) for place in (0, 1, 2, 3, 4, 6, 7, 8, 9, 10)]


def four_long_names(folder: Path, *env_ids: str) -> None:
    for env_id in env_ids:
        for number, gamma in enumerate((0.9, 0.99)):
            for seed in (1, 2):
                make_run(folder, env_id=env_id, seed=seed, suffix=f"{number}", gamma=gamma, hidden_sizes=[64] * (10 + number))
                make_run(folder, env_id=env_id, seed=seed, suffix=f"{number}a", gamma=gamma, hidden_sizes=[32] * (20 + number))


def boxes(figure: Figure) -> dict[str, Bbox]:
    """Where everything that must be legible is, in pixels."""
    figure.draw_without_rendering()
    found = {f"legend {number}": legend.get_window_extent() for number, legend in enumerate(figure.legends)}
    if figure.get_suptitle():
        found["title"] = figure._suptitle.get_window_extent()
    for number, axes in enumerate(figure.axes):
        found[f"curves {number}"] = axes.get_window_extent()
        for name, text in (("x", axes.xaxis.label), ("y", axes.yaxis.label), ("task", axes.title)):
            found[f"{name} {number}"] = text.get_window_extent()
        for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
            low, high = sorted(axis.get_view_interval())
            ticks = [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            found[f"{name} ticks {number}"] = Bbox.union([tick.get_window_extent() for tick in ticks])
    return found


BOTH = ("eval_return_mean", "episode_return")


@pytest.mark.parametrize(
    ("num_tasks", "metrics", "size"),
    [(1, (), None), (2, (), None), (2, BOTH, None), (4, BOTH, None), (1, (), (5.0, 4.0)), (4, BOTH, (12.0, 9.0))],
)
def test_with_long_names_nothing_is_cut_off_or_lies_over_something_else(
    num_tasks: int, metrics: tuple[str, ...], size: tuple[float, float] | None, tmp_path: Path, drawn: list[Figure]
):
    four_long_names(tmp_path, *(f"namespace/RatherLongTask{number}-v0" for number in range(num_tasks)))
    draw(tmp_path, *metrics, title="a title", size=size)
    places = boxes(drawn[0])
    for name, box in places.items():
        assert Bbox.intersection(box, drawn[0].bbox).extents.tolist() == box.extents.tolist(), f"{name} is cut off"
    for (one, first), (other, second) in combinations(places.items(), 2):
        assert not first.overlaps(second), f"{one} lies over {other}"
    curves_area = sum(box.width * box.height for name, box in places.items() if name.startswith("curves"))
    assert curves_area > 0.25 * drawn[0].bbox.width * drawn[0].bbox.height


def test_a_legend_below_makes_the_picture_higher_not_the_panels_lower(tmp_path: Path, drawn: list[Figure]):
    for env_id in ("CartPole-v1", "Pendulum-v1"):
        make_run(tmp_path / "short", env_id=env_id)
        make_run(tmp_path / "short", env_id=env_id, algo="ppg", evaluated=False)
        make_run(tmp_path / "short", env_id=env_id, algo="ppg", suffix="b", evaluated=False)
    four_long_names(tmp_path / "long", "CartPole-v1", "Pendulum-v1")
    draw(tmp_path / "short", "episode_return")
    draw(tmp_path / "long", "episode_return")
    short, long = (boxes(figure)["curves 0"].height for figure in drawn)
    assert (len(drawn[0].legends), len(drawn[1].legends)) == (0, 1)
    assert long > 0.95 * short


def test_a_name_stands_once_in_the_common_legend_with_what_each_panel_says(tmp_path: Path, drawn: list[Figure]):
    for seed in (1, 2, 3):
        make_run(tmp_path, seed=seed, algo="a_rather_long_name")
    for seed in (1, 2):
        make_run(tmp_path, seed=seed, env_id="Pendulum-v1", algo="a_rather_long_name")
    draw(tmp_path)
    (legend,) = drawn[0].legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["a_rather_long_name (3 runs or 2 runs)", "training, last 100 episodes", "95 % interval"]


@pytest.mark.parametrize(("runs", "size"), [(30, None), (10, (4.0, 2.0))])
def test_names_for_which_there_is_no_room_are_left_out_aloud(
    runs: int, size: tuple[float, float] | None, tmp_path: Path, drawn: list[Figure], caplog: pytest.LogCaptureFixture
):
    for number in range(runs):
        make_run(tmp_path, suffix=str(number), gamma=number / 100)
    draw(tmp_path, size=size)
    assert not drawn[0].legends
    assert drawn[0].axes[0].get_legend() is None
    assert f"no legend: {runs} names are too many" in caplog.text


def test_single_runs_are_drawn_when_asked_for(tmp_path: Path, drawn: list[Figure]):
    for seed in (1, 2):
        make_run(tmp_path, seed=seed)
        make_run(tmp_path, seed=seed, algo="ppg")
    draw(tmp_path, single_runs=True)
    assert len(drawn[0].axes[0].get_lines()) == 2 * (2 + 1)


def test_runs_never_evaluated_are_drawn_by_their_training(tmp_path: Path, drawn: list[Figure]):
    make_run(tmp_path, evaluated=False)
    draw(tmp_path)
    assert drawn[0].axes[0].get_ylabel() == "training return\n(last 100 episodes)"


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


def test_one_run_or_folder_gets_its_picture_inside_and_several_must_say_where(
    tmp_path: Path, drawn: list[Figure], capsys: pytest.CaptureFixture[str]
):
    make_run(tmp_path, seed=1)
    make_run(tmp_path, seed=2)
    first, second = (str(path.parent) for path in sorted(tmp_path.glob("*/metrics.jsonl")))
    assert main(["plot", first]) == main(["plot", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert f"curve={first}/learning_curve.png\n" in said
    assert f"curve={tmp_path}/learning_curve.png\n" in said
    assert main(["plot", first, second]) == 2
    assert "--out: none is given for 2 runs" in capsys.readouterr().err


def test_plots_and_the_report_have_the_same_colours():
    style = (REPOSITORY / "src" / "rl_training" / "assets" / "report" / "report.css").read_text()
    light = style.partition("@media")[0]
    assert tuple(re.findall(r"--c\d: (#\w+);", light)) == PALETTE
