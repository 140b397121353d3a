"""train_cal_ql from configuration to files on disk."""

import pytest
import torch
from small_runs import StopAt, small_config

from rl_training.errors import ConfigError, UnsupportedSpace
from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.options.cal_ql import CalQLConfig
from rl_training.runtime.cal_ql_trainer import train_cal_ql
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.workflows import evaluate_checkpoint


class Watch(Callback):
    """The columns that were drawn."""

    def on_train_start(self, trainer):
        update, self.batches, self.dataset = trainer.algorithm.update, [], trainer.dataset

        def watched(batch, **others):
            self.batches.append({name: column.clone() for name, column in batch.items()})
            return update(batch, **others)

        trainer.algorithm.update = watched


def test_an_update_is_a_timestep_and_knows_what_the_data_earned(tmp_path):
    watch = Watch()
    result = train_cal_ql(small_config("cal_ql", tmp_path), callbacks=[watch])
    metrics = result.metrics
    assert metrics["global_step"] == metrics["updates"] == len(watch.batches) == 60
    assert metrics["episodes"] == 0
    assert 0 <= metrics["bound_share"] <= 1
    rows = watch.dataset.transitions
    # episodes of 30 rows, cut: r + γ times what follows, and the last reward for ever
    follows = torch.cat([rows["returns"][1:], torch.zeros(1)])
    wanted = torch.where(rows["cuts"] == 1, rows["rewards"] / (1 - 0.99), rows["rewards"] + 0.99 * follows)
    torch.testing.assert_close(rows["returns"], wanted, rtol=1e-4, atol=1e-2)
    assert evaluate_checkpoint(result.checkpoint_path, num_episodes=1)["eval_episodes"] == 1


def test_online_nothing_is_learnt_before_the_first_episode_is_over_and_half_of_each_batch_is_recorded_then(tmp_path):
    result = train_cal_ql(small_config("cal_ql_alt", tmp_path))
    # 25 steps of two environments, episodes of 20: the first 19 turns online learn nothing
    assert result.metrics["updates"] == 30 + 25 - 19
    assert (result.metrics["offline_batch_size"], result.metrics["online_batch_size"]) == (8, 8)
    replay = load_checkpoint(result.checkpoint_path).buffer_state["replay"]
    assert len(replay["rows"]) == 40
    assert [len(columns["rewards"]) for columns in replay["waiting"]] == [5, 5]


def test_returns_of_fresh_rows_are_known_in_batches(tmp_path):
    watch = Watch()
    train_cal_ql(small_config("cal_ql_alt", tmp_path), callbacks=[watch])
    online = watch.batches[30:]
    assert online
    assert all((batch["returns"] < 0).all() for batch in online)  # Pendulum only ever costs, in every row


def test_rows_of_an_episode_that_goes_on_are_saved(tmp_path):
    part = train_cal_ql(small_config("cal_ql_alt", tmp_path), callbacks=[StopAt(50)])
    replay = load_checkpoint(part.checkpoint_path).buffer_state["replay"]
    assert len(replay["rows"]) == 0
    assert [len(columns["rewards"]) for columns in replay["waiting"]] == [10, 10]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cql_target_gap": 1.0, "cql_alpha": 0.0}, "begins at 0"),
        ({"online_timesteps": -5}, "online_timesteps"),
        ({"expectile": 0.7}, "cal_ql has no option 'expectile'"),
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        CalQLConfig(**options)


def test_a_discrete_environment_is_refused_before_any_data_is_made(tmp_path):
    with pytest.raises(UnsupportedSpace):
        train_cal_ql(small_config("cal_ql", tmp_path / "runs", env_id="CartPole-v1"))
    assert not (tmp_path / "runs").exists()
