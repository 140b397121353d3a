"""This library as a program to put faults to: `ours.py FAULT FOLDER`."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch
from trials import answer, pickled

import rl_training
from rl_training import PPO, SAC, TD3
from rl_training.experiment.checkpoint import load_checkpoint, save_checkpoint

SAC_SETTINGS = {"learning_starts": 50, "batch_size": 32, "hidden_sizes": [32, 32], "buffer_capacity": 1_000}
PPO_SETTINGS = {"num_steps": 64, "minibatch_size": 32, "hidden_sizes": [32]}


class RLTraining:
    name = "rl_training"
    version = rl_training.__version__

    def continued(self, folder: Path) -> dict[str, Any]:
        return {
            "ppo": self._continued(partial(PPO, "CartPole-v1", **PPO_SETTINGS), folder),
            "sac": self._continued(partial(SAC, "Pendulum-v1", **SAC_SETTINGS), folder),
        }

    def _continued(self, make: Callable[..., Any], folder: Path) -> tuple[Any, Any]:
        whole = make(seed=1, total_timesteps=256, eval_episodes=0, output_dir=folder / "whole")
        whole.learn()
        first = make(seed=1, total_timesteps=128, eval_episodes=0, output_dir=folder / "first")
        first.learn()
        first.save(folder / "model.safetensors")
        second = type(first).load(folder / "model.safetensors")
        second.learn(total_timesteps=256)
        return tensors(whole.checkpoint_path), tensors(second.checkpoint_path)

    def saver(self, folder: Path, *, width: int = 64) -> tuple[Callable[[Path], None], Callable[[Path], Any]]:
        agent = TD3(
            "Pendulum-v1", seed=1, total_timesteps=20, eval_episodes=0, output_dir=folder / "runs", hidden_sizes=[width, width]
        )
        state = load_checkpoint(agent.learn().checkpoint_path)
        return lambda path: save_checkpoint(path, state) and None, load_checkpoint

    def train_on(self, env: gym.Env, folder: Path) -> dict[str, torch.Tensor]:
        options = {"learning_starts": 100, "hidden_sizes": [32, 32]}
        agent = TD3(env, seed=1, total_timesteps=400, eval_episodes=0, output_dir=folder / "runs", **options)
        agent.learn()
        return tensors(agent.checkpoint_path)

    def saved_parameters(self, folder: Path) -> dict[str, torch.Tensor]:
        """Of the checkpoint that a run which stopped has left."""
        return tensors(max((folder / "runs").rglob("step_*.safetensors")))

    def hostile(self, path: Path, payload: object) -> Callable[[], Any]:
        """It has no file that holds pickles; so a pickle under its name, alone and in the archive that torch makes of one."""
        bare = path.with_name("bare.safetensors")
        bare.write_bytes(pickled(payload))
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/data.pkl", pickled(payload))

        def load_both() -> None:
            try:
                TD3.load(bare)
            finally:
                TD3.load(path)

        return load_both


def tensors(path: Path) -> dict[str, torch.Tensor]:
    """The networks in a checkpoint, by their names."""
    found: dict[str, torch.Tensor] = {}

    def walk(tree: Any, name: str) -> None:
        if isinstance(tree, dict):
            for key, value in tree.items():
                walk(value, f"{name}/{key}")
        elif isinstance(tree, torch.Tensor):
            found[name] = tree

    walk(load_checkpoint(path, parts=("algorithm_state",)).algorithm_state, "")
    return found


if __name__ == "__main__":
    answer(RLTraining())
