"""Temporal-difference learning: what critics are fitted to."""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training.types import Batch


def td_targets(batch: Batch, next_values: Tensor, gamma: float) -> Tensor:
    """r + γ (1 − done) V(s′)."""
    # `dones`, not `cuts`: a time limit cuts the episode, not the value
    going_on = 1.0 - batch["dones"].to(next_values.dtype)
    return torch.addcmul(batch["rewards"], going_on, next_values, value=gamma)
