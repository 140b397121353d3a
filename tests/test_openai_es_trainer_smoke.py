"""train_openai_es from configuration to files on disk, and that it learns."""

import pytest
import toy_envs  # noqa: F401 (registers the toy environments)
from small_runs import history, small_config

from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.experiment.yaml_loader import load_config_file
from rl_training.resources import find_preset
from rl_training.runtime.openai_es_trainer import train_openai_es
from rl_training.runtime.policy import load_policy


def test_a_run_leaves_its_record(tmp_path):
    result = train_openai_es(small_config("openai_es", tmp_path))
    metrics = result.metrics
    assert metrics["global_step"] == 2400  # 10 generations of 4 pairs, 30 steps each
    assert metrics["updates"] == metrics["generation"] == 10
    assert metrics["episodes"] == 80
    assert metrics["dropped_directions"] == 0
    assert load_checkpoint(result.checkpoint_path).trainer_state["loop"]["generation"] == 10
    assert metrics["eval_return_mean"] < 0
    assert metrics["update_norm"] > 0
    assert history(result.run_dir)[-1]["metrics"]["step_size"] == 0.05


def test_the_optimizer_and_the_filter_can_be_left_out(tmp_path):
    config = small_config(
        "openai_es", tmp_path, algo_kwargs={"optimizer": "sgd", "observation_filter": False, "hidden_sizes": []}
    )
    result = train_openai_es(config)
    assert set(load_checkpoint(result.checkpoint_path).algorithm_state) == {"model"}


@pytest.mark.parametrize("env_id", ["ToyBandit-v0", "ToyBanditContinuous-v0"])
def test_openai_es_finds_the_best_action_of_a_bandit(env_id, tmp_path):
    options = {"num_directions": 16, "noise_std": 0.1, "step_size": 0.05, "weight_decay": 0.0, "eval_interval": 10**9}
    config = small_config("openai_es", tmp_path, env_id=env_id, env_kwargs={}, total_timesteps=3_200, algo_kwargs=options)
    best = train_openai_es(config).metrics["eval_return_mean"]
    assert best == 1.0 if env_id == "ToyBandit-v0" else best > -0.01  # random actions: 1/3, and -0.58


@pytest.mark.slow
@pytest.mark.learning
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(("preset", "enough"), [("cartpole", 475), ("pendulum", -300)])
def test_the_presets_reach_their_returns(preset, enough, seed, tmp_path):
    config = load_config_file(find_preset(f"openai_es/{preset}"))
    result = train_openai_es(config.replace(seed=seed, output_dir=tmp_path, eval_episodes=0))
    assert load_policy(result.checkpoint_path).evaluate(num_episodes=50)["eval_return_mean"] >= enough
