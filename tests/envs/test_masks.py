"""What environments say of allowed actions: read in both conventions, passed on by every backend, refused where it is wrong."""

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
import toy_envs
from gymnasium import spaces

from rl_training.envs.masks import as_masks
from rl_training.envs.pool import EnvPool
from rl_training.envs.source import EnvSource
from rl_training.envs.spaces import describe_env
from rl_training.envs.vector import EnvFault
from rl_training.errors import CheckpointError
from rl_training.runtime.collector import random_actions
from rl_training.types import EnvSpec

PLAIN = EnvSpec("Plain-v0", 1, 3, discrete=True)
PARTS = EnvSpec("Parts-v0", 1, 5, discrete=True, nvec=(2, 3))


@pytest.fixture
def open_pool():
    pools = []

    def make(env="toy_envs:ToyMaskedDiscrete-v0", *, num_envs=2, masked=None, **kwargs):
        options = {name: kwargs.pop(name) for name in ("kind", "says", "length", "fault") if name in kwargs}
        source = EnvSource(env, options) if isinstance(env, str) else EnvSource(env=env)
        spec = replace(source.spec(), masked=masked)
        pools.append(EnvPool(source, spec, num_envs=num_envs, seed=0, stream=1, **kwargs))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def told(pool, rng, steps):
    """Masks on the way of randomly chosen allowed actions, with what else the pool tells."""
    found = []
    for _ in range(steps):
        step = pool.step(pool.spec.to_env(random_actions(pool.spec, rng, pool.num_envs, pool.masks)))
        found.append((pool.masks.tolist(), pool.obs.tolist(), step.rewards.tolist()))
    return found


# ---------------------------------------------------------------- a mask by itself


def test_a_mask_has_a_flag_for_each_choice_one_part_after_the_other():
    assert as_masks([1, 0, 1], PLAIN).tolist() == [True, False, True]
    assert as_masks(np.array([0, 1, 1, 0, 0], dtype=np.int8), PARTS).tolist() == [False, True, True, False, False]
    assert as_masks([[1, 0, 1], [0, 0, 1]], PLAIN, rows=2).tolist() == [[True, False, True], [False, False, True]]


def test_a_mask_in_parts_may_come_as_gymnasium_samples_with_it():
    given = (np.array([0, 1], dtype=np.int8), np.array([1, 0, 0], dtype=np.int8))
    assert as_masks(given, PARTS).tolist() == [False, True, True, False, False]
    assert spaces.MultiDiscrete([2, 3]).sample(mask=given).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("given", "spec", "said"),
    [
        ([0, 0, 0], PLAIN, "allows nothing"),
        ([1, 0, 0, 0, 0], PARTS, "allows nothing in part 1 of the action"),
        ([1, 1], PLAIN, r"has shape \(2,\); with one flag for each choice it would be \(3,\)"),
        (([1, 1, 1], [1, 1]), PARTS, r"has parts of lengths \(3, 2\); those of the action have \(2, 3\) choices"),
        (None, PLAIN, r"has shape \(\)"),
        ([0.0, -np.inf, 0.0], PLAIN, "is not of flags"),
        ([2, 0, 1], PLAIN, "is not of flags"),
        (["a", "b", "c"], PLAIN, "is not of flags"),
    ],
)
def test_a_mask_that_cannot_be_is_refused_with_what_is_wrong(given, spec, said):
    with pytest.raises(ValueError, match=said):
        as_masks(given, spec)


def test_of_many_masks_the_one_that_allows_nothing_is_named():
    with pytest.raises(ValueError, match="allows nothing in row 1 in part 0 of the action"):
        as_masks([[1, 0, 1, 1, 1], [0, 0, 1, 1, 1]], PARTS, rows=2)


# ---------------------------------------------------------------- spaces


def test_the_parts_of_an_action_are_described():
    class Shell(gym.Env):
        observation_space = spaces.Box(-1, 1, (2,))

    env = Shell()
    env.action_space = spaces.MultiDiscrete([2, 3])
    assert describe_env(env, "x") == EnvSpec("x", 2, 5, discrete=True, nvec=(2, 3))
    env.action_space = spaces.MultiDiscrete([2, 3], start=[0, 7])
    spec = describe_env(env, "x")
    assert spec.to_env(np.array([[1, 2], [0, 0]])).tolist() == [[1, 9], [0, 7]]
    assert spec.from_env(np.array([[1, 9]])).tolist() == [[1, 2]]
    assert EnvSpec.from_dict(spec.to_dict()) == spec
    env.action_space = spaces.MultiBinary(3)
    spec = describe_env(env, "x")
    assert (spec.nvec, spec.action_dim, spec.action_shape) == ((2, 2, 2), 6, (3,))
    assert env.action_space.contains(spec.to_env(np.array([[1, 0, 1]]))[0])


# ---------------------------------------------------------------- running environments


@pytest.mark.parametrize("says", ["info", "method"])
@pytest.mark.parametrize("kind", ["Discrete", "MultiDiscrete", "MultiBinary"])
def test_what_is_allowed_belongs_to_the_observation_that_is_acted_on(open_pool, kind, says):
    pool = open_pool(f"toy_envs:ToyMasked{kind}-v0", says=says)
    assert pool.spec.masked
    for masks, obs, _ in told(pool, np.random.default_rng(0), 12):  # over two ends of episodes
        assert np.array_equal(masks, np.array(obs) == 1)


def test_nobody_looks_for_masks_who_cannot_use_them(open_pool):
    assert open_pool(masked=False).masks is None


def test_an_environment_without_masks_has_none(open_pool):
    pool = open_pool("toy_envs:ToyDiscrete-v0")
    assert pool.masks is None
    assert pool.spec.masked is False


def test_the_wrapper_of_a_user_says_more_than_the_info_inside(open_pool):
    class OnlyTheHighest(gym.Wrapper):
        def action_masks(self):
            flags = np.zeros(4, dtype=bool)
            flags[np.flatnonzero(self.env.unwrapped.allowed[0])[-1]] = True
            return flags

    pool = open_pool(lambda: OnlyTheHighest(toy_envs.Choosing()), num_envs=1)
    rewards = [rewards for _, _, rewards in told(pool, np.random.default_rng(0), 10)]
    assert rewards == [[1.0]] * 10


@pytest.mark.parametrize("says", ["info", "method"])
def test_worker_processes_tell_the_same_masks(open_pool, says):
    env = "toy_envs:ToyMaskedMultiDiscrete-v0"
    here = open_pool(env, num_envs=3, says=says)
    workers = open_pool(env, num_envs=3, says=says, backend="local_async", num_workers=2)
    assert told(here, np.random.default_rng(1), 13) == told(workers, np.random.default_rng(1), 13)


@pytest.mark.parametrize("backend", ["local_sync", "local_async"])
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("empty", "gave an action mask that allows nothing"),
        ("short", r"gave an action mask that has shape \(3,\)"),
        ("missing", "gave an action mask that has shape"),
        ("numbers", "gave an action mask that is not of flags"),
    ],
)
def test_a_wrong_mask_names_the_environment_and_the_moment(open_pool, backend, fault, said):
    pool = open_pool(fault=fault, backend=backend)
    with pytest.raises(EnvFault, match=rf"^toy_envs:ToyMaskedDiscrete-v0, environment 0, episode 0, step 2: {said}"):
        told(pool, np.random.default_rng(0), 5)


def test_an_environment_that_stops_telling_is_named_with_how_to_tell(open_pool):
    pool = open_pool(fault="raise", says="method")
    with pytest.raises(EnvFault, match=r"step 2: gave no action mask: RuntimeError: told to.*by action_masks\(\) or by info"):
        told(pool, np.random.default_rng(0), 5)


def test_all_environments_tell_or_none_does(open_pool):
    masked = iter([True, True, False])  # the first is made to describe the spaces
    with pytest.raises(EnvFault, match=r"environment 1.* says nothing of what is allowed"):
        open_pool(lambda: toy_envs.Choosing(masked=next(masked)))


def test_a_restored_pool_knows_what_is_allowed(open_pool):
    pool, other = (open_pool("toy_envs:ToyMaskedMultiDiscrete-v0", length=9) for _ in range(2))
    told(pool, np.random.default_rng(2), 13)
    state = pool.state_dict()
    other.load_state_dict(state)
    assert other.exact
    assert np.array_equal(other.masks, pool.masks)
    assert told(other, np.random.default_rng(3), 20) == told(pool, np.random.default_rng(3), 20)


def test_a_rewound_pool_saves_the_masks_of_the_mark(open_pool):
    pool = open_pool()
    told(pool, np.random.default_rng(0), 3)
    pool.mark()
    state = pool.state_dict()
    told(pool, np.random.default_rng(0), 4)
    pool.rewind()
    assert np.array_equal(pool.state_dict()["masks"], state["masks"])


def test_masks_that_do_not_come_back_are_noticed(open_pool, caplog):
    pool, other = open_pool(num_envs=1), open_pool(num_envs=1)
    told(pool, np.random.default_rng(0), 2)
    state = pool.state_dict()
    other.load_state_dict(state | {"masks": ~state["masks"]})
    assert other.exact is False
    assert "NOT EXACT" in caplog.text


def test_a_state_with_masks_is_refused_where_there_are_none(open_pool):
    plain, masked = open_pool("toy_envs:ToyDiscrete-v0"), open_pool()
    with pytest.raises(CheckpointError, match="saved with action masks; toy_envs:ToyDiscrete-v0 now comes without them"):
        plain.load_state_dict(masked.state_dict())
    with pytest.raises(CheckpointError, match=r"saved without action masks; .* now comes with them"):
        masked.load_state_dict(plain.state_dict())
