"""train_td3 from configuration to files on disk, and that it learns."""

import pytest
import toy_envs  # noqa: F401 (registers ToyBanditContinuous-v0)
from small_runs import StopAt, history, small_config

from rl_training.errors import UnsupportedSpace
from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.experiment.yaml_loader import load_config_file
from rl_training.resources import find_preset
from rl_training.runtime.policy import load_policy
from rl_training.runtime.td3_trainer import train_td3


def test_a_run_leaves_its_record(tmp_path):
    result = train_td3(small_config("td3", tmp_path))
    metrics = result.metrics
    assert metrics["global_step"] == 240
    assert metrics["buffer_size"] == 150  # its capacity
    assert metrics["updates"] == (240 - 32) // 2 + 1  # two environments: one update a turn, from the turn that fills 32 rows
    assert load_checkpoint(result.checkpoint_path).algorithm_state["updates"] == metrics["updates"]
    assert metrics["eval_return_mean"] < 0
    assert metrics["critic_loss"] > 0


def test_every_logged_line_after_the_first_updates_tells_the_actor_loss(tmp_path):
    # the policy moves every third update and a line is logged every fifth turn: most lines fall in between
    changes = {"policy_delay": 3, "eval_interval": 10**9}
    result = train_td3(small_config("td3", tmp_path, num_envs=1, log_interval=5, algo_kwargs=changes))
    lines = [line["metrics"] for line in history(result.run_dir) if line["step"] >= 35]
    assert len(lines) >= 40
    assert all("actor_loss" in metrics for metrics in lines)


def test_the_first_steps_are_uniform_and_the_later_ones_near_the_policy(tmp_path):
    options = {"learning_starts": 1000, "buffer_capacity": 2000, "eval_interval": 10**9, "exploration_noise": 0.0}
    result = train_td3(small_config("td3", tmp_path, total_timesteps=1040, algo_kwargs=options), callbacks=[StopAt(1040)])
    rows = load_checkpoint(result.checkpoint_path).buffer_state["replay"]["rows"]
    actions = rows[:1000, 3]
    assert actions.mean().abs() < 0.1
    assert actions.std().item() == pytest.approx(3**-0.5, abs=0.03)  # of a uniform distribution over [-1, 1]
    late = rows[1000:, 3].view(-1, 2)
    assert (late[1:] - late[:-1]).abs().mean() < 0.2  # without noise the policy changes little from step to step


def test_discrete_actions_are_refused_before_any_file_is_made(tmp_path):
    with pytest.raises(UnsupportedSpace, match="TD3 takes continuous actions"):
        train_td3(small_config("td3", tmp_path, env_id="CartPole-v1"))
    assert list(tmp_path.iterdir()) == []


def test_td3_finds_the_best_action_of_a_bandit(tmp_path):
    # the buffer keeps the random actions: what is far from the policy stays known
    options = {"learning_starts": 100, "buffer_capacity": 1000, "learning_rate": 3e-3, "eval_interval": 10**9}
    options |= {"hidden_sizes": [64, 64], "batch_size": 64}
    config = small_config(
        "td3", tmp_path, env_id="ToyBanditContinuous-v0", total_timesteps=800, num_envs=1, env_kwargs={}, algo_kwargs=options
    )
    metrics = train_td3(config).metrics
    assert metrics["eval_return_mean"] > -0.01  # random actions: -0.58


@pytest.mark.slow
@pytest.mark.learning
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_td3_swings_the_pendulum_up(seed, tmp_path):
    config = load_config_file(find_preset("td3/pendulum"))
    result = train_td3(config.replace(seed=seed, output_dir=tmp_path, eval_episodes=0))
    assert load_policy(result.checkpoint_path).evaluate(num_episodes=50)["eval_return_mean"] >= -200
