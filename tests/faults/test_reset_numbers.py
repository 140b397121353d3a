"""Episodes that cannot even begin: with `on_nan: skip` the run goes on with the first one after them that can."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from small_runs import StopAt, small_config, state_difference, train

from rl_training.errors import EnvNumericsError
from rl_training.runtime.workflows import resume_training


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
