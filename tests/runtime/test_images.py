"""Images and mixed spaces from the environment to the exported file, and that policies learn from what they see."""

import warnings
from functools import partial

import gymnasium as gym
import numpy as np
import onnxruntime
import pytest
import torch
from small_runs import small_config, train
from toy_envs import Catch, Mixed

from rl_training import PPG, PPO
from rl_training.cli import main
from rl_training.errors import ConfigError, DatasetError, UnsupportedSpace
from rl_training.experiment.checkpoint import load_checkpoint
from rl_training.models.torsos import MinAtar
from rl_training.runtime.collecting import collect_data
from rl_training.runtime.loops import OnPolicyLoop
from rl_training.runtime.policy import load_policy
from rl_training.shipping.export import export_checkpoint

IMAGES, MIXED = "ppo_alt_images", "ppg_alt_mixed"
FULL = {  # what solves Catch in a quarter of a minute
    "num_envs": 16,
    "num_steps": 64,
    "minibatch_size": 256,
    "update_epochs": 6,
    "learning_rate": 2.5e-3,
    "gamma": 0.95,
    "ent_coef": 0.01,
}


def agent(env, folder, cls=PPO, **settings):
    return cls(env, **{"eval_episodes": 0, "output_dir": folder, "seed": 1, "num_envs": 2, "num_steps": 8, **settings})


@pytest.mark.learning
def test_ppo_learns_to_catch_what_it_sees_in_an_image(tmp_path):
    learner = agent(Catch, tmp_path, network="minatar", total_timesteps=50_000, **FULL)
    learner.learn()
    # who stands still catches a ball in ten and has -0.8
    assert learner.evaluate(num_episodes=100)["eval_return_mean"] >= 0.5


@pytest.mark.slow
@pytest.mark.learning
def test_by_torchs_own_initialisation_it_learns_far_less_of_the_same_images(tmp_path, monkeypatch):
    def as_torch_does(self, space, **kwargs):
        original(self, space, **kwargs)
        for layer in self.modules():
            if isinstance(layer, torch.nn.Conv2d | torch.nn.Linear):
                layer.reset_parameters()

    original = MinAtar.__init__
    monkeypatch.setattr(MinAtar, "__init__", as_torch_does)
    learner = agent(Catch, tmp_path, network="minatar", total_timesteps=50_000, **FULL)
    learner.learn()
    assert learner.evaluate(num_episodes=100)["eval_return_mean"] < 0.5


@pytest.mark.learning
@pytest.mark.parametrize("cls", [PPO, PPG])
@pytest.mark.parametrize("images", [True, False])
def test_a_clue_in_one_part_of_a_dict_is_found(cls, images, tmp_path):
    settings = {"num_envs": 8, "num_steps": 32, "minibatch_size": 64, "learning_rate": 1e-3 if images else 3e-3}
    learner = agent(
        lambda: Mixed(images=images),
        tmp_path,
        cls,
        total_timesteps=8_000,
        **settings,
        **({"network": "minatar"} if images else {}),
    )
    learner.learn()
    assert learner.evaluate(num_episodes=20)["eval_return_mean"] > 5  # of 6; 2 by chance


@pytest.mark.parametrize("network", ["nature", "impala", "minatar", "my_nets:CustomCNN"])
@pytest.mark.parametrize("cls", [PPO, PPG])
def test_images_however_they_come_are_learnt_from_by_every_network_for_them(cls, network, tmp_path):
    kwargs = {"channels": [4, 4]} if network == "impala" else {}
    for dtype, first in (("uint8", False), ("uint8", True), ("bool", False), ("float32", True)):
        make, settings = partial(Catch, dtype=dtype, first=first), {"network": network, "network_kwargs": kwargs}
        learner = agent(make, tmp_path / f"{dtype}{first}", cls, total_timesteps=32, **settings)
        learner.learn()
        obs = Catch(dtype=dtype, first=first).reset(seed=0)[0]
        assert learner.predict(obs) == learner.predict(np.stack([obs, obs]))[1]


def test_what_is_kept_of_images_is_their_bytes(tmp_path, monkeypatch):
    seen, prepare = [], OnPolicyLoop.prepare
    monkeypatch.setattr(OnPolicyLoop, "prepare", lambda self, data: seen.append(data) or prepare(self, data))
    agent(Catch, tmp_path, network="minatar", total_timesteps=16).learn()
    assert {seen[0][name].dtype for name in ("obs", "next_obs")} == {torch.uint8}
    assert seen[0]["obs"].shape == (8, 2, 400)


def test_rollouts_kept_for_the_auxiliary_phase_are_bytes_too(tmp_path):
    result = train(small_config(MIXED, tmp_path, total_timesteps=20))
    rollouts = load_checkpoint(result.checkpoint_path).buffer_state["auxiliary"]["rollouts"]
    assert rollouts[0]["obs"].dtype == torch.uint8


@pytest.mark.parametrize("form", ["onnx", "torchscript"])
@pytest.mark.parametrize("name", [IMAGES, MIXED])
def test_policies_that_see_are_exported_and_act_as_predict_does(name, form, tmp_path):
    result = train(small_config(name, tmp_path))
    exported = export_checkpoint(result.checkpoint_path, format=form)
    assert exported.max_difference == 0
    assert exported.num_observations == 128


def test_an_exported_file_takes_raw_observations_part_by_part(tmp_path):
    result = train(small_config(MIXED, tmp_path))
    exported = export_checkpoint(result.checkpoint_path, format="onnx")
    session = onnxruntime.InferenceSession(exported.path, providers=["CPUExecutionProvider"])
    inputs = {given.name: (given.type, given.shape[1:]) for given in session.get_inputs()}
    assert inputs == {
        "obs.camera": ("tensor(uint8)", [9, 8, 3]),
        "obs.clue": ("tensor(int64)", []),
        "obs.inner.buttons": ("tensor(float)", [2]),
        "obs.inner.knobs": ("tensor(int64)", [2]),
        "obs.position": ("tensor(float)", [2]),
    }
    obs = Mixed().reset(seed=3)[0]
    given = {
        "obs.camera": obs["camera"][None],
        "obs.clue": np.array([obs["clue"]]),
        "obs.inner.buttons": obs["inner"]["buttons"][None].astype(np.float32),
        "obs.inner.knobs": obs["inner"]["knobs"][None],
        "obs.position": obs["position"][None],
    }
    assert session.run(None, given)[0][0] == load_policy(result.checkpoint_path).predict(obs)
    card = exported.card_path.read_text()
    assert "obs.camera: 9 × 8 × 3, uint8" in card
    assert "| network | minatar, then 256 → 3 |" in card


@pytest.mark.parametrize(("name", "form"), [(IMAGES, "onnx"), (MIXED, "onnx"), (MIXED, "torchscript")])
def test_the_code_on_the_card_runs_beside_the_file(name, form, tmp_path, monkeypatch):
    exported = export_checkpoint(train(small_config(name, tmp_path)).checkpoint_path, format=form)
    block = exported.card_path.read_text().split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(exported.path.parent)
    names = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated
        exec(block, names)
    assert names["actions"].shape == (1,)


def test_observations_that_are_not_as_declared_are_refused_by_predict(tmp_path):
    policy = load_policy(train(small_config(MIXED, tmp_path)).checkpoint_path)
    obs = Mixed().reset(seed=0)
    with pytest.raises(ValueError, match=r"given is .*; this is what env.reset\(\) returns, \(obs, info\): pass obs alone"):
        policy.predict(obs)
    with pytest.raises(ValueError, match=r"row 0 is an observation with nan in obs.position\[1\]"):
        policy.predict({**obs[0], "position": np.array([0, np.nan])})
    with pytest.raises(ValueError, match=r"an observation with obs.camera of shape \(3, 3, 3\)"):
        policy.predict({**obs[0], "camera": np.zeros((3, 3, 3), np.uint8)})


@pytest.mark.parametrize(
    ("run", "settings", "error", "said"),
    [
        (
            "ppo Catch",
            {},
            ConfigError,
            "network: 'mlp' reads vectors; .* observes the image obs of shape .10, 10, 4.. Possible: nature",
        ),
        (
            "ppo Mixed",
            {"network": "residual_mlp"},
            ConfigError,
            "the image obs.camera of shape .9, 8, 3.. Possible: nature, impala",
        ),
        ("ppo Catch", {"network": "minatar", "normalize_observations": True}, ConfigError, "observes nothing but images"),
        (
            "ars Catch",
            {},
            UnsupportedSpace,
            "ARS reads vectors; .* observes the image obs of shape .10, 10, 4.. For images: ddpg, ppg, ppo, sac, td3",
        ),
        (
            "ppo Catch",
            {"network": "impala", "network_kwargs": {"depths": [16]}},
            ConfigError,
            r"network: impala\(observation_space, depths=\[16\]\) raised TypeError",
        ),
        (
            "ppo Catch",
            {"network": "my_nets:Torso"},
            ConfigError,
            r"my_nets:Torso\(observation_space\) raised ValueError: too many values",
        ),
    ],
)
def test_what_cannot_read_images_is_refused_before_a_file_is_made(run, settings, error, said, tmp_path):
    algo, env = run.split()
    config = small_config("ppo", tmp_path / "runs").replace(
        algo=algo, env_id=f"toy_envs:Toy{env}-v0", num_envs=1, env_kwargs={}, algo_kwargs=settings
    )
    with pytest.raises(error, match=said):
        train(config)
    assert not (tmp_path / "runs").exists()


def test_datasets_are_not_made_of_images(tmp_path):
    result = train(small_config(IMAGES, tmp_path))
    assert main(["collect", "--checkpoint", str(result.checkpoint_path), "--steps", "5", "--out", str(tmp_path / "x.npz")]) == 2
    with pytest.raises(DatasetError, match="datasets hold vectors; toy_envs:ToyCatch-v0 observes images"):
        collect_data(load_policy(result.checkpoint_path), num_steps=5)


def test_the_wrapper_stays_for_those_who_want_it_flat(tmp_path):
    learner = agent(lambda: gym.wrappers.FlattenObservation(Catch(dtype="float32")), tmp_path, total_timesteps=16)
    learner.learn()
    assert learner.predict(np.zeros(400)) in (0, 1, 2)
