"""Batches as a replay buffer gives them, of random numbers."""

from __future__ import annotations

import torch


def batch_of(rows: int = 32, obs_dim: int = 3, action_dim: int = 2) -> dict[str, torch.Tensor]:
    return {
        "obs": torch.randn(rows, obs_dim),
        "actions": torch.rand(rows, action_dim) * 2 - 1,
        "rewards": torch.randn(rows),
        "next_obs": torch.randn(rows, obs_dim),
        "dones": (torch.rand(rows) < 0.3).float(),
    }
