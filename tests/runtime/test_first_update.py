"""A run that ends before it learns anything says so when it begins."""

from __future__ import annotations

import logging

import pytest
from small_runs import NAMES, small_config, train

from rl_training.runtime.first_update import first_update


def test_a_run_too_short_to_learn_is_named_with_both_numbers(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    config = small_config("sac", tmp_path, total_timesteps=50, eval_episodes=0, algo_kwargs={"learning_starts": 1_000})
    result = train(config)
    assert result.metrics["updates"] == 0
    assert "no update: the first would come at step 1,000 (learning_starts=1000, train_frequency=" in caplog.text
    assert "total_timesteps is 50" in caplog.text


@pytest.mark.parametrize(
    ("num_envs", "starts", "frequency", "first"),
    [(1, 0, 1, 1), (1, 10, 1, 10), (1, 10, 4, 12), (2, 10, 1, 10), (2, 11, 1, 12), (2, 10, 4, 16), (1, 1, 5, 5)],
)
def test_the_step_of_the_first_update_is_the_one_that_happens(num_envs, starts, frequency, first, tmp_path):
    options = {"learning_starts": starts, "train_frequency": frequency, "batch_size": 4}
    config = small_config("sac", tmp_path, num_envs=num_envs, total_timesteps=first, eval_episodes=0, algo_kwargs=options)
    assert first_update(config) == first
    assert train(config).metrics["updates"] == config.options.gradient_updates_per_step
    if first > num_envs:
        shorter = config.replace(total_timesteps=first - num_envs, output_dir=tmp_path / "shorter")
        assert train(shorter).metrics["updates"] == 0


@pytest.mark.parametrize("name", NAMES)
def test_runs_that_learn_are_not_warned_of(name, tmp_path):
    config = small_config(name, tmp_path)
    assert first_update(config) <= config.total_timesteps
