"""Typed settings: strict about what they take, complete and helpful about what they refuse."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rl_training.options as options_package
from rl_training.errors import ConfigError
from rl_training.options import algorithm_names, class_constants, load_options_class, summaries
from rl_training.options.base import CommonOptions, EarlyStopping
from rl_training.options.ppo import PPOConfig
from rl_training.options.sac import SACConfig

ALGORITHMS = algorithm_names()
GROUPS = [EarlyStopping, *(load_options_class(name) for name in ALGORITHMS)]


def refusal(**kwargs: object) -> str:
    with pytest.raises(ConfigError) as caught:
        PPOConfig(**kwargs)
    return str(caught.value)


def test_an_unknown_option_is_refused_with_the_algorithm_and_the_nearest_name():
    assert "ppo has no option 'learning_rte'; did you mean 'learning_rate'?" in refusal(learning_rte=1)


def test_an_unknown_option_that_resembles_nothing_is_answered_with_all_there_are():
    message = refusal(zzzzzz=1)
    assert all(name in message for name in PPOConfig.model_fields)


def test_all_problems_are_listed_at_once_each_on_its_line_under_its_path():
    wrong = {"learning_rte": 1, "num_steps": 2.5, "early_stopping": {"patience": 0, "mod": "max"}, "activation": "thanh"}
    with pytest.raises(ConfigError) as caught:
        PPOConfig.from_kwargs(wrong)
    lines = sorted(str(caught.value).splitlines())
    assert lines == [
        "algo_kwargs.activation: given 'thanh' (str); possible: 'tanh' or 'relu'; did you mean 'tanh'?",
        "algo_kwargs.early_stopping.mod: early_stopping has no option 'mod'; did you mean 'mode'?",
        "algo_kwargs.early_stopping.patience: given 0 (int); possible: integer or none, at least 1",
        "algo_kwargs.learning_rte: ppo has no option 'learning_rte'; did you mean 'learning_rate'?",
        "algo_kwargs.num_steps: given 2.5 (float); possible: integer, at least 1",
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_steps": True},
        {"num_steps": "3"},
        {"num_steps": 2.5},
        {"num_steps": 0},
        {"num_steps": None},
        {"num_steps": float("inf")},
        {"num_steps": 1e300},
        {"learning_rate": True},
        {"learning_rate": "3e-4"},
        {"learning_rate": float("nan")},
        {"learning_rate": float("inf")},
        {"learning_rate": 0},
        {"learning_rate": 10**400},
        {"ent_coef": 10**5000},
        {"gamma": 1.0001},
        {"hidden_sizes": 64},
        {"hidden_sizes": "64"},
        {"hidden_sizes": [64, 0]},
        {"hidden_sizes": [64, True]},
        {"hidden_sizes": {64, 32}},
        {"normalize_rewards": 1},
        {"normalize_rewards": "true"},
        {"normalize_advantages": None},
        {"early_stopping": 3},
        {"early_stopping": [3]},
    ],
    ids=lambda wrong: "-".join(f"{key}-{type(value).__name__}" for key, value in wrong.items()),
)
def test_what_is_not_meant_is_refused_naming_the_key(wrong):
    (key,) = wrong
    assert refusal(**wrong).startswith(f"{key}: given ")


def test_what_is_clearly_meant_is_taken():
    given_values = {
        "num_steps": 1e2,
        "ent_coef": 1,
        "hidden_sizes": [32.0, 16],
        "max_updates": np.int64(7),
        "gamma": np.float32(0.5),
    }
    options = PPOConfig(**given_values)
    assert (options.num_steps, options.ent_coef, options.hidden_sizes, options.max_updates, options.gamma) == (
        100,
        1.0,
        (32, 16),
        7,
        0.5,
    )
    assert [type(value) for value in (options.num_steps, options.ent_coef, options.max_updates)] == [int, float, int]


@given(number=st.one_of(st.integers(-(2**60), 2**60), st.floats()))
@settings(max_examples=200, deadline=None)
def test_an_integer_option_takes_a_number_exactly_when_it_is_whole_and_in_range(number):
    whole = number == number and abs(number) != float("inf") and number == int(number)  # noqa: PLR0124 (not NaN)
    if whole and 1 <= number <= 10**15:
        assert PPOConfig(num_steps=number).num_steps == number
    else:
        with pytest.raises(ConfigError, match="num_steps"):
            PPOConfig(num_steps=number)


@given(
    kwargs=st.dictionaries(st.sampled_from([*PPOConfig.model_fields, "nonsense"]), st.from_type(object) | st.none(), max_size=4)
)
@settings(max_examples=100, deadline=None)
def test_whatever_is_passed_the_outcome_is_options_or_a_config_error(kwargs):
    try:
        assert isinstance(PPOConfig.from_kwargs(kwargs), PPOConfig)
    except ConfigError as error:
        assert str(error).startswith("algo_kwargs")  # noqa: PT017 (either outcome is fine)


@pytest.mark.parametrize("kwargs", [None, 3, [("seed", 1)], {1: 2}])
def test_options_come_from_a_mapping_with_names_only(kwargs):
    with pytest.raises(ConfigError, match="algo_kwargs: "):
        PPOConfig.from_kwargs(kwargs)


def test_options_are_frozen_and_replace_checks_again():
    options = PPOConfig(learning_rate=1e-3)
    with pytest.raises(ConfigError, match=r"frozen; use replace\(gamma=0.5\)"):
        options.gamma = 0.5
    assert options.replace(gamma=0.5) == PPOConfig(learning_rate=1e-3, gamma=0.5)
    with pytest.raises(ConfigError, match="gamma: given 5"):
        options.replace(gamma=5)


def test_early_stopping_without_patience_and_target_would_never_stop():
    with pytest.raises(ConfigError, match=r"algo_kwargs\.early_stopping\.patience, algo_kwargs\.early_stopping\.target_value"):
        PPOConfig.from_kwargs({"early_stopping": {"metric": "eval_return_mean"}})
    assert EarlyStopping(target_value=475).target_value == 475.0


@pytest.mark.parametrize(
    ("kwargs", "keys"),
    [
        ({"batch_size": 101, "buffer_capacity": 100, "learning_starts": 0}, "batch_size, buffer_capacity: "),
        ({"critic_subset_size": 3}, "critic_subset_size, num_critics: "),
        ({"alpha_schedule": "linear"}, "alpha, alpha_schedule: "),
    ],
)
def test_settings_that_contradict_each_other_are_refused_with_both_names(kwargs, keys):
    with pytest.raises(ConfigError) as caught:
        SACConfig(**kwargs)
    assert str(caught.value).startswith(keys)


def test_settings_at_the_edge_of_a_contradiction_are_taken():
    SACConfig(
        learning_starts=100, batch_size=100, buffer_capacity=100, critic_subset_size=2, alpha=0.1, alpha_schedule="linear"
    )


def test_alpha_is_a_number_that_is_not_negative_or_auto():
    assert [SACConfig(alpha=value).alpha for value in (0, 0.2, "auto")] == [0.0, 0.2, "auto"]
    for wrong in (-0.1, "automatic", None, True, float("nan")):
        with pytest.raises(ConfigError, match=r"alpha: given .*possible: number or 'auto', at least 0"):
            SACConfig(alpha=wrong)


@pytest.mark.parametrize("options_class", GROUPS, ids=lambda cls: cls.__name__)
def test_every_option_has_a_sentence_and_its_default_passes_its_own_check(options_class):
    for row in options_class.describe():
        assert row.description.endswith("."), row.name
        assert row.type, row.name
    defaults = {row.name: row.default for row in options_class.describe()}
    if options_class is not EarlyStopping:  # which has no useful default
        assert options_class(**defaults) == options_class()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_states_its_facts(name):
    options_class = load_options_class(name)
    assert options_class.algo == name
    assert options_class.summary
    assert "\n" not in options_class.summary
    assert "arXiv" in options_class.paper
    assert options_class.discrete or options_class.continuous
    assert options_class.default_num_threads >= 1
    for option_name in options_class.schedulable:
        assert {option_name, f"{option_name}_schedule"} <= options_class.model_fields.keys()


def test_the_table_of_options_says_type_default_and_range_in_words():
    rows = {row.name: row for row in SACConfig.describe()}
    assert (rows["alpha"].type, rows["alpha"].default, rows["alpha"].range) == ("number or 'auto'", "auto", "at least 0")
    assert (rows["tau"].type, rows["tau"].range) == ("number", "more than 0 and at most 1")
    assert (rows["gamma"].type, rows["gamma"].range) == ("number", "from 0 to 1")
    assert (rows["hidden_sizes"].type, rows["hidden_sizes"].range) == ("list of integers", "each from 1 to 16384")


def test_an_algorithms_own_options_come_before_the_shared_ones():
    names = [row.name for row in PPOConfig.describe()]
    assert names.index("clip_coef") < names.index("gae_lambda") < names.index("eval_interval")


def test_options_survive_dict_pickle_and_deepcopy():
    options = SACConfig(
        alpha=0.1, alpha_schedule={"type": "cosine", "end": 0.01}, early_stopping={"patience": 2}, hidden_sizes=[8]
    )
    assert SACConfig.from_kwargs(options.to_dict()) == options
    assert pickle.loads(pickle.dumps(options)) == options
    assert copy.deepcopy(options) == options


def test_the_error_survives_pickling_so_that_a_worker_can_report_it():
    with pytest.raises(ConfigError) as caught:
        PPOConfig(gama=1)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_an_unknown_algorithm_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match="there is no algorithm 'pppo'; did you mean 'ppo'"):
        load_options_class("pppo")
    for hostile in ("base", "__init__", "../errors", "os", "", None):
        with pytest.raises(ConfigError, match="there is no algorithm"):
            load_options_class(hostile)


def test_summaries_read_from_the_files_are_those_of_the_classes():
    assert {"ppo", "sac"} <= set(ALGORITHMS)
    assert summaries() == {name: load_options_class(name).summary for name in ALGORITHMS}
    assert class_constants("sac")["discrete"] is SACConfig.discrete


def test_every_class_of_options_stands_in_the_file_of_its_name():
    folder = Path(options_package.__file__).parent
    for name in ALGORITHMS:
        assert issubclass(load_options_class(name), CommonOptions)
        assert (folder / f"{name}.py").is_file()


def test_listing_algorithms_imports_neither_pydantic_nor_yaml():
    code = (
        "import sys, rl_training.options as o; o.summaries(); print(sorted({'pydantic', 'yaml', 'torch'} & set(sys.modules)))"
    )
    source = Path(options_package.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": str(source)}, check=True
    )
    assert done.stdout.strip() == "[]"
