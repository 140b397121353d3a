"""Environments of other packages by their ids alone, and the preprocessing of Atari games worked out by hand."""

import logging
import sys
from importlib.util import find_spec

import gymnasium as gym
import numpy as np
import pytest
import toy_envs

from rl_training.envs.atari import StandardAtari, _overlaps
from rl_training.envs.families import make_by_id
from rl_training.envs.fresh import renewal
from rl_training.envs.pool import EnvPool
from rl_training.envs.source import EnvSource
from rl_training.errors import ConfigError, EnvError, MissingExtraError
from rl_training.experiment.config import TrainConfig
from rl_training.runtime import opening
from rl_training.runtime.collector import random_actions

PACKAGES = {"ALE/": "ale_py", "MinAtar/": "minatar", "Procgen/": "procgen"}
HOW = {
    "ale_py": "pip install 'rl-training[atari]'",
    "minatar": "pip install 'rl-training[minatar]'",
    "procgen": "pip install --no-deps procgen2",
    "gymnasium_robotics": "pip install 'rl-training[robotics]'",
}
IDS = [
    *(f"MinAtar/{game}-v1" for game in ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")),
    *("ALE/Pong-v5", "ALE/Breakout-v5"),
    *("AdroitHandDoorSparse-v1", "AdroitHandPen-v1", "AdroitHandHammer-v1", "AdroitHandRelocate-v1"),
    *("AntMaze_UMaze-v5", "PointMaze_UMaze-v3"),
    *(f"Procgen/{game}-v0" for game in ("bigfish", "coinrun", "starpilot", "maze")),
]
KWARGS = {"ALE/": {"atari": True, "max_episode_steps": 40}, "Procgen/": {"distribution_mode": "easy", "num_levels": 50}}


def package_of(env_id):
    return next((package for start, package in PACKAGES.items() if env_id.startswith(start)), "gymnasium_robotics")


def needs(package):
    return pytest.mark.skipif(find_spec(package) is None, reason=f"no {package} here; get it with: {HOW[package]}")


def each(ids):
    return [pytest.param(env_id, marks=needs(package_of(env_id))) for env_id in ids]


def flat(env_id):
    """Numbers in a row, whatever it observes."""
    kwargs = next((kwargs for start, kwargs in KWARGS.items() if env_id.startswith(start)), {})
    env = gym.wrappers.FlattenObservation(make_by_id(env_id, disable_env_checker=True, **kwargs))
    space = gym.spaces.Box(-np.inf, np.inf, env.observation_space.shape, np.float32)
    return gym.wrappers.TransformObservation(env, lambda obs: obs.astype(np.float32), space)


def played(pool, rng, steps):
    found = []
    for _ in range(steps):
        step = pool.step(pool.spec.to_env(random_actions(pool.spec, rng, pool.num_envs)))
        found.append((step.next_obs.tobytes(), step.rewards.tobytes(), step.terminated.tobytes(), step.episode_returns))
    return found


# ---------------------------------------------------------------- with the packages


@pytest.mark.parametrize("env_id", each(IDS))
def test_a_run_goes_on_exactly_in_environments_made_anew(env_id):
    def source():
        return EnvSource(env=lambda: flat(env_id))

    pools = [EnvPool(source(), source().spec(), num_envs=2, seed=0, stream=1) for _ in range(2)]
    whole, resumed = pools
    try:
        played(whole, np.random.default_rng(0), 130)
        resumed.load_state_dict(whole.state_dict())
        assert resumed.exact
        assert played(whole, np.random.default_rng(1), 130) == played(resumed, np.random.default_rng(1), 130)
    finally:
        for pool in pools:
            pool.close()


@pytest.mark.parametrize("env_id", each(["MinAtar/Breakout-v1", "ALE/Pong-v5", "Procgen/bigfish-v0", "AdroitHandPen-v1"]))
def test_an_episode_is_the_same_whatever_came_before_it(env_id):
    fresh, used = flat(env_id), flat(env_id)
    used.reset(seed=1)
    actions = [used.action_space.sample() for _ in range(30)]
    for action in actions:
        used.step(action)
    for seed in (2, 3):
        for renew in map(renewal, (fresh, used)):  # as is done before every episode of a run
            if renew is not None:
                renew()
        first, second = fresh.reset(seed=seed)[0], used.reset(seed=seed)[0]
        assert np.array_equal(first, second)
        for action in actions:
            (obs, reward, *ends, _), (other, earned, *also, _) = fresh.step(action), used.step(action)
            assert np.array_equal(obs, other)
            assert (reward, ends) == (earned, also)
            if any(ends):
                break


@needs("minatar")
def test_the_last_action_of_an_episode_does_not_reach_into_the_next():
    env = make_by_id("MinAtar/Breakout-v1")
    env.reset(seed=0)
    env.step(2)
    assert env.unwrapped.game.last_action != 0
    renewal(env)()
    assert env.unwrapped.game.last_action == 0


@needs("ale_py")
def test_atari_true_is_what_gymnasium_s_preprocessing_gives():
    cv2 = pytest.importorskip("cv2", reason="no OpenCV here to compare with; get it with: pip install opencv-python-headless")
    assert cv2 is not None
    ours = make_by_id("ALE/SpaceInvaders-v5", atari=True)
    plain = gym.wrappers.AtariPreprocessing(gym.make("ALE/SpaceInvaders-v5", frameskip=1))
    theirs = gym.wrappers.FrameStackObservation(plain, 4)
    ours.reset(seed=3)
    theirs.reset(seed=3)
    for step in range(200):
        action = ours.action_space.sample()
        (obs, reward, *ends, _), (expected, earned, *also, _) = ours.step(action), theirs.step(action)
        if step >= 4:  # at a reset they show the last frame alone
            assert np.abs(obs.astype(int) - expected.astype(int)).max() <= 1  # OpenCV rounds a few in 100,000 otherwise
        assert (reward, ends) == (earned, also)
        if any(ends):
            break


@needs("procgen")
def test_a_state_of_procgen_goes_on_in_another_instance():
    one, other = (make_by_id("Procgen/bigfish-v0", distribution_mode="easy") for _ in range(2))
    one.reset(seed=1)
    other.reset(seed=2)
    for _ in range(50):
        one.step(one.action_space.sample())
    state = one.unwrapped.get_state()
    other.unwrapped.set_state(state)
    assert other.unwrapped.get_state() == state
    for _ in range(300):
        action = one.action_space.sample()
        (obs, reward, over, *_), (same, earned, ended, *_) = one.step(action), other.step(action)
        assert np.array_equal(obs, same)
        assert (reward, over) == (earned, ended)


@needs("procgen")
def test_the_levels_of_procgen_are_those_that_were_asked_for():
    env = make_by_id("Procgen/coinrun-v0", num_levels=3, start_level=40)
    levels = {env.reset(seed=seed)[1]["level_seed"] for seed in range(30)}
    assert levels == {40, 41, 42}


@needs("procgen")
def test_the_last_observation_of_a_procgen_episode_is_its_own():
    env = make_by_id("Procgen/bigfish-v0", distribution_mode="hard")
    obs, _ = env.reset(seed=0)
    over = False
    while not over:
        before = obs
        obs, _, over, _, info = env.step(8)
    assert np.array_equal(obs, before)
    assert not np.array_equal(obs, env.render())  # where the next level has begun
    assert info["prev_level_seed"] != info["level_seed"]


@pytest.mark.parametrize(
    ("env_id", "kwargs", "said"),
    [
        pytest.param("ALE/Pong-v5", {"atari": 1}, "atari: given 1; possible: true, false", marks=needs("ale_py")),
        pytest.param("ALE/Pong-v5", {"atari": True, "frameskip": 4}, "atari: true decides frameskip", marks=needs("ale_py")),
        pytest.param("Procgen/coinrun-v0", {"distribution_mode": "eazy"}, "did you mean 'easy'", marks=needs("procgen")),
        ("CartPole-v1", {"atari": True}, r"is for games of ale-py such as ALE/Pong-v5; given CartPole-v1"),
    ],
)
def test_arguments_that_cannot_be_are_refused(env_id, kwargs, said):
    with pytest.raises(ConfigError, match=said):
        EnvSource(env_id, kwargs).make()


# ---------------------------------------------------------------- without them


@pytest.mark.parametrize("env_id", ["ALE/Pong-v5", "MinAtar/Breakout-v1", "AdroitHandDoor-v1", "AntMaze_UMaze-v5"])
def test_a_package_that_is_missing_is_named_with_its_extra(env_id, monkeypatch):
    package = package_of(env_id)
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(gym.registry, env_id, raising=False)
    with pytest.raises(MissingExtraError) as error:
        EnvSource(env_id).spec()
    assert str(error.value) == f"{env_id} needs the package {package!r}; install it with: {HOW[package]}"


def test_procgen_that_is_missing_is_named_with_the_command_that_gets_it(monkeypatch):
    from rl_training.envs import procgen

    monkeypatch.setattr(procgen, "find_spec", lambda name: None)
    procgen._library.cache_clear()
    with pytest.raises(MissingExtraError, match="'procgen2'; install it with: pip install --no-deps procgen2"):
        EnvSource("Procgen/bigfish-v0").spec()


def test_a_game_that_procgen_has_not_is_answered_with_those_it_has():
    with pytest.raises(EnvError, match="did you mean 'Procgen/bigfish-v0'"):
        EnvSource("Procgen/bigfis-v0").spec()


def test_an_id_that_is_known_already_is_left_alone(monkeypatch):
    gym.register("AntMaze_OfMyOwn-v0", entry_point=toy_envs.Counting)
    monkeypatch.setitem(sys.modules, "gymnasium_robotics", None)
    try:
        assert EnvSource("AntMaze_OfMyOwn-v0").spec().obs_dim == 2
    finally:
        del gym.registry["AntMaze_OfMyOwn-v0"]


# ---------------------------------------------------------------- Atari, by hand


class Frames(gym.Env):
    """Every frame is as bright as its number, odd ones dark by half (sprites flicker); each earns its number."""

    observation_space = gym.spaces.Box(0, 255, (210, 160), np.uint8)
    action_space = gym.spaces.Discrete(3)

    def __init__(self, length=10_000):
        self.length, self.taken = length, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.frame = 0
        self.taken.clear()
        return self._shown(), {}

    def step(self, action):
        self.frame += 1
        self.taken.append(action)
        return self._shown(), float(self.frame), self.frame >= self.length, False, {}

    def _shown(self):
        return np.full((210, 160), self.frame // 2 if self.frame % 2 else self.frame, dtype=np.uint8)


def test_an_episode_begins_with_one_to_thirty_steps_of_doing_nothing():
    counts = set()
    for seed in range(40):
        env = StandardAtari(Frames())
        obs, _ = env.reset(seed=seed)
        assert set(env.unwrapped.taken) == {0}
        assert obs.shape == (4, 84, 84)
        assert (obs == env.unwrapped._shown()[0, 0]).all()
        counts.add(len(env.unwrapped.taken))
    assert counts <= set(range(1, 31))
    assert len(counts) > 15


def test_a_step_is_four_frames_of_which_the_brighter_of_the_last_two_is_seen():
    env = StandardAtari(Frames())
    env.reset(seed=0)
    first = env.unwrapped.frame
    obs, reward, terminated, truncated, _ = env.step(2)
    assert env.unwrapped.taken[first:] == [2] * 4
    assert reward == sum(range(first + 1, first + 5))
    assert (terminated, truncated) == (False, False)
    last = first + 4
    assert obs[3].max() == obs[3].min() == (last if last % 2 == 0 else last - 1)  # the even one of the last two
    assert (obs[:3] == (first // 2 if first % 2 else first)).all()


def test_the_newest_picture_is_the_last_of_four():
    env = StandardAtari(Frames())
    env.reset(seed=0)
    shown = [env.step(1)[0] for _ in range(6)]
    assert [picture[0, 0] for picture in shown[5]] == [shown[i][3, 0, 0] for i in (2, 3, 4, 5)]


def test_what_was_handed_out_does_not_change_later():
    env = StandardAtari(Frames())
    obs, _ = env.reset(seed=0)
    copy = obs.copy()
    for _ in range(5):
        env.step(1)
    assert np.array_equal(obs, copy)


def test_an_episode_that_ends_within_a_step_ends_at_once():
    env = StandardAtari(Frames(length=40))
    env.reset(seed=0)
    over, steps = False, 0
    while not over:
        _, _, over, _, _ = env.step(1)
        steps += 1
    assert env.unwrapped.frame == 40


def test_a_smaller_picture_is_the_mean_of_areas():
    # five pieces in two: the middle one lies half in each
    assert _overlaps(5, 2).tolist() == [[2, 2, 1, 0, 0], [0, 0, 1, 2, 2]]
    assert _overlaps(4, 2).tolist() == [[1, 1, 0, 0], [0, 0, 1, 1]]
    assert _overlaps(210, 84).sum(axis=1).tolist() == [5] * 84
    env = StandardAtari(Frames())
    frame = np.zeros((210, 160), dtype=np.uint8)
    frame[:2, :] = 200  # two of the two and a half rows above
    assert env._small(frame)[0].tolist() == [160] * 84
    assert not env._small(frame)[1:].any()


def test_a_learner_sees_the_signs_of_rewards_and_returns_are_what_they_are():
    class Scores(toy_envs.Counting):
        def step(self, action):
            obs, _, *rest = super().step(action)
            return obs, {1: -3.5, 2: 0.0, 3: 7.0}[self.steps], *rest

    source = EnvSource(env=lambda: Scores(length=3))
    pool = EnvPool(source, source.spec(), num_envs=1, seed=0, stream=1, clip_rewards=True)
    steps = [pool.step(np.zeros(1, dtype=np.int64)) for _ in range(3)]
    assert [step.rewards.tolist() for step in steps] == [[-1.0], [0.0], [1.0]]
    assert steps[2].episode_returns == [3.5]


@pytest.mark.parametrize(("kwargs", "clips"), [({"atari": True}, True), ({"atari": False}, False), ({}, False)])
def test_rewards_of_atari_games_are_clipped_in_training(kwargs, clips, monkeypatch, tmp_path):
    given = {}
    monkeypatch.setattr(opening, "EnvPool", lambda *_, **settings: given.update(settings))
    common = {"seed": 0, "total_timesteps": 1, "output_dir": tmp_path}
    config = TrainConfig(algo="ppo", env_id="ALE/Pong-v5", env_kwargs=kwargs, **common)
    opening._training_envs(config, None, None)
    assert given["clip_rewards"] is clips


def test_what_packages_say_when_they_are_imported_goes_to_the_log(monkeypatch, tmp_path, caplog, capsys):
    (tmp_path / "minatar").mkdir()
    (tmp_path / "minatar" / "__init__.py").write_text("print('hello')")
    register = "gymnasium.register('MinAtar/Toy-v1', entry_point=toy_envs.Counting)"
    (tmp_path / "minatar" / "gym.py").write_text(f"import gymnasium, toy_envs\ndef register_envs():\n    {register}\n")
    for name in [name for name in sys.modules if name.partition(".")[0] == "minatar"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    with caplog.at_level(logging.DEBUG):
        made = make_by_id("MinAtar/Toy-v1") if find_spec("minatar").origin.startswith(str(tmp_path)) else None
    del gym.registry["MinAtar/Toy-v1"]
    for name in [name for name in sys.modules if name.partition(".")[0] == "minatar"]:
        del sys.modules[name]
    assert made is not None
    assert "minatar: hello" in caplog.text
    assert capsys.readouterr().out == ""
