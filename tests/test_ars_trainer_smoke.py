"""train_ars from configuration to files on disk, and that it learns."""

import numpy as np
import pytest
import toy_envs
from gymnasium.spaces import Box
from small_runs import small_config

from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.experiment.yaml_loader import load_config_file
from rl_training.resources import find_preset
from rl_training.runtime.ars_trainer import train_ars
from rl_training.runtime.policy import load_policy


def test_a_run_leaves_its_record(tmp_path):
    result = train_ars(small_config("ars", tmp_path))
    metrics = result.metrics
    assert 1500 <= metrics["global_step"] < 1500 + 16 * 40
    assert metrics["updates"] == metrics["generation"]
    assert metrics["episodes"] == 16 * metrics["generation"]
    assert metrics["selected_directions"] == 3
    saved = load_checkpoint(result.checkpoint_path)
    assert saved.algorithm_state["observation_normalizer"]["count"] == metrics["global_step"]
    assert saved.trainer_state["loop"]["mean_length"] > 1


class Wider(toy_envs.Counting):
    """Counting with two more columns, which never vary."""

    def __init__(self):
        super().__init__(continuous=True)
        self.observation_space = Box(-np.inf, np.inf, (4,), dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        return self._widened(super().reset(seed=seed)[0]), {}

    def step(self, action):
        obs, *rest = super().step(action)
        return (self._widened(obs), *rest)

    def _widened(self, obs):
        return np.append(obs, [0.7, 1234.5]).astype(np.float32)


def test_columns_that_have_not_varied_in_training_are_nothing_to_the_policy(tmp_path):
    config = small_config("ars", tmp_path, env_kwargs={}, total_timesteps=3_000, eval_episodes=0)
    result = train_ars(config, env=Wider)
    policy = load_policy(result.checkpoint_path)
    shift, scale = policy.algorithm.observation_normalizer.shift_and_scale
    assert shift[2:].tolist() == pytest.approx([0.7, 1234.5])
    assert (scale[:2] > 0).all()
    assert scale[2:].tolist() == [0.0, 0.0]
    # where one of them is another number than ever in training, the action is what it would have been
    assert policy.predict([20.0, 0.1, 0.7, 1234.5]) == policy.predict([20.0, 0.1, 0.71, 1234.5])


def test_version_one_keeps_no_statistics(tmp_path):
    result = train_ars(small_config("ars", tmp_path, algo_kwargs={"observation_filter": False}))
    assert set(load_checkpoint(result.checkpoint_path).algorithm_state) == {"model"}


@pytest.mark.parametrize("env_id", ["ToyBandit-v0", "ToyBanditContinuous-v0"])
def test_ars_finds_the_best_action_of_a_bandit(env_id, tmp_path):
    # without the filter: it would take the one observation there is to 0, and a linear policy with it
    options = {"num_directions": 16, "num_top_directions": 8, "noise_std": 0.1, "step_size": 0.1, "eval_interval": 10**9}
    options |= {"observation_filter": False, "survival_bonus": 0.0, "episodes_per_direction": 1}
    config = small_config("ars", tmp_path, env_id=env_id, env_kwargs={}, total_timesteps=3_200, algo_kwargs=options)
    best = train_ars(config).metrics["eval_return_mean"]
    assert best == 1.0 if env_id == "ToyBandit-v0" else best > -0.01  # random actions: 1/3, and -0.58


@pytest.mark.slow
@pytest.mark.learning
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(("preset", "enough"), [("cartpole", 475), ("pendulum", -300)])
def test_the_presets_reach_their_returns(preset, enough, seed, tmp_path):
    config = load_config_file(find_preset(f"ars/{preset}"))
    result = train_ars(config.replace(seed=seed, output_dir=tmp_path, eval_episodes=0))
    assert load_policy(result.checkpoint_path).evaluate(num_episodes=50)["eval_return_mean"] >= enough
