"""An environment that is no function of its seed and its actions is noticed at the next resume, whoever learns in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_runs import ALGORITHMS, NAMES, StopAt, small_config, train

from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.experiment.metadata import read_metadata
from rl_training.options import load_options_class
from rl_training.runtime.workflows import resume_training

FAULTS = ("np_noise", "py_noise", "py_level", "wear", "late_memory")


def config_in(toy: str, name: str, folder: Path, **changes: Any) -> Any:
    env_id = f"toy_envs:Toy{toy}{'Continuous' if load_options_class(name).continuous else ''}-v0"
    return small_config(name, folder, env_id=env_id, **{"env_kwargs": {"length": 20}, **changes})


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "NOT EXACT" in record.getMessage()]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_one_that_becomes_harder_with_every_episode_is_noticed(name, tmp_path, caplog):
    """Also by those that learn from recorded data, and meet it in evaluations only."""
    config = config_in("Impure", name, tmp_path)
    half = train(config, callbacks=[StopAt(int(config.total_timesteps * 0.9))])
    assert read_metadata(half.run_dir)["exact"] is True
    rest = resume_training(half.run_dir)
    assert told(caplog)
    assert read_metadata(rest.run_dir)["exact"] is False
    caplog.clear()
    again = resume_training(rest.checkpoint_path, output_dir=tmp_path / "elsewhere")
    assert read_metadata(again.run_dir)["exact"] is False  # for good


@pytest.mark.parametrize("name", NAMES)
def test_one_that_is_as_it_should_be_is_not_suspected(name, tmp_path, caplog):
    config = small_config(name, tmp_path)
    half = train(config, callbacks=[StopAt(int(config.total_timesteps * 0.9))])
    rest = resume_training(half.run_dir)
    assert told(caplog) == []
    assert read_metadata(rest.run_dir)["exact"] is True
    assert load_checkpoint(rest.checkpoint_path).trainer_state["exact"] is True


# with episodes of 20 steps: at the very start of one, where nothing runs that could be repeated, and within one
@pytest.mark.parametrize("place", [100, 110])
@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_makes_it_so_and_wherever_the_run_was_stopped(fault, place, tmp_path, caplog):
    config = config_in("Impure", "sac", tmp_path, num_envs=1, total_timesteps=130, eval_episodes=0)
    half = train(config.replace(env_kwargs={"length": 20, "fault": fault}), callbacks=[StopAt(place)])
    resume_training(half.run_dir)
    assert any("environment 0: when its last finished episode was repeated" in text for text in told(caplog))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_population_notices_it_by_a_direction_and_an_evaluation_by_its_first_episode(fault, tmp_path, caplog):
    config = config_in("Impure", "openai_es", tmp_path, env_kwargs={"length": 20, "fault": fault})
    half = train(config, callbacks=[StopAt(int(config.total_timesteps * 0.9))])
    resume_training(half.run_dir)
    direction, evaluation = told(caplog)
    assert "direction 0 of generation" in direction
    assert "the first episode of the last evaluation was repeated" in evaluation
