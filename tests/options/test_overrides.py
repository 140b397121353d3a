"""`key=value` on the command line: short where nothing else is meant, checked like any other setting."""

from __future__ import annotations

import pytest

from rl_training.errors import ConfigError
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.overrides import apply_overrides, nest, resolve_key
from rl_training.experiment.yaml_loader import load_config_values
from rl_training.options.base import EarlyStopping

RUN = {"algo": "ppo", "env_id": "CartPole-v1", "seed": 1, "total_timesteps": 1_000, "output_dir": "runs"}


def test_short_full_and_dotted_keys_reach_their_place():
    pairs = [
        "learning_rate=1e-2",
        "algo_kwargs.gamma=.5",
        "hidden_sizes=[32, 32]",
        "early_stopping.patience=3",
        "clip_coef_schedule.end=0.1",
        "env_kwargs.max_episode_steps=25",
        "seed=4",
    ]
    config = TrainConfig.from_dict(apply_overrides(load_config_values("ppo/cartpole"), pairs))
    options = config.options
    assert (options.learning_rate, options.gamma, options.hidden_sizes) == (0.01, 0.5, (32, 32))
    assert options.early_stopping == EarlyStopping(patience=3)
    assert (options.clip_coef_schedule.type, options.clip_coef_schedule.end) == ("linear", 0.1)  # `linear` was opened
    assert (config.env_kwargs, config.seed) == ({"max_episode_steps": 25}, 4)


def test_overrides_leave_the_given_values_alone_and_the_later_one_counts():
    values = {**RUN, "algo_kwargs": {"gamma": 0.9}}
    assert apply_overrides(values, ["gamma=0.1", "gamma=0.2"])["algo_kwargs"] == {"gamma": 0.2}
    assert values["algo_kwargs"] == {"gamma": 0.9}


def test_the_algorithm_is_set_before_the_other_keys_are_understood():
    assert apply_overrides(RUN, ["tau=0.1", "algo=sac"])["algo_kwargs"] == {"tau": 0.1}


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        ("learning_rte=1", "ppo has no option 'learning_rte'; did you mean 'learning_rate'?"),
        ("algo_kwargs.learning_rte=1", "did you mean 'learning_rate'?"),
        ("algo_kwargs.seed=1", "did you mean 'seed'?"),
        ("early_stopping.patince=1", "did you mean 'early_stopping.patience'?"),
        ("num_steps.x=1", "did you mean 'num_steps'?"),
        ("num_env=1", "did you mean 'num_envs'?"),
        ("env_kwargs.=1", "has no option"),
        ("algo=pppo", "there is no algorithm 'pppo'; did you mean 'ppo'?"),
        ("seed", "write key=value"),
        ("=1", "write key=value"),
        ("seed=", "write seed=null"),
        ("hidden_sizes=[1", "hidden_sizes:1:3: "),
        ("env_kwargs={a: 1, a: 2}", "stands in line 1 already"),
    ],
)
def test_an_override_that_means_nothing_is_refused_with_the_pair_and_a_way_out(pair, reason):
    with pytest.raises(ConfigError) as caught:
        apply_overrides(RUN, ["seed=3", pair])
    assert str(caught.value).startswith(f"override {pair!r}: ")
    assert reason in str(caught.value)


def test_flat_keywords_are_sorted_into_a_config():
    nested = nest({"learning_rate": 1e-3, "seed": 3, "algo_kwargs": {"gamma": 0.5}}, "ppo")
    assert nested == {"algo": "ppo", "algo_kwargs": {"gamma": 0.5, "learning_rate": 1e-3}, "seed": 3}
    assert resolve_key("early_stopping.mode", "ppo") == ("algo_kwargs", "early_stopping", "mode")
