"""The table of algorithms and spaces on the front page is true: what it says is taken is trained on, the rest is refused."""

import re

import pytest
from small_runs import ALGORITHMS, small_config, train

from conftest import REPOSITORY
from rl_training.errors import ConfigError, UnsupportedSpace
from rl_training.experiment.checkpoint import load_checkpoint

# of each kind of observation the environment with discrete and the one with continuous actions
ENVS = {
    "vectors, choices, Dict, Tuple": ("toy_envs:ToyNumbers-v0", "toy_envs:ToyNumbersContinuous-v0"),
    "images": ("toy_envs:ToyCatch-v0", "toy_envs:ToyCatchContinuous-v0"),
}


def front_page():
    """The table's cells by algorithm and head of column."""
    text = (REPOSITORY / "README.md").read_text().split("<!-- algorithms:all -->")[1].split("<!-- /algorithms:all -->")[0]
    head, _, *rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in text.strip().splitlines()]
    return {re.search(r"\[(\w+)\]", row[0])[1]: dict(zip(head, row, strict=False)) for row in rows}


TABLE = front_page()


def begun(name, folder, env_id, **options):
    """One turn of the small run on another environment."""
    config = small_config(name, folder, eval_episodes=0, algo_kwargs=options)
    steps = {"ars": 300, "openai_es": 300}.get(name, 60)
    return train(config.replace(env_id=env_id, env_kwargs={}, total_timesteps=min(config.total_timesteps, steps)))


def names_in(checkpoint):
    """Those of all networks in a learner's state."""
    state = load_checkpoint(checkpoint, parts=("algorithm_state",)).algorithm_state
    return " ".join(name for part in state.values() if isinstance(part, dict) for name in part)


def test_every_algorithm_is_in_the_table():
    assert set(TABLE) == set(ALGORITHMS)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_numbers_and_choices_in_any_order_are_learnt_from(name, tmp_path):
    discrete, continuous = ENVS["vectors, choices, Dict, Tuple"]
    result = begun(name, tmp_path, discrete if TABLE[name]["Discrete"] else continuous)
    assert result.metrics["global_step"] > 0


@pytest.mark.parametrize("name", ALGORITHMS)
def test_images_are_learnt_from_where_the_table_says_so_and_refused_elsewhere(name, tmp_path):
    env_id = ENVS["images"][not TABLE[name]["Discrete"]]
    if TABLE[name]["images"] == "yes":
        vectors_only = {"normalize_observations": False} if name in {"ppo", "ppg"} else {}
        assert begun(name, tmp_path, env_id, network="minatar", **vectors_only).metrics["global_step"] > 0
        return
    with pytest.raises(UnsupportedSpace, match=r"reads vectors; .* observes the image obs"):
        begun(name, tmp_path, env_id)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ALGORITHMS)
def test_own_networks_are_options_where_the_table_says_so_and_nowhere_else(name, tmp_path):
    discrete, continuous = ENVS["vectors, choices, Dict, Tuple"]
    env_id = discrete if TABLE[name]["Discrete"] else continuous
    if TABLE[name]["own networks"] == "yes":
        result = begun(name, tmp_path, env_id, network="my_nets:OfNumbers")
        assert "torso.clue.weight" in names_in(result.checkpoint_path)  # taken, not only accepted
        return
    with pytest.raises(ConfigError, match=f"{name} has no option 'network'"):
        begun(name, tmp_path, env_id, network="my_nets:OfNumbers")


@pytest.mark.parametrize("kind", ["Discrete", "Box"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_actions_are_taken_where_the_table_says_so_and_refused_elsewhere(name, kind, tmp_path):
    env_id = ENVS["vectors, choices, Dict, Tuple"][kind == "Box"]
    if TABLE[name][kind] == "yes":
        assert begun(name, tmp_path, env_id).metrics["global_step"] > 0
        return
    with pytest.raises(UnsupportedSpace, match=f"{name.upper()} takes"):
        begun(name, tmp_path, env_id)
    assert not list(tmp_path.iterdir())
