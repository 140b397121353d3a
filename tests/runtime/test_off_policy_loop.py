"""The off-policy loop turn by turn: who chooses the actions, when is learnt, and from which rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import toy_envs

from rl_training.algorithms.base import Algorithm
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.envs.pool import EnvPool
from rl_training.envs.source import EnvSource
from rl_training.options.sac import SACConfig
from rl_training.runtime.collector import Collector
from rl_training.runtime.loops import OffPolicyLoop
from rl_training.types import UpdateResult

ENVS = 2


class Still(Algorithm):
    """Always acts the same way; keeps the batches that it was given."""

    def __init__(self, action):
        self.action, self.batches = action, []

    def act(self, obs, *, deterministic=False):
        return self.action.expand(len(obs), *self.action.shape)

    def update(self, batch, *, global_step=0):
        self.batches.append(batch)
        return UpdateResult({"losses": torch.tensor(float(len(self.batches)))})


def loop_of(*, continuous=True, seed=0, **settings):
    source = EnvSource(env=lambda: toy_envs.Counting(continuous=continuous, length=5))
    spec = source.spec()
    learner = Still(torch.tensor([0.25]) if continuous else torch.tensor(1))
    pool = EnvPool(source, spec, num_envs=ENVS, seed=seed, stream=0)
    collector = Collector(pool, spec, learner, seed=seed, device=torch.device("cpu"))
    buffer = ReplayBuffer(1_000, obs_dim=spec.obs_dim, action_dim=1, seed=(seed, 3))
    options = SACConfig(**{"batch_size": 4, "learning_starts": 6} | settings)
    return OffPolicyLoop(collector, buffer, learner, options)


def turn(loop):
    loop.collect()
    return loop.learn(global_step=0, max_updates=None)


def test_actions_are_random_until_learning_starts_and_the_learners_from_then_on():
    loop = loop_of()
    updates = [turn(loop).num_gradient_steps for _ in range(5)]
    actions = loop.buffer.transitions["actions"].view(5, ENVS)
    assert not (actions[:3] == 0.25).any()  # 6 steps in two environments
    assert (actions[3:] == 0.25).all()
    assert updates == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("continuous", [True, False])
def test_random_actions_are_uniform_over_all_there_are(continuous):
    collector = loop_of(continuous=continuous).collector
    actions, again = (collector.collect(200, random=True)[0]["actions"].ravel() for _ in range(2))
    assert not np.array_equal(actions, again)
    if continuous:
        assert np.abs(actions).max() <= 1
        np.testing.assert_allclose(np.quantile(actions, [0.0, 0.25, 0.5, 0.75, 1.0]), [-1, -0.5, 0, 0.5, 1], atol=0.15)
    else:
        np.testing.assert_allclose(np.bincount(actions) / len(actions), [1 / 3] * 3, atol=0.1)


def test_every_update_has_a_batch_of_its_own_from_the_buffers_stream():
    loop = loop_of(gradient_updates_per_step=3)
    for _ in range(3):
        result = turn(loop)
    assert result.num_gradient_steps == 3
    assert result.metrics["losses"].item() == 3.0  # of the last
    expected, rng = loop.buffer.transitions, np.random.default_rng((0, 3))
    for batch in loop.algorithm.batches:
        rows = rng.integers(6, size=4)
        for name, column in batch.items():
            assert torch.equal(column, expected[name][rows])


def test_a_budget_cuts_a_round_of_updates_short():
    loop = loop_of(gradient_updates_per_step=3)
    for _ in range(3):
        loop.collect()
    assert loop.learn(global_step=0, max_updates=2).num_gradient_steps == len(loop.algorithm.batches) == 2


def test_a_resumed_loop_keeps_the_rhythm_of_its_updates_and_draws_the_random_actions_that_were_due():
    loop, resumed = loop_of(train_frequency=3, learning_starts=8), loop_of(train_frequency=3, learning_starts=8)
    for _ in range(2):
        turn(loop)
    resumed.load_state_dict(loop.state_dict())
    resumed.buffer.load_state_dict(loop.buffer.state_dict())
    for each in (loop, resumed):
        # of turns 3 to 9 those are learnt in that three divides and that come when eight rows are there
        assert [turn(each).num_gradient_steps for _ in range(7)] == [0, 0, 0, 1, 0, 0, 1]
    assert torch.equal(loop.buffer.transitions["actions"], resumed.buffer.transitions["actions"])
