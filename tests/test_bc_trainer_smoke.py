"""train_bc from configuration to files on disk."""

import numpy as np
import pytest
from offline_helpers import recorded
from small_runs import small_config

from rl_training.data.dataset_files import write_npz
from rl_training.data.recorded_data import RecordedData
from rl_training.envs.pool import EnvPool
from rl_training.errors import ConfigError
from rl_training.options.bc import BCConfig
from rl_training.runtime.bc_trainer import train_bc
from rl_training.runtime.workflows import evaluate_checkpoint, predict_checkpoint
from rl_training.shipping.export import export_checkpoint


def test_an_update_is_a_timestep_and_no_environment_is_stepped_but_to_evaluate(tmp_path, monkeypatch):
    path = write_npz(tmp_path / "data.npz", recorded(90))
    monkeypatch.setattr(EnvPool, "__init__", lambda *_, **__: pytest.fail("training environments were made"))
    options = {"dataset_kind": "npz", "dataset_path": str(path), "dataset_size": None}
    metrics = train_bc(small_config("bc", tmp_path / "runs", algo_kwargs=options)).metrics
    assert metrics["global_step"] == metrics["updates"] == 60
    assert metrics["episodes"] == 0
    assert metrics["offline_dataset_size"] == 90
    assert metrics["eval_return_mean"] < 0


def test_who_always_pushes_towards_the_fall_is_cloned(tmp_path):
    """CartPole: push to the side that the pole leans to. It stands for 200 steps, where random pushes make some 20."""
    rng = np.random.default_rng(0)
    obs = rng.uniform(-0.2, 0.2, (3000, 4)).astype(np.float32)
    actions = (obs[:, 2] + 0.5 * obs[:, 3] > 0).astype(np.int64)
    ends = np.arange(3000) % 100 == 99
    columns = {"obs": obs, "actions": actions, "rewards": np.ones(3000), "next_obs": obs}
    data = RecordedData.from_arrays(columns | {"terminations": ends, "truncations": np.zeros(3000, bool)}, "made up")
    options = {"dataset_path": str(write_npz(tmp_path / "data.npz", data)), "dataset_kind": None, "dataset_size": None}
    config = small_config("bc_alt", tmp_path / "runs", total_timesteps=600, eval_episodes=0, env_kwargs={})
    config = config.replace(algo_kwargs=config.algo_kwargs | options | {"learning_rate": 3e-3, "batch_size": 64})
    result = train_bc(config)
    assert result.metrics["accuracy"] > 0.9
    assert evaluate_checkpoint(result.checkpoint_path, num_episodes=3)["eval_return_mean"] >= 200
    assert predict_checkpoint(result.checkpoint_path, [0.0, 0.0, 0.15, 0.1]) == 1
    assert export_checkpoint(result.checkpoint_path, tmp_path / "policy.onnx").max_difference == 0


def test_what_cloning_has_no_use_for_is_refused():
    with pytest.raises(ConfigError, match="bc has no option 'gamma'"):
        BCConfig(gamma=0.9)
