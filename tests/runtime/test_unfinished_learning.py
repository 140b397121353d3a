"""What an agent knows after a `learn` that was interrupted or failed."""

from __future__ import annotations

import os
import signal

import gymnasium as gym
import pytest
from small_runs import state_difference

from rl_training import PPO
from rl_training.errors import EnvError, TrainingInterrupted
from rl_training.runtime.callbacks import Callback

SETTINGS = {"total_timesteps": 128, "num_steps": 16, "eval_episodes": 1, "seed": 3}


class Interrupt(Callback):
    def __init__(self):
        self.sent = False

    def on_collect_end(self, trainer, result):
        if trainer.global_step >= 64 and not self.sent:
            self.sent = True
            os.kill(os.getpid(), signal.SIGINT)


class Breaks(gym.Wrapper):
    steps = 0

    def step(self, action):
        Breaks.steps += 1
        if Breaks.steps == 70:
            raise ZeroDivisionError("the motor is gone")
        return self.env.step(action)


def test_an_interrupted_agent_predicts_and_learns_on_as_if_nothing_had_been(tmp_path):
    agent = PPO("CartPole-v1", output_dir=tmp_path / "cut", **SETTINGS)
    with pytest.raises(TrainingInterrupted, match=r"rl-training resume --checkpoint .*\n.*agent\.learn\(\) goes on") as caught:
        agent.learn(callbacks=[Interrupt()])
    assert agent.checkpoint_path == caught.value.result.checkpoint_path
    assert agent.predict([0.0, 0.0, 0.0, 0.0]) in (0, 1)
    rest = agent.learn()
    whole = PPO("CartPole-v1", output_dir=tmp_path / "whole", **SETTINGS).learn()
    assert rest.run_dir == caught.value.result.run_dir
    assert state_difference(whole.checkpoint_path, rest.checkpoint_path) is None


def test_an_agent_whose_environment_broke_keeps_what_was_saved(tmp_path):
    agent = PPO(lambda: Breaks(gym.make("CartPole-v1")), output_dir=tmp_path, **SETTINGS)
    with pytest.raises(EnvError, match=r"the motor is gone(.|\n)*is saved(.|\n)*agent\.learn\(\) goes on"):
        agent.learn()
    assert agent.predict([0.0, 0.0, 0.0, 0.0]) in (0, 1)
    assert agent.learn().metrics["global_step"] == 128


def test_after_an_interruption_of_a_run_on_a_factory_no_command_is_named(tmp_path):
    agent = PPO(lambda: gym.make("CartPole-v1", max_episode_steps=20), output_dir=tmp_path, **SETTINGS)
    with pytest.raises(TrainingInterrupted) as caught:
        agent.learn(callbacks=[Interrupt()])
    assert "rl-training resume" not in str(caught.value)
    assert "resume_training(" in str(caught.value)
    assert "env=...)" in str(caught.value)
