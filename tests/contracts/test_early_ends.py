"""A run that something has ended before its time is over: however it is killed then, a resume comes to the same end."""

from __future__ import annotations

import logging
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from small_runs import ALGORITHMS, ENDS_EARLY, history, small_config, state_difference, train

from rl_training.errors import TrainingInterrupted
from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.experiment.locate import step_files
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.workflows import resume_training


def config_that_ends_early(name: str, folder: Path, **changes: Any) -> Any:
    config = small_config(name, folder, algo_kwargs=ENDS_EARLY, keep_checkpoints=1000)
    return config.replace(**{"checkpoint_interval": max(config.total_timesteps // 10, 1), **changes})


def left_by(run_dir: Path) -> tuple[str, bytes, bytes, list[Any]]:
    """What must be the same: the last checkpoint, the best policy, the history."""
    (last, *_), best = step_files(run_dir / "checkpoints"), run_dir / "checkpoints" / "best.safetensors"
    return last.name, last.read_bytes(), best.read_bytes(), history(run_dir)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_run_that_ended_early_and_is_killed_after_any_of_its_last_saves_ends_there_again(name, tmp_path):
    config = config_that_ends_early(name, tmp_path)
    whole = train(config, run_suffix="whole")
    assert "has not improved for 1 evaluations" in whole.metrics["stop_reason"]
    assert 0 < whole.metrics["global_step"] < config.total_timesteps
    checkpoints, expected = step_files(whole.run_dir / "checkpoints"), left_by(whole.run_dir)
    for number, last in enumerate(checkpoints[:2]):
        killed = whole.run_dir.with_name(whole.run_dir.name.removesuffix("whole") + f"killed{number}")
        shutil.copytree(whole.run_dir, killed)
        for later in checkpoints[: checkpoints.index(last)]:
            (killed / "checkpoints" / later.name).unlink()
        rest = resume_training(killed)
        assert left_by(killed) == expected
        assert rest.metrics["stop_reason"] == whole.metrics["stop_reason"]
        assert rest.metrics["eval_return_mean"] == whole.metrics["eval_return_mean"]


class SignalWithTheStop(Callback):
    """SIGTERM at the very evaluation that ends the run."""

    def on_eval_end(self, trainer, metrics):
        if trainer.stop_reason is not None:
            signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_signal_that_comes_with_the_end_does_not_undo_it(name, tmp_path):
    config = config_that_ends_early(name, tmp_path)
    whole = train(config, run_suffix="whole")
    with pytest.raises(TrainingInterrupted) as caught:
        train(config, run_suffix="told", callbacks=[SignalWithTheStop()])
    resume_training(caught.value.result.run_dir)
    assert left_by(caught.value.result.run_dir) == left_by(whole.run_dir)


class Enough(Callback):
    def on_update_end(self, trainer, result):
        if trainer.global_step >= 100:
            trainer.request_stop("enough", over=self.over)

    def __init__(self, *, over: bool) -> None:
        self.over = over


def test_a_run_that_a_callback_has_ended_is_over_and_a_resume_says_so(tmp_path, caplog):
    ended = train(small_config("ppo", tmp_path), callbacks=[Enough(over=True)])
    before = left_by(ended.run_dir)
    again = resume_training(ended.run_dir)
    assert left_by(ended.run_dir) == before
    assert (again.metrics["global_step"], again.metrics["stop_reason"]) == (100, "enough")
    (said,) = [record.message for record in caplog.records if "over" in record.message]
    assert said.startswith("the run is over since step 100: enough. Nothing is trained;")
    assert "total_timesteps (now 240)" in said


def test_a_pause_is_no_end(tmp_path):
    whole = train(small_config("ppo", tmp_path / "whole"))
    paused = train(small_config("ppo", tmp_path / "paused"), callbacks=[Enough(over=False)])
    assert (paused.metrics["global_step"], paused.metrics["stop_reason"]) == (100, "enough")
    rest = resume_training(paused.run_dir)
    assert state_difference(whole.checkpoint_path, rest.checkpoint_path) is None
    assert "stop_reason" not in rest.metrics


def test_more_to_do_is_done_though_the_run_was_over(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    ended = train(small_config("ppo", tmp_path), callbacks=[Enough(over=True)])
    rest = resume_training(ended.run_dir, total_timesteps=260)
    assert rest.metrics["global_step"] == 260
    assert "stop_reason" not in rest.metrics
    assert "stopped at step 100 (enough); goes on, as its limits were changed" in caplog.text
    assert load_checkpoint(rest.checkpoint_path).trainer_state["over"] is None


def test_another_early_stopping_decides_anew(tmp_path):
    config = config_that_ends_early("ppo", tmp_path)
    ended = train(config)
    assert ended.metrics["global_step"] == 120
    patient = config.replace(algo_kwargs={**config.algo_kwargs, "early_stopping": {"patience": 3, "min_delta": 1e9}})
    state = load_checkpoint(ended.checkpoint_path)
    rest = train(patient, checkpoint_state=state, run_dir=ended.run_dir)
    assert rest.metrics["global_step"] == 240  # the fourth evaluation, the third without improvement


def test_the_same_limits_in_other_words_are_the_same(tmp_path):
    ended = train(config_that_ends_early("ppo", tmp_path))
    state = load_checkpoint(ended.checkpoint_path)
    spelt_out = config_that_ends_early("ppo", tmp_path).resolved()
    assert train(spelt_out, checkpoint_state=state, run_dir=ended.run_dir).metrics["global_step"] == 120
