"""TrainConfig and presets: wrong input is refused before anything happens, right input means one thing."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rl_training import resources
from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.yaml_loader import load_config_file, parse_yaml
from rl_training.options import algorithm_names, load_options_class
from rl_training.options.base import EarlyStopping
from rl_training.options.ppo import PPOConfig
from rl_training.resources import find_packaged_asset, find_preset, list_presets

ROOT = Path(__file__).parents[2]
RUN = {"algo": "ppo", "env_id": "CartPole-v1", "seed": 1, "total_timesteps": 1_000, "output_dir": "runs"}


def refusal(**changes: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        TrainConfig(**RUN | changes)
    return str(caught.value).splitlines()


def test_defaults_are_those_of_the_interface():
    config = TrainConfig(**RUN)
    assert config.output_dir == Path("runs")
    assert (config.execution_backend, config.device, config.num_envs, config.eval_episodes) == ("local_sync", "auto", 1, 5)
    assert (config.tags, config.benchmark, config.algo_kwargs, config.env_kwargs) == ((), {}, {}, {})
    assert config.options == PPOConfig()
    assert config.threads == PPOConfig.default_num_threads


@pytest.mark.parametrize(
    "wrong",
    [
        {"seed": -1},
        {"seed": 2**32},
        {"seed": True},
        {"seed": "1"},
        {"total_timesteps": 0},
        {"total_timesteps": 10.5},
        {"num_envs": 0},
        {"eval_episodes": -1},
        {"env_id": ""},
        {"env_id": None},
        {"device": "gpu"},
        {"device": "cuda:"},
        {"device": "cuda:01"},
        {"device": "cpu\n"},
        {"execution_backend": "local"},
        {"num_threads": 0},
        {"keep_checkpoints": 0},
        {"output_dir": 3},
        {"output_dir": ""},
        {"tags": "fast"},
        {"tags": [1]},
        {"env_kwargs": None},
        {"env_kwargs": {1: 2}},
        {"algo_kwargs": [1]},
    ],
    ids=str,
)
def test_values_out_of_range_or_of_another_type_are_refused_naming_the_key(wrong):
    (key,) = wrong
    (line,) = refusal(**wrong)
    assert line.startswith(f"{key}: given ")
    assert "possible: " in line


@pytest.mark.parametrize("right", [{"seed": 2**32 - 1}, {"eval_episodes": 0}, {"device": "cuda:10"}, {"total_timesteps": 1e5}])
def test_values_at_the_edge_are_taken(right):
    (key,) = right
    assert getattr(TrainConfig(**RUN | right), key) == right[key]


def test_missing_keys_are_all_named():
    with pytest.raises(ConfigError) as caught:
        TrainConfig()
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == list(RUN)


def test_problems_of_the_config_and_of_the_algorithm_are_listed_together():
    lines = refusal(sed=1, seed=-1, algo_kwargs={"gama": 1, "early_stopping": {"patience": 0}})
    assert [line.split(":")[0] for line in lines] == ["seed", "algo_kwargs.early_stopping.patience", "algo_kwargs.gama", "sed"]


def test_early_stopping_without_evaluations_is_refused():
    [line] = refusal(eval_episodes=0, algo_kwargs={"early_stopping": {"patience": 2}})
    assert line.startswith("eval_episodes, algo_kwargs.early_stopping: early_stopping looks at evaluations")


def test_an_unknown_algorithm_is_answered_with_the_nearest():
    assert refusal(algo="pppo") == ["algo: there is no algorithm 'pppo'; did you mean 'ppo'?"]


def test_an_option_written_one_level_too_high_is_sent_down():
    assert refusal(learning_rate=1e-3) == [
        "learning_rate: the config has no option 'learning_rate', but ppo has: write algo_kwargs.learning_rate"
    ]
    assert "did you mean 'algo_kwargs.learning_rate'?" in refusal(learning_rte=1e-3)[0]


def test_a_key_written_one_level_too_low_is_sent_up():
    (line,) = refusal(algo_kwargs={"num_envs": 4})
    assert line.startswith("algo_kwargs.num_envs: ppo has no option 'num_envs'")
    assert "beside algo_kwargs" in line


@pytest.mark.parametrize("name", algorithm_names())
def test_no_option_of_an_algorithm_is_called_like_a_key_of_the_config(name):
    assert not load_options_class(name).model_fields.keys() & TrainConfig.model_fields.keys()


def test_a_config_keeps_its_own_copy_of_what_it_was_given():
    env_kwargs = {"range": [1, 2]}
    config = TrainConfig(**RUN, env_kwargs=env_kwargs)
    env_kwargs["range"].append(3)
    assert config.env_kwargs == {"range": [1, 2]}


def test_python_values_take_the_form_they_will_have_after_a_resume():
    config = TrainConfig(
        **RUN,
        env_kwargs={"z_range": (0.7, float("inf")), "n": np.int64(3), "x": np.float32(0.5), "file": Path("a") / "b"},
        algo_kwargs={"early_stopping": EarlyStopping(patience=2), "hidden_sizes": (8, 8)},
    )
    assert config.env_kwargs == {"z_range": [0.7, float("inf")], "n": 3, "x": 0.5, "file": "a/b"}
    assert config.algo_kwargs["hidden_sizes"] == [8, 8]
    assert config.options.early_stopping == EarlyStopping(patience=2)


def test_values_that_no_file_can_hold_are_refused():
    (line,) = refusal(env_kwargs={"model": object()})
    assert line.startswith("env_kwargs.model: given <object object")
    loop: list[object] = []
    loop.append(loop)
    assert "nested deeper" in refusal(env_kwargs={"loop": loop})[0]


def test_a_config_is_the_same_after_json_yaml_pickle_and_deepcopy():
    config = TrainConfig(
        **RUN | {"output_dir": Path("runs") / "a b"},
        tags=["on", "012", "3e-4"],
        algo_kwargs={"learning_rate": 1e-5, "hidden_sizes": [32, 32], "learning_rate_schedule": "linear"},
        env_kwargs={"max_episode_steps": 25, "high": float("inf")},
        benchmark={"note": "yes: no"},
    )
    assert TrainConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert TrainConfig.from_dict(parse_yaml(config.to_yaml(), source="x")) == config
    assert pickle.loads(pickle.dumps(config)) == config
    assert copy.deepcopy(config) == config


def test_options_are_made_once_and_do_not_change_equality():
    config, other = TrainConfig(**RUN), TrainConfig(**RUN)
    assert config.options is config.options
    assert config == other


def test_replace_checks_the_whole_again_and_leaves_the_original():
    config = TrainConfig(**RUN, algo_kwargs={"clip_coef": 0.1})
    assert config.replace(seed=2).seed == 2
    assert config.seed == 1
    with pytest.raises(ConfigError, match=r"algo_kwargs\.clip_coef: sac has no option"):
        config.replace(algo="sac")
    with pytest.raises(ConfigError, match="frozen"):
        config.seed = 2


def test_a_resolved_config_writes_out_every_default_and_means_the_same():
    config = TrainConfig(**RUN, algo_kwargs={"gamma": 0.5})
    resolved = config.resolved()
    assert resolved.options == config.options
    assert resolved.algo_kwargs.keys() == PPOConfig.model_fields.keys()
    assert resolved.num_threads == config.threads
    assert resolved.resolved() == resolved


def test_configs_import_neither_torch_nor_numpy_nor_gymnasium():
    code = (
        "import sys, rl_training.experiment.config, rl_training.experiment.overrides, rl_training.experiment.yaml_loader as y;"
        "y.load_config_file('ppo/cartpole').options;"
        "print(sorted({'torch', 'numpy', 'gymnasium'} & set(sys.modules)))"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True, cwd="/")
    assert done.stdout.strip() == "[]"


# presets


@pytest.mark.parametrize("name", list_presets())
def test_every_preset_loads_and_says_what_it_is_for(name):
    config = load_config_file(name)
    assert config.algo == name.split("/")[0]
    assert find_preset(name).read_text(encoding="utf-8").startswith("# ")


def test_the_six_presets_of_the_spine_are_there():
    spine = {"ppo/cartpole", "ppo/pendulum", "ppo/halfcheetah", "sac/pendulum", "sac/halfcheetah", "sac/hopper"}
    assert spine <= set(list_presets())


def test_configs_at_the_root_are_the_packaged_ones():
    assert (ROOT / "configs").resolve() == (resources.ASSETS / "configs").resolve()


@pytest.mark.parametrize("spelling", ["configs/ppo/cartpole.yaml", "ppo/cartpole.yaml", "ppo/cartpole", "./ppo/cartpole"])
def test_a_preset_is_found_from_any_working_directory(spelling, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = find_packaged_asset(spelling)
    assert found == resources.ASSETS / "configs" / "ppo" / "cartpole.yaml"
    assert load_config_file(spelling).env_id == "CartPole-v1"


@pytest.mark.parametrize(
    "path", ["", ".", "..", "../resources.py", "configs/../../errors.py", "/etc/hosts", "ppo", "a\0b", "x" * 9999]
)
def test_nothing_but_packaged_files_is_ever_found(path):
    assert find_packaged_asset(path) is None
    absolute = resources.ASSETS / "configs" / "ppo" / "cartpole.yaml"
    assert find_packaged_asset(absolute.resolve()) is None


def test_a_symlink_out_of_the_assets_is_not_followed(tmp_path, monkeypatch):
    assets = tmp_path / "assets"
    (assets / "configs" / "ppo").mkdir(parents=True)
    (tmp_path / "secret.yaml").write_text("a: 1")
    (assets / "configs" / "ppo" / "out.yaml").symlink_to(tmp_path / "secret.yaml")
    (assets / "configs" / "ppo" / "in.yaml").write_text("a: 1")
    monkeypatch.setattr(resources, "ASSETS", assets)
    assert find_packaged_asset("ppo/out") is None
    assert find_packaged_asset("ppo/in") is not None


def test_a_misspelt_preset_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match="there is no preset 'cartpole'; did you mean 'ppo/cartpole'"):
        find_preset("cartpole")
