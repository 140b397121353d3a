"""The turn of an evolution strategy: what its episodes are, and that nothing but the seed decides them."""

from __future__ import annotations

import logging

import gymnasium as gym
import numpy as np
import pytest
import toy_envs
import torch
from small_runs import small_config, state_difference, train

from rl_training.algorithms.ars import ARS
from rl_training.algorithms.openai_es import OpenAIES
from rl_training.envs.batched import BatchedEnvs, find_batched
from rl_training.envs.population import PopulationEnvs
from rl_training.envs.source import EnvSource
from rl_training.envs.vector import SyncEnvs, make_envs
from rl_training.errors import ConfigError, EnvError
from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.models.mlp_ars import MLPARSModel
from rl_training.models.normalizer import ObservationNormalizer
from rl_training.options.ars import ARSConfig
from rl_training.options.openai_es import OpenAIESConfig
from rl_training.runtime import population
from rl_training.runtime.evolution import EvolutionLoop
from rl_training.runtime.population import Fitness, Generation, PopulationEvaluator


class Watched:
    """Environments that note which seeds they were given and how often each was stepped."""

    def __init__(self, envs):
        self.envs, self.seeds, self.steps = envs, [], np.zeros(envs.num_envs, dtype=int)

    @property
    def num_envs(self):
        return self.envs.num_envs

    def reset(self, indices, seeds):
        self.seeds += seeds
        return self.envs.reset(indices, seeds)

    def step(self, actions):
        self.steps += 1
        return self.envs.step(actions)

    def step_some(self, indices, actions):
        self.steps[np.asarray(indices)] += 1
        return self.envs.step_some(indices, actions)


def opened(env_id="CartPole-v1", env_kwargs=None, *, num_envs, hidden_sizes=(16,), batched=True, env=None):
    source = EnvSource(env_id if env is None else None, env_kwargs, env)
    spec = source.spec()
    envs = find_batched(source, spec, num_envs=num_envs) if batched else SyncEnvs.of(source, spec, num_envs=num_envs)
    torch.manual_seed(1)
    return MLPARSModel(spec.obs_dim, spec.action_dim, hidden_sizes, discrete=spec.discrete), envs, spec


def generation_of(model, **changes):
    settings = {"noise_std": 0.5, "episodes": 1, "wants_moments": True, **changes}
    return Generation(7, 3, model.flat_parameters().numpy(), **settings)


def assert_same(a: Fitness, b: Fitness) -> None:
    for name, x, y in zip(a._fields, a, b, strict=True):
        assert x.tobytes() == y.tobytes(), name


FILTER = {"shift": np.array([0.1, -0.2, 0.0, 0.3], dtype=np.float32), "scale": np.full(4, 2.0, dtype=np.float32), "clip": 5.0}


@pytest.mark.parametrize("episodes", [1, 3])
@pytest.mark.parametrize("changes", [{}, FILTER])
def test_the_population_at_once_is_every_policy_alone_in_gymnasium(episodes, changes):
    model, envs, spec = opened(num_envs=12 * episodes)
    generation = generation_of(model, episodes=episodes, **changes)
    fitness = PopulationEvaluator(model, envs, spec).run(generation, range(6))
    env = gym.make("CartPole-v1")
    for direction in range(6):
        for sign in (1, -1):
            model.set_flat_parameters(torch.from_numpy(generation.parameters + sign * np.float32(0.5) * generation.perturbation(direction)))
            for episode, seed in enumerate(generation.episode_seeds(direction)):
                obs, _ = env.reset(seed=seed)
                over, total = False, 0.0
                while not over:
                    if changes:
                        obs = np.clip((obs - changes["shift"]) * changes["scale"], -5, 5)
                    obs, reward, terminated, truncated, _ = env.step(int(model.actor(torch.from_numpy(obs))))
                    total, over = total + reward, terminated or truncated
                assert total == fitness.returns[direction, 0 if sign == 1 else 1, episode]
    env.close()


def test_continuous_returns_are_those_of_every_policy_alone_to_five_digits():
    # one by one the products are rounded in another order, so not every bit can be the same
    model, envs, spec = opened("Pendulum-v1", num_envs=8)
    generation = generation_of(model, max_steps=50)
    fitness = PopulationEvaluator(model, envs, spec).run(generation, range(4))
    env = gym.make("Pendulum-v1")
    for direction in range(4):
        model.set_flat_parameters(torch.from_numpy(generation.parameters - np.float32(0.5) * generation.perturbation(direction)))
        obs, _ = env.reset(seed=generation.episode_seeds(direction)[0])
        total = 0.0
        for _ in range(50):
            obs, reward, *_ = env.step(spec.to_env(model.actor(torch.from_numpy(obs)).numpy()))
            total += reward
        assert fitness.returns[direction, 1, 0] == pytest.approx(total, rel=1e-5)
    env.close()


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_neither_environments_nor_company_change_a_bit(env_id, monkeypatch):
    kwargs = {"max_episode_steps": 60}
    model, envs, spec = opened(env_id, kwargs, num_envs=32, hidden_sizes=(32, 32))
    generation = generation_of(model, episodes=2, action_noise=0.3)
    whole = PopulationEvaluator(model, envs, spec).run(generation, range(8))
    for num_envs, batched in ((32, False), (5, False), (1, False), (3, True), (100, True)):
        _, others, _ = opened(env_id, kwargs, num_envs=num_envs, batched=batched)
        assert_same(PopulationEvaluator(model, others, spec).run(generation, range(8)), whole)
    alone = PopulationEvaluator(model, envs, spec)
    assert_same(Fitness.join([alone.run(generation, part) for part in ([5], [0, 2, 7], [1, 3, 4, 6])]), whole)
    monkeypatch.setattr(population, "CACHE_BYTES", 3 * 2 * 4 * model.num_parameters)
    assert_same(alone.run(generation, range(8)), whole)


def test_both_signs_of_a_pair_meet_the_same_episodes():
    model, envs, spec = opened(num_envs=12)
    watched = Watched(envs)
    generation = generation_of(model, episodes=2)
    PopulationEvaluator(model, watched, spec).run(generation, range(3))
    seeds = np.array(watched.seeds).reshape(3, 2, 2)
    assert (seeds[:, 0] == seeds[:, 1]).all()
    assert len(np.unique(seeds)) == 6  # and no two directions or episodes the same


def test_no_two_generations_or_directions_share_their_noise_or_their_episodes():
    model, _, _ = opened(num_envs=1)
    one, next_one = (Generation(7, number, model.flat_parameters().numpy(), 0.1) for number in (0, 1))
    vectors = [generation.perturbation(direction) for generation in (one, next_one) for direction in (0, 1)]
    assert all(abs(np.corrcoef(a, b)[0, 1]) < 0.4 for i, a in enumerate(vectors) for b in vectors[:i])
    assert len({seed for generation in (one, next_one) for direction in (0, 1) for seed in generation.episode_seeds(direction)}) == 4
    assert np.array_equal(one.perturbations([1, 0])[0], one.perturbation(1))


def test_an_episode_that_is_over_is_not_stepped():
    model, envs, spec = opened(num_envs=16)
    watched = Watched(envs)
    fitness = PopulationEvaluator(model, watched, spec).run(generation_of(model), range(8))
    assert watched.steps.tolist() == fitness.lengths.ravel().tolist()
    assert len(set(watched.steps.tolist())) > 3


def test_a_cap_cuts_episodes_and_the_environments_own_limit_stays():
    model, envs, spec = opened("Pendulum-v1", {"max_episode_steps": 9}, num_envs=4)
    evaluator = PopulationEvaluator(model, envs, spec)
    assert (evaluator.run(generation_of(model, max_steps=4), range(2)).lengths == 4).all()
    assert (evaluator.run(generation_of(model, max_steps=400), range(2)).lengths == 9).all()


def test_action_noise_moves_continuous_actions_and_leaves_discrete_ones():
    for env_id, differs in (("Pendulum-v1", True), ("CartPole-v1", False)):
        model, envs, spec = opened(env_id, num_envs=8)
        evaluator = PopulationEvaluator(model, envs, spec)
        quiet, loud = (evaluator.run(generation_of(model, action_noise=std), range(4)) for std in (0.0, 0.2))
        assert (not np.array_equal(quiet.returns, loud.returns)) is differs


def test_action_noise_has_the_standard_deviation_that_was_asked_for():
    model, envs, spec = opened("Pendulum-v1", num_envs=8)
    noise = population._ActionNoise(generation_of(model, action_noise=0.2), range(4), spec)
    rows = np.arange(8)
    drawn = np.stack([noise.added(np.zeros((8, 1), dtype=np.float32), rows, np.full(8, age)) for age in range(1000)])
    assert drawn.std() == pytest.approx(0.2, rel=0.05)
    assert np.array_equal(drawn[:, 0::2], drawn[:, 1::2])  # both signs of a pair


def test_the_moments_are_those_of_what_the_policies_saw():
    seen = []

    class Recording(MLPARSModel):
        pass

    model, envs, spec = opened(num_envs=4)
    fitness = PopulationEvaluator(model, envs, spec).run(generation_of(model), range(2))
    env = gym.make("CartPole-v1")
    generation = generation_of(model)
    for direction in range(2):
        for sign in (1, -1):
            model.set_flat_parameters(torch.from_numpy(generation.parameters + sign * np.float32(0.5) * generation.perturbation(direction)))
            obs, over = env.reset(seed=generation.episode_seeds(direction)[0])[0], False
            while not over:
                seen.append(obs)
                obs, _, terminated, truncated, _ = env.step(int(model.actor(torch.from_numpy(obs))))
                over = terminated or truncated
    assert len(seen) == fitness.lengths.sum()
    np.testing.assert_allclose(fitness.sums.sum(axis=0), [np.sum(seen, axis=0), np.square(seen).sum(axis=0)], rtol=1e-5)
    env.close()


def loop_of(*, returns, lengths=None, options=None, algorithm=None, survival_bonus=0.0, seed=0):
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
    return EvolutionLoop(learner, evaluate, options, seed=seed, survival_bonus=survival_bonus), asked


def test_a_turn_counts_the_steps_that_were_made_and_the_episodes_that_ended():
    loop, _ = loop_of(returns=[[1.0, 2.0], [3.0, 4.0]], lengths=[[5, 6], [7, 8]])
    collected = loop.collect()
    assert collected.timesteps == 26
    assert (collected.episode_returns, collected.episode_lengths) == ([1.0, 2.0, 3.0, 4.0], [5, 6, 7, 8])


def test_a_pair_with_a_return_that_is_no_number_is_dropped_with_a_warning_and_counted(caplog):
    def moved(returns):
        loop, _ = loop_of(returns=returns)
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
    returns = torch.tensor([[1.0, 2.0], [7.0, 4.0]])
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


def test_an_environment_that_gives_nan_costs_its_pair_only():
    def broken_at(fault):
        model, envs, spec = opened(
            num_envs=4, batched=False, hidden_sizes=(), env=lambda: toy_envs.Broken(fault=fault, at=3, episode=0, continuous=True)
        )
        return PopulationEvaluator(model, envs, spec).run(generation_of(model), range(4))

    for fault, length in (("nan_reward", 5), ("nan_obs", 3), ("inf_obs", 3)):
        fitness = broken_at(fault)
        # every environment breaks in its first episode: the two pairs that share four environments first
        assert np.isnan(fitness.returns[:2]).all()
        assert fitness.returns[2:].ravel().tolist() == [15.0] * 4
        assert (fitness.lengths[:2] == length).all()


def test_an_environment_that_raises_is_named_with_generation_and_direction():
    model, envs, spec = opened(num_envs=2, batched=False, hidden_sizes=(), env=lambda: toy_envs.Broken(fault="raise", at=3, episode=1, continuous=True))
    with pytest.raises(EnvError, match="generation 3, direction 1: step raised"):
        PopulationEvaluator(model, envs, spec).run(generation_of(model), range(4))


def test_the_survival_bonus_is_taken_off_in_learning_and_left_in_the_reports():
    returns, lengths = [[10.0, 8.0], [6.0, 7.0]], [[10, 4], [6, 6]]
    options = ARSConfig(num_directions=2)
    loop, _ = loop_of(
        returns=returns, lengths=lengths, options=options, algorithm=ARS(MLPARSModel(2, 1), step_size=0.1, noise_std=0.1), survival_bonus=1.0
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
    assert asked[0].shift is None
    assert asked[1].shift.tolist() == [1.0, 4.0]
    assert asked[1].scale.tolist() == [0.5, 1.0]


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
    result = train(small_config("openai_es", tmp_path, env_kwargs={}, total_timesteps=200), env=toy_envs.Counting(continuous=True))
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
