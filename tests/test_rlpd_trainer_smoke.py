"""train_rlpd from configuration to files on disk: pretraining, mixed batches, exact resume in the middle of either."""

import pytest
import torch
from offline_helpers import PENDULUM, recorded
from small_runs import StopAt, history, small_config, state_difference, train

from rl_training.data.dataset_files import write_npz
from rl_training.errors import UnsupportedSpace
from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.experiment.yaml_loader import load_config_file
from rl_training.options.rlpd import RLPDConfig
from rl_training.resources import find_preset
from rl_training.runtime import opening
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.policy import load_policy
from rl_training.runtime.rlpd_trainer import RLPDLoop, build_rlpd, train_rlpd
from rl_training.runtime.workflows import evaluate_checkpoint, predict_checkpoint, resume_training


class StopAfterUpdates(Callback):
    def __init__(self, updates):
        self.updates = updates

    def on_update_end(self, trainer, result):
        if trainer.progress.updates >= self.updates:
            trainer.request_stop("the test wants it", over=False)


def test_networks_begin_as_the_authors_do():
    """Weights evenly from ±√(6 / (in + out)), no biases."""
    torch.manual_seed(0)
    learner = build_rlpd(RLPDConfig(), PENDULUM, torch.device("cpu"))
    # three observed values and one action in, a value out; the actor says a mean and a deviation
    for network, sizes in ((learner.model.critics, (4, 256, 256, 1)), (learner.model.actor, (3, 256, 256, 2))):
        for layer, n_in, n_out in zip(network.layers("net"), sizes[:-1], sizes[1:], strict=True):
            bound = (6 / (n_in + n_out)) ** 0.5
            assert 0.95 * bound < layer.weight.abs().max() <= bound
            assert layer.weight.std() == pytest.approx(bound / 3**0.5, rel=0.1)
            assert not layer.bias.any()
    assert torch.equal(learner.target_parameters[0], learner.critic_parameters[0])


def test_a_run_tells_what_it_learnt_from(tmp_path):
    result = train_rlpd(small_config("rlpd", tmp_path))
    metrics = result.metrics
    assert metrics["global_step"] == 160
    assert metrics["pretrain_updates_done"] == 5
    assert (metrics["offline_batch_size"], metrics["online_batch_size"]) == (8, 8)
    assert metrics["offline_dataset_size"] == 90
    assert metrics["online_buffer_size"] == 150
    # two environments: from the turn that fills 32 rows on, three updates a turn
    assert metrics["updates"] == 5 + 3 * (80 - 16 + 1)
    assert evaluate_checkpoint(result.checkpoint_path, num_episodes=1)["eval_episodes"] == 1
    assert abs(predict_checkpoint(result.checkpoint_path, [1.0, 0.0, 0.0])[0]) <= 2.0


def test_pretraining_takes_no_environment_step(tmp_path):
    result = train_rlpd(small_config("rlpd", tmp_path), callbacks=[StopAfterUpdates(5)])
    assert result.metrics["global_step"] == 0
    assert result.metrics["pretrain_updates_done"] == 5
    assert result.metrics["online_buffer_size"] == 0


@pytest.mark.parametrize("updates", [1, 3, 5])
def test_a_run_stopped_within_pretraining_and_resumed_is_the_uninterrupted_run(updates, tmp_path):
    whole = train_rlpd(small_config("rlpd", tmp_path / "whole"))
    part = train_rlpd(small_config("rlpd", tmp_path / "part"), callbacks=[StopAfterUpdates(updates)])
    assert part.metrics["updates"] == updates
    rest = resume_training(part.run_dir)
    assert state_difference(whole.checkpoint_path, rest.checkpoint_path) is None
    assert history(whole.run_dir) == history(rest.run_dir)


def test_pretraining_is_logged_and_saved_as_often_as_environment_steps_are(tmp_path):
    intervals = {"log_interval": 2, "checkpoint_interval": 4, "eval_episodes": 0}
    seen = []

    class Watch(Callback):
        def on_collect_end(self, trainer, result):
            if trainer.loop.pretraining:
                seen.append(bool(list((trainer.run.directory / "checkpoints").glob("step_*"))))

    result = train_rlpd(small_config("rlpd", tmp_path, **intervals, total_timesteps=4), callbacks=[Watch()])
    assert seen == [False, False, False, False, True]  # one was written after the fourth of five updates
    lines = history(result.run_dir)
    assert [line["metrics"]["pretrain_updates_done"] for line in lines if line["step"] == 0] == [2, 4]


def test_the_budget_of_updates_counts_pretraining(tmp_path):
    result = train_rlpd(small_config("rlpd", tmp_path, algo_kwargs={"max_updates": 4}))
    assert result.metrics["updates"] == 4
    assert result.metrics["global_step"] == 0
    more = train_rlpd(small_config("rlpd", tmp_path, algo_kwargs={"max_updates": 7}), run_suffix="more")
    assert more.metrics["updates"] == 7  # a round of three is cut to two


@pytest.mark.parametrize(("ratio", "sizes"), [(0.0, (0, 16)), (1.0, (16, 0)), (0.25, (4, 12))])
def test_the_share_of_prior_data_is_as_asked(ratio, sizes, tmp_path):
    metrics = train_rlpd(small_config("rlpd", tmp_path, algo_kwargs={"offline_batch_ratio": ratio})).metrics
    assert (metrics["offline_batch_size"], metrics["online_batch_size"]) == sizes


def test_every_slice_of_a_round_is_half_prior_data(tmp_path, monkeypatch):
    """Prior rewards are shifted far away from real ones, so that every row tells where it comes from."""
    shares = []
    original = RLPDLoop.update

    def spy(self, updates, *, global_step):
        update_critics = self.algorithm.update_critics

        def counted(batch, **others):
            shares.append((batch["rewards"] > 500).sum().item())
            return update_critics(batch, **others)

        monkeypatch.setattr(self.algorithm, "update_critics", counted)
        try:
            return original(self, updates, global_step=global_step)
        finally:
            monkeypatch.setattr(self.algorithm, "update_critics", update_critics)

    monkeypatch.setattr(RLPDLoop, "update", spy)
    options = {"dataset_reward_shift": 1000.0, "offline_pretrain_updates": 0}
    train_rlpd(small_config("rlpd", tmp_path, total_timesteps=60, algo_kwargs=options))
    assert len(shares) == 3 * 15
    assert set(shares) == {8}


def test_a_checkpoint_does_not_hold_the_prior_data(tmp_path):
    path = write_npz(tmp_path / "data.npz", recorded(90))
    options = {"dataset_kind": "npz", "dataset_path": str(path)}
    result = train_rlpd(small_config("rlpd", tmp_path / "runs", total_timesteps=40, algo_kwargs=options))
    state = load_checkpoint(result.checkpoint_path).buffer_state
    assert sorted(state["dataset"]) == ["fingerprint", "num_rows", "rng"]
    assert len(state["replay"]["rows"]) == 40


def test_a_fixed_temperature_and_schedules_work_as_in_sac(tmp_path):
    options = {
        "alpha": 0.3,
        "alpha_schedule": {"type": "linear", "end": 0.1},
        "learning_rate_schedule": {"type": "linear", "end": 0},
    }
    metrics = train_rlpd(small_config("rlpd", tmp_path, algo_kwargs=options)).metrics
    assert 0.1 < metrics["alpha"] < 0.11
    assert metrics["learning_rate"] < 1e-5


def test_it_stops_early_when_good_enough(tmp_path):
    stop = {"target_value": -1e6}  # met by the first evaluation
    metrics = train_rlpd(small_config("rlpd", tmp_path, algo_kwargs={"early_stopping": stop})).metrics
    assert metrics["global_step"] == 60
    assert "stop_reason" in metrics


def test_a_discrete_environment_is_refused_before_any_data_is_made(tmp_path):
    with pytest.raises(UnsupportedSpace):
        train(small_config("rlpd", tmp_path / "runs", env_id="CartPole-v1"), callbacks=[StopAt(1)])
    assert not (tmp_path / "runs").exists()


def test_without_a_share_of_prior_data_none_is_made_or_read(tmp_path, monkeypatch):
    monkeypatch.setattr(opening, "load_offline_data", lambda *_, **__: pytest.fail("data was loaded"))
    options = {"offline_batch_ratio": 0.0, "offline_pretrain_updates": 0}
    config = small_config("rlpd", tmp_path / "whole", algo_kwargs=options)
    whole = train_rlpd(config)
    assert whole.metrics["offline_dataset_size"] == 0
    assert (whole.metrics["offline_batch_size"], whole.metrics["online_batch_size"]) == (0, 16)
    assert load_checkpoint(whole.checkpoint_path).buffer_state.keys() == {"replay"}
    half = train_rlpd(config.replace(output_dir=tmp_path / "half"), callbacks=[StopAt(90)])
    assert state_difference(whole.checkpoint_path, resume_training(half.run_dir).checkpoint_path) is None
    for needed in ({"offline_pretrain_updates": 1}, {"online_timesteps": 8}):
        with pytest.raises(pytest.fail.Exception):
            train_rlpd(small_config("rlpd", tmp_path / "needed", algo_kwargs=options | needed))


@pytest.mark.parametrize(("task", "entropy"), [("hopper", -1.0), ("walker2d", -3.0)])
def test_presets_are_redq(task, entropy):
    """The authors' settings: ten critics, two of them for each target, 20 updates, 5,000 random steps, no layer norm."""
    options = load_config_file(find_preset(f"rlpd/redq_{task}")).options
    assert (options.offline_batch_ratio, options.layer_norm, options.needs_data) == (0.0, False, False)
    assert (options.num_critics, options.critic_subset_size, options.gradient_updates_per_step) == (10, 2, 20)
    assert (options.target_entropy, options.learning_starts, options.pessimistic_actor) == (entropy, 5_000, False)


@pytest.mark.learning
def test_with_prior_data_the_pendulum_swings_up_within_600_steps(tmp_path):
    """SAC alone was at -232 after 3,000."""
    config = load_config_file(find_preset("rlpd/pendulum"))
    result = train_rlpd(config.replace(output_dir=tmp_path, eval_episodes=0, total_timesteps=600))
    assert load_policy(result.checkpoint_path).evaluate(num_episodes=20)["eval_return_mean"] >= -200
