"""train_ppg from configuration to files on disk: the phases come when they are promised, and it learns."""

import pytest
import torch
from small_runs import StopAt, small_config, state_difference

from rl_training.data.rollout_memory import RolloutMemory
from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.experiment.yaml_loader import load_config_file
from rl_training.resources import find_preset
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.policy import load_policy
from rl_training.runtime.ppg_trainer import train_ppg
from rl_training.runtime.ppo_trainer import train_ppo
from rl_training.runtime.workflows import evaluate_checkpoint, predict_checkpoint, resume_training


class Watch(Callback):
    """Notes after each turn how many auxiliary steps there have been, and what is kept for the next phase."""

    def __init__(self):
        self.auxiliary_updates, self.kept, self.collected, self.remembered = [], [], [], []

    def on_collect_end(self, trainer, result):
        self.collected.append(trainer.loop.columns["obs"].reshape(-1, trainer.spec.obs_dim).copy())

    def on_update_end(self, trainer, result):
        self.auxiliary_updates.append(trainer.algorithm.auxiliary_updates)
        self.kept.append(len(trainer.loop.memory))
        self.remembered.append([rollout["obs"] for rollout in trainer.loop.memory][-1:])


def test_auxiliary_phases_come_at_the_promised_turns_and_empty_the_memory(tmp_path):
    watch = Watch()
    result = train_ppg(small_config("ppg", tmp_path), callbacks=[watch])
    phase = 2 * 4  # two epochs over three rollouts of 20 rows in minibatches of 16
    assert watch.auxiliary_updates == [phase * (turn // 3) for turn in range(1, 13)]
    assert watch.kept == [1, 2, 0] * 4
    assert result.metrics["auxiliary_phase_ran"] is True
    assert result.metrics["policy_updates"] == result.metrics["updates"] == 12 * 2 * 2  # turns, epochs, minibatches
    assert result.metrics["auxiliary_updates"] == 4 * phase
    assert result.metrics["behavior_clone_loss"] == pytest.approx(0, abs=0.01)  # it stayed near its teacher


def test_a_run_shorter_than_a_cycle_has_no_auxiliary_phase_and_says_so(tmp_path):
    metrics = train_ppg(small_config("ppg", tmp_path, algo_kwargs={"aux_frequency": 13})).metrics
    assert metrics["auxiliary_phase_ran"] is False
    assert metrics["auxiliary_updates"] == 0
    assert "auxiliary_loss" not in metrics


def test_of_more_rollouts_than_may_be_kept_the_newest_stay(tmp_path):
    watch = Watch()
    train_ppg(small_config("ppg_alt", tmp_path), callbacks=[watch])
    assert watch.kept == [1, 2, 2, 2, 0, 1, 2, 2, 2, 0, 1, 2]
    assert watch.auxiliary_updates[-1] == 2 * 2 * 3  # phases, epochs, minibatches of the 40 rows kept
    memory = RolloutMemory(2)
    for number in range(3):
        memory.add({"returns": torch.tensor([float(number)])})
    assert [rollout["returns"].item() for rollout in memory] == [1.0, 2.0]


def test_what_is_kept_are_observations_as_the_environment_gave_them(tmp_path):
    watch = Watch()
    train_ppg(small_config("ppg", tmp_path), callbacks=[watch])  # its observations are normalised for learning
    for collected, remembered in zip(watch.collected, watch.remembered, strict=True):
        for obs in remembered:
            assert torch.equal(obs, torch.from_numpy(collected))


def test_a_run_resumed_within_a_cycle_has_its_next_phase_at_the_same_turn_with_the_same_data(tmp_path):
    whole = Watch()
    uninterrupted = train_ppg(small_config("ppg", tmp_path / "whole"), callbacks=[whole])
    half = train_ppg(small_config("ppg", tmp_path / "half"), callbacks=[StopAt(160)])  # two turns into the third cycle
    saved = load_checkpoint(half.checkpoint_path).buffer_state["auxiliary"]["rollouts"]
    assert [tuple(rollout["obs"].shape) for rollout in saved] == [(20, 4), (20, 4)]
    rest = Watch()
    resumed = resume_training(half.run_dir, callbacks=[rest])
    assert rest.auxiliary_updates == whole.auxiliary_updates[8:]
    assert rest.kept == whole.kept[8:] == [0, 1, 2, 0]
    assert state_difference(uninterrupted.checkpoint_path, resumed.checkpoint_path) is None


@pytest.mark.parametrize(("epochs", "value_epochs"), [(1, 3), (3, 1)])
def test_policy_and_value_function_may_have_different_numbers_of_epochs(epochs, value_epochs, tmp_path):
    options = {"update_epochs": epochs, "value_epochs": value_epochs, "aux_frequency": 100}
    metrics = train_ppg(small_config("ppg", tmp_path, algo_kwargs=options)).metrics
    assert metrics["updates"] == 12 * 3 * 2  # turns, the longer of both, minibatches
    assert metrics["policy_updates"] == 12 * epochs * 2  # passes over the values alone leave the policy as it is
    for name in ("policy_loss", "value_loss", "approx_kl"):
        assert name in metrics


def test_as_many_value_epochs_as_policy_epochs_are_the_joint_ones(tmp_path):
    given = train_ppg(small_config("ppg", tmp_path / "a", algo_kwargs={"value_epochs": 2}))
    default = train_ppg(small_config("ppg", tmp_path / "b"))
    assert state_difference(given.checkpoint_path, default.checkpoint_path) is None


def test_the_update_budget_counts_the_policy_phase_alone(tmp_path):
    metrics = train_ppg(small_config("ppg", tmp_path, algo_kwargs={"max_updates": 7, "aux_frequency": 1})).metrics
    assert metrics["updates"] == metrics["policy_updates"] == 7
    assert metrics["global_step"] == 40
    assert metrics["auxiliary_updates"] == 2 * 2 * 2  # two turns, each with a whole phase: two epochs of two minibatches


@pytest.mark.parametrize("train", [train_ppo, train_ppg])
def test_advantages_normalised_over_the_batch_are_those_of_a_minibatch_that_is_the_batch(train, tmp_path):
    def run(over, size):
        options = {"normalize_advantages": over, "minibatch_size": size}
        name = train.__name__.removeprefix("train_")
        return train(small_config(name, tmp_path / f"{over}{size}", algo_kwargs=options)).checkpoint_path

    assert state_difference(run("batch", 20), run("minibatch", 20)) is None
    assert state_difference(run("batch", 10), run("none", 10), ("algorithm_state",)) is not None
    assert state_difference(run("batch", 10), run("minibatch", 10), ("algorithm_state",)) is not None


def test_a_saved_policy_evaluates_and_predicts(tmp_path):
    path = train_ppg(small_config("ppg", tmp_path)).checkpoint_path
    assert 1 <= evaluate_checkpoint(path, num_episodes=2)["eval_return_mean"] <= 30
    assert predict_checkpoint(path, [0.0, 0.1, 0.0, -0.1]) in (0, 1)


def test_the_paper_preset_carries_the_papers_numbers():
    config = load_config_file(find_preset("ppg/paper"))
    options = config.options
    assert (config.num_envs, options.num_steps, options.aux_frequency, options.aux_epochs) == (64, 256, 32, 6)
    assert (options.update_epochs, options.value_epochs, options.behavior_clone_coef) == (1, None, 1.0)
    assert (options.learning_rate, options.gamma, options.gae_lambda) == (5e-4, 0.999, 0.95)
    assert (options.clip_coef, options.ent_coef, options.architecture) == (0.2, 0.01, "dual")
    assert options.normalize_rewards
    assert options.normalize_advantages == "batch"
    assert config.num_envs * options.num_steps // options.minibatch_size == 8
    assert config.num_envs * options.num_steps // options.aux_minibatch_size == 16


@pytest.mark.learning
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_ppg_solves_cartpole(seed, tmp_path):
    config = load_config_file(find_preset("ppg/cartpole")).replace(seed=seed, output_dir=tmp_path, eval_episodes=0)
    assert config.total_timesteps <= 60_000
    result = train_ppg(config)
    assert load_policy(result.checkpoint_path).evaluate(num_episodes=20)["eval_return_mean"] >= 475
