"""What cuts an evaluation or a generation short, a signal or an environment that breaks, loses nothing of the run."""

from __future__ import annotations

import logging
import os
import signal
import threading

import gymnasium as gym
import pytest
import toy_envs
from small_runs import ALGORITHMS, ENDS_EARLY, history, small_config, state_difference, train

from rl_training import PPO
from rl_training.envs import episodes
from rl_training.envs.vector import EnvFault
from rl_training.errors import EnvError, TrainingInterrupted
from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.runtime.workflows import resume_training


@pytest.fixture(autouse=True)
def given_up_after_a_while():
    """A test that hangs is better known for it than waited for."""
    timer = threading.Timer(60, os._exit, (1,))
    timer.start()
    yield
    timer.cancel()


def signal_at_reset(monkeypatch, number):
    """A Ctrl-C when the toy begins its episode with this number, counted over all."""
    begun, reset = [], toy_envs.Counting.reset

    def counted(env, *, seed=None, options=None):
        begun.append(env)
        if len(begun) == number:
            os.kill(os.getpid(), signal.SIGINT)
        return reset(env, seed=seed, options=options)

    monkeypatch.setattr(toy_envs.Counting, "reset", counted)
    return lambda: monkeypatch.setattr(toy_envs.Counting, "reset", reset)


EARLY = {"early_stopping": {"patience": 2}, "eval_interval": 32, "num_steps": 32, "update_epochs": 1}


@pytest.mark.parametrize("number", range(2, 44, 3))
def test_an_evaluation_that_a_signal_cuts_short_is_made_up_for_on_resume(number, tmp_path, monkeypatch):
    config = small_config(
        "ppo", tmp_path / "whole", env_id="ToyDrift-v0", num_envs=1, total_timesteps=160, eval_episodes=3, algo_kwargs=EARLY
    )
    whole = train(config)
    undo = signal_at_reset(monkeypatch, number)
    with pytest.raises(TrainingInterrupted) as caught:
        train(config.replace(output_dir=tmp_path / "cut"))
    undo()
    rest = resume_training(caught.value.result.run_dir)
    assert state_difference(whole.checkpoint_path, rest.checkpoint_path) is None
    assert history(whole.run_dir) == history(rest.run_dir)
    assert rest.metrics["eval_return_mean"] == whole.metrics["eval_return_mean"]


# the last evaluation of a run comes after its last checkpoint, and is made again by any resume
@pytest.mark.parametrize("options", [{}, ENDS_EARLY, {"eval_interval": 10**9}], ids=["first", "ends early", "last"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_evaluation_that_an_environment_broke_is_made_up_for_on_resume(name, options, tmp_path, monkeypatch):
    config = small_config(name, tmp_path, algo_kwargs=options)
    whole = train(config, run_suffix="whole")

    def broken(evaluator, *arguments, **settings):
        raise EnvFault(config.env_id, 0, "the licence server is away")

    with monkeypatch.context() as patch:
        patch.setattr(episodes.Evaluator, "run", broken)
        with pytest.raises(EnvError, match=r"licence server(.|\n)*is saved") as caught:
            train(config, run_suffix="broken")
    rest = resume_training(caught.value.checkpoint_path)
    best = [(run.run_dir / "checkpoints" / "best.safetensors").read_bytes() for run in (whole, rest)]
    assert whole.checkpoint_path.name == rest.checkpoint_path.name
    assert whole.checkpoint_path.read_bytes() == rest.checkpoint_path.read_bytes()
    assert history(whole.run_dir) == history(rest.run_dir)
    assert best[0] == best[1]


def test_an_evaluation_that_never_ends_is_left_at_the_first_signal(tmp_path, monkeypatch):
    def endless():
        return toy_envs.Counting(length=10**12)

    undo = signal_at_reset(monkeypatch, 3)  # of training, of a look at the spaces, then of the evaluation
    agent = PPO(endless, total_timesteps=64, num_steps=16, eval_interval=16, output_dir=tmp_path)
    with pytest.raises(TrainingInterrupted):
        agent.learn()
    undo()
    (run_dir,) = tmp_path.iterdir()
    (checkpoint,) = (run_dir / "checkpoints").glob("step_*")
    state = load_checkpoint(checkpoint)
    assert state.trainer_state["progress"]["global_step"] >= 16
    assert resume_training(run_dir, env=endless, eval_episodes=0).metrics["global_step"] == 64


@pytest.mark.parametrize("name", ["ars", "openai_es"])
def test_a_generation_that_a_signal_cuts_short_is_begun_anew_on_resume(name, tmp_path, monkeypatch):
    config = small_config(name, tmp_path / "whole", env_id="ToyDriftContinuous-v0", eval_episodes=1)
    whole = train(config)
    undo = signal_at_reset(monkeypatch, 14)
    with pytest.raises(TrainingInterrupted) as caught:
        train(config.replace(output_dir=tmp_path / "cut"))
    undo()
    rest = resume_training(caught.value.result.run_dir)
    assert state_difference(whole.checkpoint_path, rest.checkpoint_path) is None
    assert history(whole.run_dir) == history(rest.run_dir)


def test_a_generation_that_never_ends_is_left_at_the_first_signal(tmp_path):
    config = small_config("ars", tmp_path, env_kwargs={})
    threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(TrainingInterrupted, match="interrupted at step 0"):
        train(config, env=lambda: toy_envs.Counting(length=10**12, continuous=True))
    (run_dir,) = tmp_path.iterdir()
    rest = resume_training(run_dir, env=lambda: toy_envs.Counting(continuous=True))
    assert rest.metrics["global_step"] >= config.total_timesteps


def test_an_episode_that_may_never_end_is_named_once_with_the_remedy(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(episodes, "LONG_EPISODE", 50)
    caplog.set_level(logging.WARNING)
    settings = {"total_timesteps": 32, "num_steps": 16, "eval_interval": 16, "eval_episodes": 3}
    PPO(lambda: gym.make("ToyCounting-v0", length=120), output_dir=tmp_path, **settings).learn()
    said = [record.message for record in caplog.records if "goes on" in record.message]
    assert len(said) == 1
    assert "ToyCounting-v0: evaluation episode 0 has lasted 50 steps" in said[0]
    assert "env_kwargs={'max_episode_steps': ...}" in said[0]
