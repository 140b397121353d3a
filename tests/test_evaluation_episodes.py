"""Which episodes a policy is judged by: not those that it learnt from, and the same ones every time."""

from __future__ import annotations

import pytest

import toy_envs
from rl_training.runtime.policy import load_policy
from small_runs import small_config, train


@pytest.mark.parametrize("name", ["ppo", "sac", "ars"])
def test_evaluation_is_in_episodes_that_training_never_saw_and_the_same_ones_every_time(name, tmp_path, monkeypatch):
    seeds, reset = [], toy_envs.Counting.reset

    def recorded(env, *, seed=None, options=None):
        seeds.append(seed)
        return reset(env, seed=seed, options=options)

    monkeypatch.setattr(toy_envs.Counting, "reset", recorded)

    def seeds_of(action):
        seeds.clear()
        return action(), list(seeds)

    settings = {"env_id": "ToyCounting-v0", "env_kwargs": {"continuous": name == "sac"}}
    result, trained_in = seeds_of(lambda: train(small_config(name, tmp_path / "a", eval_episodes=0, **settings)))
    policy = load_policy(result.checkpoint_path)
    _, evaluated_in = seeds_of(lambda: policy.evaluate(num_episodes=4))
    assert len(trained_in) >= 20
    assert len(set(evaluated_in)) == 4
    assert not set(evaluated_in) & set(trained_in)
    # evaluated on the way as at the end, and what it is trained in stays what it was
    _, both = seeds_of(lambda: train(small_config(name, tmp_path / "b", eval_episodes=4, **settings)))
    assert set(both) == set(trained_in) | set(evaluated_in)
