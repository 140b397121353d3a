"""The batched environments are Gymnasium's, bit for bit."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from rl_training.envs.batched import find_batched, make_batched, squared
from rl_training.envs.source import EnvSource
from rl_training.envs.vector import SyncEnvs, make_envs
from rl_training.errors import ConfigError

IDS = ["CartPole-v1", "Pendulum-v1", "MountainCarContinuous-v0", "Acrobot-v1"]


def both(env_id=None, env_kwargs=None, *, num_envs, env=None):
    source = EnvSource(env_id, env_kwargs, env)
    spec = source.spec()
    return SyncEnvs.of(source, spec, num_envs=num_envs), make_batched(source, spec, num_envs=num_envs), spec


def random_actions(spec, rng, count):
    if spec.discrete:
        return rng.integers(spec.action_dim, size=count)
    # corners and the middle come up as often as everything between them
    raw = rng.uniform(-1, 1, size=(count, spec.action_dim)).astype(np.float32)
    return spec.to_env(np.where(rng.random(raw.shape) < 0.2, np.round(raw), raw).astype(np.float32))


def assert_same_walk(stock, batched, spec, *, steps, seed=0):
    """Random steps in random subsets, with a new episode wherever one ends."""
    rng = np.random.default_rng(seed)
    everyone = np.arange(stock.num_envs)
    seeds = rng.integers(2**31, size=stock.num_envs).tolist()
    assert stock.reset(everyone, seeds).tobytes() == batched.reset(everyone, seeds).tobytes()
    ended = 0
    for step in range(steps):
        whole = step % 3 > 0
        index = everyone if whole else np.flatnonzero(rng.random(stock.num_envs) < 0.6)
        if not len(index):
            continue
        actions = random_actions(spec, rng, len(index))
        one = stock.step(actions) if whole else stock.step_some(index, actions)
        other = batched.step(actions) if whole else batched.step_some(index, actions)
        for name, a, b in zip(one._fields, one, other, strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            assert a.tobytes() == b.tobytes(), f"{name} at step {step}: {a} and {b}"
        over = index[one.terminated | one.truncated]
        ended += len(over)
        if len(over):
            seeds = rng.integers(2**31, size=len(over)).tolist()
            assert stock.reset(over, seeds).tobytes() == batched.reset(over, seeds).tobytes()
    stock.close()
    return ended


@pytest.mark.parametrize("env_id", IDS)
def test_thousands_of_random_steps_give_the_same_bits_as_gymnasium(env_id):
    stock, batched, spec = both(env_id, {"max_episode_steps": 300}, num_envs=13)
    assert assert_same_walk(stock, batched, spec, steps=1_200) > 20


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("env_id", IDS)
def test_hundreds_of_thousands_of_random_steps_give_the_same_bits_as_gymnasium(env_id, seed):
    stock, batched, spec = both(env_id, num_envs=40)
    assert_same_walk(stock, batched, spec, steps=2_500, seed=seed)


@pytest.mark.parametrize("env_id", IDS)
def test_every_seed_begins_the_episode_it_begins_in_gymnasium(env_id):
    stock, batched, _ = both(env_id, num_envs=200)
    seeds = [*range(198), 2**31 - 1, 7]  # the same one twice as well
    assert stock.reset(np.arange(200), seeds).tobytes() == batched.reset(np.arange(200), seeds).tobytes()
    stock.close()


@pytest.mark.parametrize(
    ("env_id", "kwargs"),
    [
        ("CartPole-v1", {"sutton_barto_reward": True, "max_episode_steps": 25}),
        ("CartPole-v0", {}),
        ("Pendulum-v1", {"g": 9.81, "max_episode_steps": 25}),
        ("MountainCarContinuous-v0", {"goal_velocity": 0.01}),
    ],
)
def test_arguments_of_the_environment_are_honoured(env_id, kwargs):
    stock, batched, spec = both(env_id, kwargs, num_envs=5)
    assert_same_walk(stock, batched, spec, steps=400)


def test_a_car_that_reaches_the_top_ends_there_with_its_hundred():
    stock, batched, _ = both("MountainCarContinuous-v0", num_envs=3)
    obs = stock.reset(range(3), [1, 2, 3])
    assert batched.reset(range(3), [1, 2, 3]).tobytes() == obs.tobytes()
    for _ in range(999):
        push = np.sign(obs[:, 1:]) + (obs[:, 1:] == 0)  # with the velocity, whichever way it goes
        one, other = stock.step(push), batched.step(push)
        assert all(a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True))
        obs = one.obs
        if one.terminated.any():
            break
    assert one.rewards[one.terminated][0] == pytest.approx(99.9)
    stock.close()


def test_a_factory_with_nothing_around_the_environment_but_a_time_limit_has_its_batch():
    def heavy():
        core = CartPoleEnv()
        core.gravity, core.kinematics_integrator = 20.0, "semi-implicit"
        return gym.wrappers.TimeLimit(core, 9)

    stock, batched, spec = both(env=heavy, num_envs=4)
    assert assert_same_walk(stock, batched, spec, steps=100) > 20


@pytest.mark.parametrize(
    "env",
    [
        lambda: gym.make("Ant-v5"),
        lambda: gym.wrappers.TransformReward(gym.make("CartPole-v1"), lambda r: 2 * r),
        lambda: gym.make("CartPole-v1", render_mode="rgb_array"),
    ],
)
def test_an_environment_that_is_not_exactly_gymnasiums_has_none(env):
    source = EnvSource(env=env)
    spec = source.spec()
    assert find_batched(source, spec, num_envs=2) is None
    with pytest.raises(
        ConfigError, match=r"Acrobot-v1, CartPole-v0, CartPole-v1, MountainCarContinuous-v0, Pendulum-v1 have batched"
    ):
        make_envs(source, spec, num_envs=2, backend="batched")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_squares_are_those_of_numpy_scalars(dtype):
    numbers = np.random.default_rng(5).uniform(-30, 30, size=5_000).astype(dtype)
    assert squared(numbers).tobytes() == np.array([x**2 for x in numbers]).tobytes()
