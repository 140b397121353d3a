"""Batches as a replay buffer gives them, of random numbers."""

from __future__ import annotations

import torch

from rl_training.planning.dynamics import model_rows


def batch_of(rows: int = 32, obs_dim: int = 3, action_dim: int = 2) -> dict[str, torch.Tensor]:
    return {
        "obs": torch.randn(rows, obs_dim),
        "actions": torch.rand(rows, action_dim) * 2 - 1,
        "rewards": torch.randn(rows),
        "next_obs": torch.randn(rows, obs_dim),
        "dones": (torch.rand(rows) < 0.3).float(),
    }


def standardized_rows(model):
    """Twenty transitions in double precision, with the inputs and targets of `model`, which is standardised off their scale."""
    batch = {name: column.double() for name, column in batch_of(rows=20).items()}
    inputs, targets = model_rows(batch)
    model.standardize(inputs, 3 * targets + 1)
    return batch, inputs, targets
