"""The turn of an evolution strategy: what its episodes are, and that nothing but the seed decides them."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
import toy_envs
from small_runs import small_config, state_difference, train

from rl_training.algorithms.ars import ARS
from rl_training.algorithms.openai_es import OpenAIES
from rl_training.envs.batched import BatchedEnvs
from rl_training.envs.population import PopulationEnvs
from rl_training.envs.source import EnvSource
from rl_training.envs.vector import SyncEnvs, make_envs
from rl_training.errors import ConfigError, EnvError
from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.models.mlp_ars import MLPARSModel
from rl_training.models.normalizer import ObservationNormalizer
from rl_training.options.ars import ARSConfig
from rl_training.options.openai_es import OpenAIESConfig
from rl_training.runtime.evolution import EvolutionLoop
from rl_training.runtime.generation import Fitness, Generation


def loop_of(*, returns, lengths=None, options=None, algorithm=None, survival_bonus=0.0, seed=0, on_nan=None):
    """A loop whose generations have the returns [D, 2] that are given, whatever the policy."""
    model = MLPARSModel(2, 1)
    asked = []
    values = np.array(returns, dtype=float)[..., None]

    def evaluate(generation, directions):
        asked.append(generation)
        long = np.full(values.shape, 10) if lengths is None else np.array(lengths)[..., None]
        sums = np.stack([np.stack([[10.0, 40.0], [50.0, 170.0]])] * len(values))
        return Fitness(np.asarray(directions), values, long, sums)

    options = options or OpenAIESConfig(num_directions=len(values))
    learner = algorithm or OpenAIES(model, step_size=0.1, noise_std=0.1)
    return EvolutionLoop(learner, evaluate, options, seed=seed, survival_bonus=survival_bonus, on_nan=on_nan), asked


def test_a_turn_counts_the_steps_that_were_made_and_the_episodes_that_ended():
    loop, _ = loop_of(returns=[[1.0, 2.0], [3.0, 4.0]], lengths=[[5, 6], [7, 8]])
    collected = loop.collect()
    assert collected.timesteps == 26
    assert (collected.episode_returns, collected.episode_lengths) == ([1.0, 2.0, 3.0, 4.0], [5, 6, 7, 8])


def test_with_on_nan_stop_a_return_that_is_no_number_ends_the_run():
    loop, _ = loop_of(returns=[[1.0, 2.0], [3.0, np.nan]], on_nan="stop")
    with pytest.raises(EnvError, match="generation 0, direction 1: an observation or a reward"):
        loop.collect()


@pytest.mark.parametrize("on_nan", [None, "skip"])
def test_a_pair_with_a_return_that_is_no_number_is_dropped_with_a_warning_and_counted(on_nan, caplog):
    def moved(returns):
        loop, _ = loop_of(returns=returns, on_nan=on_nan)
        loop.collect()
        loop.learn(global_step=0, max_updates=None)
        return loop

    with caplog.at_level(logging.WARNING):
        loop = moved([[1.0, 2.0], [3.0, np.nan], [7.0, 4.0]])
    assert "dropped direction 1" in caplog.text
    assert loop.metrics()["dropped_directions"] == 1
    # what is left decides: the same step as a generation of the other two
    generation = Generation(0, 0, np.zeros(2, dtype=np.float32), 0.1)
    learner = OpenAIES(MLPARSModel(2, 1), step_size=0.1, noise_std=0.1)
    returns = torch.tensor([[1.0, 2.0], [7.0, 4.0]], dtype=torch.float64)
    learner.update(
        {
            "perturbations": torch.from_numpy(generation.perturbations([0, 2])),
            "positive_returns": returns[:, 0],
            "negative_returns": returns[:, 1],
        }
    )
    assert torch.equal(loop.algorithm.model.flat_parameters(), learner.model.flat_parameters())


def test_a_generation_without_any_number_is_an_error():
    loop, _ = loop_of(returns=[[np.nan, 2.0], [3.0, np.nan]])
    with pytest.raises(EnvError, match="every direction"):
        loop.collect()


def test_the_survival_bonus_is_taken_off_in_learning_and_left_in_the_reports():
    returns, lengths = [[10.0, 8.0], [6.0, 7.0]], [[10, 4], [6, 6]]
    options = ARSConfig(num_directions=2)
    loop, _ = loop_of(
        returns=returns,
        lengths=lengths,
        options=options,
        algorithm=ARS(MLPARSModel(2, 1), step_size=0.1, noise_std=0.1),
        survival_bonus=1.0,
    )
    assert loop.collect().episode_returns == [10.0, 8.0, 6.0, 7.0]
    metrics = loop.learn(global_step=0, max_updates=None).metrics
    assert float(metrics["positive_return_mean"]) == 0.0  # 10 - 10 and 6 - 6
    assert float(metrics["negative_return_mean"]) == 2.5  # 8 - 4 and 7 - 6
    assert float(metrics["population_return_max"]) == 10.0


def test_the_cap_is_a_multiple_of_the_last_generations_mean_length():
    loop, asked = loop_of(returns=[[1.0, 2.0]], lengths=[[5, 8]], options=OpenAIESConfig(num_directions=1, episode_cap=2.0))
    for _ in range(2):
        loop.collect()
        loop.learn(global_step=0, max_updates=None)
    assert [generation.max_steps for generation in asked] == [None, 13]


def test_the_filter_moves_between_generations_only():
    normalizer = ObservationNormalizer(2, clip=5.0, eps=0.0, var_floor=1e-2)
    learner = OpenAIES(MLPARSModel(2, 1), step_size=0.1, noise_std=0.1, observation_normalizer=normalizer)
    loop, asked = loop_of(returns=[[1.0, 2.0]], lengths=[[5, 5]], algorithm=learner)
    loop.collect()
    assert normalizer.moments.count == 0
    loop.learn(global_step=0, max_updates=None)
    # sums of ten observations: 10 and 40, of their squares 50 and 170
    assert normalizer.moments.count == 10
    torch.testing.assert_close(normalizer.moments.mean, torch.tensor([1.0, 4.0]).double())
    torch.testing.assert_close(normalizer.moments.var, torch.tensor([4.0, 1.0]).double())
    loop.collect()
    assert asked[0].filter is None
    assert asked[1].filter.shift.tolist() == [1.0, 4.0]
    assert asked[1].filter.scale.tolist() == [0.5, 1.0]


def test_what_a_filtered_generation_saw_is_counted_from_the_filters_shift():
    normalizer = ObservationNormalizer(2)
    learner = OpenAIES(MLPARSModel(2, 1), step_size=0.1, noise_std=0.1, observation_normalizer=normalizer)
    loop, _ = loop_of(returns=[[1.0, 2.0]], lengths=[[5, 5]], algorithm=learner)
    for _ in range(2):
        loop.collect()
        loop.learn(global_step=0, max_updates=None)
    # the same sums again, now of distances from 1 and 4: ten observations with means 2 and 8, variances 4 and 1 as before
    torch.testing.assert_close(normalizer.moments.mean, torch.tensor([1.5, 6.0]).double())
    torch.testing.assert_close(normalizer.moments.var, torch.tensor([4 + 0.25, 1 + 4.0]).double())
    assert normalizer.moments.count == 20


def test_a_loop_goes_on_from_its_state_with_the_same_generation_and_the_same_cap():
    def fresh():
        return loop_of(returns=[[1.0, 2.0]], lengths=[[5, 8]], options=OpenAIESConfig(num_directions=1, episode_cap=2.0))[0]

    loop, resumed = fresh(), fresh()
    for _ in range(3):
        loop.collect()
        loop.learn(global_step=0, max_updates=None)
    resumed.load_state_dict(loop.state_dict())
    resumed.algorithm.load_state_dict(loop.algorithm.state_dict())
    assert resumed.generation().number == 3
    assert resumed.generation().max_steps == 13
    assert resumed.generation().digest() == loop.generation().digest()


def test_no_environment_is_made_again_for_a_generation(tmp_path):
    made = []

    def factory():
        made.append(1)
        return toy_envs.Counting(continuous=True)

    config = small_config("openai_es", tmp_path, env_kwargs={}, total_timesteps=400, eval_episodes=0)
    train(config, env=factory)
    after_a_long_run = len(made)
    made.clear()
    train(config.replace(total_timesteps=40), env=factory)
    assert len(made) == after_a_long_run


def test_one_environment_object_is_enough_to_train_and_evaluate(tmp_path):
    result = train(
        small_config("openai_es", tmp_path, env_kwargs={}, total_timesteps=200), env=toy_envs.Counting(continuous=True)
    )
    assert result.metrics["eval_return_mean"] == 15.0


@pytest.mark.parametrize("name", ["openai_es", "ars"])
def test_batched_stock_and_worker_environments_train_the_same_policy(name, tmp_path):
    runs = {
        "auto": small_config(name, tmp_path / "auto"),
        "stock": small_config(name, tmp_path / "stock", algo_kwargs={"batched_envs": False, "population_envs": 3}),
        "batched": small_config(name, tmp_path / "batched", execution_backend="batched"),
    }
    results = {key: train(config) for key, config in runs.items()}
    for key in ("stock", "batched"):
        assert state_difference(results["auto"].checkpoint_path, results[key].checkpoint_path) is None


@pytest.mark.parametrize("name", ["ppo", "sac"])
def test_other_algorithms_train_the_same_policy_in_batched_environments(name, tmp_path):
    stock, batched = (train(small_config(name, tmp_path / b, execution_backend=b)) for b in ("local_sync", "batched"))
    assert state_difference(stock.checkpoint_path, batched.checkpoint_path) is None


def test_an_environment_that_has_no_batch_is_refused_before_any_file_is_made(tmp_path):
    config = small_config("openai_es", tmp_path, env_id="InvertedPendulum-v5", execution_backend="batched")
    with pytest.raises(ConfigError, match="InvertedPendulum-v5 has none"):
        train(config)
    assert list(tmp_path.iterdir()) == []


def test_batched_environments_are_taken_where_there_are_some_unless_told_otherwise():
    source = EnvSource("Pendulum-v1")
    settings = {"num_episodes": 200, "num_envs": None}
    auto = PopulationEnvs(source, source.spec(), **settings, backend="local_sync", batched=True).envs
    assert isinstance(auto, BatchedEnvs)
    assert auto.num_envs == 200
    stock = PopulationEnvs(source, source.spec(), **settings, backend="local_sync", batched=False).envs
    assert isinstance(stock, SyncEnvs)
    assert stock.num_envs == 64
    assert isinstance(make_envs(source, source.spec(), num_envs=2, backend="batched"), BatchedEnvs)


def test_the_policy_that_is_saved_brings_its_filter(tmp_path):
    result = train(small_config("openai_es", tmp_path))
    saved = load_checkpoint(result.checkpoint_path).algorithm_state["observation_normalizer"]
    assert saved["count"] == result.metrics["global_step"]


@pytest.mark.learning
@pytest.mark.parametrize(("name", "enough"), [("openai_es", 475.0), ("ars", 475.0)])
def test_it_balances_the_pole(name, enough, tmp_path):
    config = small_config(name, tmp_path, env_id="CartPole-v1", env_kwargs={}, total_timesteps=150_000, eval_episodes=20)
    options = {"num_directions": 16, "eval_interval": 10**9, "noise_std": 0.1, "step_size": 0.05}
    result = train(config.replace(algo_kwargs=options, log_interval=50_000))
    assert result.metrics["eval_return_mean"] >= enough
