"""Temporal-difference learning: what critics are fitted to, and by which loss."""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training.kernels.differentiable import loss
from rl_training.types import Batch, Metrics


def td_targets(batch: Batch, next_values: Tensor, gamma: float) -> Tensor:
    """r + γ (1 − done) V(s′)."""
    # `dones`, not `cuts`: a time limit cuts the episode, not the value
    going_on = 1.0 - batch["dones"].to(next_values.dtype)
    return torch.addcmul(batch["rewards"], going_on, next_values, value=gamma)


@loss("critic_loss", wrt=("q_values",))
def critic_loss(q_values: Tensor, targets: Tensor) -> Metrics:
    """Squared error of each critic (critics, batch), averaged over the batch and summed over the critics."""
    return {"critic_loss": (q_values - targets).square().mean(dim=-1).sum(), "target_q_mean": targets.mean()}


@critic_loss.gradient
def _(q_values: Tensor, targets: Tensor) -> dict[str, Tensor]:
    return {"q_values": (q_values - targets) * (2.0 / q_values.shape[-1])}
