"""Hooks, early stopping and intervals: what happens when in the one training loop."""

import logging
import os
import signal
from types import SimpleNamespace

import pytest
from small_runs import history, small_config, train

from rl_training.errors import ConfigError, TrainingInterrupted
from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.experiment.metadata import read_metadata
from rl_training.options.base import EVALUATION_METRICS, EarlyStopping
from rl_training.runtime.callbacks import Callback, EarlyStoppingCallback
from rl_training.runtime.workflows import resume_training


class Recorder(Callback):
    def __init__(self):
        self.events = []

    def on_train_start(self, trainer):
        self.events.append(("start", trainer.global_step))

    def on_collect_end(self, trainer, result):
        self.events.append(("collect", trainer.global_step, result.timesteps))

    def on_update_end(self, trainer, result):
        self.events.append(("update", trainer.global_step, result.num_gradient_steps))

    def on_eval_end(self, trainer, metrics):
        self.events.append(("eval", trainer.global_step, metrics["eval_episodes"]))

    def on_train_end(self, trainer, result):
        self.events.append(("end", trainer.global_step, result.metrics["global_step"]))


def test_hooks_come_in_their_order(tmp_path):
    recorder = Recorder()
    train(small_config("ppo", tmp_path, total_timesteps=60), callbacks=[recorder])
    assert recorder.events == [
        ("start", 0),
        ("collect", 20, 20),
        ("update", 20, 4),
        ("collect", 40, 20),
        ("update", 40, 4),
        ("collect", 60, 20),
        ("update", 60, 4),
        ("eval", 60, 1),
        ("end", 60, 60),
    ]


def test_no_update_is_reported_while_there_is_none(tmp_path):
    recorder = Recorder()
    train(small_config("sac", tmp_path, total_timesteps=30), callbacks=[recorder])
    assert {event[0] for event in recorder.events} == {"start", "collect", "eval", "end"}  # learning starts at 32


def test_a_stop_takes_effect_after_the_turns_update(tmp_path):
    class Stop(Recorder):
        def on_collect_end(self, trainer, result):
            super().on_collect_end(trainer, result)
            trainer.request_stop("enough")
            trainer.request_stop("a second reason changes nothing")

    callback = Stop()
    result = train(small_config("ppo", tmp_path), callbacks=[callback])
    assert [event[0] for event in callback.events] == ["start", "collect", "update", "eval", "end"]
    assert result.metrics["stop_reason"] == "enough"


def test_the_last_evaluation_is_heard_of_once_and_stops_nothing(tmp_path):
    class Stop(Recorder):
        def on_eval_end(self, trainer, metrics):
            super().on_eval_end(trainer, metrics)
            if trainer.global_step == 60:
                trainer.request_stop("too late")

    def evaluations(**settings):
        recorder = Stop()
        result = train(small_config("ppo", tmp_path / str(settings), total_timesteps=60, **settings), callbacks=[recorder])
        return [event[1] for event in recorder.events if event[0] == "eval"], result.metrics

    at, metrics = evaluations(algo_kwargs={"eval_interval": 40})  # none falls on the last step
    assert at == [40, 60]
    assert "stop_reason" not in metrics
    assert evaluations(algo_kwargs={"eval_interval": 30})[0] == [40, 60]  # one does, and is not made again
    assert evaluations(eval_episodes=0)[0] == []


def test_evaluations_come_at_true_crossings_of_the_interval(tmp_path):
    # turns of 20 steps: multiples of 30 are passed at 40, 60, 100, 120, 160, 180, 220, 240
    result = train(small_config("ppo", tmp_path, log_interval=10**6, algo_kwargs={"eval_interval": 30}))
    assert [line["step"] for line in history(result.run_dir)] == [40, 60, 100, 120, 160, 180, 220, 240]


def test_a_callbacks_memory_survives_a_resume(tmp_path):
    class Counter(Callback):
        turns = 0

        def on_update_end(self, trainer, result):
            self.turns += 1
            if trainer.global_step == 120 and not self.resumed:
                trainer.request_stop("half", over=False)

        def state_dict(self):
            return {"turns": self.turns}

        def load_state_dict(self, state):
            self.turns = state["turns"]

    first, second = Counter(), Counter()
    first.resumed, second.resumed = False, True
    half = train(small_config("ppo", tmp_path), callbacks=[first])
    resume_training(half.run_dir, callbacks=[Recorder(), second])
    assert second.turns == 12


class Curriculum(Callback):
    """Makes smaller steps with time, and remembers for how long."""

    def __init__(self):
        self.turns = 0

    def on_update_end(self, trainer, result):
        self.turns += 1
        trainer.algorithm.optimizer.learning_rate = 1e-3 / self.turns

    def state_dict(self):
        return {"turns": self.turns}

    def load_state_dict(self, state):
        self.turns = state["turns"]


class CutAt(Callback):
    def on_collect_end(self, trainer, result):
        if trainer.global_step == 120:
            os.kill(os.getpid(), signal.SIGINT)


def test_callbacks_that_are_not_given_to_a_resume_are_named_and_their_memory_is_kept(tmp_path, caplog):
    with pytest.raises(TrainingInterrupted, match=r"resume_training\('.*', callbacks=\[\.\.\.\]\)") as caught:
        train(small_config("ppo", tmp_path), callbacks=[Curriculum(), CutAt()])
    run_dir = caught.value.result.run_dir
    without = resume_training(run_dir, run_suffix="without")
    (said,) = [record.getMessage() for record in caplog.records if "NOT EXACT" in record.getMessage()]
    assert "callbacks that the run was trained with are not given now: Curriculum. " in said
    assert read_metadata(without.run_dir)["exact"] is False
    state = load_checkpoint(without.checkpoint_path).trainer_state
    assert (state["callbacks"], state["exact"]) == ({"Curriculum#0": {"turns": 6}}, False)

    caplog.clear()
    given = Curriculum()
    resume_training(run_dir, callbacks=[given])
    assert given.turns == 12
    assert read_metadata(run_dir)["exact"] is True
    assert "NOT EXACT" not in caplog.text

    late = Curriculum()
    resume_training(without.checkpoint_path, total_timesteps=260, callbacks=[late])
    assert late.turns == 7
    assert read_metadata(without.run_dir)["exact"] is False  # for good


def test_callbacks_without_a_memory_may_come_and_go(tmp_path, caplog):
    with pytest.raises(TrainingInterrupted, match="rl-training resume --checkpoint") as caught:
        train(small_config("ppo", tmp_path), callbacks=[Recorder(), CutAt()])
    resume_training(caught.value.result.run_dir)
    assert "NOT EXACT" not in caplog.text


def test_early_stopping_that_is_taken_out_of_the_configuration_is_no_callback_that_is_missed(tmp_path, caplog):
    config = small_config("ppo", tmp_path, algo_kwargs={"early_stopping": {"patience": 9}})
    with pytest.raises(TrainingInterrupted) as caught:
        train(config, callbacks=[CutAt()])
    result = caught.value.result
    plain = config.replace(algo_kwargs={**config.algo_kwargs, "early_stopping": None})
    train(plain, checkpoint_state=load_checkpoint(result.checkpoint_path), run_dir=result.run_dir)
    assert "NOT EXACT" not in caplog.text


def stopping(**options):
    stops = []
    trainer = SimpleNamespace(global_step=0, request_stop=stops.append)
    return EarlyStoppingCallback(EarlyStopping(**options)), trainer, stops


def feed(callback, trainer, values, *, every=10):
    for value in values:
        trainer.global_step += every
        callback.on_eval_end(trainer, {"eval_return_mean": value})


def test_patience_counts_evaluations_without_improvement():
    callback, trainer, stops = stopping(patience=2, min_delta=1.0)
    feed(callback, trainer, [10.0, 10.5, 12.0, 12.9])  # 10.5 and 12.9 improve by too little
    assert stops == []
    feed(callback, trainer, [12.5])
    assert stops == ["eval_return_mean has not improved for 2 evaluations"]


def test_less_can_be_better():
    callback, trainer, stops = stopping(patience=1, mode="min", target_value=1.0)
    feed(callback, trainer, [5.0, 3.0, 1.0])
    assert stops == ["eval_return_mean reached 1 (target 1)"]


def test_training_never_stops_before_min_steps():
    callback, trainer, stops = stopping(patience=1, min_steps=50)
    feed(callback, trainer, [5.0, 4.0, 3.0, 2.0])
    assert stops == []
    feed(callback, trainer, [1.0])
    assert len(stops) == 1


def test_a_misspelt_metric_of_evaluations_is_refused_beforehand(tmp_path):
    with pytest.raises(
        ConfigError, match=r"early_stopping.metric: evaluations have no metric 'eval_retrun_mean'; did you mean"
    ):
        small_config("ppo", tmp_path, algo_kwargs={"early_stopping": {"metric": "eval_retrun_mean", "patience": 2}})
    assert EarlyStopping(metric="episode_return", patience=2).metric == "episode_return"  # the learner's own come later


def test_the_metrics_of_evaluations_that_are_known_are_those_they_have(tmp_path):
    metrics = train(small_config("ppo", tmp_path, total_timesteps=20)).metrics
    assert {name for name in metrics if name.startswith("eval")} == set(EVALUATION_METRICS)


def test_early_stopping_goes_on_counting_after_a_resume():
    callback, trainer, _ = stopping(patience=3)
    feed(callback, trainer, [5.0, 4.0, 3.0])
    again, trainer, stops = stopping(patience=3)
    again.load_state_dict(callback.state_dict())
    feed(again, trainer, [2.0])
    assert len(stops) == 1


def test_a_metric_that_is_not_there_is_named_once_and_stops_nothing(caplog):
    callback, trainer, stops = stopping(metric="critic_los", patience=1)
    for trainer.global_step in (10, 20, 30):
        callback.on_eval_end(trainer, {"eval_return_mean": 1.0, "critic_loss": 1.0})
    assert stops == []
    (said,) = [record.message for record in caplog.records]
    assert said.startswith("step 10: early_stopping.metric 'critic_los' is not among the metrics")
    assert "did you mean 'critic_loss'" in said


def test_early_stopping_waits_for_a_metric_that_comes_with_the_first_episode(tmp_path):
    """Two environments with episodes of 30 steps: the first have ended at step 60, after evaluations at 20 and 40."""
    options = {"eval_interval": 20, "early_stopping": {"metric": "episode_return", "patience": 1, "min_delta": 1e9}}
    result = train(small_config("sac", tmp_path, algo_kwargs=options))
    assert result.metrics["global_step"] == 80  # its second value
    assert "episode_return has not improved for 1 evaluations" in result.metrics["stop_reason"]


def test_a_metric_of_the_learner_is_waited_for_until_it_learns(tmp_path):
    options = {"eval_interval": 20, "early_stopping": {"metric": "critic_loss", "target_value": 0.0, "mode": "max"}}
    result = train(small_config("sac", tmp_path, algo_kwargs=options))
    assert result.metrics["global_step"] == 40  # learning starts with 32 transitions


def test_a_second_interrupt_leaves_at_once(tmp_path):
    class Impatient(Callback):
        after = False

        def on_collect_end(self, trainer, result):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            Impatient.after = True

    with pytest.raises(KeyboardInterrupt):
        train(small_config("ppo", tmp_path), callbacks=[Impatient()])
    assert not Impatient.after


class Unwritable(logging.Handler):
    """As a stream that is in the middle of a write."""

    def emit(self, record):
        raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stdout>'>")


def test_a_signal_that_cannot_be_told_about_ends_the_turn_all_the_same(tmp_path):
    class Told(Callback):
        def on_collect_end(self, trainer, result):
            os.kill(os.getpid(), signal.SIGTERM)

    unwritable, told = Unwritable(), logging.getLogger("rl_training.runtime.signals")
    told.addHandler(unwritable)
    try:
        with pytest.raises(TrainingInterrupted, match="interrupted at step 20; everything is saved"):
            train(small_config("ppo", tmp_path), callbacks=[Told()])
    finally:
        told.removeHandler(unwritable)
