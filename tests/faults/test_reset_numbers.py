"""Episodes that cannot even begin: with `on_nan: skip` the run goes on with the first one after them that can."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from small_runs import ALGORITHMS, OFFLINE, StopAt, small_config, state_difference, train

from rl_training.envs.seeds import episode_seed
from rl_training.errors import EnvNumericsError
from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.runtime.numerics import not_finite
from rl_training.runtime.rng import Stream
from rl_training.runtime.workflows import resume_training

EVOLUTION = ("ars", "openai_es")


class BadBeginnings(gym.Wrapper):
    """The first observation of some episodes is not finite; episodes are known by their seeds, repeated or not."""

    def __init__(self, env, *, bad, seeds):
        super().__init__(env)
        self.bad, self.seeds = bad, seeds

    def reset(self, *, seed=None, options=None):
        if seed not in self.seeds:
            self.seeds.append(seed)
        obs, info = self.env.reset(seed=seed, options=options)
        return (obs * np.nan if self.seeds.index(seed) in self.bad else obs), info


def factory(bad):
    seeds = []  # shared by all that are made: a resumed run's episodes are the same ones
    return lambda: BadBeginnings(gym.make("CartPole-v1", max_episode_steps=10), bad=bad, seeds=seeds)


@pytest.mark.parametrize("bad", [{2}, {2, 3, 4}])
def test_episodes_that_begin_with_nan_are_passed_over(bad, tmp_path):
    config = small_config("ppo", tmp_path, eval_episodes=0, on_nan="skip", num_envs=1, env_kwargs={}, max_skips=5)
    result = train(config, env=factory(bad))
    assert result.metrics["global_step"] >= config.total_timesteps
    assert len(bad) <= result.metrics["skipped_episodes"] <= len(bad) + 1


def test_where_every_episode_begins_with_nan_the_run_ends_after_as_many_as_it_may(tmp_path):
    config = small_config("ppo", tmp_path, eval_episodes=0, on_nan="skip", num_envs=1, env_kwargs={}, max_skips=5)
    with pytest.raises(EnvNumericsError, match="is saved"):
        train(config, env=factory(set(range(2, 1000))))


def test_a_run_that_passed_over_episodes_is_resumed_exactly(tmp_path):
    settings = {"eval_episodes": 0, "on_nan": "skip", "num_envs": 1, "env_kwargs": {}}
    straight = train(small_config("ppo", tmp_path / "a", **settings), env=factory({2, 3}))
    env = factory({2, 3})
    first = train(small_config("ppo", tmp_path / "b", **settings), env=env, callbacks=[StopAt(33)])
    second = resume_training(first.run_dir, env=env)
    assert second.metrics["skipped_episodes"] == straight.metrics["skipped_episodes"]
    assert state_difference(straight.checkpoint_path, second.checkpoint_path) is None


class Unborn(gym.Wrapper):
    """Begins the episodes of these seeds, or all, with an observation that is not finite."""

    def __init__(self, env, *, seeds=None):
        super().__init__(env)
        self.bad = seeds

    def reset(self, *, seed=None, options=None):
        obs, info = self.env.reset(seed=seed, options=options)
        return (np.full_like(obs, np.nan) if self.bad is None or seed in self.bad else obs), info


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in (*OFFLINE, *EVOLUTION)])
def test_skipping_passes_over_the_very_first_episodes_too(name, tmp_path):
    config = small_config(name, tmp_path, eval_episodes=0, on_nan="skip", num_envs=2)
    bad = [episode_seed(config.seed, Stream.TRAIN_ENVS, *place) for place in ((1, 0), (1, 1), (0, 0))]

    def make():
        return Unborn(gym.make(config.env_id, **config.env_kwargs), seeds=bad)

    result = train(config.replace(env_kwargs={}), env=make)
    assert result.metrics["skipped_episodes"] == 3
    assert result.metrics["global_step"] >= config.total_timesteps
    again = resume_training(result.run_dir, total_timesteps=result.metrics["global_step"] + 20, env=make)
    assert again.metrics["skipped_episodes"] == 3  # passed over again on the way back, which does not count twice


@pytest.mark.parametrize("name", EVOLUTION)
def test_a_population_leaves_out_a_direction_whose_episode_begins_so(name, tmp_path):
    config = small_config(name, tmp_path, eval_episodes=0, env_kwargs={}, algo_kwargs={"batched_envs": False})
    seeds = [episode_seed(config.seed, Stream.POPULATION_ENVS, generation, 2, 0) for generation in (0, 1)]
    bare = {"max_episode_steps": 30, "disable_env_checker": True}
    result = train(config, env=lambda: Unborn(gym.make(config.env_id, **bare), seeds=seeds))
    assert result.metrics["dropped_directions"] == 2
    assert not_finite(load_checkpoint(result.checkpoint_path).algorithm_state) == []


def test_an_environment_that_never_begins_well_ends_the_run_before_it_has_begun(tmp_path):
    config = small_config("sac", tmp_path, eval_episodes=0, on_nan="skip", max_skips=2, env_kwargs={})
    with pytest.raises(EnvNumericsError, match=r"environment [01], episode \d, step 0: returned an observation with nan"):
        train(config, env=lambda: Unborn(gym.make("Pendulum-v1")))
    assert list(tmp_path.iterdir()) == []
