"""train_cql from configuration to files on disk."""

import pytest
import torch
from offline_helpers import PENDULUM, recorded
from small_runs import small_config

from rl_training.data.dataset_files import write_npz
from rl_training.envs.pool import EnvPool
from rl_training.errors import ConfigError
from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.options.cql import CQLConfig
from rl_training.runtime.cql_trainer import build_cql, train_cql
from rl_training.runtime.workflows import evaluate_checkpoint


def test_an_update_is_a_timestep(tmp_path):
    result = train_cql(small_config("cql", tmp_path))
    metrics = result.metrics
    assert metrics["global_step"] == metrics["updates"] == 60
    assert metrics["episodes"] == 0
    assert metrics["offline_dataset_size"] == 90
    assert metrics["cql_penalty"] == metrics["cql_penalty"]
    assert evaluate_checkpoint(result.checkpoint_path, num_episodes=1)["eval_episodes"] == 1


def test_no_environment_is_stepped_but_to_evaluate(tmp_path, monkeypatch):
    path = write_npz(tmp_path / "data.npz", recorded(90))
    monkeypatch.setattr(EnvPool, "__init__", lambda *_, **__: pytest.fail("training environments were made"))
    options = {"dataset_kind": "npz", "dataset_path": str(path), "dataset_size": None}
    result = train_cql(small_config("cql", tmp_path / "runs", algo_kwargs=options))
    assert result.metrics["eval_return_mean"] < 0


def test_a_checkpoint_holds_the_stream_of_the_data_and_not_the_data(tmp_path):
    state = load_checkpoint(train_cql(small_config("cql", tmp_path)).checkpoint_path)
    assert sorted(state.buffer_state["dataset"]) == ["fingerprint", "num_rows", "rng"]


@pytest.mark.parametrize(
    ("options", "rate"), [({}, 1e-4), ({"actor_learning_rate": None}, 3e-4), ({"alpha_learning_rate": 2e-3}, 2e-3)]
)
def test_the_temperature_learns_as_fast_as_the_actor_unless_it_is_said_otherwise(options, rate):
    learner = build_cql(CQLConfig(hidden_sizes=(4,), **options), PENDULUM, torch.device("cpu"))
    assert learner.alpha_optimizer.learning_rate == rate
    assert learner.critic_optimizer.learning_rate == 3e-4


def test_the_weight_of_the_penalty_can_be_tuned_or_scheduled(tmp_path):
    tuned = train_cql(small_config("cql", tmp_path / "a", algo_kwargs={"cql_target_gap": -100.0})).metrics
    assert tuned["cql_alpha"] > 5.0
    schedule = {"cql_alpha_schedule": {"type": "linear", "end": 1.0}}
    assert train_cql(small_config("cql", tmp_path / "b", algo_kwargs=schedule)).metrics["cql_alpha"] == pytest.approx(
        1, abs=0.1
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cql_target_gap": 1.0, "cql_alpha": 0.0}, "begins at 0"),
        ({"cql_target_gap": 1.0, "cql_alpha_schedule": "linear"}, "cannot follow a schedule"),
        ({"learning_starts": 10}, "cql has no option 'learning_starts'"),
        ({"num_cql_samples": 0}, "num_cql_samples"),
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        CQLConfig(**options)
