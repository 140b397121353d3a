"""Targets and losses of off-policy learners by numpy, on the CPU: the arithmetic is on a few hundred numbers, and numpy's
calls take a third of the time of torch's. What is worked out here is defined by the functions of tensors in `sac`; tests
hold one against the other."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rl_training.types import Batch, Metrics


def bellman_targets(batch: Batch, next_q: Tensor, *, gamma: float, entropy_term: np.ndarray | None = None) -> Tensor:
    """r + γ (1 − done) (min Q̄ − entropy term), from next_q (critics, batch, 1)."""
    value: np.ndarray = np.minimum.reduce(next_q.numpy()[..., 0], axis=0)
    if entropy_term is not None:
        value -= entropy_term
    value *= 1.0 - batch["dones"].numpy()
    value *= gamma
    value += batch["rewards"].numpy()
    return torch.from_numpy(value)


def critic_loss_values(q_values: np.ndarray, target: np.ndarray) -> Metrics:
    """What `critic_loss` gives, as tensors of their own."""
    errors = (q_values - target).ravel()
    rows = q_values.shape[-1]
    return scalars(critic_loss=np.dot(errors, errors) / rows, target_q_mean=np.add.reduce(target) / rows)


def actor_loss_and_gradient(
    q_values: np.ndarray, logprobs: np.ndarray, alpha: float, *, pessimistic: bool
) -> tuple[Metrics, Tensor, Tensor]:
    """What `actor_loss` and `actor_loss_gradient` give."""
    members, rows = q_values.shape
    if pessimistic:
        q: np.ndarray = np.minimum.reduce(q_values, axis=0)
        lowest = (q_values == q).astype(np.float32)
        d_q = lowest / np.add.reduce(lowest, axis=0) * (-1.0 / rows)
        q_mean = np.add.reduce(q) / rows
    else:
        d_q = np.full_like(q_values, -1.0 / q_values.size)
        q_mean = np.add.reduce(q_values, axis=None) / (members * rows)
    entropy_term = alpha * (np.add.reduce(logprobs) / rows)
    losses = scalars(actor_loss=entropy_term - q_mean, entropy_term=entropy_term)
    return losses, torch.from_numpy(d_q), torch.full((rows,), alpha / rows)


def scalars(**values: float) -> Metrics:
    """Numbers as tensors, all made at once."""
    return dict(zip(values, torch.from_numpy(np.array(list(values.values()), dtype=np.float32)).unbind(), strict=True))
