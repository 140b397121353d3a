"""What is shown while training runs, and that showing it changes nothing."""

from __future__ import annotations

import io
import math
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console
from rich.text import Text

from rl_training.cli import load_config, progress, results
from rl_training.cli.progress import Bar, Best, Lines, ProgressCallback, Status, sparkline
from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.experiment.registry import get_algorithm_spec
from rl_training.types import Collected, TrainResult

STATUS = Status("ppo X seed 1", 250, 1000, 125.0, 12.5, 6.0, 41.25, (10.0, 30.0, 20.0), Best(30.0, 200))


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Recorder:
    """A display that keeps what it is told."""

    seconds = 1.0

    def __init__(self) -> None:
        self.shown: list[Status] = []
        self.evaluations: list[Status] = []
        self.closed = 0

    def show(self, status: Status) -> None:
        self.shown.append(status)

    def evaluated(self, status: Status, metrics: dict[str, Any]) -> None:
        self.evaluations.append(status)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "perf_counter", clock)
    return clock


@pytest.fixture
def display(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(progress, "Lines", lambda: recorder)
    return recorder


def trainer(*, max_updates: int | None = None, best_score: float = -math.inf) -> Any:
    return SimpleNamespace(
        global_step=0,
        progress=SimpleNamespace(updates=0, recent_returns=deque([1.0, 2.0])),
        config=SimpleNamespace(algo="ppo", env_id="X", seed=1, total_timesteps=2000, budget=2000),
        options=SimpleNamespace(max_updates=max_updates),
        run=SimpleNamespace(best_score=best_score),
    )


def advance(session: Any, clock: Clock, callback: ProgressCallback, *, seconds: float, steps: int, updates: int = 0) -> None:
    clock.now += seconds
    session.global_step += steps
    session.progress.updates += updates
    callback.on_collect_end(session, Collected(steps, [], []))


def test_speeds_and_the_time_left_follow_from_steps_and_seconds(clock: Clock, display: Recorder):
    callback, session = ProgressCallback(), trainer()
    callback.on_train_start(session)
    advance(session, clock, callback, seconds=10, steps=1000, updates=500)
    (status,) = display.shown
    assert (status.steps_per_second, status.updates_per_second, status.seconds_left) == (100.0, 50.0, 10.0)
    assert status.recent_return == 1.5


def test_the_time_left_ends_with_the_budget_that_is_used_up_first(clock: Clock, display: Recorder):
    callback, session = ProgressCallback(), trainer(max_updates=600)
    callback.on_train_start(session)
    advance(session, clock, callback, seconds=10, steps=1000, updates=500)
    assert display.shown[-1].seconds_left == 2.0


def test_a_slow_beginning_is_forgotten(clock: Clock, display: Recorder):
    callback, session = ProgressCallback(), trainer()
    callback.on_train_start(session)
    advance(session, clock, callback, seconds=60, steps=1)
    for _ in range(11):
        advance(session, clock, callback, seconds=1, steps=100)
    assert display.shown[-1].steps_per_second == 100.0


def test_a_resumed_run_counts_its_own_part_only(clock: Clock, display: Recorder):
    callback, session = ProgressCallback(), trainer(best_score=7.0)
    session.global_step, session.progress.updates = 1500, 30
    callback.on_train_start(session)
    advance(session, clock, callback, seconds=2, steps=100, updates=10)
    callback.on_train_end(session, TrainResult(Path(), Path(), {"eval_episodes": 0}))
    assert display.shown[-1].steps_per_second == 50.0
    assert (callback.steps_done, callback.updates_done, callback.seconds) == (100, 10, 2.0)
    assert callback.best == Best(7.0, None)


def test_nothing_is_shown_before_it_is_due(clock: Clock, display: Recorder):
    callback, session = ProgressCallback(), trainer()
    callback.on_train_start(session)
    for _ in range(40):
        advance(session, clock, callback, seconds=0.25, steps=1)
    assert len(display.shown) == 10


def test_the_bar_is_drawn_at_most_eight_times_a_second():
    assert Bar.seconds >= 1 / 8


def test_between_displays_nothing_is_looked_at():
    callback = ProgressCallback()
    callback._due = math.inf
    callback.on_collect_end(None, Collected(1, [], []))  # a session would be asked for its counts


def test_the_best_evaluation_stays_when_a_later_one_is_worse(clock: Clock, display: Recorder):
    callback, session = ProgressCallback(), trainer()
    callback.on_train_start(session)
    for step, value in ((100, 5.0), (200, 9.0), (300, 4.0)):
        session.global_step = step
        callback.on_eval_end(session, {"eval_return_mean": value})
    assert [status.best for status in display.evaluations] == [Best(5.0, 100), Best(9.0, 200), Best(9.0, 200)]
    assert display.evaluations[-1].evaluations == (5.0, 9.0, 4.0)


def test_a_reader_that_went_away_does_not_stop_training(clock: Clock, display: Recorder, monkeypatch: pytest.MonkeyPatch):
    calls = []

    def broken(status: Status) -> None:
        calls.append(status)
        raise BrokenPipeError

    monkeypatch.setattr(display, "show", broken)
    with ProgressCallback() as callback:
        session = trainer()
        callback.on_train_start(session)
        for _ in range(3):
            advance(session, clock, callback, seconds=5, steps=1)
    assert len(calls) == 1


def test_an_error_in_training_leaves_the_terminal_in_order(clock: Clock, display: Recorder):
    def train() -> None:
        with ProgressCallback() as callback:
            callback.on_train_start(trainer())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    assert display.closed == 1


def test_quiet_shows_nothing(clock: Clock, display: Recorder):
    callback, session = ProgressCallback(quiet=True), trainer()
    callback.on_train_start(session)
    advance(session, clock, callback, seconds=100, steps=100)
    callback.on_eval_end(session, {"eval_return_mean": 1.0})
    assert display.shown == display.evaluations == []
    assert callback.best == Best(1.0, 100)


def test_a_plain_line_says_everything(capsys: pytest.CaptureFixture[str]):
    Lines().show(STATUS)
    expected = "step 250/1,000 (25%)  125 steps/s  12 updates/s  return 41.2  eval 20.0  best 30.0  0:06 left\n"
    assert capsys.readouterr().out == expected


def test_a_record_is_named_where_it_is_set(capsys: pytest.CaptureFixture[str]):
    metrics = {"eval_return_mean": 30.0, "eval_return_std": 1.5, "eval_episodes": 4}
    Lines().evaluated(STATUS, metrics)
    assert capsys.readouterr().out == "step 250/1,000  evaluation 30.0 ± 1.5 over 4 episodes\n"
    Lines().evaluated(Status("", 200, 1000, 0, 0, 0, None, (30.0,), Best(30.0, 200)), metrics)
    assert capsys.readouterr().out.endswith("(best so far)\n")


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_bar_keeps_to_two_lines_of_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch):
    screen = io.StringIO()
    monkeypatch.setattr(progress, "make_console", lambda: Console(file=screen, force_terminal=True, width=width))
    bar = Bar()
    bar.show(STATUS)
    bar.close()
    console = Console(file=io.StringIO(), width=width)
    lines = console.render_lines(progress._drawing(STATUS))
    assert len(lines) == 2
    if width >= 80:
        assert "250/1,000 25% 0:06 left" in Text.from_ansi(screen.getvalue()).plain
        assert "▁█▄" in screen.getvalue() or "▁█▅" in screen.getvalue()


def test_sparklines_run_from_the_lowest_to_the_highest():
    assert sparkline(tuple(map(float, range(8)))) == "▁▂▃▄▅▆▇█"
    assert sparkline((3.0, 3.0)) == "▄▄"
    assert sparkline((3.0,)) == ""
    assert sparkline((math.nan, 1.0, 2.0)) == "▁█"


@pytest.mark.parametrize(("seconds", "words"), [(0.2, "0:00"), (7, "0:07"), (750, "12:30"), (59.7, "1:00"), (11100, "3:05:00")])
def test_durations_are_written_as_on_a_clock(seconds: float, words: str):
    assert results.duration(seconds) == words


def test_returns_are_written_with_the_digits_that_matter():
    written = {0.12345: "0.123", 1.0: "1", 41.25: "41.2", -1234.56: "-1234.6", 12345.6: "12,346", math.nan: "nan"}
    assert {value: results.number(value) for value in written} == written


def test_watching_changes_nothing_and_leaves_nothing_in_the_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    options = {"num_steps": 16, "update_epochs": 1, "eval_interval": 16}
    config = load_config("ppo/cartpole").replace(
        total_timesteps=64, num_envs=1, eval_episodes=1, output_dir=tmp_path, algo_kwargs=options
    )
    states = []
    for number, callbacks in enumerate(([], [ProgressCallback()])):
        result = get_algorithm_spec("ppo").train_fn(config, run_suffix=str(number), callbacks=callbacks)
        states.append(load_checkpoint(result.checkpoint_path))
    assert states[0].trainer_state["callbacks"] == states[1].trainer_state["callbacks"]
    assert torch.equal(states[0].trainer_state["torch_rng"]["cpu"], states[1].trainer_state["torch_rng"]["cpu"])
    first, second = (dict(_leaves(state.algorithm_state)) for state in states)
    assert first.keys() == second.keys()
    assert all(torch.equal(torch.as_tensor(first[name]), torch.as_tensor(second[name])) for name in first)
    assert "evaluation" in capsys.readouterr().out


def _leaves(tree: Any, path: str = "") -> list[tuple[str, Any]]:
    if isinstance(tree, dict):
        return [leaf for name, inner in tree.items() for leaf in _leaves(inner, f"{path}/{name}")]
    return [(path, tree)] if tree is not None and not isinstance(tree, str | list) else []
