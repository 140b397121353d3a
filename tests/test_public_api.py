"""The managed classes: learn, predict, evaluate, save, load, with ids, objects and factories."""

import logging

import gymnasium as gym
import numpy as np
import pytest
from small_runs import ALGORITHMS, CHOOSING, small_config, state_difference

import rl_training
from rl_training import PPO, SAC
from rl_training.errors import ConfigError, EnvError, UnsupportedSpace
from test_package_api_exports import class_name


def managed(name, tmp_path, **changes):
    config = small_config(name, tmp_path, **changes)
    return getattr(rl_training, class_name(config.algo))(config)


@pytest.mark.parametrize("name", [*ALGORITHMS, *CHOOSING])
def test_learn_predict_evaluate_save_load(name, tmp_path):
    agent = managed(name, tmp_path)
    result = agent.learn()
    space = gym.make(agent.config.env_id)
    obs, _ = space.reset(seed=0)
    action = agent.predict(obs)
    assert space.action_space.contains(np.int64(action) if isinstance(action, int) else action)
    assert agent.evaluate(num_episodes=1)["eval_episodes"] == 1
    path = agent.save(tmp_path / "deep" / "agent.safetensors")
    again = type(agent).load(path)
    np.testing.assert_array_equal(again.predict(obs), action)
    assert again.config == agent.config
    assert state_difference(path, result.checkpoint_path) is None


@pytest.mark.parametrize("name", [*ALGORITHMS, *CHOOSING])
def test_one_observation_is_predicted_as_in_a_batch(name, tmp_path):
    agent = managed(name, tmp_path)
    agent.learn()
    dims = gym.make(agent.config.env_id).observation_space.shape[0]
    batch = np.random.default_rng(0).normal(size=(6, dims)).astype(np.float32)
    together = agent.predict(batch)
    single = [agent.predict(row) for row in batch]
    np.testing.assert_allclose(np.asarray(single), together, rtol=1e-5, atol=1e-5)
    as_list = agent.predict(batch[0].tolist())
    np.testing.assert_array_equal(as_list, single[0])


@pytest.mark.parametrize("name", [*ALGORITHMS, *CHOOSING])
def test_actions_lie_in_the_bounds_however_wild_the_observation(name, tmp_path):
    agent = managed(name, tmp_path)
    agent.learn()
    env = gym.make(agent.config.env_id)
    for scale in (0.0, 1.0, 1e6):
        obs = np.full(env.observation_space.shape, scale, dtype=np.float32)
        for deterministic in (True, False):
            action = agent.predict(obs, deterministic=deterministic)
            assert env.action_space.contains(np.int64(action) if isinstance(action, int) else action)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_nothing_can_be_done_with_nothing_learnt(name, tmp_path):
    agent = managed(name, tmp_path)
    for call in (lambda: agent.predict([0.0]), agent.evaluate, lambda: agent.save(tmp_path / "x")):
        with pytest.raises(ValueError, match="nothing learnt yet"):
            call()
    assert list(tmp_path.iterdir()) == []


def test_a_second_learn_with_nothing_left_says_so(tmp_path, caplog):
    agent = managed("ppo", tmp_path)
    first = agent.learn()
    with caplog.at_level(logging.WARNING):
        second = agent.learn()
    assert "nothing left to do: 240 of 240" in caplog.text
    assert second.checkpoint_path == first.checkpoint_path
    assert second.metrics["global_step"] == 240


def test_learning_goes_on_where_it_ended(tmp_path):
    whole = managed("ppo", tmp_path / "whole", total_timesteps=480).learn()
    agent = managed("ppo", tmp_path / "pieces")
    agent.learn()
    rest = agent.learn(total_timesteps=480)
    assert state_difference(whole.checkpoint_path, rest.checkpoint_path) is None


def test_the_short_way_takes_options_and_settings_together(tmp_path):
    agent = PPO("CartPole-v1", total_timesteps=64, output_dir=tmp_path, learning_rate=1e-3, num_steps=16, seed=5)
    assert agent.config.algo_kwargs == {"learning_rate": 1e-3, "num_steps": 16}
    assert agent.config.seed == 5
    agent.learn()
    assert isinstance(agent.predict([0.0, 0.0, 0.0, 0.0]), int)


def test_a_misspelt_option_names_the_nearest(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'learning_rate'"):
        PPO("CartPole-v1", output_dir=tmp_path, learning_rte=1e-3)


def test_a_configuration_of_another_algorithm_is_refused(tmp_path):
    with pytest.raises(ValueError, match="'sac', not 'ppo'"):
        SAC(small_config("ppo", tmp_path))


def test_a_factory_in_place_of_an_id(tmp_path):
    agent = PPO(lambda: gym.make("CartPole-v1"), total_timesteps=64, num_envs=2, output_dir=tmp_path, num_steps=16)
    agent.learn()
    assert agent.evaluate(num_episodes=2)["eval_episodes"] == 2


def test_an_object_learns_as_its_id_does(tmp_path):
    options = {"total_timesteps": 64, "num_steps": 16, "eval_interval": 32, "seed": 2}
    env = gym.make("CartPole-v1")
    by_object = PPO(env, output_dir=tmp_path / "object", **options).learn()
    by_id = PPO("CartPole-v1", output_dir=tmp_path / "id", **options).learn()
    assert state_difference(by_object.checkpoint_path, by_id.checkpoint_path) is None
    env.step(env.action_space.sample())  # still open: it is the user's


def test_an_object_nothing_can_rebuild_learns_and_is_evaluated(tmp_path):
    class Own(gym.Env):
        observation_space = gym.spaces.Box(-1, 1, (2,))
        action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.steps = 0
            return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

        def step(self, action):
            self.steps += 1
            return self.np_random.uniform(-1, 1, 2).astype(np.float32), float(action), False, self.steps >= 7, {}

    settings = {"total_timesteps": 64, "num_steps": 16, "eval_episodes": 2}
    often = PPO(Own(), output_dir=tmp_path / "often", eval_interval=16, **settings).learn()
    rarely = PPO(Own(), output_dir=tmp_path / "rarely", eval_interval=1000, **settings).learn()
    assert state_difference(often.checkpoint_path, rarely.checkpoint_path, ("algorithm_state",)) is None
    with pytest.raises(EnvError, match="factory"):
        PPO(Own(), output_dir=tmp_path / "two", num_envs=2, **settings).learn()
    assert not (tmp_path / "two").exists()


def test_an_observation_of_the_wrong_length_is_named(tmp_path):
    agent = managed("ppo", tmp_path)
    agent.learn()
    with pytest.raises(ValueError, match=r"observed as \(4,\).*has shape \(3,\)"):
        agent.predict([0.0, 0.0, 0.0])


def test_prediction_reads_no_file(tmp_path):
    agent = managed("sac", tmp_path)
    result = agent.learn()
    first = agent.predict([1.0, 0.0, 0.0])
    result.checkpoint_path.unlink()
    np.testing.assert_array_equal(agent.predict([1.0, 0.0, 0.0]), first)


def test_a_wrong_action_space_is_refused_before_any_file_is_made(tmp_path):
    agent = SAC("CartPole-v1", output_dir=tmp_path / "runs")
    with pytest.raises(UnsupportedSpace, match=r"Discrete.*ppo"):
        agent.learn()
    assert not (tmp_path / "runs").exists()
