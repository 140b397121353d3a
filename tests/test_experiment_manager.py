"""The registry and the experiment manager."""

import pytest
from small_runs import ALGORITHMS, StopAt, small_config, state_difference, train

from rl_training.experiment import get_algorithm_spec, list_algorithm_specs
from rl_training.experiment.default_manager import DefaultExperimentManager
from rl_training.experiment.registry import algorithm_names
from rl_training.options import algorithm_names as option_names


def test_every_algorithm_has_options_a_trainer_and_a_small_configuration():
    assert algorithm_names() == option_names() == ALGORITHMS
    assert [spec.name for spec in list_algorithm_specs()] == algorithm_names()


@pytest.mark.parametrize("name", algorithm_names())
def test_a_spec_says_all_about_its_algorithm(name):
    spec = get_algorithm_spec(name)
    assert spec.config.algo == name
    assert spec.train_fn.__name__ == f"train_{name}"
    assert callable(spec.evaluate_fn)
    assert callable(spec.predict_fn)


def test_an_unknown_algorithm_names_the_nearest():
    with pytest.raises(KeyError, match="did you mean 'ppo'"):
        get_algorithm_spec("pppo")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_manager_trains_and_resumes(name, tmp_path):
    config = small_config(name, tmp_path / "managed")
    manager = DefaultExperimentManager()
    half = manager.setup(config, callbacks=[StopAt(config.total_timesteps // 2)]).train()
    rest = manager.resume(half.checkpoint_path).train()
    whole = train(config.replace(output_dir=tmp_path / "whole"))
    assert state_difference(whole.checkpoint_path, rest.checkpoint_path) is None
