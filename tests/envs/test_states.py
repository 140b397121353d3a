"""Environments that give their state away themselves are taken up from it, whatever their seed would bring."""

import json
import logging

import gymnasium as gym
import numpy as np
import pytest
import toy_envs

from rl_training.envs.pool import EnvPool
from rl_training.envs.source import EnvSource
from rl_training.envs.states import keeper_of, packed, unpacked
from rl_training.envs.vector import EnvFault
from rl_training.errors import CheckpointError
from rl_training.runtime.collector import random_actions

KEEPING = "toy_envs:ToyKeeping-v0"


@pytest.fixture
def open_pool():
    pools = []

    def make(env=KEEPING, *, num_envs=2, masked=False, **kwargs):
        options = {name: kwargs.pop(name) for name in ("fault", "length") if name in kwargs}
        source = EnvSource(env, options) if isinstance(env, str) else EnvSource(env=env)
        pools.append(EnvPool(source, source.spec(), num_envs=num_envs, seed=0, stream=1, **kwargs))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def run(pool, rng, steps):
    """Everything that the pool tells."""
    told = []
    for _ in range(steps):
        step = pool.step(random_actions(pool.spec, rng, pool.num_envs, pool.masks))
        ends = (step.episode_returns, step.episode_lengths)
        told.append((step.next_obs.tolist(), step.rewards.tolist(), step.truncated.tolist(), ends, pool.obs.tolist()))
    return told


@pytest.mark.parametrize("steps", [0, 1, 8, 9, 10, 31])
@pytest.mark.parametrize(("saved_in", "loaded_in"), [("local_sync", "local_sync"), ("local_sync", "local_async")])
def test_what_no_seed_brings_back_goes_on_from_its_state(open_pool, saved_in, loaded_in, steps):
    pool, other = open_pool(backend=saved_in), open_pool(backend=loaded_in)
    run(pool, np.random.default_rng(0), steps)
    state = pool.state_dict()
    assert len(state["actions"]) == 0  # nothing to repeat
    other.load_state_dict(state)
    assert other.exact
    assert run(other, np.random.default_rng(1), 25) == run(pool, np.random.default_rng(1), 25)


def test_worker_processes_give_their_states_away_too(open_pool):
    pool, other = open_pool(num_envs=3, backend="local_async", num_workers=2), open_pool(num_envs=3)
    run(pool, np.random.default_rng(0), 13)
    other.load_state_dict(pool.state_dict())
    assert other.exact
    assert run(other, np.random.default_rng(1), 20) == run(pool, np.random.default_rng(1), 20)


def test_saving_changes_nothing(open_pool):
    pool, twin = open_pool(), open_pool()
    told = []
    for turn in range(12):
        told.append(run(pool, np.random.default_rng(turn), 3))
        pool.state_dict()
    assert told == [run(twin, np.random.default_rng(turn), 3) for turn in range(12)]


def test_a_limit_on_steps_goes_on_counting_where_it_was(open_pool):
    pool, other = open_pool(num_envs=1), open_pool(num_envs=1)
    run(pool, np.random.default_rng(0), 4)
    other.load_state_dict(pool.state_dict())
    truncated = [step[2][0] for step in run(other, np.random.default_rng(1), 6)]
    assert truncated == [False] * 4 + [True, False]  # the ninth step of the episode


def test_a_rewound_pool_is_saved_as_a_state_and_the_actions_since(open_pool):
    pool, other = open_pool(), open_pool()
    run(pool, np.random.default_rng(0), 13)
    pool.mark()
    reference = open_pool()
    reference.load_state_dict(pool.state_dict())
    run(pool, np.random.default_rng(1), 7)
    pool.rewind()
    state = pool.state_dict()
    assert (state["lengths"] - state["origins"]["steps"]).tolist() == [4, 4]  # since the episodes began
    assert len(state["actions"]) == 8
    other.load_state_dict(state)
    assert other.exact
    pool.restore()
    assert pool.exact
    expected = run(reference, np.random.default_rng(2), 20)
    assert run(other, np.random.default_rng(2), 20) == expected
    assert run(pool, np.random.default_rng(2), 20) == expected


def test_environments_that_were_lent_are_back_where_they_were(open_pool):
    pool, twin = open_pool(), open_pool()
    for each in (pool, twin):
        run(each, np.random.default_rng(0), 5)
    with pool.lend() as envs:
        envs.reset([0, 1], [7, 8])
        envs.step(np.zeros(2, dtype=np.int64))
    assert pool.exact
    assert run(pool, np.random.default_rng(1), 20) == run(twin, np.random.default_rng(1), 20)


class KeepingChoosing(toy_envs.Choosing):
    def get_state(self):
        allowed = [flags.tolist() for flags in self.allowed]
        return json.dumps({"steps": self.steps, "allowed": allowed, "rng": self.np_random.bit_generator.state}).encode()

    def set_state(self, state):
        given = json.loads(state)
        self.steps, self.np_random.bit_generator.state = given["steps"], given["rng"]
        self.allowed = [np.array(flags) for flags in given["allowed"]]


@pytest.mark.parametrize("says", ["info", "method"])
def test_what_is_allowed_is_known_before_the_first_step_after_a_state(says, tmp_path):
    source = EnvSource(env=lambda: KeepingChoosing(says=says))
    spec = source.spec()
    object.__setattr__(spec, "masked", None)
    pool, other = (EnvPool(source, spec, num_envs=2, seed=0, stream=1) for _ in range(2))
    run(pool, np.random.default_rng(0), 8)
    other.load_state_dict(pool.state_dict())
    assert other.exact
    assert np.array_equal(other.masks, pool.masks)
    assert run(other, np.random.default_rng(1), 15) == run(pool, np.random.default_rng(1), 15)


def test_a_state_that_is_not_taken_is_noticed(open_pool, caplog):
    pool, other = open_pool(), open_pool(fault="forgets")
    run(pool, np.random.default_rng(0), 5)
    with caplog.at_level(logging.WARNING):
        other.load_state_dict(pool.state_dict())
    assert other.exact is False
    assert "get_state() gives something else than set_state() was given" in caplog.text
    run(other, np.random.default_rng(1), 20)  # in its next episodes


@pytest.mark.parametrize("backend", ["local_sync", "local_async"])
def test_states_that_cannot_be_had_or_set_name_the_environment(open_pool, backend):
    with pytest.raises(EnvFault, match=r"environment 0: get_state\(\) raised RuntimeError: told to give nothing away"):
        open_pool(fault="raise", backend=backend)
    other = open_pool(fault="refuses", backend=backend)
    with pytest.raises(EnvFault, match=r"environment 0, step 0 of .* repeated: set_state\(...\) raised RuntimeError: told to"):
        other.load_state_dict(open_pool().state_dict())


def test_something_else_by_the_same_name_is_left_alone(open_pool):
    pool, other = open_pool(fault="dict"), open_pool(fault="dict")
    run(pool, np.random.default_rng(0), 13)
    other.load_state_dict(pool.state_dict())
    assert other.exact is False  # so nothing but its state brings it back
    assert "origins" not in pool.state_dict()
    assert "origins" not in open_pool("CartPole-v1").state_dict()
    assert "origins" not in open_pool("CartPole-v1", backend="batched").state_dict()


def test_a_wrapper_that_may_remember_something_must_answer_for_what_is_in_it():
    env = toy_envs.Keeping()
    assert keeper_of(gym.wrappers.TimeLimit(gym.wrappers.OrderEnforcing(env), 5)) is env
    assert keeper_of(gym.wrappers.TransformReward(env, lambda reward: reward)) is None

    class Answering(gym.Wrapper):
        def get_state(self):
            return self.env.get_state()

        def set_state(self, state):
            self.env.set_state(state)

    outer = Answering(gym.wrappers.TransformReward(env, lambda reward: reward))
    assert keeper_of(gym.wrappers.TimeLimit(outer, 5)) is outer


def test_a_run_saved_by_states_is_refused_where_there_are_none(open_pool):
    with pytest.raises(CheckpointError, match=r"were saved by their get_state\(\); toy_envs:ToyKeeping-v0 now offers none"):
        open_pool(fault="dict").load_state_dict(open_pool().state_dict())


def test_a_run_saved_by_actions_is_repeated_and_keeps_states_from_then_on(open_pool):
    class Drifting(toy_envs.Drift):
        def get_state(self):
            return json.dumps([self.steps, self.place, self.np_random.bit_generator.state]).encode()

        def set_state(self, state):
            self.steps, self.place, self.np_random.bit_generator.state = json.loads(state)

    pool, other = open_pool(lambda: toy_envs.Drift(length=9)), open_pool(lambda: Drifting(length=9))
    run(pool, np.random.default_rng(0), 13)
    other.load_state_dict(pool.state_dict())
    assert other.exact
    assert "origins" in other.state_dict()
    assert run(other, np.random.default_rng(1), 20) == run(pool, np.random.default_rng(1), 20)


def test_states_travel_whatever_their_lengths():
    states = [b"", b"a", b"12345678", bytes(range(256)) * 3]
    assert unpacked(packed(states), 4) == states
    assert len(packed(states)) % 8 == 0


def test_states_that_are_not_one_for_each_environment_are_refused(open_pool):
    pool = open_pool()
    state = pool.state_dict()
    for name in ("states", "steps", "totals"):
        origins = state["origins"] | {name: state["origins"][name][:1]}
        with pytest.raises(CheckpointError, match="states; there must be 2"):
            pool.load_state_dict(state | {"origins": origins})
