"""What was set on an environment object is there in every step that is made: or there is no step at all."""

from __future__ import annotations

from collections import Counter

import gymnasium as gym
import numpy as np
import pytest
import toy_envs
from gymnasium.envs.classic_control import PendulumEnv
from gymnasium.wrappers import TransformReward
from small_runs import small_config, state_difference, train

from rl_training import ARS, PPO, SAC, OpenAIES
from rl_training.envs import likeness
from rl_training.envs.batched import BatchedEnvs
from rl_training.envs.likeness import differences
from rl_training.envs.population import PopulationEnvs
from rl_training.envs.source import EnvSource
from rl_training.errors import CheckpointError, EnvError
from rl_training.experiment.checkpoint import read_header
from rl_training.runtime.workflows import evaluate_checkpoint, resume_training

CLASSIC = ["Acrobot-v1", "CartPole-v1", "MountainCarContinuous-v0", "Pendulum-v1"]
MUJOCO = ["Hopper-v5", "InvertedPendulum-v5"]


def moon(**settings):
    env = gym.make("Pendulum-v1", **settings)
    env.unwrapped.g = 3.0
    return env


@pytest.fixture
def gravities(monkeypatch):
    """How many steps were made under which gravity, but for those of a copy that is only looked at."""
    monkeypatch.setattr(likeness, "STEPS", 0)
    steps, step = Counter(), PendulumEnv.step

    def counted(self, action):
        steps[self.g] += 1
        return step(self, action)

    monkeypatch.setattr(PendulumEnv, "step", counted)
    return steps


def in_words(given, other):
    return [(path, here, there) for path, here, there in differences(given, other)]


# told apart


@pytest.mark.parametrize("env_id", CLASSIC + MUJOCO)
def test_an_object_that_was_played_with_is_set_as_a_fresh_one(env_id):
    used = gym.make(env_id)
    used.action_space.seed(3)
    for episode in range(3):
        used.reset(seed=episode)
        for _ in range(60):
            if any(used.step(used.action_space.sample())[2:4]):
                break
    assert in_words(used, gym.make(env_id, disable_env_checker=True)) == []


def with_change(env_id, change):
    env = gym.make(env_id)
    change(env.unwrapped)
    return env


@pytest.mark.parametrize(
    ("env_id", "change", "path", "words"),
    [
        ("Pendulum-v1", lambda env: setattr(env, "g", 3.0), "PendulumEnv.g", ("3.0", "10.0")),
        ("Pendulum-v1", lambda env: setattr(env, "wind", 1), "PendulumEnv.wind", ("1", "not there")),
        ("Pendulum-v1", lambda env: setattr(env, "_get_obs", lambda: np.zeros(3)), "PendulumEnv._get_obs", ("a function",)),
        ("CartPole-v1", lambda env: setattr(env, "kinematics_integrator", "other"), "CartPoleEnv.kinematics_integrator", ()),
        ("CartPole-v1", lambda env: env.action_space.__setattr__("start", 3), "CartPoleEnv.action_space.start", ("3", "0")),
        ("Hopper-v5", lambda env: env.model.opt.gravity.__setitem__(2, -1), "HopperEnv.model.opt.gravity", ("[ 0. 0. -1.]",)),
        ("Hopper-v5", lambda env: env.model.body_mass.__setitem__(1, 9), "HopperEnv.model.body_mass", ()),
        ("Hopper-v5", lambda env: setattr(env, "_forward_reward_weight", 2.0), "HopperEnv._forward_reward_weight", ("2.0",)),
    ],
)
def test_what_was_set_is_found_and_named(env_id, change, path, words):
    ((found, *told),) = in_words(with_change(env_id, change), gym.make(env_id))
    assert found == path
    assert tuple(told[: len(words)]) == words


def test_settings_of_wrappers_and_of_what_an_environment_holds_count_too():
    class Engine:
        def __init__(self):
            self.gains, self.noise = [1.0, 2.0], np.random.default_rng()

    class Held(toy_envs.Counting):
        def __init__(self):
            super().__init__()
            self.engine, self.again = Engine(), self

    given, other = Held(), Held()
    given.steps = 4  # its state
    assert in_words(given, other) == []
    given.engine.gains[1] = 5.0
    assert in_words(given, Held()) == [("Held.engine.gains[1]", "5.0", "2.0")]
    scaled = [TransformReward(toy_envs.Counting(), lambda reward, scale=scale: scale * reward) for scale in (1, 2)]
    assert in_words(*scaled) == [("TransformReward.func.defaults[0]", "1", "2")]


def test_an_environment_that_fails_when_it_is_stepped_is_compared_as_far_as_it_goes():
    given = toy_envs.Broken(at=1)
    given.length = 7
    assert in_words(given, toy_envs.Broken(at=1)) == [("Broken.length", "7", "5")]


# lent, or refused


def test_training_and_its_evaluations_are_made_under_what_was_set(gravities, tmp_path):
    agent = PPO(moon(), total_timesteps=256, num_steps=64, eval_episodes=2, eval_interval=128, output_dir=tmp_path)
    agent.learn()
    # 256 steps, two evaluations of 400, and 128 and then 56 steps to be back in the training episode
    assert gravities == {3.0: 256 + 2 * 400 + 128 + 56}
    gravities.clear()
    agent.evaluate(num_episodes=8)
    assert gravities == {3.0: 1600}


@pytest.mark.parametrize("learner", [ARS, OpenAIES])
@pytest.mark.parametrize("batched", [True, False])
def test_a_population_is_evaluated_under_what_was_set(learner, batched, gravities, tmp_path):
    env = moon(max_episode_steps=20)
    agent = learner(env, total_timesteps=200, num_directions=2, batched_envs=batched, eval_episodes=1, output_dir=tmp_path)
    result = agent.learn()
    # batches read the constants of the object, which is not stepped itself
    assert set(gravities) == (set() if batched else {3.0})
    plain = learner(lambda: moon(max_episode_steps=20), **agent.config.algo_kwargs, total_timesteps=200, output_dir=tmp_path)
    assert state_difference(result.checkpoint_path, plain.learn().checkpoint_path, ("algorithm_state",)) is None


def test_a_method_that_was_replaced_is_in_no_batch():
    env = gym.make("Pendulum-v1")
    env.unwrapped.step = lambda action: (np.zeros(3, dtype=np.float32), 0.0, False, False, {})
    settings = {"num_episodes": 4, "num_envs": None, "backend": "local_sync", "batched": True}
    for given, taken in ((env, False), (moon(), True)):
        source = EnvSource(env=given)
        assert isinstance(PopulationEnvs(source, source.spec(), **settings).envs, BatchedEnvs) is taken


@pytest.mark.parametrize(
    "start",
    [
        lambda folder: PPO(moon(), num_envs=2, total_timesteps=64, output_dir=folder),
        lambda folder: PPO(moon(), execution_backend="local_async", total_timesteps=64, output_dir=folder),
        lambda folder: ARS(moon(), population_envs=4, batched_envs=False, total_timesteps=64, output_dir=folder),
    ],
    ids=["several", "worker", "population"],
)
def test_where_more_are_needed_a_factory_is_asked_for_before_any_file_is_made(start, tmp_path):
    words = r"does not know what was set on it: PendulumEnv\.g=3\.0 \(not 10\.0\); pass a factory"
    with pytest.raises(EnvError, match=words):
        start(tmp_path).learn()
    assert list(tmp_path.iterdir()) == []


def test_an_object_as_its_spec_makes_it_is_made_as_often_as_it_is_needed(gravities, tmp_path):
    env = gym.make("Pendulum-v1", g=4.0, max_episode_steps=20)
    env.reset(seed=1)
    env.step(env.action_space.sample())
    gravities.clear()
    PPO(env, num_envs=2, total_timesteps=64, num_steps=16, eval_episodes=2, output_dir=tmp_path).learn()
    assert set(gravities) == {4.0}


@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_evaluations_in_the_object_itself_leave_no_trace_in_what_is_learnt(algo, tmp_path):
    settings = {"env_kwargs": {}, "num_envs": 1, "total_timesteps": 60, "eval_episodes": 2}
    ends = []
    for interval in (10, 1000):
        options = {"eval_interval": interval} | ({"minibatch_size": 10} if algo == "ppo" else {})
        config = small_config(algo, tmp_path / str(interval), **settings, algo_kwargs=options)
        ends.append(train(config.replace(env_id="Pendulum-v1"), env=moon(max_episode_steps=25)).checkpoint_path)
    assert state_difference(*ends, ("algorithm_state", "buffer_state")) is None


def test_a_run_in_the_object_resumes_as_if_it_had_never_ended(tmp_path):
    settings = {"num_steps": 16, "eval_episodes": 1, "eval_interval": 32, "seed": 2, "num_envs": 1}
    whole = PPO(moon(), output_dir=tmp_path / "whole", total_timesteps=96, **settings).learn()
    half = PPO(moon(), output_dir=tmp_path / "half", total_timesteps=48, **settings).learn()
    rest = resume_training(half.checkpoint_path, total_timesteps=96, env=moon())
    assert state_difference(whole.checkpoint_path, rest.checkpoint_path, ("algorithm_state", "buffer_state")) is None
    assert rest.metrics["eval_return_mean"] == whole.metrics["eval_return_mean"]


# and known to the checkpoint


@pytest.mark.parametrize("env", [moon, moon()], ids=["factory", "object"])
def test_a_run_under_what_was_set_is_not_used_on_the_bare_id(env, tmp_path, caplog):
    settings = {"total_timesteps": 32, "learning_starts": 10**6, "eval_episodes": 0}
    path = SAC(env, output_dir=tmp_path, **settings).learn().checkpoint_path
    assert read_header(path).metadata["made_on"] == ["Pendulum-v1 with PendulumEnv.g=3.0"]
    with pytest.raises(CheckpointError, match=r"gives Pendulum-v1 with PendulumEnv\.g=3\.0, which is not what the id"):
        evaluate_checkpoint(path, num_episodes=1)
    evaluate_checkpoint(path, num_episodes=1, env=env)
    assert "made on" not in caplog.text
    evaluate_checkpoint(path, num_episodes=1, env=gym.make("Pendulum-v1"))
    assert "made on Pendulum-v1 with PendulumEnv.g=3.0; the environment given now is Pendulum-v1" in caplog.text
