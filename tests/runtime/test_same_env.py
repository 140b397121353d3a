"""A run made on an object or a factory is not taken for a run of the id that its environment happens to carry."""

from __future__ import annotations

import logging

import gymnasium as gym
import pytest
from gymnasium.wrappers import NormalizeReward, RecordEpisodeStatistics, TimeLimit, TransformReward

from rl_training import PPO
from rl_training.cli import main
from rl_training.envs.layers import layers_of
from rl_training.envs.source import EnvSource
from rl_training.errors import CheckpointError
from rl_training.experiment.checkpoint import read_header
from rl_training.runtime.collecting import collect_data
from rl_training.runtime.policy import load_policy
from rl_training.runtime.workflows import evaluate_checkpoint, resume_training
from rl_training.shipping.video import record_video

SETTINGS = {"total_timesteps": 32, "num_steps": 16, "eval_episodes": 1}


def shaped():
    return TransformReward(gym.make("Pendulum-v1"), lambda reward: 100 + reward)


@pytest.fixture(scope="module")
def shaped_run(tmp_path_factory):
    return PPO(shaped, output_dir=tmp_path_factory.mktemp("shaped"), **SETTINGS).learn().run_dir


@pytest.mark.parametrize(
    "use",
    [
        evaluate_checkpoint,
        lambda run: resume_training(run, total_timesteps=64),
        lambda run: PPO.load(run).evaluate(),
        lambda run: collect_data(load_policy(run), num_steps=4),
        lambda run: record_video(load_policy(run), run / "film.gif"),
    ],
)
def test_a_run_on_a_wrapped_environment_is_not_used_on_the_bare_one(shaped_run, use):
    before = sorted(shaped_run.rglob("*"))
    with pytest.raises(CheckpointError, match=r"gives TransformReward on Pendulum-v1.*PPO\.load\(path, env=\.\.\.\)"):
        use(shaped_run)
    assert sorted(shaped_run.rglob("*")) == before


@pytest.mark.parametrize("command", ["eval", "resume"])
def test_the_command_line_refuses_it_too(shaped_run, command, capsys):
    assert main([command, str(shaped_run)]) == 2
    assert "TransformReward on Pendulum-v1" in capsys.readouterr().err


def test_with_the_same_environment_all_goes_on(shaped_run, caplog):
    agent = PPO.load(shaped_run, env=shaped)
    assert agent.evaluate()["eval_return_mean"] > 0  # 100 for each of 200 steps
    assert evaluate_checkpoint(shaped_run, env=shaped) == agent.evaluate()
    assert "made on" not in caplog.text


def test_another_environment_that_is_given_is_the_users_word_and_is_named(shaped_run, caplog):
    assert evaluate_checkpoint(shaped_run, env=lambda: gym.make("Pendulum-v1"))["eval_return_mean"] < 0
    assert "made on TransformReward on Pendulum-v1; the environment given now is Pendulum-v1" in caplog.text


@pytest.mark.parametrize(
    "env",
    [
        lambda: gym.make("CartPole-v1"),
        lambda: gym.make("CartPole-v1", render_mode="rgb_array"),
        lambda: RecordEpisodeStatistics(gym.make("CartPole-v1")),
        gym.make("CartPole-v1"),
    ],
)
def test_what_the_id_gives_as_well_is_no_other_environment(env, tmp_path):
    result = PPO(env, output_dir=tmp_path, **SETTINGS).learn()
    assert read_header(result.checkpoint_path).metadata["made_on"] is None
    evaluate_checkpoint(result.run_dir)


@pytest.mark.parametrize(
    ("make", "layers"),
    [
        (lambda: gym.make("Pendulum-v1"), ["Pendulum-v1"]),
        (lambda: gym.make("Pendulum-v1", g=5.0), ["Pendulum-v1(g=5.0)"]),
        (lambda: gym.make("Pendulum-v1", max_episode_steps=50), ["TimeLimit(50)", "Pendulum-v1"]),
        (lambda: gym.make("Pendulum-v1", max_episode_steps=200), ["Pendulum-v1"]),
        (lambda: TimeLimit(shaped(), 10), ["TimeLimit(10)", "TransformReward", "Pendulum-v1"]),
    ],
)
def test_layers_tell_wrappers_limits_and_arguments(make, layers):
    assert layers_of(make()) == layers


def test_arguments_in_env_kwargs_and_ids_in_modules_are_what_their_id_gives():
    with_kwargs = EnvSource(env=lambda: gym.make("Pendulum-v1", g=5.0))
    assert with_kwargs.made_otherwise("Pendulum-v1", {"g": 5.0}) is None
    assert with_kwargs.made_otherwise("Pendulum-v1", {}) == ["Pendulum-v1(g=5.0)"]
    from_module = EnvSource(env=lambda: gym.make("toy_envs:ToyBandit-v0"))
    assert from_module.made_otherwise("toy_envs:ToyBandit-v0", {}) is None
    assert from_module.made_otherwise("CartPole-v1", {}) == ["ToyBandit-v0"]


def test_a_class_that_no_id_makes_is_named(tmp_path):
    from toy_envs import make_counting

    result = PPO(make_counting, output_dir=tmp_path, **SETTINGS).learn()
    with pytest.raises(CheckpointError, match="gives Counting, which is not what the id 'Counting' gives"):
        resume_training(result.run_dir, total_timesteps=64)


def test_a_wrapper_whose_statistics_no_checkpoint_has_is_named_with_what_stands_for_it(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    PPO(lambda: NormalizeReward(gym.make("Pendulum-v1")), output_dir=tmp_path, **SETTINGS).learn()
    said = [record.message for record in caplog.records if "NormalizeReward" in record.message]
    assert len(said) == 1
    assert "normalize_rewards=True" in said[0]
