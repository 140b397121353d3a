"""train_rebrac from configuration to files on disk."""

import pytest
from small_runs import small_config

from rl_training.errors import ConfigError, UnsupportedSpace
from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.experiment.yaml_loader import load_config_file
from rl_training.options.rebrac import ReBRACConfig
from rl_training.resources import find_preset
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.rebrac_trainer import train_rebrac
from rl_training.runtime.workflows import evaluate_checkpoint


class Watch(Callback):
    """The columns that were drawn."""

    def on_train_start(self, trainer):
        update, self.batches = trainer.algorithm.update, []

        def watched(batch, **others):
            self.batches.append(batch)
            return update(batch, **others)

        trainer.algorithm.update = watched


def test_an_update_is_a_timestep_and_knows_the_next_action(tmp_path):
    watch = Watch()
    result = train_rebrac(small_config("rebrac", tmp_path), callbacks=[watch])
    metrics = result.metrics
    assert metrics["global_step"] == metrics["updates"] == len(watch.batches) == 60
    assert metrics["episodes"] == 0
    assert metrics["offline_dataset_size"] == 90
    known = [batch["next_known"].mean().item() for batch in watch.batches]
    assert 0.9 < sum(known) / len(known) < 1.0  # episodes of 30 rows: all but the last of each
    assert evaluate_checkpoint(result.checkpoint_path, num_episodes=1)["eval_episodes"] == 1


def test_online_half_of_each_batch_is_recorded_and_of_fresh_rows_no_next_action_is_known(tmp_path):
    watch = Watch()
    result = train_rebrac(small_config("rebrac_alt", tmp_path), callbacks=[watch])
    assert result.metrics["global_step"] == 80
    assert (result.metrics["offline_batch_size"], result.metrics["online_batch_size"]) == (8, 8)
    assert result.metrics["critic_penalty_coef"] == 0.0
    assert result.metrics["actor_penalty_coef"] == pytest.approx(0.05 * 2 / 50)  # as of the last turn, two steps before the end
    assert all(batch["next_known"].sum() <= 8 for batch in watch.batches[30:])
    assert len(load_checkpoint(result.checkpoint_path).buffer_state["replay"]["rows"]) == 40


def test_a_preset_is_td3_bc():
    options = load_config_file(find_preset("rebrac/td3_bc")).options
    assert (options.critic_penalty_coef, options.layer_norm, options.hidden_sizes) == (0.0, False, (256, 256))
    assert (options.batch_size, options.learning_rate) == (256, 3e-4)
    assert options.actor_penalty_coef == 1 / 2.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"actor_penalty_coef": -1.0}, "actor_penalty_coef"),
        ({"cql_alpha": 1.0}, "rebrac has no option 'cql_alpha'"),
        ({"offline_batch_ratio": 1.5}, "offline_batch_ratio"),
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        ReBRACConfig(**options)


def test_a_discrete_environment_is_refused_before_any_data_is_made(tmp_path):
    with pytest.raises(UnsupportedSpace):
        train_rebrac(small_config("rebrac", tmp_path / "runs", env_id="CartPole-v1"))
    assert not (tmp_path / "runs").exists()
