"""A user's own network through a whole run: recorded, resumed, loaded, evaluated, exported; refused before a file is made."""

import json
import logging
import sys

import numpy as np
import pytest
from small_runs import ALGORITHMS, StopAt, small_config, state_difference, train

from rl_training.errors import CheckpointError, ConfigError
from rl_training.experiment.checkpoint import load_checkpoint, read_header
from rl_training.experiment.default_manager import DefaultExperimentManager
from rl_training.imports import source_hash
from rl_training.options import load_options_class
from rl_training.options._networks import NetworkOptions
from rl_training.runtime.policy import load_policy
from rl_training.runtime.workflows import evaluate_checkpoint, resume_training
from rl_training.shipping.export import export_checkpoint

WITH_NETWORKS = [name for name in ALGORITHMS if issubclass(load_options_class(name), NetworkOptions)]
OWN = {"network": "my_nets:Torso", "network_kwargs": {"width": 8}}

NET = """
import torch

class Torso(torch.nn.Module):
    def __init__(self, observation_space):
        super().__init__()
        self.features_dim = 8
        self.layer = torch.nn.Linear(observation_space.shape[0], 8)

    def forward(self, obs):
        return torch.tanh(self.layer(obs))
"""


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    """A module of a user's, forgotten again afterwards."""
    (tmp_path / "nets_of_mine.py").write_text(NET)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "nets_of_mine.py"
    sys.modules.pop("nets_of_mine", None)


def small(folder, name="ppo", **changes):
    return small_config(name, folder, **{"algo_kwargs": OWN, "eval_episodes": 0, **changes})


@pytest.mark.parametrize("name", WITH_NETWORKS)
@pytest.mark.parametrize("network", ["my_nets:Torso", "my_nets:OfOurLayers", "residual_mlp"])
def test_every_such_algorithm_trains_and_acts_with_another_network(name, network, tmp_path):
    result = train(small(tmp_path, name, algo_kwargs={"network": network, "network_kwargs": {"width": 8}}))
    policy = load_policy(result.checkpoint_path)
    state = load_checkpoint(result.checkpoint_path).algorithm_state
    assert any("torso" in key for key in state.get("policy") or state["model"])
    obs = np.zeros((3, policy.spec.obs_dim), dtype=np.float32)
    np.testing.assert_allclose(policy.predict(obs)[0], policy.predict(obs[0]), rtol=1e-5, atol=1e-6)
    assert evaluate_checkpoint(result.checkpoint_path, num_episodes=1)["eval_episodes"] == 1


@pytest.mark.parametrize("name", WITH_NETWORKS)
def test_a_run_with_an_own_network_resumes_to_the_same_bits(name, tmp_path):
    config = small(tmp_path, name)
    whole = train(config, run_suffix="whole")
    half = train(config, run_suffix="half", callbacks=[StopAt(config.total_timesteps // 2)])
    resumed = resume_training(half.checkpoint_path)
    assert state_difference(whole.checkpoint_path, resumed.checkpoint_path) is None


@pytest.mark.parametrize("form", ["onnx", "torchscript"])
@pytest.mark.parametrize("name", WITH_NETWORKS)
@pytest.mark.parametrize("network", ["my_nets:Torso", "my_nets:OfOurLayers", "residual_mlp"])
def test_policies_with_another_network_are_exported_and_act_as_predict_does(name, network, form, tmp_path):
    result = train(small(tmp_path, name, total_timesteps=40, algo_kwargs={"network": network}))
    exported = export_checkpoint(result.checkpoint_path, format=form)
    assert exported.max_difference <= 1e-4 if not exported.discrete else exported.max_difference == 0
    assert f"| network | {network}, then " in exported.card_path.read_text()


def test_a_policy_behind_an_own_network_is_not_written_as_tensors_alone(tmp_path):
    result = train(small(tmp_path, total_timesteps=20))
    with pytest.raises(ConfigError, match=r"safetensors holds the weights of MLPs alone.*choose onnx or torchscript"):
        export_checkpoint(result.checkpoint_path, format="safetensors")


def test_the_run_and_its_checkpoints_know_path_and_source(tmp_path, own_module):
    result = train(small(tmp_path / "runs", algo_kwargs={"network": "nets_of_mine:Torso"}))
    wanted = {"nets_of_mine:Torso": source_hash(sys.modules["nets_of_mine"].Torso)}
    assert len(wanted["nets_of_mine:Torso"]) == 64
    assert read_header(result.checkpoint_path).metadata["network_sources"] == wanted
    assert json.loads((result.run_dir / "metadata.json").read_text())["network_sources"] == wanted
    # of packaged networks the version says all
    other = train(small(tmp_path / "runs", algo_kwargs={"network": "residual_mlp"}), run_suffix="packaged")
    assert "network_sources" not in read_header(other.checkpoint_path).metadata


def test_a_changed_source_is_told_when_the_policy_is_loaded_and_when_training_goes_on(tmp_path, own_module, caplog):
    config = small(tmp_path / "runs", algo_kwargs={"network": "nets_of_mine:Torso"})
    result = train(config, callbacks=[StopAt(20)])
    own_module.write_text(NET.replace("tanh", "sigmoid"))
    sys.modules.pop("nets_of_mine")
    with caplog.at_level(logging.WARNING):
        load_policy(result.checkpoint_path)
    assert "the source of network 'nets_of_mine:Torso' was" in caplog.text
    assert "it may act otherwise than it was trained to" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        resume_training(result.checkpoint_path)
    assert "resuming may not be exact: the source of network 'nets_of_mine:Torso' was" in caplog.text
    history = json.loads((result.run_dir / "metadata.json").read_text())["resume_history"]
    assert "the source of network" in history[-1]["differences"][0]


def test_a_module_that_is_gone_is_named_with_the_checkpoint(tmp_path, own_module):
    result = train(small(tmp_path / "runs", algo_kwargs={"network": "nets_of_mine:Torso"}))
    own_module.unlink()
    sys.modules.pop("nets_of_mine")
    for use in (load_policy, evaluate_checkpoint, export_checkpoint):
        arguments = {"format": "onnx"} if use is export_checkpoint else {}
        with pytest.raises(CheckpointError) as error:
            use(result.checkpoint_path, **arguments)
        assert str(result.checkpoint_path) in str(error.value)
        assert "network: 'nets_of_mine:Torso' could not be imported: there is no module 'nets_of_mine'" in str(error.value)
    with pytest.raises(ConfigError, match="there is no module 'nets_of_mine', neither in the current folder"):
        resume_training(result.checkpoint_path, total_timesteps=400)


@pytest.mark.parametrize(
    ("network", "said"),
    [
        ("my_nets:WrongWidth", "gives shape .2, 16. for 2 observations; its features_dim wants .2, 17."),
        ("my_nets:NoWidth", "has no integer features_dim; a network of your own is a class Torso"),
        ("my_nets:Fails", "fails on two observations of CartPole-v1: mat1 and mat2 shapes cannot be multiplied"),
        ("my_nets:not_a_class", "is a int; a network of your own is a class"),
        ("my_nets:Torsi", "there is no 'Torsi' in it; did you mean 'Torso'"),
        ("no_such_nets:Torso", "there is no module 'no_such_nets', neither in the current folder"),
        ("nature", "'nature' reads images; CartPole-v1 observes a vector of 4 numbers. Possible: mlp, residual_mlp"),
    ],
)
def test_what_cannot_work_is_refused_before_a_file_is_made(network, said, tmp_path):
    with pytest.raises(ConfigError, match=said):
        train(small(tmp_path / "runs", algo_kwargs={"network": network}))
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("name", ["ppo", "ppg"])
def test_a_network_with_dropout_or_batch_norm_acts_as_it_was_learnt_and_resumes_exactly(name, norm, tmp_path):
    config = small(tmp_path, name, algo_kwargs={"network": "my_nets:Moody", "network_kwargs": {"norm": norm}})
    whole = train(config, run_suffix="whole")
    half = train(config, run_suffix="half", callbacks=[StopAt(config.total_timesteps // 2)])
    assert state_difference(whole.checkpoint_path, resume_training(half.checkpoint_path).checkpoint_path) is None
    policy = load_policy(whole.checkpoint_path)
    obs = np.random.default_rng(0).normal(size=(40, policy.spec.obs_dim)).astype(np.float32)
    assert len({np.asarray(policy.predict(obs)).tobytes() for _ in range(5)}) == 1
    assert export_checkpoint(whole.checkpoint_path, format="onnx").max_difference < 1e-4


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_batch_norm_is_refused_where_target_networks_would_not_follow_it(name, tmp_path):
    train(small(tmp_path / "dropout", name, algo_kwargs={"network": "my_nets:Moody"}))
    options = {"network": "my_nets:Moody", "network_kwargs": {"norm": True}}
    with pytest.raises(ConfigError, match="'my_nets:Moody' has a BatchNorm1d, whose statistics target networks do not follow"):
        train(small(tmp_path / "norm", name, algo_kwargs=options))
    assert not (tmp_path / "norm").exists()


def test_arguments_that_a_network_does_not_take_are_told_with_the_call(tmp_path):
    with pytest.raises(
        ConfigError, match=r"network: my_nets:Torso\(observation_space, wide=8\) raised TypeError.*wide.*the space is Box"
    ):
        train(small(tmp_path, algo_kwargs={"network": "my_nets:Torso", "network_kwargs": {"wide": 8}}))


def test_actor_and_critic_may_have_networks_of_different_kinds(tmp_path):
    options = {"actor_network": {"network": "my_nets:Torso", "kwargs": {"width": 6}}, "critic_network": "mlp"}
    result = train(small(tmp_path, algo_kwargs=options))
    names = load_checkpoint(result.checkpoint_path).algorithm_state["policy"]
    assert {name.split(".layers")[0] for name in names} == {"flat", "encoders.policy.torso"}
    assert load_policy(result.checkpoint_path).algorithm.policy.encoders.features_dims == (6, 4)


def test_a_manager_and_the_library_s_default_are_as_they_were(tmp_path):
    """Without a network the learner has one vector of parameters and no encoder."""
    config = small(tmp_path, algo_kwargs={})
    result = DefaultExperimentManager().setup(config).train()
    assert set(load_checkpoint(result.checkpoint_path).algorithm_state["policy"]) == {"flat"}
    assert "observation" not in read_header(result.checkpoint_path).metadata["env_spec"]
