"""A module of a stranger: it leaves a file behind when it is imported, and has what a checkpoint can name."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

SOURCE = """
import pathlib

pathlib.Path(__file__).with_suffix(".sprung").touch()

import gymnasium as gym
import torch

from rl_training.experiment.sinks import MetricsSink


def ends(obs, actions, next_obs):
    return torch.zeros(obs.shape[:-1], dtype=torch.bool)


def reward(obs, actions, next_obs):
    return torch.zeros(obs.shape[:-1])


class Sink(MetricsSink):
    pass


class Env(gym.Env):
    pass
"""


class Trap:
    """It can be imported by its name from here on, and nobody has done so yet."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.name = f"trap_{uuid.uuid4().hex[:12]}"  # each its own: python imports a module once
        self.file = folder / f"{self.name}.py"
        self.file.write_text(SOURCE)
        monkeypatch.syspath_prepend(folder)

    @property
    def sprung(self) -> bool:
        return self.file.with_suffix(".sprung").exists()
