"""train_mopo from configuration to files on disk: both phases, what is imagined, and what is refused."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from offline_helpers import arrays, recorded
from small_runs import history, small_config, state_difference

from rl_training.algorithms.mopo import MOPO
from rl_training.data.dataset_files import write_npz
from rl_training.data.recorded_data import RecordedData
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.envs.pool import EnvPool
from rl_training.errors import ConfigError, DatasetError, NumericsError, UnsupportedSpace
from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.options.mopo import MOPOConfig
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.mopo_trainer import train_mopo
from rl_training.runtime.workflows import evaluate_checkpoint, predict_checkpoint, resume_training


def imagined_in(result):
    """The synthetic buffer of a run's checkpoint, as columns."""
    buffer = ReplayBuffer(150, obs_dim=3, action_dim=1, seed=0)
    buffer.load_state_dict(load_checkpoint(result.checkpoint_path).buffer_state["synthetic"])
    return buffer.transitions


def test_it_fits_the_model_and_then_a_policy_update_is_a_timestep(tmp_path):
    result = train_mopo(small_config("mopo", tmp_path))
    metrics = result.metrics
    assert metrics["model_updates_done"] == 120
    assert metrics["global_step"] == 60
    assert metrics["updates"] == 180
    assert metrics["offline_dataset_size"] == 90
    assert metrics["synthetic_buffer_size"] == 150
    assert (metrics["real_batch_size"], metrics["synthetic_batch_size"]) == (4, 12)
    assert metrics["synthetic_disagreement_mean"] > 0
    assert evaluate_checkpoint(result.checkpoint_path, num_episodes=1)["eval_episodes"] == 1
    assert np.abs(predict_checkpoint(result.checkpoint_path, [1.0, 0.0, 0.0])) <= 2
    at_zero = [line["metrics"] for line in history(result.run_dir) if line["step"] == 0]
    assert [line["model_updates_done"] for line in at_zero] == [50, 100, 120]
    assert all("mopo_model_loss" in line for line in at_zero)


def test_no_environment_is_stepped_but_to_evaluate(tmp_path, monkeypatch):
    path = write_npz(tmp_path / "data.npz", recorded(90))
    monkeypatch.setattr(EnvPool, "__init__", lambda *_, **__: pytest.fail("training environments were made"))
    options = {"dataset_kind": "npz", "dataset_path": str(path), "dataset_size": None}
    result = train_mopo(small_config("mopo", tmp_path / "runs", algo_kwargs=options))
    assert result.metrics["eval_return_mean"] < 0
    assert sorted(load_checkpoint(result.checkpoint_path).buffer_state["dataset"]) == ["fingerprint", "num_rows", "rng"]


class StopInTheFit(Callback):
    def on_collect_end(self, trainer, result):
        if trainer.loop.fitting:
            trainer.request_stop("the test wants it", over=False)


def test_a_run_stopped_in_the_middle_of_the_fit_and_resumed_is_the_uninterrupted_run(tmp_path):
    whole = train_mopo(small_config("mopo", tmp_path / "whole"))
    part = train_mopo(small_config("mopo", tmp_path / "part"), callbacks=[StopInTheFit()])
    assert (part.metrics["model_updates_done"], part.metrics["global_step"]) == (50, 0)
    torch.rand(9)
    rest = resume_training(part.run_dir)
    assert state_difference(whole.checkpoint_path, rest.checkpoint_path) is None
    # the stopped run was evaluated where it stood, and that line was cut off again
    assert history(whole.run_dir) == history(rest.run_dir)


def test_the_budget_of_updates_counts_those_of_the_model(tmp_path):
    metrics = train_mopo(small_config("mopo", tmp_path, algo_kwargs={"max_updates": 70})).metrics
    assert (metrics["model_updates_done"], metrics["updates"], metrics["global_step"]) == (70, 70, 0)
    assert metrics["synthetic_buffer_size"] == metrics["synthetic_disagreement_mean"] == 0


def test_the_synthetic_buffer_keeps_the_last_refreshes(tmp_path, monkeypatch):
    made = []
    imagine = MOPO.imagine

    def spy(self, obs, **settings):
        made.append(imagine(self, obs, **settings))
        return made[-1]

    monkeypatch.setattr(MOPO, "imagine", spy)
    result = train_mopo(small_config("mopo", tmp_path))
    assert len(made) == 6  # one every ten updates
    newest = torch.cat([batch["rewards"] for batch in made])[-150:]
    assert torch.equal(imagined_in(result)["rewards"].sort().values, newest.sort().values)


def test_a_buffer_smaller_than_a_refresh_keeps_some_of_every_step(tmp_path):
    """First steps begin in recorded states, which are whole numbers."""
    path = write_npz(tmp_path / "data.npz", recorded(90))
    options = {"dataset_kind": "npz", "dataset_path": str(path), "dataset_size": None}
    options |= {"synthetic_buffer_capacity": 30, "rollout_batch_size": 50}
    obs = imagined_in(train_mopo(small_config("mopo", tmp_path / "runs", total_timesteps=5, algo_kwargs=options)))["obs"]
    assert len(obs) == 30
    assert 0 < (obs == obs.round()).all(-1).sum() < 30


def test_clipped_rollouts_stay_within_the_range_of_the_data(tmp_path):
    path = write_npz(tmp_path / "data.npz", recorded(90))  # all observations lie within 0 and 90
    options = {"dataset_kind": "npz", "dataset_path": str(path), "dataset_size": None, "model_updates": 1}
    free = train_mopo(small_config("mopo", tmp_path / "free", algo_kwargs=options | {"clip_rollouts": False}))
    kept = train_mopo(small_config("mopo", tmp_path / "kept", algo_kwargs=options))
    assert imagined_in(free)["next_obs"].max() > 90
    assert imagined_in(kept)["next_obs"].max() == 90


@pytest.mark.parametrize(("ratio", "sizes", "rows"), [(0.0, (16, 0), 0), (1.0, (0, 16), 150)])
def test_batches_may_be_all_real_or_all_imagined(ratio, sizes, rows, tmp_path):
    metrics = train_mopo(small_config("mopo", tmp_path, algo_kwargs={"synthetic_batch_ratio": ratio})).metrics
    assert (metrics["real_batch_size"], metrics["synthetic_batch_size"]) == sizes
    assert metrics["synthetic_buffer_size"] == rows


def always_ends(obs, actions, next_obs):
    return torch.ones(len(obs), dtype=torch.bool)


def test_a_known_end_of_episodes_ends_imagined_ones(tmp_path):
    config = small_config("mopo", tmp_path, total_timesteps=5, algo_kwargs={"termination_fn": f"{__name__}:always_ends"})
    result = train_mopo(config)
    assert result.metrics["synthetic_buffer_size"] == 20  # one step each
    assert imagined_in(result)["dones"].min() == 1


def test_a_refresh_that_fails_leaves_a_run_that_can_go_on(tmp_path, monkeypatch):
    whole = train_mopo(small_config("mopo", tmp_path / "whole"))
    imagine, calls = MOPO.imagine, []

    def failing(self, obs, **settings):
        calls.append(1)
        batch = imagine(self, obs, **settings)
        if len(calls) == 3:
            raise NumericsError("imagined nonsense")
        return batch

    monkeypatch.setattr(MOPO, "imagine", failing)
    with pytest.raises(NumericsError, match="up to step 20 is saved"):
        train_mopo(small_config("mopo", tmp_path / "part"))
    (run_dir,) = (tmp_path / "part").iterdir()
    rest = resume_training(run_dir)
    assert state_difference(whole.checkpoint_path, rest.checkpoint_path) is None


def test_columns_that_never_change_are_no_problem(tmp_path):
    columns = arrays(90)
    for name in ("observations", "next_observations"):
        columns[name][:, 1] = 4.0
    path = write_npz(tmp_path / "data.npz", RecordedData.from_arrays(columns, "test data"))
    options = {"dataset_kind": "npz", "dataset_path": str(path), "dataset_size": None}
    result = train_mopo(small_config("mopo", tmp_path / "runs", algo_kwargs=options))
    assert all(np.isfinite(value) for value in result.metrics.values())
    assert torch.isfinite(imagined_in(result)["next_obs"]).all()


def test_schedules_move_the_policys_learning_rate(tmp_path):
    options = {"learning_rate_schedule": {"type": "linear", "end": 0.0}, "alpha": 0.3, "alpha_schedule": "linear"}
    metrics = train_mopo(small_config("mopo", tmp_path, algo_kwargs=options)).metrics
    assert metrics["policy_learning_rate"] == pytest.approx(3e-4 / 60)
    assert metrics["alpha"] == pytest.approx(0.3 / 60)


class Observing(gym.Env):
    action_space = spaces.Box(-1, 1, (1,))

    def __init__(self, space):
        self.observation_space = space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


@pytest.mark.parametrize(
    ("changes", "env", "error", "message"),
    [
        ({"env_id": "CartPole-v1", "env_kwargs": {}}, None, UnsupportedSpace, "MOPO takes continuous actions"),
        ({"env_kwargs": {}}, spaces.Box(0, 255, (8, 8, 3), np.uint8), UnsupportedSpace, "images"),
        ({"algo_kwargs": {"termination_fn": "hopper"}}, None, ConfigError, "'hopper' is for 11 observed values"),
        ({"algo_kwargs": {"termination_fn": "no_such_module:ends"}}, None, ConfigError, "could not be imported"),
        ({"algo_kwargs": {"batch_size": 1000}}, None, DatasetError, "250 rows of the data, but it has only 90"),
    ],
    ids=["discrete", "image", "other task", "no module", "batch"],
)
def test_what_it_cannot_learn_from_is_refused_before_any_file_is_made(changes, env, error, message, tmp_path):
    given = {} if env is None else {"env": lambda: Observing(env)}
    with pytest.raises(error, match=message):
        train_mopo(small_config("mopo", tmp_path / "runs", **changes), **given)
    assert not (tmp_path / "runs").exists()


def test_data_with_numbers_that_are_none_is_refused_before_any_file_is_made(tmp_path):
    columns = arrays(90)
    columns["rewards"][7] = np.nan
    np.savez(tmp_path / "data.npz", **columns)
    options = {"dataset_kind": "npz", "dataset_path": str(tmp_path / "data.npz"), "dataset_size": None}
    with pytest.raises(DatasetError, match="nan in row 7"):
        train_mopo(small_config("mopo", tmp_path / "runs", algo_kwargs=options))
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rollout_horizon": 0}, "rollout_horizon"),
        ({"model_updates": 0}, "model_updates"),
        ({"penalty_coef": -1.0}, "penalty_coef"),
        ({"penalty": "variance"}, "max_std"),
        ({"synthetic_batch_ratio": 1.5}, "synthetic_batch_ratio"),
        ({"num_elites": 8}, "8 elites cannot be chosen from 7 members"),
        ({"model_holdout_ratio": 0.0}, "early stopping looks at held-out data"),
        ({"termination_fn": "hoper"}, "did you mean 'hopper'"),
        ({"learning_rate": 1e-3}, "mopo has no option 'learning_rate'"),
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        MOPOConfig(**options)


def test_five_members_in_seven_are_elites_unless_it_is_said_otherwise():
    assert [MOPOConfig(num_ensembles=n).predicting_members() for n in (1, 2, 3, 5, 7, 14)] == [1, 2, 3, 4, 5, 10]
    assert MOPOConfig(num_elites=2).predicting_members() == 2
    assert MOPOConfig(model_holdout_ratio=0.0, model_patience=None).predicting_members() == 7
