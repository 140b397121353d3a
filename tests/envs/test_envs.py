"""Spaces, sources and vectors of environments."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from multiprocessing import resource_tracker
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import toy_envs
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation, TimeLimit

from rl_training.envs import processes
from rl_training.envs.faults import EnvFault, all_finite
from rl_training.envs.processes import start_method, travels
from rl_training.envs.seeds import FEW, episode_seed, episode_seeds, generators, seed_sequence, state_words
from rl_training.envs.source import EnvSource
from rl_training.envs.spaces import describe_env, require_actions
from rl_training.envs.vector import SyncEnvs, VectorEnvs, make_envs
from rl_training.envs.workers import AsyncEnvs
from rl_training.errors import ConfigError, EnvError, MissingExtraError, UnsupportedSpace
from rl_training.types import EnvSpec

FLAT = spaces.Box(-1, 1, (3,))


class Shell(gym.Env):
    """Only spaces."""

    def __init__(self, observation_space: spaces.Space, action_space: spaces.Space) -> None:
        self.observation_space, self.action_space = observation_space, action_space


# ---------------------------------------------------------------- spaces


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (spaces.Box(-1, 1, (0,)), "at least one number"),
        (spaces.Box(-1, 1, (2, 2, 2, 2, 2)), "FlattenObservation"),
        (spaces.Discrete(1_000_000), "each choice has a column of its own, 10,000 at most"),
        (spaces.Text(5), "TransformObservation"),
        (spaces.Dict({"inner": spaces.Dict({"mission": spaces.Text(5)})}), r"Text\(.*\) as obs.inner.mission: leave it out"),
        (spaces.Dict({"many": spaces.Sequence(FLAT)}), "as obs.many"),
        (spaces.Graph(FLAT, None), "TransformObservation"),
        (spaces.Dict({}), "nothing to learn from"),
    ],
)
def test_an_observation_that_no_network_reads_is_refused_with_what_would_work(space, said):
    with pytest.raises(UnsupportedSpace, match=said) as error:
        describe_env(Shell(space, spaces.Discrete(2)), "Some-v0")
    assert "Some-v0 observes " in str(error.value)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize("space", [FLAT, spaces.Box(0, 255, (128,), np.uint8), spaces.Box(0, 1, (3,), bool)], ids=str)
def test_a_flat_box_is_its_row_whatever_its_numbers(space):
    spec = describe_env(Shell(space, spaces.Discrete(2)), "x")
    assert (spec.obs_dim, spec.observation) == (space.shape[0], ())


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (spaces.MultiDiscrete([[2, 3], [2, 2]]), "flatten it"),
        (spaces.MultiBinary([2, 2]), "flatten it"),
        (spaces.Dict({"a": FLAT}), "TransformAction"),
        (spaces.Tuple([FLAT]), "TransformAction"),
        (spaces.Box(-1, 1, (2, 2)), "flatten it"),
        (spaces.Box(-1, 1, (0,)), "flatten it"),
        (spaces.Box(-np.inf, np.inf, (2,)), "give it bounds"),
        (spaces.Box(-np.inf, 1, (2,)), "give it bounds"),
        (spaces.Box(np.finfo(np.float32).min, np.finfo(np.float32).max, (2,)), "give it bounds"),
        (spaces.Box(-1e300, 1e300, (2,), np.float64), "give it bounds"),
        (spaces.Box(0, 0, (2,)), "every low must be below its high"),
        (spaces.Box(0, 9, (2,), np.int64), "a Box of floats"),
    ],
)
def test_an_action_that_is_neither_discrete_nor_a_bounded_flat_box_is_refused_with_what_would_work(space, said):
    with pytest.raises(UnsupportedSpace, match=said) as error:
        describe_env(Shell(FLAT, space), "Some-v0")
    assert "Some-v0 takes " in str(error.value)


def test_what_the_refusals_advise_works():
    assert describe_env(FlattenObservation(gym.make("FrozenLake-v1")), "x").obs_dim == 16
    endless = Shell(FLAT, spaces.Box(-np.inf, np.inf, (2,)))
    bounded = gym.wrappers.TransformAction(endless, lambda action: action, spaces.Box(-1, 1, (2,)))
    assert describe_env(bounded, "x").high == (1.0, 1.0)


def test_describing_keeps_dimensions_bounds_and_the_first_discrete_action():
    assert describe_env(gym.make("CartPole-v1"), "CartPole-v1") == EnvSpec("CartPole-v1", 4, 2, discrete=True)
    assert describe_env(gym.make("Pendulum-v1"), "P") == EnvSpec("P", 3, 1, low=(-2.0,), high=(2.0,))
    assert describe_env(Shell(FLAT, spaces.Discrete(5, start=-2)), "x").action_start == -2
    assert describe_env(Shell(spaces.Box(0, 9, (2,), np.int64), spaces.Discrete(2)), "x").obs_dim == 2


def test_bounds_in_float64_are_rounded_to_float32_inwards():
    space = spaces.Box(np.array([-0.1, 0.1]), np.array([0.1, 0.3]), dtype=np.float64)
    spec = describe_env(Shell(FLAT, space), "x")
    corners = spec.to_env(np.array([[-1.0, -1.0], [1.0, 1.0]], dtype=np.float32))
    assert all(space.contains(corner) for corner in corners)
    assert not space.contains(np.array([0.1, 0.3], dtype=np.float32))  # what plain rounding would give


def test_bounds_that_all_columns_share_scale_as_those_that_differ():
    actions = np.random.default_rng(0).uniform(-1.5, 1.5, (50, 2)).astype(np.float32)
    shared = EnvSpec("x", 1, 2, low=(-0.3, -0.3), high=(2.1, 2.1)).to_env(actions)
    differing = EnvSpec("x", 1, 2, low=(-0.3, -0.4), high=(2.1, 2.2)).to_env(actions)
    assert shared.dtype == np.float32
    assert np.array_equal(shared[:, 0], differing[:, 0])
    assert np.array_equal(shared[:, 1], EnvSpec("x", 1, 1, low=(-0.3,), high=(2.1,)).to_env(actions[:, 1:])[:, 0])


@pytest.mark.parametrize("path", [(0, 5, 0, 3), (2**32 - 1, 1), (2**32, 7, 1), (2**70, 0)])
def test_seeds_are_those_numpy_makes_of_the_numbers(path):
    expected = np.random.SeedSequence(path).generate_state(8)
    assert np.array_equal(seed_sequence(*path).generate_state(8), expected)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 6, 9])
@pytest.mark.parametrize("count", [1, 4, 8, 11])
def test_words_of_many_paths_at_once_are_those_numpy_makes_of_each(length, count):
    paths = np.random.default_rng(length).integers(2**32, size=(40, length)).astype(np.uint32)
    paths[0], paths[1] = 0, 2**32 - 1
    expected = [np.random.SeedSequence(path.tolist()).generate_state(count) for path in paths]
    assert np.array_equal(state_words(paths, count), expected)


@pytest.mark.parametrize("first", [0, 7, 2**32 - 1, 2**32, 2**70])
@pytest.mark.parametrize("count", [1, FEW - 1, FEW, 40])
def test_generators_and_seeds_do_not_depend_on_how_many_are_made_together(first, count):
    paths = [(first, 5, number) for number in range(count)]
    assert episode_seeds(paths) == [episode_seed(*path) for path in paths]
    for path, rng in zip(paths, generators(paths), strict=True):
        assert rng.integers(2**63, size=3).tolist() == np.random.default_rng(path).integers(2**63, size=3).tolist()


def test_an_algorithm_of_the_wrong_kind_of_action_is_refused_and_others_are_named():
    cartpole, pendulum = EnvSpec("CartPole-v1", 4, 2, discrete=True), EnvSpec("Pendulum-v1", 3, 1, low=(-2.0,), high=(2.0,))
    with pytest.raises(UnsupportedSpace) as error:
        require_actions(cartpole, algo="sac", discrete=False, continuous=True, alternatives=["ppo", "ppg"])
    assert str(error.value) == "SAC takes continuous actions; CartPole-v1 takes Discrete(2). For discrete actions: ppo, ppg."
    with pytest.raises(
        UnsupportedSpace, match=r"X takes discrete actions; Pendulum-v1 takes a Box of 1\. For continuous.*: sac\."
    ):
        require_actions(pendulum, algo="x", discrete=True, continuous=False, alternatives=["sac"])
    require_actions(cartpole, algo="ppo", discrete=True, continuous=True)
    require_actions(pendulum, algo="sac", discrete=False, continuous=True)


# ---------------------------------------------------------------- sources


@pytest.mark.parametrize(
    ("env_id", "said"),
    [
        ("CartPol-v1", "there is no environment 'CartPol-v1'; did you mean 'CartPole-v1'"),
        ("cartpole-v1", "did you mean 'CartPole-v1'"),
        ("CartPole-v9", "did you mean 'CartPole-v1' or 'CartPole-v0'"),
        ("LunarLander-v2", "did you mean 'LunarLander-v3'"),
        ("Zzzzz/Qqqq-v0", "'package:Name-v0'"),
        ("!!", "'package:Name-v0'"),
        ("no_such_package:Some-v0", "there is no module 'no_such_package', neither in the current folder"),
        ("HalfCheetah-v2", "did you mean 'HalfCheetah-v5'"),
    ],
)
def test_an_unknown_id_is_refused_with_the_nearest_known_ones(env_id, said):
    with pytest.raises(EnvError) as error:
        EnvSource(env_id).make()
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("env_id", "module", "extra"), [("HalfCheetah-v5", "mujoco", "mujoco"), ("LunarLander-v3", "Box2D", "box2d")]
)
def test_a_missing_simulator_names_the_extra_that_brings_it(env_id, module, extra):
    # in a process of its own: a half-imported simulator must not stay behind here
    code = (
        f"import sys; sys.modules[{module!r}] = None\n"
        "from rl_training.envs.source import EnvSource\n"
        "from rl_training.errors import MissingExtraError\n"
        f"try: EnvSource({env_id!r}).make()\n"
        "except MissingExtraError as error: print(error)\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=_environment(), check=True, timeout=60
    )
    assert out.stdout.strip() == f"{env_id} needs the package {module!r}; install it with: pip install 'rl-training[{extra}]'"
    assert issubclass(MissingExtraError, ImportError)


def test_env_kwargs_reach_the_environment_and_wrong_ones_are_named():
    env = EnvSource("Pendulum-v1", {"g": 1.5, "max_episode_steps": 25}).make()
    assert (env.unwrapped.g, env.spec.max_episode_steps) == (1.5, 25)
    with pytest.raises(EnvError, match=r"Pendulum-v1 failed with env_kwargs=\{'gravity': 3\}: TypeError: .*'gravity'"):
        EnvSource("Pendulum-v1", {"gravity": 3}).make()


def test_an_old_version_is_logged_once_and_is_no_error(caplog):
    source = EnvSource("CartPole-v0")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            source.make().close()
    assert [record.message for record in caplog.records] == [
        "The environment CartPole-v0 is out of date. You should consider upgrading to version `v1`."
    ]


def test_nothing_to_make_an_environment_from_is_refused():
    with pytest.raises(ConfigError, match="no environment"):
        EnvSource()
    with pytest.raises(ConfigError, match="env_kwargs go to"):
        EnvSource(env=toy_envs.Bandit, env_kwargs={"a": 1})
    with pytest.raises(EnvError, match=r"got builtins\.int"):
        EnvSource(env=3)
    with pytest.raises(EnvError, match="vector of environments"):
        EnvSource(env=gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync"))


def test_a_factory_must_make_a_new_gymnasium_env_each_time():
    with pytest.raises(EnvError, match=r"must give a gymnasium\.Env; it gave builtins\.int"):
        EnvSource(env=lambda: 3).make()
    with pytest.raises(EnvError, match="the environment factory failed: ZeroDivisionError"):
        EnvSource(env=lambda: 1 / 0).make()
    with pytest.raises(EnvError, match="missing 1 required positional argument"):
        EnvSource(env=lambda number: toy_envs.Bandit()).make()
    one = toy_envs.Bandit()
    source = EnvSource(env=lambda: one)
    source.make()
    with pytest.raises(EnvError, match="returned the same Bandit object twice; pass a factory that makes a new"):
        source.make()


def test_the_name_of_an_environment_is_its_id_or_its_class():
    assert EnvSource("CartPole-v1").env_id == "CartPole-v1"
    assert EnvSource(env=gym.make("CartPole-v1")).env_id == "CartPole-v1"
    assert EnvSource(env=TimeLimit(toy_envs.Bandit(), 3)).env_id == "Bandit"
    assert EnvSource(env=toy_envs.make_counting).env_id == "Counting"
    assert EnvSource("my task", env=toy_envs.make_counting).spec().env_id == "my task"


class Closing(toy_envs.Bandit):
    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_a_users_object_is_lent_once_at_a_time_and_never_closed():
    mine = Closing()
    source = EnvSource(env=mine)
    assert source.spec() == EnvSpec("Closing", 1, 3, discrete=True)
    envs = make_envs(source, source.spec(), num_envs=1)
    assert source.can_make_more is False
    with pytest.raises(EnvError, match="a second Closing is needed, but one object was given and it has no spec"):
        source.make()
    envs.close()
    assert source.make() is mine
    assert mine.closed == 0


def test_an_object_that_its_spec_describes_completely_can_be_made_again():
    mine = gym.make("Pendulum-v1", g=2.5, max_episode_steps=7)
    source = EnvSource(env=mine)
    assert source.can_make_more
    assert source.make() is mine
    other = source.make()
    assert other is not mine
    assert (other.unwrapped.g, other.spec.max_episode_steps) == (2.5, 7)


class Doubling(gym.RewardWrapper):
    """A wrapper that does not record its arguments, as users write them."""

    def reward(self, reward: float) -> float:
        return 2 * reward


def test_an_object_that_its_spec_does_not_describe_is_not_made_again():
    source = EnvSource(env=Doubling(gym.make("CartPole-v1")))
    assert source.can_make_more is False
    source.make()
    with pytest.raises(EnvError, match="pass a factory that makes a new environment on every call"):
        source.make()


def test_only_environments_that_the_source_made_are_closed():
    made: list[Closing] = []

    def factory() -> Closing:
        made.append(Closing())
        return made[-1]

    source = EnvSource(env=factory)
    spec = source.spec()
    envs = make_envs(source, spec, num_envs=2)
    envs.close()
    envs.close()
    assert [env.closed for env in made] == [1, 1, 1]


# ---------------------------------------------------------------- vectors


def _environment() -> dict[str, str]:
    root = Path(__file__).resolve().parents[2]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root / "tests" / "helpers")])}


@pytest.fixture
def opened():
    """make_envs that closes what it opened."""
    envs: list[VectorEnvs] = []

    def make(source: EnvSource, **kwargs) -> VectorEnvs:
        envs.append(make_envs(source, source.spec(), **kwargs))
        return envs[-1]

    yield make
    for each in envs:
        each.close()


BOTH = pytest.mark.parametrize("backend", ["local_sync", "local_async"])


@BOTH
def test_only_the_environments_named_are_reset_or_stepped(opened, backend):
    envs = opened(EnvSource("toy_envs:ToyCounting-v0"), num_envs=3, backend=backend)
    assert envs.reset(range(3), [1, 2, 3]).tolist() == [[0, 0]] * 3
    envs.step(np.array([0, 1, 2]))
    done = envs.step_some([2, 0], np.array([1, 2]))
    assert done.obs.tolist() == [[2, 1], [2, 2]]  # in the order they were named
    assert done.rewards.tolist() == [2.0, 2.0]
    assert envs.reset([0], [9]).tolist() == [[0, 0]]
    assert envs.step(np.array([0, 0, 0])).obs[:, 0].tolist() == [1, 2, 3]


@BOTH
def test_an_ended_episode_keeps_its_last_observation_and_nothing_starts_over_by_itself(opened, backend):
    envs = opened(EnvSource("toy_envs:ToyCounting-v0", {"length": 2, "ends": "truncated"}), num_envs=2, backend=backend)
    envs.reset(range(2), [1, 2])
    envs.step(np.array([0, 0]))
    done = envs.step(np.array([1, 2]))
    assert done.obs.tolist() == [[2, 1], [2, 2]]
    assert (done.terminated.tolist(), done.truncated.tolist()) == ([False, False], [True, True])
    assert [array.dtype for array in done] == [np.float32, np.float64, bool, bool]


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "HalfCheetah-v5"])
def test_sync_and_async_environments_give_the_same_bits(opened, env_id):
    source = EnvSource(env_id)
    spec = source.spec()
    sync, workers = (opened(source, num_envs=3, backend=backend) for backend in ("local_sync", "local_async"))
    rng = np.random.default_rng(0)
    assert sync.reset(range(3), [5, 6, 7]).tobytes() == workers.reset(range(3), [5, 6, 7]).tobytes()
    for _ in range(60):
        # float64 on purpose: what reaches an environment is float32 in either case
        actions = rng.integers(2, size=3) if spec.discrete else rng.uniform(-1, 1, (3, spec.action_dim))
        here, there = sync.step(actions), workers.step(actions)
        assert [array.tobytes() for array in here] == [array.tobytes() for array in there]
        over = np.flatnonzero(here.terminated | here.truncated)
        if len(over):
            assert sync.reset(over, [1] * len(over)).tobytes() == workers.reset(over, [1] * len(over)).tobytes()


FAULTS = [
    ("raise", "step raised ValueError: told to break at step 2"),
    ("shape", "returned an observation of shape (3,) and dtype float32; declared are numbers of shape (2,)"),
    ("shape_broadcast", "returned an observation of shape (1,) and dtype float32; declared are numbers of shape (2,)"),
    ("complex", "returned an observation of shape (2,) and dtype complex64; declared are numbers of shape (2,)"),
    ("text", "returned an observation of shape () and dtype <U8; declared are numbers of shape (2,)"),
    ("reward_array", "returned a reward that is not one number: ndarray array([1.])"),
    ("reward_none", "returned a reward that is not one number: NoneType None"),
    ("flag_int", "returned terminated that is not a bool: int 0"),
    ("flag_none", "returned truncated that is not a bool: NoneType None"),
    ("four_values", "step must return (observation, reward, terminated, truncated, info); it returned tuple of 4"),
]


@pytest.mark.parametrize(("fault", "said"), FAULTS)
def test_a_wrong_answer_names_the_environment_and_what_was_wrong(opened, fault, said):
    envs = opened(EnvSource(env=lambda: toy_envs.Broken(fault=fault, at=2)), num_envs=2)
    envs.reset(range(2), [0, 0])
    envs.step_some([1], np.array([0]))
    with pytest.raises(EnvFault) as error:
        envs.step(np.array([0, 0]))
    assert str(error.value).startswith(f"Broken, environment 1: {said}")


def test_workers_report_wrong_answers_like_the_loop_does_and_work_on(opened):
    source = EnvSource("toy_envs:ToyBroken-v0", {"fault": "raise", "at": 2, "episode": 0})
    envs = opened(source, num_envs=4, backend="local_async", num_workers=2)
    envs.reset(range(4), [0] * 4)
    envs.step_some([3], np.array([0]))
    with pytest.raises(EnvFault) as error:
        envs.step(np.zeros(4, dtype=np.int64))
    assert str(error.value) == "toy_envs:ToyBroken-v0, environment 3: step raised ValueError: told to break at step 2"
    assert "in _spoil" in str(error.value.__cause__)  # the worker's own traceback
    envs.reset(range(4), [0] * 4)
    assert envs.step(np.zeros(4, dtype=np.int64)).obs[:, 0].tolist() == [1, 1, 1, 1]


@BOTH
def test_a_reset_that_fails_is_named(opened, backend):
    envs = opened(EnvSource("toy_envs:ToyBroken-v0", {"fault": "raise", "at": 0, "episode": 1}), num_envs=2, backend=backend)
    envs.reset(range(2), [0, 0])
    with pytest.raises(EnvFault, match=r"environment 1: reset\(seed=7\) raised ValueError: told to break"):
        envs.reset([1], [7])


def test_an_environment_of_the_old_api_is_named(opened):
    class Old(toy_envs.Bandit):
        def reset(self, **_):  # type: ignore[override]
            return np.ones(1, dtype=np.float32)

    with pytest.raises(EnvFault, match=r"reset must return \(observation, info\); it returned ndarray"):
        opened(EnvSource(env=Old), num_envs=1).reset([0], [0])


def test_environments_of_one_factory_must_have_the_spaces_that_were_described():
    lengths = iter([3, 3, 4])
    source = EnvSource(env=lambda: toy_envs.Bandit(num_actions=next(lengths)))
    spec = source.spec()
    with pytest.raises(EnvFault, match="environment 1: its spaces are not those that were described"):
        make_envs(source, spec, num_envs=2)


def test_an_unknown_backend_and_an_impossible_number_of_environments_are_refused():
    source = EnvSource("CartPole-v1")
    with pytest.raises(ConfigError, match="local_sync, local_async; got 'ray'"):
        make_envs(source, source.spec(), num_envs=1, backend="ray")
    with pytest.raises(ConfigError, match="num_envs must be at least 1; got 0"):
        make_envs(source, source.spec(), num_envs=0)


def _pids(envs: AsyncEnvs) -> list[int]:
    return [worker.process.pid for worker in envs._workers]


def _gone(pids: list[int]) -> bool:
    """Whether not even a zombie is left, soon."""
    deadline = time.monotonic() + 10
    while (left := [pid for pid in pids if Path(f"/proc/{pid}").exists()]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not left


def test_a_step_that_hangs_is_named_after_the_timeout_and_leaves_no_process(opened):
    source = EnvSource("toy_envs:ToyBroken-v0", {"fault": "hang", "at": 2})
    envs = opened(source, num_envs=4, backend="local_async", timeout=0.5, num_workers=2)
    pids = _pids(envs)
    envs.reset(range(4), [0] * 4)
    envs.step_some([3], np.array([0]))
    began = time.monotonic()
    with pytest.raises(EnvFault, match=r"ToyBroken-v0, environment 3: gave no answer within 0\.5 s; its process was ended"):
        envs.step(np.zeros(4, dtype=np.int64))
    assert time.monotonic() - began < 3
    assert _gone(pids)
    with pytest.raises(EnvError, match=r"the workers of .* are closed"):
        envs.step(np.zeros(4, dtype=np.int64))


@pytest.mark.parametrize(
    ("fault", "said"), [("exit", "its process ended: exit code 7"), ("kill", "its process ended: signal SIGKILL")]
)
def test_a_worker_that_dies_is_named_and_the_others_end_with_it(opened, fault, said):
    source = EnvSource("toy_envs:ToyBroken-v0", {"fault": fault, "at": 2})
    envs = opened(source, num_envs=2, backend="local_async", num_workers=2)
    pids = _pids(envs)
    envs.reset(range(2), [0, 0])
    envs.step_some([1], np.array([0]))
    with pytest.raises(EnvFault, match=f"environment 1: {said}"):
        envs.step(np.zeros(2, dtype=np.int64))
    assert _gone(pids)


def test_an_environment_that_cannot_be_made_in_a_worker_is_named():
    parent = os.getpid()

    def only_here() -> gym.Env:
        if os.getpid() != parent:
            raise RuntimeError("not here")
        return toy_envs.Bandit()

    source = EnvSource(env=only_here)
    with pytest.raises(EnvFault, match="Bandit, environment 0: could not be made in a worker process: RuntimeError: not here"):
        make_envs(source, source.spec(), num_envs=2, backend="local_async")
    assert not multiprocessing.active_children()


def test_closing_or_forgetting_workers_leaves_no_process():
    source = EnvSource("toy_envs:ToyCounting-v0")
    envs = make_envs(source, source.spec(), num_envs=2, backend="local_async", num_workers=2)
    pids = _pids(envs)
    envs.close()
    envs.close()
    assert _gone(pids)
    envs = make_envs(source, source.spec(), num_envs=2, backend="local_async", num_workers=2)
    pids = _pids(envs)
    del envs
    gc.collect()
    assert _gone(pids)


def test_workers_outlive_signals_that_are_meant_for_their_parent(opened):
    envs = opened(EnvSource("toy_envs:ToyCounting-v0"), num_envs=2, backend="local_async")
    envs.reset(range(2), [0, 0])
    for pid in _pids(envs):
        for signum in processes.ENDING:
            os.kill(pid, signum)
    assert envs.step(np.zeros(2, dtype=np.int64)).obs[:, 0].tolist() == [1, 1]


def children() -> set[int]:
    main = threading.main_thread().native_id
    return set(map(int, Path(f"/proc/self/task/{main}/children").read_text().split()))


@pytest.mark.parametrize("signum", processes.ENDING)
def test_workers_outlive_them_while_they_start(signum, opened, capfd):
    resource_tracker.ensure_running()
    known, started, over = children(), set(), threading.Event()

    def disturb() -> None:
        while not over.wait(0.0005):
            for pid in children() - known:
                started.add(pid)
                with suppress(ProcessLookupError):
                    os.kill(pid, signum)

    disturbing = threading.Thread(target=disturb)
    disturbing.start()
    try:
        envs = opened(EnvSource("toy_envs:ToyCounting-v0"), num_envs=2, backend="local_async", num_workers=2)
        envs.reset(range(2), [0, 0])
    finally:
        over.set()
        disturbing.join()
    assert started == set(_pids(envs))
    assert envs.step(np.zeros(2, dtype=np.int64)).obs[:, 0].tolist() == [1, 1]
    assert capfd.readouterr().err == ""
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()


def test_what_an_environment_starts_in_a_worker_can_be_ended(opened):
    """Signals that are blocked or ignored are so in children too."""
    envs = opened(EnvSource("toy_envs:ToyCounting-v0"), num_envs=1, backend="local_async")
    status = Path(f"/proc/{_pids(envs)[0]}/status").read_text()
    for mask in ("SigBlk", "SigIgn"):
        kept = int(re.search(rf"{mask}:\s+(\w+)", status)[1], 16)
        assert [number.name for number in processes.ENDING if kept >> (number - 1) & 1] == []


SCRIPT = """
import os, sys
import numpy as np
print("script runs", flush=True)
from rl_training.envs.source import EnvSource
from rl_training.envs.vector import make_envs
source = EnvSource("toy_envs:ToyBroken-v0", {"fault": "hang", "at": 2})
envs = make_envs(source, source.spec(), num_envs=2, backend="local_async", num_workers=2)
envs.reset([0, 1], [0, 0])
envs.step(np.zeros(2, dtype=np.int64))
print(*[worker.process.pid for worker in envs._workers], flush=True)
if sys.argv[1] == "die":
    envs.step(np.zeros(2, dtype=np.int64))
"""


@pytest.mark.parametrize("how", ["die", "leave"])
def test_a_script_needs_no_guard_and_its_workers_end_with_it(tmp_path, how):
    """Also when it is killed while a step hangs, and when it leaves without closing anything."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    process = subprocess.Popen([sys.executable, str(script), how], stdout=subprocess.PIPE, text=True, env=_environment())
    assert process.stdout is not None
    assert process.stdout.readline() == "script runs\n"
    pids = [int(pid) for pid in process.stdout.readline().split()]  # and not a second "script runs"
    assert len(pids) == 2
    if how == "die":
        time.sleep(0.2)
        process.kill()
    process.communicate(timeout=30)
    assert _gone(pids)


def test_workers_start_clean_where_everything_can_be_imported_and_as_forks_where_not():
    inside = 3
    assert start_method(EnvSource("HalfCheetah-v5").recipe(), "x") == "spawn"
    assert start_method(EnvSource(env=toy_envs.make_counting).recipe(), "x") == "spawn"
    assert start_method(EnvSource(env=gym.make("CartPole-v1")).recipe(), "x") == "spawn"
    assert start_method(EnvSource(env=lambda: toy_envs.Bandit(num_actions=inside)).recipe(), "x") == "fork"
    assert travels({"a": [1, "b", None, np.zeros(3), (2.0, Path())]})
    assert not travels({"a": [lambda: 3]})
    assert not travels("__main__:Env")


def test_workers_of_a_factory_that_lives_only_here_are_forks_and_still_work(opened):
    length = 2
    envs = opened(EnvSource(env=lambda: toy_envs.Counting(length=length)), num_envs=2, backend="local_async")
    envs.reset(range(2), [0, 0])
    envs.step(np.zeros(2, dtype=np.int64))
    assert envs.step(np.zeros(2, dtype=np.int64)).terminated.all()


def test_an_object_that_cannot_be_made_again_is_not_sent_to_workers():
    source = EnvSource(env=toy_envs.Bandit())
    with pytest.raises(EnvError, match="pass a factory"):
        make_envs(source, source.spec(), num_envs=1, backend="local_async")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_number_that_is_not_finite_is_found_wherever_it_stands(bad):
    values = np.full((3, 7), np.finfo(np.float32).max, dtype=np.float32)
    assert all_finite(values)
    for place in range(values.size):
        spoilt = values.copy()
        spoilt.flat[place] = bad
        assert not all_finite(spoilt)


def test_seeds_of_episodes_are_31_bits_and_belong_to_their_path_alone():
    seeds = {
        episode_seed(run, stream, env, episode)
        for run in (0, 1)
        for stream in (0, 1)
        for env in range(5)
        for episode in range(50)
    }
    assert len(seeds) == 2 * 2 * 5 * 50
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert episode_seed(1, 2, 3, 4) == episode_seed(1, 2, 3, 4)


def test_the_loop_does_not_touch_what_an_environment_reuses():
    class Reusing(toy_envs.Counting):
        """Returns the very same array at every step, as simulators do."""

        buffer = np.zeros(2, dtype=np.float32)

        def step(self, action):
            obs, *rest = super().step(action)
            self.buffer[:] = obs
            return (self.buffer, *rest)

    source = EnvSource(env=Reusing)
    envs = SyncEnvs.of(source, source.spec(), num_envs=2)
    envs.reset(range(2), [0, 0])
    first = envs.step(np.array([1, 2])).obs
    envs.step(np.array([0, 0]))
    assert first.tolist() == [[1, 1], [1, 2]]


@pytest.mark.parametrize("flush", [True, False])
def test_workers_take_denormal_numbers_for_zero_where_their_parent_does(flush):
    import torch

    torch.set_flush_denormal(flush)
    try:
        source = EnvSource(env=toy_envs.Tiny)
        rewards = []
        for backend in ("local_sync", "local_async"):
            envs = make_envs(source, source.spec(), num_envs=1, backend=backend)
            envs.reset([0], [1])
            rewards.append(envs.step(np.array([0])).rewards[0].tobytes())
            envs.close()
    finally:
        torch.set_flush_denormal(False)
    assert rewards[0] == rewards[1] == np.float64(0.0 if flush else 1e-310).tobytes()
