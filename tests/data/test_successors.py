"""What an action led to where a recording does not say it: who notices, and what is assumed."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from offline_helpers import PENDULUM, arrays
from small_runs import small_config

from rl_training.data.dataset_files import write_npz
from rl_training.data.dataset_report import inspect_data
from rl_training.data.offline_dataset import OfflineDataset
from rl_training.data.recorded_data import RecordedData
from rl_training.data.successors import limits_reached, stand_ins
from rl_training.envs.source import EnvSource
from rl_training.models.mlp_mopo import MLPMOPOEnsembleModel
from rl_training.options.mopo import MOPOConfig
from rl_training.planning.dynamics import DynamicsLearner
from rl_training.planning.dynamics_fit import DynamicsFit, FitSettings
from rl_training.runtime.mopo_trainer import train_mopo
from rl_training.runtime.offline_data import load_offline_data, random_data

NO_ENDS = np.zeros(6, dtype=bool)


def line(**columns):
    """Six rows observed as 0 to 5."""
    given = {"obs": np.arange(6.0)[:, None], "actions": np.zeros((6, 1)), "rewards": np.ones(6), **columns}
    return RecordedData.from_arrays(given, "line.npz", time_limit=None)


def of_line(data):
    spec = PENDULUM.__class__("Line", obs_dim=1, action_dim=1, low=(-1.0,), high=(1.0,))
    return OfflineDataset(data.columns(spec), seed=0)


def test_an_end_without_next_observations_does_not_show_what_it_led_to():
    data = line(terminals=np.array([0, 0, 1, 0, 0, 1]))
    assert data.next_obs.ravel().tolist() == [1, 2, 2, 4, 5, 5]
    assert data.stand_ins.tolist() == [False, False, True, False, False, True]
    rows = of_line(data)
    assert len(rows) == 6  # all are drawn from: no value looks behind an end
    assert rows.with_successors["obs"].flatten().tolist() == [0, 1, 3, 4]
    assert rows.with_successors["next_obs"].flatten().tolist() == [1, 2, 4, 5]


def test_an_end_that_leads_to_the_next_episodes_start_does_not_either():
    """As in files whose next observations were made by moving all observations up a row."""
    obs = np.array([[0.0], [1.0], [7.0], [8.0]])
    ends = np.array([False, True, False, True])
    assert stand_ins(obs, np.array([[1.0], [7.0], [8.0], [9.0]]), ends).tolist() == [False, True, False, False]
    assert not stand_ins(obs, np.array([[1.0], [2.0], [8.0], [9.0]]), ends).any()
    assert not stand_ins(obs, np.array([[0.0], [7.0], [7.0], [7.0]]), np.zeros(4, dtype=bool)).any()


def test_where_nothing_ever_moves_a_model_has_all_rows():
    still = {"observations": np.zeros((6, 3)), "next_observations": np.zeros((6, 3)), "terminations": ~NO_ENDS}
    rows = OfflineDataset(RecordedData.from_arrays(arrays() | still, "x").columns(PENDULUM), seed=0)
    assert len(rows.with_successors["obs"]) == 6


def test_data_that_shows_every_step_is_not_copied_for_the_model():
    rows = OfflineDataset(RecordedData.from_arrays(arrays(), "x").columns(PENDULUM), seed=0)
    assert rows.with_successors["obs"].data_ptr() == rows.transitions["obs"].data_ptr()


def test_a_report_counts_the_ends_that_show_nothing():
    warnings = inspect_data(line(terminals=np.array([0, 0, 1, 0, 0, 1]))).warnings
    assert any("2 of 2 terminations do not show what they led to" in warning for warning in warnings)


def test_limits_are_counted_from_the_last_end():
    ends = np.array([0, 0, 0, 0, 1, 0, 0, 0, 0, 1], dtype=bool)
    assert np.flatnonzero(limits_reached(ends, 3)).tolist() == [2, 7]  # an end at a limit is an end
    assert np.flatnonzero(limits_reached(np.zeros(7, dtype=bool), 2)).tolist() == [1, 3, 5]
    assert not limits_reached(ends, 6).any()


def test_an_unrecorded_time_limit_is_taken_from_the_environment(tmp_path, caplog):
    """Pendulum cuts after 200 steps: rows 199 and 399 lead to nowhere, as does the last."""
    source = EnvSource("Pendulum-v1")
    data = random_data(source, source.spec(), size=450, seed=0)
    kept = {"observations": data.obs, "actions": data.actions, "rewards": data.rewards, "terminals": data.terminations}
    np.savez(tmp_path / "data.npz", **kept)
    options = MOPOConfig(batch_size=4, dataset_path=str(tmp_path / "data.npz"))
    rows = load_offline_data(options, source, source.spec(), seed=0).transitions
    assert len(rows["obs"]) == 447
    whole = ~np.isin(np.arange(450), [199, 399, 449])
    assert np.array_equal(rows["next_obs"].numpy(), data.next_obs[whole])
    assert "the environment's own limit of 200 steps, as 2 are" in caplog.text


def test_where_no_limit_is_known_what_is_assumed_is_said(caplog):
    line(terminals=NO_ENDS)
    assert "every row that is no termination is taken to have led to the next row's observation" in caplog.text


@pytest.mark.parametrize("name", ["timeouts", "cuts", "episode_id"])
def test_recorded_cuts_leave_nothing_to_assume(name, caplog):
    column = np.array([1, 1, 1, 2, 2, 2]) if name == "episode_id" else np.array([0, 0, 1, 0, 0, 1])
    assert line(terminals=NO_ENDS, **{name: column}).next_obs.ravel().tolist() == [1, 2, 4, 5]
    assert caplog.text == ""


def test_dones_that_hold_every_timeout_are_suspected(caplog):
    with caplog.at_level(logging.WARNING):
        line(dones=np.array([0, 0, 1, 0, 0, 1]), timeouts=np.array([0, 0, 0, 0, 0, 1]), next_obs=np.ones((6, 1)))
        assert "each of the 1 rows that timeouts marks is in dones as well" in caplog.text
        assert "dones & ~timeouts" in caplog.text
        caplog.clear()
        line(dones=np.array([0, 0, 1, 0, 0, 0]), timeouts=np.array([0, 0, 0, 0, 0, 1]), next_obs=np.ones((6, 1)))
        line(dones=np.array([0, 0, 1, 0, 0, 0]), timeouts=NO_ENDS, next_obs=np.ones((6, 1)))
        assert caplog.text == ""


def test_a_model_fitted_to_a_file_without_next_observations_foresees_ends():
    """InvertedPendulum ends at a lean of 0.2 rad. With rows that stand still at each end the model's mean foresees a fifth."""
    source = EnvSource("InvertedPendulum-v5")
    spec = source.spec()
    data, fresh = (random_data(source, spec, size=3_000, seed=seed) for seed in (1, 2))
    kept = {"obs": data.obs, "actions": data.actions, "rewards": data.rewards}
    ends = {"terminals": data.terminations, "timeouts": data.truncations}
    rows = OfflineDataset(RecordedData.from_arrays(kept | ends, "x").columns(spec), seed=0)
    torch.manual_seed(0)
    model = MLPMOPOEnsembleModel(4, 1, (64, 64), 2)
    settings = FitSettings(batch_size=256, max_epochs=60)
    fit = DynamicsFit(DynamicsLearner(model, learning_rate=1e-3), settings, loss_name="loss")
    fit.begin(0)
    fit.advance(rows.with_successors)
    columns = fresh.columns(spec)
    obs, actions = (torch.from_numpy(columns[name][fresh.terminations]) for name in ("obs", "actions"))
    with torch.no_grad():
        reached = obs + model.predict_distribution(obs, actions).means.mean(0)[:, :4]
    assert len(obs) > 300
    assert (reached[:, 1].abs() > 0.2).float().mean() > 0.97


def ends_beyond_forty(obs, actions, next_obs):
    return next_obs[..., 0] > 40


def never_ends(obs, actions, next_obs):
    return torch.zeros(obs.shape[:-1], dtype=torch.bool)


def mopo_on(tmp_path, columns, **options):
    path = write_npz(tmp_path / "data.npz", RecordedData.from_arrays(columns, "x"))
    options = {"dataset_kind": "npz", "dataset_path": str(path), "dataset_size": None, "model_updates": 1, **options}
    return train_mopo(small_config("mopo", tmp_path / "runs", total_timesteps=1, eval_episodes=0, algo_kwargs=options))


def forty(**changes):
    """90 rows in episodes of three, none of which begins where the one before ended; rows that lead beyond 40 end theirs."""
    columns = arrays(90)
    columns["next_observations"] = columns["observations"] + 0.75
    columns["terminations"] = columns["next_observations"][:, 0] > 40
    return columns | changes


def test_mopo_says_that_imagined_episodes_never_end_where_recorded_ones_do(tmp_path, caplog):
    mopo_on(tmp_path, forty())
    assert "mopo: 50 of 90 transitions end an episode, but termination_fn is none" in caplog.text


def test_a_function_that_fits_the_recorded_ends_is_not_spoken_of(tmp_path, caplog):
    mopo_on(tmp_path, forty(), termination_fn=f"{__name__}:ends_beyond_forty")
    assert "mopo" not in caplog.text


@pytest.mark.parametrize(
    ("columns", "function", "words"),
    [
        (forty(), "never_ends", "misses 50 of 50 ends, and takes 0 of the other 40 transitions"),
        (arrays(90), "ends_beyond_forty", "misses 0 of 0 ends, and takes 50 of the other 90 transitions"),
    ],
    ids=["misses", "mistakes"],
)
def test_a_function_that_does_not_fit_the_recorded_ends_is_named(columns, function, words, tmp_path, caplog):
    mopo_on(tmp_path, columns, termination_fn=f"{__name__}:{function}")
    assert words in caplog.text
    assert f"termination_fn '{__name__}:{function}'" in caplog.text


def test_mopo_says_which_ends_its_model_is_not_fitted_to(tmp_path, caplog):
    columns = forty()
    columns["next_observations"][columns["terminations"]] = columns["observations"][columns["terminations"]]
    mopo_on(tmp_path, columns, termination_fn=f"{__name__}:ends_beyond_forty")
    assert "what followed was not recorded for 50 of 50 transitions that end an episode" in caplog.text
    assert "clip_rollouts keeps imagined episodes within what is shown: they will hardly end" in caplog.text
