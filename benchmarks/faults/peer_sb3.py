"""Stable-Baselines3 as a program to put faults to: `peer_sb3.py FAULT FOLDER`."""

from __future__ import annotations

import base64
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import stable_baselines3
import torch
from stable_baselines3 import PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from trials import answer, pickled

SAC_SETTINGS = {"learning_starts": 50, "batch_size": 32, "policy_kwargs": {"net_arch": [32, 32]}, "buffer_size": 1_000}
PPO_SETTINGS = {"n_steps": 64, "batch_size": 32, "policy_kwargs": {"net_arch": [32]}}


class StableBaselines3:
    name = "stable-baselines3"
    version = stable_baselines3.__version__

    def continued(self, folder: Path) -> dict[str, Any]:
        return {
            "ppo": self._continued(PPO, "CartPole-v1", PPO_SETTINGS, folder),
            "sac": self._continued(SAC, "Pendulum-v1", SAC_SETTINGS, folder),
        }

    def _continued(self, kind: type, env_id: str, settings: dict[str, Any], folder: Path) -> tuple[Any, Any]:
        """As its documentation says: save the model, and the replay buffer beside it; load both and go on counting."""
        whole = kind("MlpPolicy", env_id, seed=1, device="cpu", **settings)
        whole.learn(256)
        first = kind("MlpPolicy", env_id, seed=1, device="cpu", **settings)
        first.learn(128)
        first.save(folder / "model")
        second = kind.load(folder / "model", env=gym.make(env_id), device="cpu")
        if hasattr(first, "save_replay_buffer"):
            first.save_replay_buffer(folder / "buffer")
            second.load_replay_buffer(folder / "buffer")
        second.learn(128, reset_num_timesteps=False)
        return parameters(whole), parameters(second)

    def saver(self, folder: Path, *, width: int = 64) -> tuple[Callable[[Path], None], Callable[[Path], Any]]:  # noqa: ARG002
        model = TD3(
            "MlpPolicy", "Pendulum-v1", seed=1, device="cpu", policy_kwargs={"net_arch": [width, width]}, buffer_size=1_000
        )
        return model.save, lambda path: TD3.load(path, device="cpu")

    def train_on(self, env: gym.Env, folder: Path) -> dict[str, torch.Tensor]:  # noqa: ARG002
        model = TD3("MlpPolicy", env, seed=1, device="cpu", learning_starts=100, policy_kwargs={"net_arch": [32, 32]})
        model.learn(400)
        return parameters(model)

    def saved_parameters(self, folder: Path) -> dict[str, torch.Tensor]:  # noqa: ARG002
        return {}  # it saves nothing by itself

    def hostile(self, path: Path, payload: object) -> Callable[[], Any]:
        """A model as it saves it, with one more entry of the kind that it keeps in its `data`."""
        TD3("MlpPolicy", "Pendulum-v1", device="cpu", policy_kwargs={"net_arch": [8]}, buffer_size=10).save(path)
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        data = json.loads(members["data"])
        data["note"] = {":type:": "note", ":serialized:": base64.b64encode(pickled(payload)).decode()}
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in {**members, "data": json.dumps(data)}.items():
                archive.writestr(name, content)
        return lambda: TD3.load(path, device="cpu")


def parameters(model: BaseAlgorithm) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.policy.state_dict().items()}


if __name__ == "__main__":
    answer(StableBaselines3())
