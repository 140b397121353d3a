"""train_iql from configuration to files on disk."""

import pytest
from offline_helpers import recorded
from small_runs import small_config

from rl_training.data.dataset_files import write_npz
from rl_training.envs.pool import EnvPool
from rl_training.errors import ConfigError, UnsupportedSpace
from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.options.iql import IQLConfig
from rl_training.runtime.iql_trainer import train_iql
from rl_training.runtime.workflows import evaluate_checkpoint, predict_checkpoint


def test_an_update_is_a_timestep(tmp_path):
    result = train_iql(small_config("iql", tmp_path))
    metrics = result.metrics
    assert metrics["global_step"] == metrics["updates"] == 60
    assert metrics["episodes"] == 0
    assert metrics["offline_dataset_size"] == 90
    assert evaluate_checkpoint(result.checkpoint_path, num_episodes=1)["eval_episodes"] == 1
    assert abs(predict_checkpoint(result.checkpoint_path, [1.0, 0.0, 0.0])[0]) <= 2.0


def test_no_environment_is_stepped_but_to_evaluate_unless_it_goes_online(tmp_path, monkeypatch):
    path = write_npz(tmp_path / "data.npz", recorded(90))
    monkeypatch.setattr(EnvPool, "__init__", lambda *_, **__: pytest.fail("training environments were made"))
    options = {"dataset_kind": "npz", "dataset_path": str(path), "dataset_size": None}
    train_iql(small_config("iql", tmp_path / "runs", algo_kwargs=options))
    with pytest.raises(pytest.fail.Exception):
        train_iql(small_config("iql", tmp_path / "runs", algo_kwargs=options | {"online_timesteps": 4}))


def test_batches_online_are_of_all_rows_alike_and_the_buffer_is_all_that_is_saved_of_them(tmp_path):
    result = train_iql(small_config("iql_alt", tmp_path))
    assert result.metrics["global_step"] == 80
    # 40 of the 50 fresh rows fit, beside 60 recorded ones
    assert (result.metrics["offline_batch_size"], result.metrics["online_batch_size"]) == (10, 6)
    state = load_checkpoint(result.checkpoint_path).buffer_state
    assert len(state["replay"]["rows"]) == 40
    assert sorted(state["dataset"]) == ["fingerprint", "num_rows", "rng"]


def test_a_share_of_recorded_rows_can_be_asked_for(tmp_path):
    metrics = train_iql(small_config("iql_alt", tmp_path, algo_kwargs={"offline_batch_ratio": 0.25})).metrics
    assert (metrics["offline_batch_size"], metrics["online_batch_size"]) == (4, 12)


def test_the_actor_s_rate_ends_at_nothing_offline_and_is_whole_online(tmp_path):
    cosine = {"actor_learning_rate_schedule": "cosine"}
    offline = train_iql(small_config("iql", tmp_path / "a", algo_kwargs=cosine)).metrics
    online = train_iql(small_config("iql", tmp_path / "b", algo_kwargs=cosine | {"online_timesteps": 4})).metrics
    assert offline["actor_learning_rate"] < 1e-6
    assert online["actor_learning_rate"] == 3e-4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"expectile": 1.0}, "expectile"),
        ({"inverse_temperature": -1.0}, "inverse_temperature"),
        ({"online_timesteps": -1}, "online_timesteps"),
        ({"weight_temp": 3.0}, "'weight_temp' is 'inverse_temperature' here"),
        ({"alpha": 0.2}, "iql has no option 'alpha'"),
        ({"batch_size": 500, "buffer_capacity": 100}, "at most that"),
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        IQLConfig(**options)


def test_a_discrete_environment_is_refused_before_any_data_is_made(tmp_path):
    with pytest.raises(UnsupportedSpace):
        train_iql(small_config("iql", tmp_path / "runs", env_id="CartPole-v1"))
    assert not (tmp_path / "runs").exists()
