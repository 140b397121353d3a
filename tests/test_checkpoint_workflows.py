"""Evaluate, predict and resume from files, whichever algorithm wrote them."""

import json
import os
import signal
import subprocess
import sys
import time
from itertools import product

import numpy as np
import pytest
from small_runs import ALGORITHMS, StopAt, history, small_config, state_difference, train

from rl_training.errors import CheckpointError, EnvError, RunBusyError
from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.experiment.run import Run
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.workflows import evaluate_checkpoint, predict_checkpoint, resume_training


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_checkpoint_is_evaluated_and_predicts_as_the_run_did(name, tmp_path):
    result = train(small_config(name, tmp_path, eval_episodes=3))
    scores = evaluate_checkpoint(result.checkpoint_path)
    assert scores["eval_return_mean"] == result.metrics["eval_return_mean"]
    assert evaluate_checkpoint(result.run_dir, num_episodes=2)["eval_episodes"] == 2
    obs = [0.1] * load_checkpoint(result.checkpoint_path).metadata["env_spec"]["obs_dim"]
    action = predict_checkpoint(result.run_dir, obs)
    np.testing.assert_array_equal(action, predict_checkpoint(result.checkpoint_path, obs))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_resume_continues_in_its_own_directory_and_writes_that_down(name, tmp_path):
    config = small_config(name, tmp_path)
    first = train(config, callbacks=[StopAt(config.total_timesteps // 2)])
    second = resume_training(first.checkpoint_path)
    assert second.run_dir == first.run_dir
    assert second.metrics["global_step"] >= config.total_timesteps
    (entry,) = json.loads((first.run_dir / "metadata.json").read_text())["resume_history"]
    assert entry["step"] == first.metrics["global_step"]
    # pretraining and model fitting update without a step
    places = [(line["step"], line["metrics"]["updates"]) for line in history(first.run_dir)]
    assert places[:-1] == sorted(set(places[:-1]))
    assert places[-1] >= places[-2]  # the final evaluation may fall on a logged step


def test_a_run_below_a_relative_folder_stays_where_it_was_said_to_be(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = small_config("ars", "runs")
    first = train(config, callbacks=[StopAt(config.total_timesteps // 2)])
    assert first.run_dir.parent == tmp_path / "runs"  # absolute, as an environment may change the current folder
    second = resume_training(first.run_dir)
    assert (second.run_dir, second.checkpoint_path.parent) == (first.run_dir, first.checkpoint_path.parent)
    assert resume_training(first.checkpoint_path).run_dir == first.run_dir
    monkeypatch.chdir(first.run_dir)
    assert resume_training(".").run_dir == first.run_dir


def test_the_last_few_checkpoints_and_the_best_policy_are_kept(tmp_path):
    result = train(small_config("ppo", tmp_path, checkpoint_interval=20, keep_checkpoints=2))
    names = sorted(path.name for path in (result.run_dir / "checkpoints").iterdir())
    assert names == ["best.safetensors", "step_000000220.safetensors", "step_000000240.safetensors"]
    best = load_checkpoint(result.run_dir / "checkpoints" / "best.safetensors")
    scores = [line["metrics"].get("eval_return_mean", -np.inf) for line in history(result.run_dir)]
    assert best.metadata["score"] == max(scores)
    with pytest.raises(CheckpointError, match="only a policy"):
        resume_training(result.run_dir / "checkpoints" / "best.safetensors")


def test_when_the_newest_checkpoint_is_damaged_the_next_is_used_and_the_loss_named(tmp_path, caplog):
    config = small_config("ppo", tmp_path / "a", checkpoint_interval=20)
    whole = train(config)
    half = train(config.replace(output_dir=tmp_path / "b"), callbacks=[StopAt(120)])
    newest = half.checkpoint_path
    data = bytearray(newest.read_bytes())
    data[-5] ^= 1
    newest.write_bytes(data)
    rest = resume_training(half.run_dir)
    assert newest.name in caplog.text
    assert state_difference(whole.checkpoint_path, rest.checkpoint_path) is None
    assert history(whole.run_dir) == history(rest.run_dir)


def test_a_killed_run_leaves_the_last_whole_checkpoint(tmp_path):
    config = small_config("ppo", tmp_path / "killed", total_timesteps=10**7, checkpoint_interval=20, eval_episodes=0)
    path = tmp_path / "config.yaml"
    path.write_text(config.to_yaml())
    code = (
        "import sys; from rl_training.experiment.yaml_loader import load_config_file as load; from pathlib import Path;"
        "from rl_training.runtime.ppo_trainer import train_ppo; train_ppo(load(Path(sys.argv[1])), run_suffix='x')"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(path)])
    checkpoints = tmp_path / "killed" / "ppo__CartPole-v1__seed3__x" / "checkpoints"
    deadline = time.monotonic() + 60
    while len(list(checkpoints.glob("step_*.safetensors"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    newest = max(int(path.stem.removeprefix("step_")) for path in checkpoints.glob("step_*.safetensors"))
    rest = resume_training(checkpoints.parent, total_timesteps=newest + 100)
    whole = train(config.replace(output_dir=tmp_path / "whole", total_timesteps=newest + 100))
    assert state_difference(whole.checkpoint_path, rest.checkpoint_path) is None
    assert history(whole.run_dir)[-1] == history(rest.run_dir)[-1]


def test_a_busy_run_is_not_touched(tmp_path):
    first = train(small_config("ppo", tmp_path), callbacks=[StopAt(100)])
    with Run.open(first.run_dir), pytest.raises(RunBusyError):
        resume_training(first.run_dir)


def test_a_checkpoint_for_other_spaces_is_refused(tmp_path):
    from rl_training.runtime.ppo_trainer import train_ppo

    first = train(small_config("ppo", tmp_path / "a"), callbacks=[StopAt(100)])
    other = small_config("ppo", tmp_path / "b", env_id="Acrobot-v1")
    with pytest.raises(CheckpointError, match="other spaces"):
        train_ppo(other, checkpoint_state=load_checkpoint(first.checkpoint_path))
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("name", ["ppo", "sac"])
def test_an_environment_that_breaks_leaves_a_checkpoint_from_before_the_turn(name, tmp_path):
    """The run that is saved then, resumed with a whole environment, is the run that never broke."""
    import gymnasium as gym

    class Breaks(gym.Wrapper):
        steps = 0

        def step(self, action):
            Breaks.steps += 1
            if Breaks.steps == 150:
                raise ZeroDivisionError("the motor is gone")
            return self.env.step(action)

    config = small_config(name, tmp_path / "broken", eval_episodes=0)

    def whole_factory():
        return gym.make(config.env_id, max_episode_steps=30)

    with pytest.raises(EnvError, match=r"environment [01].*the motor is gone(.|\n)*is saved") as caught:
        train(config.replace(env_kwargs={}), env=lambda: Breaks(whole_factory()))
    (run_dir,) = (tmp_path / "broken").iterdir()
    assert "step" in str(caught.value)
    rest = resume_training(run_dir, env=whole_factory)
    whole = train(config.replace(env_kwargs={}, output_dir=tmp_path / "whole"), env=whole_factory)
    assert state_difference(whole.checkpoint_path, rest.checkpoint_path) is None


class SendSignal(Callback):
    """A Ctrl-C in the middle of a turn."""

    def __init__(self, signum, step):
        self.signum, self.step, self.sent = signum, step, False

    def on_collect_end(self, trainer, result):
        if trainer.global_step >= self.step and not self.sent:
            self.sent = True
            os.kill(os.getpid(), self.signum)


@pytest.mark.parametrize(
    ("name", "signum"), [*product(ALGORITHMS, (signal.SIGINT, signal.SIGTERM)), ("ppo", signal.SIGHUP), ("ars", signal.SIGHUP)]
)
def test_a_signal_ends_the_turn_saves_and_loses_nothing(name, signum, tmp_path):
    from rl_training.errors import TrainingInterrupted

    config = small_config(name, tmp_path / "whole")
    whole = train(config)
    handler = signal.getsignal(signum)
    with pytest.raises(TrainingInterrupted, match="resume --checkpoint") as caught:
        train(config.replace(output_dir=tmp_path / "cut"), callbacks=[SendSignal(signum, config.total_timesteps // 2)])
    assert caught.value.signum == signum
    assert signal.getsignal(signum) == handler
    rest = resume_training(caught.value.result.run_dir)
    assert state_difference(whole.checkpoint_path, rest.checkpoint_path) is None
    assert history(whole.run_dir) == history(rest.run_dir)


def test_a_hangup_that_is_ignored_as_by_nohup_ends_nothing(tmp_path):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        result = train(small_config("ppo", tmp_path), callbacks=[SendSignal(signal.SIGHUP, 100)])
    finally:
        signal.signal(signal.SIGHUP, before)
    assert result.metrics["global_step"] == 240


def test_a_missing_checkpoint_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"nothing\.safetensors"):
        evaluate_checkpoint(tmp_path / "nothing.safetensors")
