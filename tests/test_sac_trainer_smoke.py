"""train_sac from configuration to files on disk, and that it learns."""

import pytest
from small_runs import small_config

from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.experiment.yaml_loader import load_config_file
from rl_training.resources import find_preset
from rl_training.runtime.policy import load_policy
from rl_training.runtime.sac_trainer import train_sac


def test_a_run_leaves_its_record(tmp_path):
    result = train_sac(small_config("sac", tmp_path))
    metrics = result.metrics
    assert metrics["global_step"] == 240
    assert metrics["buffer_size"] == 150  # its capacity
    assert metrics["updates"] == (240 - 32) // 2 + 1  # two environments: one update a turn, from the turn that fills 32 rows
    assert metrics["alpha"] > 0
    assert metrics["eval_return_mean"] < 0


def test_no_reset_is_ever_stored_as_a_transition(tmp_path):
    result = train_sac(small_config("sac", tmp_path, algo_kwargs={"buffer_capacity": 1000}))
    rows = load_checkpoint(result.checkpoint_path).buffer_state["replay"]["rows"]
    obs, next_obs, dones, cuts = rows[:, :3], rows[:, 4:7], rows[:, 8], rows[:, 9]
    # Pendulum turns by at most 8 rad/s in 0.05 s; a reset observation as next_obs would jump
    assert (next_obs[:, :2] - obs[:, :2]).norm(dim=1).max() <= 0.41
    assert dones.sum() == 0  # Pendulum never terminates
    assert cuts.sum() == 2 * (120 // 30)  # and is cut every thirty steps


def test_a_fixed_temperature_stays_and_can_be_scheduled(tmp_path):
    fixed = train_sac(small_config("sac", tmp_path / "a", algo_kwargs={"alpha": 0.3})).metrics
    assert fixed["alpha"] == pytest.approx(0.3)
    moving = {"alpha": 0.3, "alpha_schedule": {"type": "linear", "end": 0.1}}
    scheduled = train_sac(small_config("sac", tmp_path / "b", algo_kwargs=moving)).metrics
    assert 0.1 < scheduled["alpha"] < 0.11


def test_updates_come_as_often_as_asked(tmp_path):
    options = {"train_frequency": 4, "gradient_updates_per_step": 3, "learning_starts": 0}
    metrics = train_sac(small_config("sac", tmp_path, num_envs=1, total_timesteps=100, algo_kwargs=options)).metrics
    assert metrics["updates"] == 100 // 4 * 3


@pytest.mark.learning
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_sac_swings_the_pendulum_up(seed, tmp_path):
    config = load_config_file(find_preset("sac/pendulum"))
    config = config.replace(seed=seed, output_dir=tmp_path, eval_episodes=0, total_timesteps=6_000)
    result = train_sac(config)
    assert load_policy(result.checkpoint_path).evaluate(num_episodes=20)["eval_return_mean"] >= -200
