"""The running environments of a run: ends of episodes, seeds, exact restoring, and evaluation beside it."""

from __future__ import annotations

import copy
import logging

import gymnasium as gym
import numpy as np
import pytest
import toy_envs
from small_runs import difference

from rl_training.envs.episodes import Evaluator, run_episodes
from rl_training.envs.faults import EnvFault
from rl_training.envs.pool import EnvPool, PoolStep
from rl_training.envs.seeds import episode_seed
from rl_training.envs.source import EnvSource
from rl_training.envs.vector import SyncEnvs
from rl_training.errors import CheckpointError, EnvError, NumericsError


@pytest.fixture
def open_pool():
    """EnvPool that is closed at the end; from an id, an object or a factory."""
    pools: list[EnvPool] = []

    def make(env, *, num_envs: int = 1, seed: int = 0, stream: int = 1, env_kwargs=None, **kwargs) -> EnvPool:
        source = EnvSource(env, env_kwargs) if isinstance(env, str) else EnvSource(env=env)
        pools.append(EnvPool(source, source.spec(), num_envs=num_envs, seed=seed, stream=stream, **kwargs))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def _random_actions(pool: EnvPool, rng: np.random.Generator) -> np.ndarray:
    if pool.spec.discrete:
        return rng.integers(pool.spec.action_dim, size=pool.num_envs) + pool.spec.action_start
    return pool.spec.to_env(rng.uniform(-1, 1, (pool.num_envs, pool.spec.action_dim)).astype(np.float32))


def _run(pool: EnvPool, rng: np.random.Generator, num_steps: int) -> list[bytes]:
    """Everything the pool tells, as bytes."""
    told = []
    for _ in range(num_steps):
        step = pool.step(_random_actions(pool, rng))
        ends = repr((step.episode_returns, step.episode_lengths)).encode()
        told.append(b"".join(array.tobytes() for array in step[:4]) + pool.obs.tobytes() + ends)
    return told


def _same(left: dict, right: dict) -> bool:
    return difference(left, right) is None


# ---------------------------------------------------------------- ends of episodes


@pytest.mark.parametrize("ends", ["terminated", "truncated"])
def test_an_end_keeps_the_true_last_observation_and_its_kind(open_pool, ends):
    pool = open_pool(lambda: toy_envs.Counting(length=3, ends=ends), num_envs=2)
    steps = [pool.step(np.array([1, 2])) for _ in range(4)]
    assert steps[2].next_obs.tolist() == [[3, 1], [3, 2]]  # where the action led, not where the next episode begins
    assert getattr(steps[2], ends).all()
    assert not getattr(steps[2], "truncated" if ends == "terminated" else "terminated").any()
    assert (steps[2].episode_returns, steps[2].episode_lengths) == ([1 + 2 + 3, 6.0], [3, 3])
    assert [step.next_obs[0, 0] for step in steps] == [1, 2, 3, 1]  # no step is spent on a reset
    assert [step.episode_returns for step in steps[:2]] == [[], []]


def test_observations_to_act_on_are_those_of_the_new_episode_where_one_ended(open_pool):
    lengths = iter([2, 2, 5])  # one is made to describe the spaces
    pool = open_pool(lambda: toy_envs.Counting(length=next(lengths)), num_envs=2)
    pool.step(np.array([1, 1]))
    step = pool.step(np.array([1, 1]))
    assert pool.obs.tolist() == [[0, 0], [2, 1]]
    assert step.next_obs.tolist() == [[2, 1], [2, 1]]
    assert (step.terminated.tolist(), step.episode_returns, step.episode_lengths) == ([True, False], [3.0], [2])


def test_arrays_handed_out_are_never_changed_later(open_pool):
    pool = open_pool("toy_envs:ToyDrift-v0", num_envs=3)
    held = [pool.obs]
    for _ in range(12):
        step = pool.step(np.zeros(3, dtype=np.int64))
        held += [pool.obs, step.next_obs, step.rewards]
    copies = [array.copy() for array in held]
    _run(pool, np.random.default_rng(0), 12)
    assert all(array.tobytes() == copy.tobytes() for array, copy in zip(held, copies, strict=True))
    assert all(array.flags.c_contiguous and array.flags.writeable for array in held)
    assert {pool.obs.dtype, step.next_obs.dtype} == {np.dtype(np.float32)}


# ---------------------------------------------------------------- seeds


def test_each_episode_is_seeded_from_run_seed_stream_environment_and_episode(open_pool):
    seeds: list[int] = []

    class Spy(toy_envs.Counting):
        def reset(self, *, seed=None, options=None):
            seeds.append(seed)
            return super().reset(seed=seed)

    pool = open_pool(lambda: Spy(length=2), num_envs=2, seed=11, stream=5)
    for _ in range(4):
        pool.step(np.zeros(2, dtype=np.int64))
    assert seeds == [episode_seed(11, 5, env, episode) for episode in range(3) for env in range(2)]


@pytest.mark.parametrize("num_envs", [2, 4])
def test_an_environment_lives_the_same_episodes_whatever_the_number_of_others(open_pool, num_envs):
    alone, many = open_pool("CartPole-v1", num_envs=1), open_pool("CartPole-v1", num_envs=num_envs)
    rng = np.random.default_rng(1)
    for _ in range(80):
        action = rng.integers(2)
        one, all_of_them = alone.step(np.array([action])), many.step(np.full(num_envs, action))
        assert one.next_obs.tobytes() == all_of_them.next_obs[:1].tobytes()
        assert alone.obs.tobytes() == many.obs[:1].tobytes()
    assert len({row.tobytes() for row in many.obs}) == num_envs  # and they are not copies of each other


def test_the_backend_and_the_number_of_workers_change_nothing(open_pool):
    told = [
        _run(open_pool("CartPole-v1", num_envs=3, **kwargs), np.random.default_rng(2), 60)
        for kwargs in ({}, {"backend": "local_async", "num_workers": 1}, {"backend": "local_async", "num_workers": 3})
    ]
    assert told[0] == told[1] == told[2]


def test_another_seed_or_stream_gives_other_episodes(open_pool):
    first = open_pool("Pendulum-v1", seed=1, stream=1).obs
    assert not np.array_equal(first, open_pool("Pendulum-v1", seed=2, stream=1).obs)
    assert not np.array_equal(first, open_pool("Pendulum-v1", seed=1, stream=2).obs)


# ---------------------------------------------------------------- exact restoring


@pytest.mark.parametrize(("saved_in", "loaded_in"), [("local_sync", "local_async"), ("local_async", "local_sync")])
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "HalfCheetah-v5"])
def test_a_pool_restored_part_way_through_an_episode_goes_on_bit_for_bit(open_pool, env_id, saved_in, loaded_in):
    kwargs = {} if env_id == "CartPole-v1" else {"max_episode_steps": 50}
    pool = open_pool(env_id, num_envs=2, env_kwargs=kwargs, backend=saved_in)
    _run(pool, np.random.default_rng(3), 83)
    state = pool.state_dict()
    assert state["lengths"].min() > 0
    assert state["episodes"].min() > 0
    other = open_pool(env_id, num_envs=2, env_kwargs=kwargs, backend=loaded_in)
    other.load_state_dict(state)
    assert other.exact
    assert _same(other.state_dict(), state)
    assert _run(other, np.random.default_rng(4), 60) == _run(pool, np.random.default_rng(4), 60)
    assert _same(other.state_dict(), pool.state_dict())


def test_restoring_works_at_every_moment_of_an_episode(open_pool):
    def factory() -> gym.Env:
        return toy_envs.Drift(length=4)

    for moment in range(10):
        pool, other = open_pool(factory, num_envs=2), open_pool(factory, num_envs=2)
        _run(pool, np.random.default_rng(5), moment)
        other.load_state_dict(pool.state_dict())
        assert _run(other, np.random.default_rng(6), 6) == _run(pool, np.random.default_rng(6), 6)
        assert other.exact


def test_the_state_is_the_episode_its_actions_and_what_they_led_to(open_pool):
    lengths = iter([3, 3, 9])
    pool = open_pool(lambda: toy_envs.Counting(length=next(lengths), start=5), num_envs=2, seed=8, stream=2)
    for action in ([5, 6], [6, 7], [7, 5], [5, 6]):
        pool.step(np.array(action))
    state = pool.state_dict()
    assert (state["seed"], state["stream"], state["exact"]) == (8, 2, True)
    assert (state["episodes"].tolist(), state["lengths"].tolist()) == ([1, 0], [1, 4])
    assert state["returns"].tolist() == [1.0, 1.0 + 2 + 3 + 4]
    assert state["obs"].tolist() == [[1, 5], [4, 6]]
    assert state["actions"].tolist() == [5, 6, 7, 5, 6]  # one of the first environment, four of the second


def test_a_saved_state_does_not_change_when_the_pool_goes_on(open_pool):
    pool = open_pool("Pendulum-v1", num_envs=2)
    _run(pool, np.random.default_rng(0), 20)
    state = pool.state_dict()
    copies = copy.deepcopy(state)
    _run(pool, np.random.default_rng(0), 300)
    assert _same(state, copies)


def test_an_environment_that_does_not_come_back_is_named_and_begins_its_next_episode(open_pool, caplog):
    pool, other = (open_pool(lambda: toy_envs.Unseeded(length=9), num_envs=2) for _ in range(2))
    for _ in range(4):
        pool.step(np.array([1, 1]))
    with caplog.at_level(logging.WARNING):
        other.load_state_dict(pool.state_dict())
    assert other.exact is False
    assert len(caplog.records) == 2
    assert "NOT EXACT: Unseeded, environment 1: when its episode 0 was repeated, its observation after 4 steps" in caplog.text
    state = other.state_dict()
    assert (state["episodes"].tolist(), state["lengths"].tolist(), state["exact"]) == ([1, 1], [0, 0], False)
    assert other.step(np.array([1, 1])).next_obs[:, 0].tolist() == [1, 1]


def test_once_inexact_stays_inexact_over_later_checkpoints(open_pool):
    pools = [open_pool(lambda: toy_envs.Unseeded(length=9)) for _ in range(3)]
    pools[0].step(np.array([1]))
    pools[1].load_state_dict(pools[0].state_dict())
    pools[2].load_state_dict(pools[1].state_dict())  # at the start of an episode: comes back, but the history did not
    assert pools[2].exact is False


def test_a_reward_that_differs_when_repeated_is_noticed_too(open_pool):
    luck = iter(range(1000))

    class Lucky(toy_envs.Counting):
        def step(self, action):
            obs, _, *rest = super().step(action)
            return (obs, float(next(luck)), *rest)

    pool, other = open_pool(Lucky), open_pool(Lucky)
    pool.step(np.array([0]))
    other.load_state_dict(pool.state_dict())
    assert other.exact is False


def test_an_episode_that_ends_early_when_repeated_is_noticed_and_not_stepped_on(open_pool, caplog):
    pool, other = open_pool(lambda: toy_envs.Counting(length=9)), open_pool(lambda: toy_envs.Counting(length=2))
    for _ in range(4):
        pool.step(np.array([0]))
    other.load_state_dict(pool.state_dict())
    assert "when its episode 0 was repeated, it ended after 2 of 4 steps; it begins the next one" in caplog.text
    assert other.state_dict()["episodes"].tolist() == [1]


def test_a_state_that_does_not_fit_is_refused(open_pool):
    state = open_pool("CartPole-v1", num_envs=2).state_dict()
    with pytest.raises(
        CheckpointError, match=r"saved with num_envs=2, seed=0, stream=1; this run has num_envs=3, seed=7, stream=1"
    ):
        open_pool("CartPole-v1", num_envs=3, seed=7).load_state_dict(state)
    with pytest.raises(CheckpointError, match=r"obs saved with Pendulum-v1 has shape \(2, 4\); it needs \(2, 3\)"):
        open_pool("Pendulum-v1", num_envs=2).load_state_dict(state)
    with pytest.raises(CheckpointError, match=r"actions saved with CartPole-v1 has shape \(0,\); it needs \(5,\)"):
        open_pool("CartPole-v1", num_envs=2).load_state_dict({**state, "lengths": np.array([5, 0])})
    with pytest.raises(CheckpointError, match="lack obs"):
        open_pool("CartPole-v1", num_envs=2).load_state_dict({name: value for name, value in state.items() if name != "obs"})


def test_an_action_that_the_environment_writes_into_is_remembered_as_it_was_given(open_pool):
    class Greedy(toy_envs.Drift):
        def step(self, action):
            action *= 0.5
            return super().step(action)

    pool, other = (open_pool(lambda: Greedy(length=20, continuous=True)) for _ in range(2))
    pool.step(np.array([[1.0]], dtype=np.float32))
    assert pool.state_dict()["actions"].tolist() == [[1.0]]
    other.load_state_dict(pool.state_dict())
    assert other.exact


def test_actions_of_episodes_that_are_over_are_forgotten(open_pool):
    pool = open_pool(lambda: toy_envs.Counting(length=10), num_envs=2)
    for turn in range(1000):
        if turn % 16 == 0:
            pool.mark()
        pool.step(np.zeros(2, dtype=np.int64))
    assert len(pool._log) == 64


# ---------------------------------------------------------------- mark and rewind


@pytest.mark.parametrize("before", [0, 3, 63, 64, 65, 200])
@pytest.mark.parametrize("turn", [0, 1, 5, 64, 300])
def test_rewinding_gives_the_state_of_the_mark(open_pool, before, turn):
    pool = open_pool("toy_envs:ToyDrift-v0", num_envs=2, env_kwargs={"length": 70})
    rng = np.random.default_rng(0)
    _run(pool, rng, before)
    pool.mark()
    state = pool.state_dict()
    _run(pool, rng, turn)
    pool.rewind()
    assert _same(pool.state_dict(), state)


def test_after_a_rewind_the_environments_must_be_brought_back_before_they_are_stepped(open_pool):
    pool, twin = open_pool("Pendulum-v1"), open_pool("Pendulum-v1")
    for each in (pool, twin):
        _run(each, np.random.default_rng(0), 30)
    pool.mark()
    _run(pool, np.random.default_rng(1), 7)
    pool.rewind()
    with pytest.raises(EnvError, match=r"not where the books say; restore\(\) brings them back"):
        pool.step(np.zeros((1, 1)))
    pool.restore()
    assert _run(pool, np.random.default_rng(2), 20) == _run(twin, np.random.default_rng(2), 20)


def test_rewinding_without_a_mark_is_refused_and_to_a_mark_just_made_does_nothing(open_pool):
    pool = open_pool("CartPole-v1")
    with pytest.raises(EnvError, match="no mark"):
        pool.rewind()
    pool.mark()
    pool.rewind()
    pool.step(np.array([0]))


# ---------------------------------------------------------------- faults

FAULTS = [
    ("raise", "step raised ValueError: told to break at step 3"),
    ("nan_obs", "returned an observation with nan in column 1"),
    ("inf_obs", "returned an observation with -inf in column 0"),
    ("nan_reward", "returned the reward nan"),
    ("shape", "returned an observation of shape (3,) and dtype float32; declared are numbers of shape (2,)"),
]


@pytest.mark.parametrize("backend", ["local_sync", "local_async"])
@pytest.mark.parametrize(("fault", "said"), FAULTS)
def test_a_fault_names_environment_episode_step_and_action_and_leaves_the_books_alone(open_pool, backend, fault, said):
    kwargs = {"fault": fault, "at": 3, "episode": 1, "length": 5}
    pool = open_pool("toy_envs:ToyBrokenContinuous-v0", num_envs=2, env_kwargs=kwargs, backend=backend)
    actions = np.array([[0.25], [-0.5]])
    for _ in range(7):
        pool.step(actions)
    before = pool.state_dict()
    with pytest.raises(EnvFault) as error:
        pool.step(actions)
    message = f"toy_envs:ToyBrokenContinuous-v0, environment 0, episode 1, step 3: {said}; the action was [0.25]"
    assert str(error.value) == message
    assert isinstance(error.value, EnvError)
    assert _same(pool.state_dict(), before)
    with pytest.raises(EnvError, match="not where the books say"):  # some have made the step, some have not
        pool.step(actions)


def test_the_first_step_that_breaks_can_be_saved_from_the_turn_before(open_pool):
    pool = open_pool(lambda: toy_envs.Broken(fault="nan_reward", at=6, length=9), num_envs=2)
    _run(pool, np.random.default_rng(0), 2)
    pool.mark()
    state = pool.state_dict()
    with pytest.raises(EnvError, match="environment 0, episode 0, step 6"):
        _run(pool, np.random.default_rng(1), 10)
    pool.rewind()
    assert _same(pool.state_dict(), state)
    fresh = open_pool(lambda: toy_envs.Counting(length=9), num_envs=2)
    fresh.load_state_dict(state)
    assert fresh.exact


@pytest.mark.parametrize("fault", ["raise", "nan_obs"])
def test_a_new_episode_that_cannot_begin_is_named_and_leaves_the_books_alone(open_pool, fault):
    pool = open_pool(lambda: toy_envs.Broken(fault=fault, at=0, episode=1, length=2), num_envs=2)
    pool.step(np.array([0, 0]))
    before = pool.state_dict()
    with pytest.raises(EnvFault, match="Broken, environment 0, episode 1, step 0: re"):
        pool.step(np.array([0, 0]))
    assert _same(pool.state_dict(), before)
    with pytest.raises(EnvError, match="not where the books say"):
        pool.step(np.array([0, 0]))


def test_an_environment_that_broke_can_be_brought_back_and_sent_into_its_next_episode(open_pool):
    pool = open_pool(lambda: toy_envs.Broken(fault="raise", at=2, episode=0, length=5), num_envs=2)
    pool.step(np.array([1, 1]))
    with pytest.raises(EnvFault) as error:
        pool.step(np.array([1, 1]))
    pool.restore()
    pool.begin_next(np.array([error.value.index]))
    assert pool.obs.tolist() == [[0, 0], [1, 1]]
    assert pool.state_dict()["episodes"].tolist() == [1, 0]
    assert pool.step(np.array([1, 2])).next_obs.tolist() == [[1, 1], [2, 2]]


def test_an_environment_may_pass_over_episodes_and_the_others_stay_in_theirs(open_pool):
    pool, plain = (open_pool(lambda: toy_envs.Drift(length=5), num_envs=2, seed=4) for _ in range(2))
    for _ in range(3):
        pool.step(np.array([1, 1]))
    pool.begin_next(np.array([0]), passing=2)
    assert pool.state_dict()["episodes"].tolist() == [3, 0]
    assert pool.state_dict()["lengths"].tolist() == [0, 3]
    for _ in range(15):
        plain.step(np.array([1, 1]))
    assert pool.obs[0].tolist() == plain.obs[0].tolist()  # where its fourth episode begins


def test_an_action_that_is_not_finite_is_the_policys_fault(open_pool):
    pool = open_pool("Pendulum-v1", num_envs=2)
    with pytest.raises(
        NumericsError, match=r"Pendulum-v1, environment 1, episode 0, step 1: the policy chose the action \[nan\]"
    ):
        pool.step(np.array([[0.0], [np.nan]]))
    pool.step(np.zeros((2, 1)))  # nothing was stepped


def test_actions_of_the_wrong_shape_are_refused(open_pool):
    with pytest.raises(ValueError, match=r"actions must have shape \(2,\), one row per environment; got \(3,\)"):
        open_pool("CartPole-v1", num_envs=2).step(np.zeros(3, dtype=np.int64))


def test_a_hanging_step_leaves_a_state_that_can_be_saved(open_pool):
    kwargs = {"fault": "hang", "at": 3}
    pool = open_pool("toy_envs:ToyBroken-v0", num_envs=2, env_kwargs=kwargs, backend="local_async", timeout=0.3)
    pool.step(np.array([1, 2]))
    pool.mark()
    pool.step(np.array([1, 2]))
    with pytest.raises(EnvFault, match=r"environment 0, episode 0, step 3: gave no answer within 0\.3 s; .*the action was 1"):
        pool.step(np.array([1, 2]))
    pool.rewind()
    assert pool.state_dict()["lengths"].tolist() == [1, 1]


# ---------------------------------------------------------------- evaluation


def _first_actions(obs: np.ndarray) -> np.ndarray:
    return np.zeros(len(obs), dtype=np.int64)


def _by_sign(obs: np.ndarray) -> np.ndarray:
    return (obs[:, 2] > 0).astype(np.int64)  # keeps a pole up for a while


def test_returns_and_lengths_are_those_of_whole_episodes():
    source = EnvSource(env=lambda: toy_envs.Counting(length=4))
    returns, lengths = run_episodes(_first_actions, source, source.spec(), num_episodes=5, seed=0, stream=2)
    assert returns.tolist() == [1.0 + 2 + 3 + 4] * 5
    assert lengths.tolist() == [4] * 5


@pytest.mark.parametrize("max_parallel", [1, 3, 16])
def test_episode_i_is_the_same_however_many_run_side_by_side(max_parallel):
    source = EnvSource("CartPole-v1")
    spec = source.spec()
    returns, lengths = run_episodes(_by_sign, source, spec, num_episodes=7, seed=4, stream=2, max_parallel=max_parallel)
    alone = []
    for episode in range(7):
        env = gym.make("CartPole-v1")
        obs, _ = env.reset(seed=episode_seed(4, 2, episode))
        total, over = 0.0, False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(int(obs[2] > 0))
            total, over = total + reward, terminated or truncated
        alone.append(total)
    assert returns.tolist() == alone
    assert lengths.tolist() == alone
    assert len(set(alone)) > 1


def test_environments_that_are_free_take_the_next_episode_and_then_rest():
    steps: list[int] = []
    lengths = iter([0, 2, 7])

    class Lone(toy_envs.Counting):
        def step(self, action):
            steps.append(self.length)
            return super().step(action)

    source = EnvSource(env=lambda: Lone(length=next(lengths)))
    spec = source.spec()
    returns, done = run_episodes(_first_actions, source, spec, num_episodes=4, seed=0, stream=0, max_parallel=2)
    assert done.tolist() == [2, 7, 2, 2]  # the short one takes the third and the fourth
    assert returns.tolist() == [3.0, 28.0, 3.0, 3.0]
    assert len(steps) == 2 + 7 + 2 + 2  # nobody is stepped after its last end


def test_the_policy_sees_only_running_episodes():
    seen: list[int] = []
    lengths = iter([0, 1, 3])
    source = EnvSource(env=lambda: toy_envs.Counting(length=next(lengths)))

    def act(obs: np.ndarray) -> np.ndarray:
        seen.append(len(obs))
        return _first_actions(obs)

    run_episodes(act, source, source.spec(), num_episodes=2, seed=0, stream=0)
    assert seen == [2, 1, 1]


def test_no_episodes_take_no_time_and_a_cap_ends_those_without_end():
    source = EnvSource(env=lambda: toy_envs.Counting(length=10**9))
    spec = source.spec()
    assert [len(array) for array in run_episodes(_first_actions, source, spec, num_episodes=0, seed=0, stream=0)] == [0, 0]
    returns, lengths = run_episodes(_first_actions, source, spec, num_episodes=3, seed=0, stream=0, max_steps=3)
    assert (returns.tolist(), lengths.tolist()) == ([6.0] * 3, [3] * 3)


def test_an_evaluator_keeps_its_environments_and_gives_the_same_episodes_each_time():
    made: list[int] = []

    def factory() -> gym.Env:
        made.append(1)
        return toy_envs.Drift(length=6)

    source = EnvSource(env=factory)
    spec = source.spec()
    made.clear()
    evaluator = Evaluator(source, spec, max_parallel=4)
    first = evaluator.run(_first_actions, num_episodes=3, seed=1, stream=2)
    again = evaluator.run(_first_actions, num_episodes=3, seed=1, stream=2)
    assert first[0].tobytes() == again[0].tobytes()
    assert len(made) == 3
    more = evaluator.run(_first_actions, num_episodes=9, seed=1, stream=2)
    assert more[0][:3].tobytes() == first[0].tobytes()
    assert evaluator.run(_first_actions, num_episodes=2, seed=1, stream=2)[0].tobytes() == first[0][:2].tobytes()
    assert len(made) == 3 + 4
    evaluator.close()
    evaluator.close()


def test_environments_that_are_open_already_can_be_used_and_stay_open():
    source = EnvSource("CartPole-v1")
    spec = source.spec()
    envs = SyncEnvs.of(source, spec, num_envs=2)
    here = run_episodes(_by_sign, envs, spec, num_episodes=3, seed=0, stream=0)
    there = run_episodes(_by_sign, source, spec, num_episodes=3, seed=0, stream=0, max_parallel=2)
    assert here[0].tobytes() == there[0].tobytes()
    envs.reset([0], [0])


@pytest.mark.parametrize(("fault", "said"), FAULTS)
def test_a_fault_in_an_evaluation_names_episode_and_step(fault, said):
    source = EnvSource(env=lambda: toy_envs.Broken(fault=fault, at=3, episode=1))
    with pytest.raises(EnvFault) as error:
        run_episodes(_first_actions, source, source.spec(), num_episodes=4, seed=0, stream=0, max_parallel=2)
    assert str(error.value) == f"Broken, environment 0, evaluation episode 2, step 3: {said}; the action was 0"


def test_a_policy_that_chooses_nan_is_named_in_an_evaluation():
    source = EnvSource("Pendulum-v1")
    with pytest.raises(NumericsError, match="an evaluation of Pendulum-v1"):
        run_episodes(lambda obs: np.full((len(obs), 1), np.nan), source, source.spec(), num_episodes=1, seed=0, stream=0)


@pytest.mark.parametrize("moment", [0, 1, 17])
def test_an_object_that_cannot_be_made_twice_is_lent_by_the_training_pool_and_comes_back_unchanged(open_pool, moment):
    mine = toy_envs.Drift(length=20)
    source = EnvSource(env=mine)
    spec = source.spec()
    pool = EnvPool(source, spec, num_envs=1, seed=0, stream=1)
    undisturbed = open_pool(lambda: toy_envs.Drift(length=20))
    evaluator = Evaluator(source, spec, pool=pool)
    for each in (pool, undisturbed):
        _run(each, np.random.default_rng(0), moment)
    returns, _ = evaluator.run(_first_actions, num_episodes=3, seed=0, stream=2)
    assert _run(pool, np.random.default_rng(1), 50) == _run(undisturbed, np.random.default_rng(1), 50)
    assert pool.exact
    other = EnvSource(env=lambda: toy_envs.Drift(length=20))
    assert returns.tobytes() == run_episodes(_first_actions, other, spec, num_episodes=3, seed=0, stream=2)[0].tobytes()
    evaluator.close()
    pool.close()
    assert source.make() is mine


def test_a_pool_cannot_be_stepped_while_its_environments_are_lent(open_pool):
    pool = open_pool("CartPole-v1")
    with pool.lend() as envs:
        assert envs.num_envs == 1
        with pytest.raises(EnvError, match="not where the books say"):
            pool.step(np.array([0]))
    pool.step(np.array([0]))


def test_a_pool_step_reads_by_name():
    assert PoolStep._fields == ("next_obs", "rewards", "terminated", "truncated", "episode_returns", "episode_lengths")
