"""Which episodes a policy is judged by: not those that it learnt from, and the same ones every time."""

from __future__ import annotations

import pytest
import torch
import toy_envs
from small_runs import small_config, train

from rl_training.algorithms.base import Algorithm
from rl_training.envs.episodes import Evaluator
from rl_training.envs.source import EnvSource
from rl_training.experiment.checkpoint import read_header
from rl_training.runtime.evaluation import PolicyEvaluator
from rl_training.runtime.policy import load_policy


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


class Scripted(Algorithm):
    """Answers with what `actions(obs)` gives, and remembers whether it was to be deterministic."""

    def __init__(self, actions):
        self.actions, self.asked = actions, []

    def act(self, obs, *, deterministic=False):
        self.asked.append(deterministic)
        return self.actions(obs)

    def update(self, batch, *, global_step=0):
        raise AssertionError("an evaluation does not learn")


def evaluated(learner, env, **settings):
    source = EnvSource(env=env)
    evaluator = PolicyEvaluator(Evaluator(source, source.spec()), source.spec(), seed=3, device=torch.device("cpu"))
    try:
        return evaluator(learner, **settings)
    finally:
        evaluator.close()


def test_an_evaluation_by_hand_of_the_deterministic_policy():
    learner = Scripted(lambda obs: torch.tensor([[0.5], [0.5], [0.5], [-0.5]]))
    told = evaluated(learner, lambda: toy_envs.Bandit(continuous=True), num_episodes=4)
    # three episodes of the best action, one that is 1 away from it: variance (3 · (1/4)² + (3/4)²) / 4 = 3/16
    assert told == pytest.approx(
        {
            "eval_return_mean": -0.25,
            "eval_return_std": 3**0.5 / 4,
            "eval_return_min": -1.0,
            "eval_return_max": 0.0,
            "eval_length_mean": 1.0,
            "eval_episodes": 4,
        }
    )
    assert learner.asked == [True]


def test_what_a_policy_draws_in_an_evaluation_is_the_same_each_time_and_leaves_torchs_stream_where_it_was():
    learner = Scripted(lambda obs: torch.rand(len(obs), 1))
    env = lambda: toy_envs.Bandit(continuous=True)  # noqa: E731
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = evaluated(learner, env, num_episodes=4)
    assert torch.equal(torch.rand(3), expected)
    assert evaluated(learner, env, num_episodes=4) == first


def test_the_best_policy_that_is_kept_is_that_of_the_highest_score(tmp_path, monkeypatch):
    scores = iter([2.0, 5.0, 3.0, 4.0])

    def told(evaluator, algorithm, *, num_episodes):
        return {"eval_return_mean": next(scores), "eval_episodes": num_episodes}

    monkeypatch.setattr(PolicyEvaluator, "__call__", told)
    result = train(small_config("ppo", tmp_path))
    best = read_header(result.run_dir / "checkpoints" / "best.safetensors").metadata
    assert (best["score"], best["step"]) == (5.0, 120)
