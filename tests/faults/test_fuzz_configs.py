"""Whatever stands in a configuration: a run starts, or a ConfigError names the key."""

from __future__ import annotations

import json
import logging
import warnings
from typing import Any

import pytest
from fuzzing import CORPUS, configs, fuzz
from hypothesis import given

from rl_training.errors import ConfigError, RLTrainingError
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.registry import get_algorithm_spec
from rl_training.experiment.yaml_loader import parse_yaml
from rl_training.options import load_options_class
from rl_training.options.base import OptionsError, Problem

log = logging.getLogger(__name__)
FOUND = json.loads((CORPUS / "configs.json").read_text())
LARGEST = 12  # of the counts of a run that is really begun


def names_a_key(problem: Problem) -> bool:
    # a key that is empty or no text can only be shown in the sentence
    return any(problem.keys) or "option ''" in problem.text or "is no name" in problem.text


def checked(values: Any) -> TrainConfig | None:
    """The configuration, which then survives the way to a file and back; None when it was refused as it should be."""
    try:
        config = TrainConfig.from_dict(values)
    except OptionsError as error:
        unnamed = [problem for problem in error.problems if not names_a_key(problem)]
        return None if error.problems and not unnamed else pytest.fail(f"no key is named: {unnamed or error}")
    assert TrainConfig.from_dict(config.to_dict()) == config
    assert TrainConfig.from_dict(parse_yaml(config.resolved().to_yaml(), source="x")) == config.resolved()
    return config


@pytest.mark.parametrize("case", FOUND, ids=[case["why"] for case in FOUND])
def test_what_was_found_stays_mended(case):
    config = checked(case["values"])
    assert (config is None) == case["refused"]
    if case["refused"]:
        with pytest.raises(ConfigError, match=case["names"]):
            TrainConfig.from_dict(case["values"])


@fuzz()
@given(configs())
def test_any_configuration_is_taken_or_its_key_is_named(values):
    checked(values)


def small(config: TrainConfig) -> dict[str, Any]:
    """The same run with its counts cut down, so that it can be begun in a moment."""
    values = config.resolved().to_dict()
    options = load_options_class(config.algo)
    for group, fields in ((values, TrainConfig.model_fields), (values["algo_kwargs"], options.model_fields)):
        for name, value in group.items():
            if isinstance(value, bool) or name == "seed" or name not in fields:
                continue
            if isinstance(value, int) and value > LARGEST:
                group[name] = LARGEST
            elif isinstance(value, list) and all(isinstance(item, int) for item in value):
                group[name] = [min(item, 8) for item in value[:2]]
    cheap = {"total_timesteps": 20, "num_envs": 1, "num_threads": 1, "device": "cpu", "env_kwargs": {"max_episode_steps": 8}}
    if "dataset_kind" in options.model_fields:
        values["algo_kwargs"] |= {"dataset_kind": "random", "dataset_size": 20, "dataset_path": None, "dataset_id": None}
    return {**values, **cheap, "eval_episodes": min(values["eval_episodes"], 1), "env_id": env_of(options)}


def env_of(options: Any) -> str:
    return "CartPole-v1" if options.discrete else "Pendulum-v1"


@fuzz(share=0.06)
@given(values=configs())
def test_what_is_taken_begins_a_run_or_says_why_not(values, tmp_path_factory):
    config = checked(values)
    if config is None:
        return
    logging.disable(logging.WARNING)
    try:
        config = TrainConfig.from_dict({**small(config), "output_dir": tmp_path_factory.mktemp("run")})
        if config.execution_backend == "local_async":  # starting processes takes long, and is tried elsewhere
            config = config.replace(execution_backend="local_sync", env_timeout=None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of numbers that overflow, where a learning rate of a million is asked for
            result = get_algorithm_spec(config.algo).train_fn(config)
        assert result.checkpoint_path.exists()
    except RLTrainingError as error:
        log.debug("refused in words, as it should be: %s", error)
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    ("algo", "options"),
    [
        ("ppo", {"num_steps": 10**12}),
        ("sac", {"buffer_capacity": 10**15}),
        ("cql", {"dataset_kind": "random", "dataset_size": 10**13}),
    ],
)
def test_settings_that_no_memory_holds_are_named(algo, options, tmp_path):
    config = TrainConfig(
        algo=algo, env_id="Pendulum-v1", seed=1, total_timesteps=20, output_dir=tmp_path, eval_episodes=0, algo_kwargs=options
    )
    with pytest.raises(ConfigError, match=rf"no memory(.|\n)*largest are algo_kwargs\.{[*options][-1]} "):
        get_algorithm_spec(algo).train_fn(config)
