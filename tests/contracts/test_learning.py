"""Every algorithm learns the simplest task there is, in seconds: one action, one reward, one best answer."""

import pytest

from rl_training.experiment.registry import algorithm_names
from rl_training.runtime.workflows import evaluate_checkpoint
from small_runs import small_config, train
from toy_envs import Bandit

BEST = 0.5
# the mean of -(a - 0.5)² for an action drawn uniformly from [-1, 1] is -(1/3 + 1/4)
RANDOM_RETURN, WANTED_RETURN = -7 / 12, -0.1

BUDGETS = {  # steps, and what the small configurations lack for this task
    "ppo": (4_000, {"num_steps": 32, "minibatch_size": 32, "update_epochs": 10, "learning_rate": 3e-3}),
    "ppg": (4_000, {"num_steps": 32, "minibatch_size": 32, "update_epochs": 10, "learning_rate": 3e-3}),
    "sac": (1_500, {"learning_rate": 3e-3, "batch_size": 64, "buffer_capacity": 1_000, "alpha": 0.02}),
    "td3": (1_000, {"learning_rate": 3e-3, "batch_size": 64, "buffer_capacity": 1_000}),
    "ddpg": (1_000, {"learning_rate": 3e-3, "batch_size": 64, "buffer_capacity": 1_000}),
    "rlpd": (500, {"learning_rate": 3e-3, "batch_size": 32, "dataset_size": 300, "alpha": 0.02}),
    "cql": (1_500, {"learning_rate": 3e-3, "batch_size": 64, "dataset_size": 500, "alpha": 0.02, "cql_alpha": 0.1}),
    "mopo": (1_500, {"policy_learning_rate": 3e-3, "dataset_size": 500, "alpha": 0.02, "rollout_horizon": 1}),
    "pets": (120, {"planning_horizon": 2}),
    "ars": (8_000, {"observation_filter": False, "survival_bonus": 0.0, "episode_cap": None, "step_size": 0.05}),
    "openai_es": (8_000, {"noise_std": 0.1, "step_size": 0.05}),
}


def one_question():
    return Bandit(continuous=True, best=BEST)


def test_no_algorithm_is_left_out():
    assert sorted(BUDGETS) == algorithm_names()


@pytest.mark.learning
@pytest.mark.parametrize("name", sorted(BUDGETS))
def test_it_learns_what_random_actions_do_not(name, tmp_path):
    steps, options = BUDGETS[name]
    config = small_config(name, tmp_path, total_timesteps=steps, eval_episodes=0, env_kwargs={}, algo_kwargs=options)
    config = config.replace(env_id="Bandit", log_interval=10**6)
    result = train(config, env=one_question)
    score = evaluate_checkpoint(result.checkpoint_path, num_episodes=50, env=one_question)["eval_return_mean"]
    assert score >= WANTED_RETURN > RANDOM_RETURN
