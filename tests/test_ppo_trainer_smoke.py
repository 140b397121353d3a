"""train_ppo from configuration to files on disk, and that it learns."""

import json

import pytest
from small_runs import small_config

from rl_training.experiment.config import TrainConfig
from rl_training.experiment.yaml_loader import load_config_file
from rl_training.resources import find_preset
from rl_training.runtime.policy import load_policy
from rl_training.runtime.ppo_trainer import train_ppo


def test_a_run_leaves_its_record(tmp_path):
    result = train_ppo(small_config("ppo", tmp_path), run_suffix="here")
    assert result.run_dir.name == "ppo__CartPole-v1__seed3__here"
    assert result.checkpoint_path.is_file()
    assert result.metrics["global_step"] == 240
    assert result.metrics["updates"] == 12 * 2 * 2  # turns, epochs, minibatches
    assert result.metrics["eval_episodes"] == 1
    assert 1 <= result.metrics["eval_return_mean"] <= 30
    lines = [json.loads(line) for line in (result.run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == sorted({line["step"] for line in lines})
    assert lines[-1]["metrics"]["time/steps_per_second"] > 0
    metadata = json.loads((result.run_dir / "metadata.json").read_text())
    assert metadata["versions"]["gymnasium"]
    assert (result.run_dir / "config.yaml").is_file()
    assert list((result.run_dir / "tensorboard").iterdir())


def test_a_continuous_task_trains_too(tmp_path):
    result = train_ppo(small_config("ppo", tmp_path, env_id="Pendulum-v1"))
    assert result.metrics["eval_return_mean"] < 0


def test_the_update_budget_is_kept_to_the_update(tmp_path):
    result = train_ppo(small_config("ppo", tmp_path, algo_kwargs={"max_updates": 7}))
    assert result.metrics["updates"] == 7
    assert result.metrics["global_step"] == 40  # two turns of two epochs of two minibatches begin, the second is not finished


def test_schedules_end_where_they_should(tmp_path):
    schedule = {"type": "linear", "start": 0.4, "end": 0.0}
    result = train_ppo(
        small_config("ppo", tmp_path, algo_kwargs={"clip_coef_schedule": schedule, "learning_rate_schedule": "linear"})
    )
    assert result.metrics["clip_coef"] == pytest.approx(0.4 / 12)  # the last of twelve turns begins at 220 of 240 steps
    assert result.metrics["learning_rate"] == pytest.approx(3e-4 / 12)


def test_no_evaluation_is_legal(tmp_path):
    metrics = train_ppo(small_config("ppo", tmp_path, eval_episodes=0)).metrics
    assert metrics["eval_episodes"] == 0
    assert metrics["eval_return_mean"] != metrics["eval_return_mean"]  # nan: nothing was measured


def test_a_target_ends_training_early(tmp_path):
    stopping = {"target_value": 1.0}
    metrics = train_ppo(small_config("ppo", tmp_path, algo_kwargs={"early_stopping": stopping})).metrics
    assert metrics["global_step"] == 60  # the first evaluation
    assert "target 1" in metrics["stop_reason"]


def test_a_divergence_beyond_target_kl_ends_the_epochs(tmp_path):
    loose = train_ppo(small_config("ppo", tmp_path / "a")).metrics["updates"]
    options = {"target_kl": 1e-9, "learning_rate": 1e-2}
    tight = train_ppo(small_config("ppo", tmp_path / "b", algo_kwargs=options)).metrics["updates"]
    assert tight < loose


@pytest.mark.learning
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_ppo_solves_cartpole(seed, tmp_path):
    config = load_config_file(find_preset("ppo/cartpole")).replace(seed=seed, output_dir=tmp_path, eval_episodes=0)
    assert config.total_timesteps <= 60_000
    result = train_ppo(config)
    assert load_policy(result.checkpoint_path).evaluate(num_episodes=20)["eval_return_mean"] >= 475


def test_the_config_is_kept_as_it_was_given(tmp_path):
    config = small_config("ppo", tmp_path)
    result = train_ppo(config)
    assert TrainConfig.from_dict(load_policy(result.run_dir).config.to_dict()) == config
