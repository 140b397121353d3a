"""train_tqc from configuration to files on disk."""

import pytest
from small_runs import small_config

from rl_training.errors import ConfigError, UnsupportedSpace
from rl_training.options.tqc import TQCConfig
from rl_training.runtime.policy import load_policy
from rl_training.runtime.tqc_trainer import train_tqc
from rl_training.runtime.workflows import evaluate_checkpoint, predict_checkpoint


def test_a_run_learns_evaluates_and_predicts(tmp_path):
    result = train_tqc(small_config("tqc", tmp_path))
    metrics = result.metrics
    assert metrics["global_step"] == 240
    assert metrics["updates"] == 120 - 15  # two environments: from the turn that fills 32 rows on
    assert metrics["buffer_size"] == 150
    assert evaluate_checkpoint(result.checkpoint_path, num_episodes=1)["eval_episodes"] == 1
    assert abs(predict_checkpoint(result.checkpoint_path, [1.0, 0.0, 0.0])[0]) <= 2.0


def test_the_critics_have_sizes_of_their_own(tmp_path):
    result = train_tqc(small_config("tqc", tmp_path, algo_kwargs={"critic_hidden_sizes": [24]}))
    model = load_policy(result.checkpoint_path).algorithm.model
    assert model.critics.layout.sizes == (4, 24, 5)
    assert model.actor.layout.sizes == (3, 16, 16, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_dropped_quantiles": 25}, "of 25 quantiles at most 24 can be left out"),
        ({"critic_subset_size": 2}, "all critics' quantiles"),
        ({"n_quantiles": 25}, "'n_quantiles' is 'num_quantiles' here"),
        ({"top_quantiles_to_drop_per_net": 2}, "is 'num_dropped_quantiles' here"),
        ({"expectile": 0.7}, "tqc has no option 'expectile'"),
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        TQCConfig(**options)


def test_a_discrete_environment_is_refused_before_any_file_is_made(tmp_path):
    with pytest.raises(UnsupportedSpace):
        train_tqc(small_config("tqc", tmp_path / "runs", env_id="CartPole-v1"))
    assert not (tmp_path / "runs").exists()
