"""How networks are named: in Python, YAML and on the command line alike."""

import my_nets
import pytest

from rl_training import PPO
from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.overrides import apply_overrides
from rl_training.experiment.yaml_loader import parse_yaml
from rl_training.models.torsos import TORSOS
from rl_training.options import algorithm_names, load_options_class
from rl_training.options._networks import IMAGE_NETWORKS, NETWORKS, NetworkOptions
from rl_training.options.ppg import PPGConfig
from rl_training.options.ppo import PPOConfig


def test_every_name_of_the_options_is_a_network_and_the_other_way_round():
    assert set(NETWORKS) == set(TORSOS)
    assert set(IMAGE_NETWORKS) < set(NETWORKS)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"network": "natur"},
            "network: there is no network 'natur'; did you mean 'nature'? Your own is written package.module",
        ),
        ({"network": "my nets:Torso"}, "there is no network 'my nets:Torso'"),
        ({"network_kwargs": {"width": 8}}, "network_kwargs: mlp takes none; its layers are set by hidden_sizes and activation"),
        ({"actor_network": {"network": "mlp", "kwargs": {"width": 8}}}, "actor_network.kwargs: mlp takes no arguments"),
        ({"actor_network": {"net": "nature"}}, "actor_network.net: a network has no option 'net'"),
        (
            {"network": "nature", "network_kwargs": {"a": 1}, "actor_network": "impala", "critic_network": "impala"},
            "network_kwargs: actor_network and critic_network take its place",
        ),
    ],
)
def test_a_network_that_cannot_be_meant_is_refused(given, said):
    with pytest.raises(ConfigError) as error:
        PPOConfig(**given)
    assert said in str(error.value)


def test_a_shared_trunk_of_ppg_is_one_network():
    with pytest.raises(ConfigError, match="architecture, critic_network: a shared trunk is one network"):
        PPGConfig(critic_network="nature")
    assert PPGConfig(critic_network="nature", architecture="dual").of_actor.network == "mlp"


def test_heads_behind_another_network_are_linear_unless_layers_are_given():
    assert PPOConfig().hidden_sizes == (64, 64)
    assert PPOConfig(network="nature").hidden_sizes == ()
    assert PPOConfig(network="nature", hidden_sizes=(32,)).hidden_sizes == (32,)
    assert PPOConfig(actor_network="nature", critic_network={"network": "impala"}).hidden_sizes == ()
    assert PPOConfig(actor_network="nature").hidden_sizes == (64, 64)  # the critic is an mlp
    # what is written out for later says it
    config = TrainConfig(algo="ppo", env_id="X", seed=0, total_timesteps=1, output_dir=".", algo_kwargs={"network": "nature"})
    assert config.resolved().algo_kwargs["hidden_sizes"] == []


def test_a_network_is_named_alike_in_python_yaml_and_on_the_command_line():
    wanted = {"network": "my_nets:Torso", "network_kwargs": {"width": 8}}
    by_path = PPO("CartPole-v1", network="my_nets:Torso", network_kwargs={"width": 8}).config
    by_class = PPO("CartPole-v1", network=my_nets.Torso, network_kwargs={"width": 8}).config
    values = parse_yaml("network: my_nets:Torso\nnetwork_kwargs: {width: 8}", source="a file")
    by_line = apply_overrides({"algo": "ppo"}, ["network=my_nets:Torso", "network_kwargs.width=8"])
    assert by_path.algo_kwargs == by_class.algo_kwargs == values == by_line["algo_kwargs"] == wanted
    each = apply_overrides({"algo": "ppo"}, ["actor_network=impala", "actor_network.kwargs.channels=[8, 16]"])
    assert each["algo_kwargs"] == {"actor_network": {"network": "impala", "kwargs": {"channels": [8, 16]}}}


def test_a_class_that_no_later_process_could_import_is_refused():
    class Local(my_nets.Torso):
        pass

    with pytest.raises(ConfigError, match=r"Local is defined in a function.*give it as 'my_nets:Local'"):
        PPO("CartPole-v1", network=Local)


def test_the_algorithms_that_take_networks():
    with_networks = {name for name in algorithm_names() if issubclass(load_options_class(name), NetworkOptions)}
    assert {"ppo", "ppg"} <= with_networks
