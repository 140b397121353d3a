"""Every registered algorithm, trained as the registry has it: what a run tells, whatever the algorithm."""

import pytest
from small_runs import ALGORITHMS, small_config

from rl_training.experiment.registry import get_algorithm_spec
from rl_training.options import algorithm_names

OF_EVERY_RUN = {"global_step", "eval_return_mean", "eval_return_std", "eval_episodes"}
OF_ITS_OWN = {
    "ppg": {"auxiliary_phase_ran", "policy_updates", "auxiliary_updates"},
    "rlpd": {
        "pretrain_updates_done",
        "offline_batch_size",
        "online_batch_size",
        "offline_dataset_size",
        "online_buffer_size",
    },
    "mopo": {
        "model_updates_done",
        "synthetic_buffer_size",
        "real_batch_size",
        "synthetic_batch_size",
        "synthetic_disagreement_mean",
    },
    "pets": {"buffer_size", "episode_return", "episode_length"},
}


def test_no_algorithm_is_left_out():
    assert algorithm_names() == ALGORITHMS
    assert OF_ITS_OWN.keys() <= set(ALGORITHMS)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_run_tells_what_was_promised_and_where_its_learning_rate_ended(name, tmp_path):
    options = {"learning_rate_schedule": {"type": "linear", "start": 1e-3, "end": 0.0}}
    config = small_config(name, tmp_path, algo_kwargs=options)
    spec = get_algorithm_spec(name)
    result = spec.train_fn(config, run_suffix="smoke")
    metrics = result.metrics
    assert metrics.keys() >= OF_EVERY_RUN | OF_ITS_OWN.get(name, set())
    assert metrics["eval_episodes"] == config.eval_episodes
    assert 0 < metrics["learning_rate"] < 1e-3
    assert result.run_dir == tmp_path / f"{name}__{config.env_id.replace('/', '_')}__seed{config.seed}__smoke"
    assert result.checkpoint_path.parent == result.run_dir / "checkpoints"
    assert spec.evaluate_fn(result.checkpoint_path)["eval_return_mean"] == metrics["eval_return_mean"]
