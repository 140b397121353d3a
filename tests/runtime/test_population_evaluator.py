"""Whole populations evaluated at once are every policy evaluated alone, whoever and wherever."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
import toy_envs

from rl_training.envs.batched import find_batched
from rl_training.envs.source import EnvSource
from rl_training.envs.vector import SyncEnvs
from rl_training.errors import EnvError
from rl_training.models.mlp_ars import MLPARSModel
from rl_training.runtime import observation_sums, population
from rl_training.runtime.generation import Filter, Fitness, Generation
from rl_training.runtime.population import PopulationEvaluator


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


FILTER = Filter(np.array([0.1, -0.2, 0.0, 0.3], dtype=np.float32), np.full(4, 2.0, dtype=np.float32), 5.0)


@pytest.mark.parametrize("episodes", [1, 3])
@pytest.mark.parametrize("changes", [{}, {"filter": FILTER}])
def test_the_population_at_once_is_every_policy_alone_in_gymnasium(episodes, changes):
    model, envs, spec = opened(num_envs=12 * episodes)
    generation = generation_of(model, episodes=episodes, **changes)
    fitness = PopulationEvaluator(model, envs, spec).run(generation, range(6))
    env = gym.make("CartPole-v1")
    for direction in range(6):
        for sign in (1, -1):
            model.set_flat_parameters(
                torch.from_numpy(generation.parameters + sign * np.float32(0.5) * generation.perturbation(direction))
            )
            for episode, seed in enumerate(generation.episode_seeds([direction])[0].tolist()):
                obs, _ = env.reset(seed=seed)
                over, total = False, 0.0
                while not over:
                    if changes:
                        obs = np.clip((obs - FILTER.shift) * FILTER.scale, -5, 5)
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
        model.set_flat_parameters(
            torch.from_numpy(generation.parameters - np.float32(0.5) * generation.perturbation(direction))
        )
        obs, _ = env.reset(seed=generation.episode_seeds([direction])[0, 0].item())
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
    assert len({seed for generation in (one, next_one) for seed in generation.episode_seeds([0, 1]).ravel().tolist()}) == 4
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
    model, _, spec = opened("Pendulum-v1", num_envs=8)
    noise = population._ActionNoise(generation_of(model, action_noise=0.2), range(4), spec)
    rows = np.arange(8)
    drawn = np.stack([noise.added(np.zeros((8, 1), dtype=np.float32), rows, np.full(8, age)) for age in range(1000)])
    assert drawn.std() == pytest.approx(0.2, rel=0.05)
    assert np.array_equal(drawn[:, 0::2], drawn[:, 1::2])  # both signs of a pair


def test_both_signs_of_a_pair_meet_the_same_noise_in_each_of_their_episodes_and_episodes_differ():
    model, _, spec = opened("Pendulum-v1", num_envs=8)
    noise = population._ActionNoise(generation_of(model, action_noise=0.2, episodes=3), range(2), spec)
    drawn = noise.added(np.zeros((12, 1), dtype=np.float32), np.arange(12), np.zeros(12, dtype=np.int64)).reshape(2, 2, 3)
    assert np.array_equal(drawn[:, 0], drawn[:, 1])  # directions, signs, episodes
    assert len(np.unique(drawn)) == 6


def test_the_moments_are_those_of_what_the_policies_saw():
    seen = []
    model, envs, spec = opened(num_envs=4)
    fitness = PopulationEvaluator(model, envs, spec).run(generation_of(model), range(2))
    env = gym.make("CartPole-v1")
    generation = generation_of(model)
    for direction in range(2):
        for sign in (1, -1):
            model.set_flat_parameters(
                torch.from_numpy(generation.parameters + sign * np.float32(0.5) * generation.perturbation(direction))
            )
            obs, over = env.reset(seed=generation.episode_seeds([direction])[0, 0].item())[0], False
            while not over:
                seen.append(obs)
                obs, _, terminated, truncated, _ = env.step(int(model.actor(torch.from_numpy(obs))))
                over = terminated or truncated
    assert len(seen) == fitness.lengths.sum()
    np.testing.assert_allclose(fitness.sums.sum(axis=0), [np.sum(seen, axis=0), np.square(seen).sum(axis=0)], rtol=1e-5)
    env.close()


def test_an_environment_that_gives_nan_costs_its_pair_only():
    def broken_at(fault):
        model, envs, spec = opened(
            num_envs=4,
            batched=False,
            hidden_sizes=(),
            env=lambda: toy_envs.Broken(fault=fault, at=3, episode=0, continuous=True),
        )
        return PopulationEvaluator(model, envs, spec).run(generation_of(model), range(4))

    for fault, length in (("nan_reward", 5), ("nan_obs", 3), ("inf_obs", 3)):
        fitness = broken_at(fault)
        # every environment breaks in its first episode: the two pairs that share four environments first
        assert np.isnan(fitness.returns[:2]).all()
        assert fitness.returns[2:].ravel().tolist() == [15.0] * 4
        assert (fitness.lengths[:2] == length).all()


def test_an_environment_that_raises_is_named_with_generation_and_direction():
    model, envs, spec = opened(
        num_envs=2, batched=False, hidden_sizes=(), env=lambda: toy_envs.Broken(fault="raise", at=3, episode=1, continuous=True)
    )
    with pytest.raises(EnvError, match="generation 3, direction 1: step raised"):
        PopulationEvaluator(model, envs, spec).run(generation_of(model), range(4))


@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (2, 1), (3, 2), (64, 3), (700, 17)])
@pytest.mark.parametrize("kept", [1, 7, 1000])
def test_sums_in_blocks_are_those_of_one_step_after_the_other(shape, kept, monkeypatch):
    monkeypatch.setattr(observation_sums, "KEPT_BYTES", kept * 4 * shape[0] * shape[1])
    steps = np.random.default_rng(0).normal(size=(150, *shape)).astype(np.float32)
    seen, expected = observation_sums.ObservationSums(shape[1]), np.zeros((2, *shape))
    seen.append(shape[0])
    for obs in steps:
        seen.next_step()[:] = obs
        expected[0] += obs
        expected[1] += obs * obs
    assert seen.pop(np.ones(shape[0], dtype=bool)).tobytes() == expected.tobytes()


@pytest.mark.parametrize("kept", [1, 7, 1000])
def test_a_raw_column_that_never_varies_has_no_variance(kept, monkeypatch):
    monkeypatch.setattr(observation_sums, "KEPT_BYTES", kept * 4 * 3)
    seen = observation_sums.ObservationSums(3, raw=True)
    seen.append(1)
    values = np.array([[0.7, 8.907, -1234.5]], dtype=np.float32)
    for _ in range(1000):
        seen.next_step()[:] = values
    total, squares = seen.pop(np.ones(1, dtype=bool))[:, 0] / 1000
    assert (np.abs(squares - total * total) < (1e-6 * total) ** 2).all()


def test_a_perturbation_is_drawn_once_and_is_the_same_when_drawn_again():
    one, other = (Generation(7, number, np.zeros(5, dtype=np.float32), 0.1) for number in (0, 1))
    first = one.perturbation(2)
    assert one.perturbation(2) is first
    assert not np.array_equal(other.perturbation(2), first)
    assert one.perturbation(2) is not first
    assert np.array_equal(one.perturbation(2), first)
    assert not np.array_equal(Generation(8, 0, one.parameters, 0.1).perturbation(2), first)
