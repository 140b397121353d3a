"""train_pets from configuration to files on disk, and that it learns."""

import numpy as np
import pytest
import torch
from small_runs import StopAt, small_config, state_difference
from toy_envs import Broken

from rl_training.errors import ConfigError, EnvError, UnsupportedSpace
from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.experiment.yaml_loader import load_config_file
from rl_training.resources import find_preset
from rl_training.runtime.pets_trainer import in_env_units, train_pets
from rl_training.runtime.policy import load_policy
from rl_training.runtime.workflows import evaluate_checkpoint, predict_checkpoint, resume_training
from rl_training.types import EnvSpec


def test_a_run_leaves_its_record(tmp_path):
    metrics = train_pets(small_config("pets", tmp_path)).metrics
    assert metrics["global_step"] == 160
    assert metrics["buffer_size"] == 150  # its capacity
    assert metrics["model_fits"] == 2  # after 60 and 120 steps: two environments of thirty steps each
    assert metrics["episodes"] == 4
    assert metrics["episode_length"] == 30
    assert metrics["episode_return"] < 0
    assert metrics["pets_model_loss"] == metrics["pets_model_loss"]
    assert metrics["time/planning_ms"] > 0


def test_without_a_whole_episode_the_running_ones_are_reported(tmp_path):
    metrics = train_pets(small_config("pets", tmp_path, total_timesteps=20, eval_episodes=0)).metrics
    assert metrics["episode_length"] == 10
    assert metrics["episode_return"] < 0
    assert metrics["updates"] == 0


def test_fits_come_as_often_and_take_as_long_as_asked(tmp_path):
    options = {
        "train_frequency": 5,
        "model_updates_per_step": 2,
        "learning_starts": 20,
        "model_patience": None,
        "num_elites": None,
    }
    metrics = train_pets(small_config("pets", tmp_path, num_envs=1, total_timesteps=50, algo_kwargs=options)).metrics
    assert metrics["model_fits"] == 7  # after 20, 25, ..., 50 steps
    assert metrics["updates"] == 2 * 50


def test_a_limit_on_updates_is_kept_and_the_fit_goes_on_when_it_is_lifted(tmp_path):
    whole = train_pets(small_config("pets", tmp_path / "whole"))
    cut = train_pets(small_config("pets", tmp_path / "cut", algo_kwargs={"max_updates": 5}))
    assert cut.metrics["updates"] == 5
    state = load_checkpoint(cut.checkpoint_path)
    assert state.trainer_state["loop"]["fit"]["running"]
    rest = train_pets(small_config("pets", tmp_path / "rest"), checkpoint_state=state)
    assert rest.metrics["updates"] == whole.metrics["updates"]
    assert state_difference(whole.checkpoint_path, rest.checkpoint_path, ("algorithm_state", "buffer_state")) is None


def test_the_plan_in_hand_is_saved_and_an_evaluation_does_not_touch_it(tmp_path):
    stopped = train_pets(small_config("pets", tmp_path), callbacks=[StopAt(90)])
    plans = load_checkpoint(stopped.checkpoint_path).trainer_state["loop"]["explorer"]["plans"]
    assert plans.shape == (2, 1, 4, 1)
    assert plans.abs().sum() > 0
    assert plans[:, :, -1].abs().sum() == 0  # the step that comes into view is not planned yet
    at_end = train_pets(small_config("pets", tmp_path), callbacks=[StopAt(120)])
    plans = load_checkpoint(at_end.checkpoint_path).trainer_state["loop"]["explorer"]["plans"]
    assert plans.abs().sum() == 0  # both episodes have just ended


def test_an_environment_that_breaks_costs_neither_plan_nor_step(tmp_path):
    class Breaks(Broken):
        def __init__(self):
            super().__init__(fault="raise", at=3, episode=3, length=12, continuous=True)

    config = small_config("pets", tmp_path, env_id="Broken", env_kwargs={}, num_envs=1, eval_episodes=0)
    with pytest.raises(EnvError, match="told to break"):
        train_pets(config, env=Breaks, run_suffix="x")
    state = load_checkpoint(next(tmp_path.rglob("step_*.safetensors")))
    assert state.trainer_state["progress"]["global_step"] == state.buffer_state["replay"]["added"]


def test_prediction_and_evaluation_plan_the_same_way_every_time(tmp_path):
    result = train_pets(small_config("pets", tmp_path))
    obs = np.array([[1.0, 0.0, 0.5], [-1.0, 0.0, 0.0]], dtype=np.float32)
    action = predict_checkpoint(result.checkpoint_path, obs[0])
    torch.rand(3)
    assert np.array_equal(action, predict_checkpoint(result.checkpoint_path, obs[0]))
    assert action.shape == (1,)
    assert abs(action[0]) <= 2.0
    together = load_policy(result.checkpoint_path).predict(obs)
    assert together[0] == pytest.approx(action, abs=1e-3)
    first, second = (evaluate_checkpoint(result.checkpoint_path, num_episodes=3) for _ in range(2))
    assert first == second


def test_the_other_branches_resume_exactly(tmp_path):
    options = {
        "planning_propagation": "ts1",
        "planning_noise_beta": 1.0,
        "train_frequency": 7,
        "model_updates_per_step": 1,
        "model_patience": None,
        "reward_fn": "pendulum",
    }
    whole = train_pets(small_config("pets", tmp_path / "whole", algo_kwargs=options))
    half = train_pets(small_config("pets", tmp_path / "half", algo_kwargs=options), callbacks=[StopAt(99)])
    rest = resume_training(half.run_dir)
    assert state_difference(whole.checkpoint_path, rest.checkpoint_path) is None


WRONG = "transition_functions"  # of tests/helpers
VALUED = {"value_updates_per_step": 2, "value_hidden_sizes": (16,), "planning_carry_elites": 0.5, "planning_act_on": "best"}


def test_values_and_carried_plans_resume_exactly_within_a_fit_too(tmp_path):
    """Values are fitted when the model's fit is over, with the updates that were due when it began."""
    whole = train_pets(small_config("pets", tmp_path / "whole", algo_kwargs=VALUED))
    assert whole.metrics["value_loss"] > 0
    assert whole.metrics["value_mean"] < 0
    half = train_pets(small_config("pets", tmp_path / "half", algo_kwargs=VALUED), callbacks=[StopAt(99)])
    state = load_checkpoint(half.checkpoint_path)
    assert state.trainer_state["loop"]["explorer"]["plans"].shape == (2, 3, 4, 1)
    assert state_difference(whole.checkpoint_path, resume_training(half.run_dir).checkpoint_path) is None
    cut = train_pets(small_config("pets", tmp_path / "cut", algo_kwargs={**VALUED, "max_updates": 5}))
    rest = train_pets(
        small_config("pets", tmp_path / "rest", algo_kwargs=VALUED), checkpoint_state=load_checkpoint(cut.checkpoint_path)
    )
    assert state_difference(whole.checkpoint_path, rest.checkpoint_path, ("algorithm_state", "buffer_state")) is None


def test_without_values_none_are_learnt_or_saved(tmp_path):
    result = train_pets(small_config("pets", tmp_path))
    assert "value_loss" not in result.metrics
    assert "values" not in load_checkpoint(result.checkpoint_path).algorithm_state


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"env_id": "CartPole-v1"}, UnsupportedSpace, "PETS takes continuous actions"),
        ({"algo_kwargs": {"reward_fn": "cartpole"}}, ConfigError, "'cartpole' is for 4 observed values"),
        ({"algo_kwargs": {"reward_fn": "no_such_module_xyz:f"}}, ConfigError, "could not be imported"),
        ({"algo_kwargs": {"reward_fn": f"{WRONG}:raises"}}, ConfigError, "fails for obs, actions, next_obs of shapes"),
        ({"algo_kwargs": {"reward_fn": f"{WRONG}:whole_rows"}}, ConfigError, f"'{WRONG}:whole_rows' gives a tensor of shape"),
        ({"algo_kwargs": {"termination_fn": f"{WRONG}:nothing"}}, ConfigError, f"'{WRONG}:nothing' gives NoneType"),
        ({"algo_kwargs": {"reward_fn": f"{WRONG}:of_states"}}, ConfigError, "it must be a Python function of"),
    ],
)
def test_what_cannot_be_is_refused_before_any_file_is_made(changes, error, message, tmp_path):
    with pytest.raises(error, match=message):
        train_pets(small_config("pets", tmp_path / "runs", **changes))
    assert not (tmp_path / "runs").exists()


def test_known_functions_are_given_the_environments_actions():
    env = EnvSpec("x", 3, 1, low=(-2.0,), high=(4.0,))
    function = in_env_units(lambda obs, actions, next_obs: actions[..., 0], env, torch.device("cpu"))
    assert function(torch.zeros(2, 3), torch.tensor([[-1.0], [0.5]]), torch.zeros(2, 3)).tolist() == [-2.0, 2.5]


def test_the_model_learning_rate_follows_the_common_schedule(tmp_path):
    schedule = {"learning_rate_schedule": {"type": "linear", "end": 0.0}}
    metrics = train_pets(small_config("pets", tmp_path, algo_kwargs=schedule)).metrics
    assert metrics["model_learning_rate"] == pytest.approx(1e-3 * (1 - 118 / 160))


@pytest.mark.learning
def test_pets_swings_the_pendulum_up_in_a_handful_of_episodes(tmp_path):
    config = load_config_file(find_preset("pets/pendulum"))
    result = train_pets(config.replace(seed=2, output_dir=tmp_path, eval_episodes=0, total_timesteps=1_400))
    returns = load_checkpoint(result.checkpoint_path).trainer_state["progress"]["recent_returns"]
    assert np.mean(returns[4:7]) >= -250  # random behaviour earns about -1200
