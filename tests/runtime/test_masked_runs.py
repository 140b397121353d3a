"""Action masks from one end of the library to the other. The toy environments raise where a forbidden action is taken."""

import gymnasium as gym
import numpy as np
import pytest
import toy_envs
from small_runs import MASKED, small_config, train

from rl_training import ARS, BC, PPG, PPO
from rl_training.cli import main
from rl_training.errors import CheckpointError, EnvError, UnsupportedSpace
from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.policy import load_policy
from rl_training.runtime.workflows import evaluate_checkpoint, predict_checkpoint, resume_training

SMALL = {"num_steps": 8, "minibatch_size": 8, "hidden_sizes": [8], "eval_interval": 16, "eval_episodes": 2}


@pytest.fixture(scope="module", params=MASKED)
def run(request, tmp_path_factory):
    return train(small_config(request.param, tmp_path_factory.mktemp("masked")))


def test_a_checkpoint_knows_that_its_policy_is_told_what_is_allowed(run):
    assert load_checkpoint(run.checkpoint_path).metadata["env_spec"]["masked"] is True


def test_evaluation_heeds_masks_and_so_does_prediction(run):
    assert evaluate_checkpoint(run.checkpoint_path, num_episodes=9)["eval_episodes"] == 9
    policy = load_policy(run.checkpoint_path)
    env = policy.environments().make()
    obs, info = env.reset(seed=1)
    for deterministic in (True, False, True, False):
        masks = info["action_mask"] if "action_mask" in info else env.get_wrapper_attr("action_masks")()
        action = predict_checkpoint(run.checkpoint_path, obs, deterministic=deterministic, action_masks=masks)
        obs, _, _, _, info = env.step(action)


def test_actions_that_a_policy_is_recorded_with_are_allowed_ones(run, tmp_path):
    for share in ("0.0", "0.5", "1.0"):
        out = tmp_path / f"{share}.npz"
        arguments = ["--checkpoint", str(run.checkpoint_path), "--steps", "40", "--random-share", share, "--out", str(out)]
        assert main(["collect", *arguments]) == 0
        with np.load(out) as data:
            assert data["actions"].shape[0] == 40


def test_an_unmoved_policy_is_judged_under_the_masks_it_acted_under(tmp_path):
    divergences = []

    class Watch(Callback):
        def on_update_end(self, trainer, result):
            divergences.append(float(result.metrics["approx_kl"]))

    config = small_config("ppo_alt_masks", tmp_path, algo_kwargs={"update_epochs": 1, "minibatch_size": 20})
    train(config, callbacks=[Watch()])
    assert len(divergences) == 12
    assert max(map(abs, divergences)) < 1e-6


@pytest.mark.parametrize("kind", [PPO, PPG])
def test_one_object_is_lent_for_evaluations_and_goes_on_in_its_episode(kind, tmp_path):
    agent = kind(toy_envs.Choosing(length=50), total_timesteps=64, output_dir=tmp_path, **SMALL)
    assert agent.learn().metrics["global_step"] == 64
    with pytest.raises(ValueError, match="allows nothing"):
        agent.predict([0, 1, 0, 1], action_masks=[0, 0, 0, 0])
    assert agent.predict([0, 1, 0, 1], action_masks=[0, 1, 0, 0]) == 1
    assert agent.predict([[0, 1, 0, 1]] * 2, action_masks=[[0, 1, 0, 0], [1, 0, 0, 0]]).tolist() == [1, 0]


class Drawn(toy_envs.Choosing):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 (Gymnasium's)
    render_mode = "rgb_array"

    def render(self):
        return np.zeros((16, 16, 3), dtype=np.uint8)


def test_a_film_is_of_allowed_actions(tmp_path):
    agent = PPO(Drawn, total_timesteps=16, output_dir=tmp_path, **SMALL)
    agent.learn()
    assert agent.record_video(tmp_path / "film.gif", num_episodes=2).num_frames == 12


@pytest.mark.parametrize("backend", ["local_sync", "local_async"])
def test_a_run_in_which_nothing_is_allowed_ends_with_the_environment_s_name_and_what_was_learnt(backend, tmp_path):
    config = small_config("ppo_alt_masks", tmp_path, env_kwargs={"fault": "empty"}, execution_backend=backend)
    with pytest.raises(EnvError, match=r"ToyMaskedDiscrete-v0, environment 0.*allows nothing") as error:
        train(config)
    assert load_checkpoint(error.value.checkpoint_path).trainer_state["progress"]["global_step"] == 0


def test_a_learner_that_takes_no_masks_does_not_look_for_them(tmp_path):
    class Suggestive(toy_envs.Choosing):
        def step(self, action):  # what is not allowed is only a waste of time
            self.masked = False
            result = super().step(action)
            self.masked = True
            return result

    settings = {"num_directions": 2, "num_top_directions": 2, "eval_episodes": 1, "output_dir": tmp_path}
    agent = ARS(Suggestive, total_timesteps=400, **settings)
    agent.learn()
    with pytest.raises(ValueError, match="ars has none for Discrete"):
        agent.predict([0, 1, 0, 1], action_masks=[0, 1, 0, 0])


def test_a_run_with_masks_is_not_resumed_without_them(tmp_path):
    first = PPO(toy_envs.Choosing, total_timesteps=16, output_dir=tmp_path, **SMALL).learn()
    with pytest.raises(CheckpointError, match="saved with action masks; Choosing now comes without them"):
        resume_training(first.run_dir, total_timesteps=32, env=lambda: toy_envs.Choosing(masked=False))


def test_an_environment_of_gymnasium_that_gives_masks_is_played_by_them(tmp_path):
    def taxi():
        return gym.wrappers.FlattenObservation(gym.make("Taxi-v4"))

    agent = PPO(taxi, total_timesteps=16, output_dir=tmp_path, **SMALL)
    agent.learn()
    env = taxi()
    obs, info = env.reset(seed=0)
    assert info["action_mask"][agent.predict(obs, action_masks=info["action_mask"])] == 1


def test_an_algorithm_that_makes_one_choice_refuses_several_before_any_file_is_made(tmp_path):
    agent = BC(lambda: toy_envs.Choosing(kind="multi_discrete"), total_timesteps=16, output_dir=tmp_path)
    with pytest.raises(UnsupportedSpace, match="For actions in several parts: ars, openai_es, ppg, ppo"):
        agent.learn()
    assert not list(tmp_path.iterdir())
