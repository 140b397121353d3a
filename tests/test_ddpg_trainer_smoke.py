"""train_ddpg from configuration to files on disk, and that it learns."""

import numpy as np
import pytest
import toy_envs  # noqa: F401 (registers ToyBanditContinuous-v0)
from small_runs import small_config

from rl_training.errors import UnsupportedSpace
from rl_training.experiment.yaml_loader import load_config_file
from rl_training.resources import find_preset
from rl_training.runtime.ddpg_trainer import train_ddpg
from rl_training.runtime.policy import load_policy


def test_a_run_leaves_its_record(tmp_path):
    result = train_ddpg(small_config("ddpg", tmp_path))
    metrics = result.metrics
    assert metrics["global_step"] == 240
    assert metrics["buffer_size"] == 150  # its capacity
    assert metrics["updates"] == (240 - 32) // 2 + 1  # two environments: one update a turn, from the turn that fills 32 rows
    assert np.isfinite([metrics["actor_loss"], metrics["critic_loss"]]).all()
    assert metrics["eval_return_mean"] < 0


def test_the_loaded_policy_answers_within_the_environment_s_bounds_and_without_noise(tmp_path):
    policy = load_policy(train_ddpg(small_config("ddpg", tmp_path)).checkpoint_path)
    obs = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    actions = policy.predict(obs)
    assert actions.shape == (50, 1)
    assert np.abs(actions).max() <= 2.0
    np.testing.assert_array_equal(actions, policy.predict(obs, deterministic=False))


def test_exploration_noise_follows_its_schedule_and_is_reported(tmp_path):
    options = {"exploration_noise": 0.5, "exploration_noise_schedule": {"type": "linear", "end": 0.1}}
    metrics = train_ddpg(small_config("ddpg", tmp_path, algo_kwargs=options)).metrics
    assert 0.1 < metrics["exploration_noise"] < 0.11


def test_discrete_actions_are_refused_before_any_file_is_made(tmp_path):
    with pytest.raises(UnsupportedSpace, match="DDPG takes continuous actions"):
        train_ddpg(small_config("ddpg", tmp_path, env_id="CartPole-v1"))
    assert list(tmp_path.iterdir()) == []


def test_ddpg_finds_the_best_action_of_a_bandit(tmp_path):
    # the buffer keeps the random actions: what is far from the policy stays known
    options = {"learning_starts": 100, "buffer_capacity": 1000, "learning_rate": 3e-3, "eval_interval": 10**9}
    options |= {"hidden_sizes": [64, 64], "batch_size": 64}
    config = small_config(
        "ddpg", tmp_path, env_id="ToyBanditContinuous-v0", total_timesteps=800, num_envs=1, env_kwargs={}, algo_kwargs=options
    )
    metrics = train_ddpg(config).metrics
    assert metrics["eval_return_mean"] > -0.01  # random actions: -0.58


@pytest.mark.slow
@pytest.mark.learning
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_ddpg_swings_the_pendulum_up(seed, tmp_path):
    config = load_config_file(find_preset("ddpg/pendulum"))
    result = train_ddpg(config.replace(seed=seed, output_dir=tmp_path, eval_episodes=0))
    assert load_policy(result.checkpoint_path).evaluate(num_episodes=50)["eval_return_mean"] >= -200
