"""An episode is a function of its seed and its actions, whatever its environment has played before."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import FlattenObservation
from small_runs import StopAt, history, small_config, state_difference, train

from rl_training.envs.source import EnvSource
from rl_training.envs.vector import SyncEnvs, make_envs
from rl_training.errors import EnvError, MissingExtraError, UnsupportedSpace
from rl_training.experiment.metadata import read_metadata
from rl_training.runtime.workflows import evaluate_checkpoint, resume_training

STEPS = 250
GYMNASIUM = sorted(
    name
    for name, entry in gym.registry.items()
    if isinstance(entry.entry_point, str) and entry.entry_point[:10] == "gymnasium."
)
SAMPLE = ("BipedalWalker-v3", "BipedalWalkerHardcore-v3", "LunarLander-v3", "CartPole-v1", "Pendulum-v1", "Hopper-v5")


def flat(env_id: str) -> gym.Env:
    """Observations of any kind as one row of numbers."""
    return FlattenObservation(gym.make(env_id, disable_env_checker=True))


def environment(env_id: str) -> SyncEnvs:
    source = EnvSource(env=partial(flat, env_id))
    return make_envs(source, source.spec(), num_envs=1)


def episode(env: SyncEnvs, seed: int) -> bytes:
    """All that random actions, the same for a seed, bring about."""
    rng, spec = np.random.default_rng(seed), env._spec
    seen = [env.reset([0], [seed]).tobytes()]
    for _ in range(STEPS):
        actions = rng.integers(spec.action_dim, size=1) if spec.discrete else rng.uniform(-1, 1, (1, spec.action_dim))
        done = env.step(spec.to_env(actions))
        seen += [column.tobytes() for column in done]
        if done.terminated[0] or done.truncated[0]:
            break
    return b"".join(seen)


def depends_on_the_past(env_id: str, *, seeds: range) -> bool:
    used = environment(env_id)
    for earlier in range(6):
        episode(used, earlier)
    for seed in seeds:
        fresh = environment(env_id)
        if episode(used, seed) != episode(fresh, seed):
            return True
        fresh.close()
    used.close()
    return False


@pytest.mark.parametrize("env_id", SAMPLE)
def test_an_episode_is_the_same_in_a_fresh_object_and_after_six_others(env_id):
    assert not depends_on_the_past(env_id, seeds=range(100, 104))


@pytest.mark.slow
def test_so_it_is_for_every_environment_of_gymnasium_that_can_be_made():
    made, different, refused = [], [], []
    for env_id in GYMNASIUM:
        try:
            environment(env_id).close()
        except (MissingExtraError, UnsupportedSpace, EnvError) as error:
            refused.append(f"{env_id}: {error}")
            continue
        made.append(env_id)
        if depends_on_the_past(env_id, seeds=range(100, 103)):
            different.append(env_id)
    assert different == []
    assert len(made) >= 37, "\n".join(refused)


@pytest.mark.parametrize("name", ["ppo", "td3", "openai_es"])
def test_a_walker_is_resumed_exactly_and_evaluated_as_in_training(name, tmp_path):
    """Box2D's, whose world outlives its episodes; places within an episode and after some of them."""
    config = small_config(name, tmp_path / "whole", env_id="BipedalWalker-v3", env_kwargs={"max_episode_steps": 120})
    config = config.replace(total_timesteps=900, eval_episodes=3, algo_kwargs={**config.algo_kwargs, "eval_interval": 450})
    whole = train(config)
    for place in (300, 700):
        stopped = train(config.replace(output_dir=tmp_path / str(place)), callbacks=[StopAt(place)])
        rest = resume_training(stopped.run_dir)
        assert state_difference(whole.checkpoint_path, rest.checkpoint_path) is None
        assert history(whole.run_dir) == history(rest.run_dir)
        assert read_metadata(rest.run_dir)["exact"] is True
    assert evaluate_checkpoint(whole.checkpoint_path)["eval_return_mean"] == whole.metrics["eval_return_mean"]
