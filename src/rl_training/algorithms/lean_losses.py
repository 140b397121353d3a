"""Targets and losses of off-policy learners by numpy, on the CPU: the arithmetic is on a few hundred numbers, and numpy's
calls take a third of the time of torch's. What is worked out here is defined by the functions of tensors in `sac`; tests
hold one against the other."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rl_training.models.blas import unwarned
from rl_training.types import Batch, Metrics


@unwarned
def bellman_targets(batch: Batch, next_q: Tensor, *, gamma: float, entropy_term: np.ndarray | None = None) -> Tensor:
    """r + γ (1 − done) (min Q̄ − entropy term), from next_q (critics, batch, 1)."""
    value: np.ndarray = np.minimum.reduce(next_q.numpy()[..., 0], axis=0)
    if entropy_term is not None:
        value -= entropy_term
    value *= 1.0 - batch["dones"].numpy()
    value *= gamma
    value += batch["rewards"].numpy()
    return torch.from_numpy(value)


@unwarned
def critic_loss_values(q_values: np.ndarray, target: np.ndarray) -> Metrics:
    """What `critic_loss` gives, as tensors of their own."""
    errors = (q_values - target).ravel()
    rows = q_values.shape[-1]
    return scalars(critic_loss=np.dot(errors, errors) / rows, target_q_mean=np.add.reduce(target) / rows)


@unwarned
def actor_loss_values(q_values: np.ndarray, logprobs: np.ndarray, alpha: float, *, pessimistic: bool) -> Metrics:
    """What `actor_loss` gives, as tensors of their own."""
    q = np.minimum.reduce(q_values, axis=0) if pessimistic else q_values
    entropy_term = alpha * (np.add.reduce(logprobs) / logprobs.size)
    return scalars(actor_loss=entropy_term - np.add.reduce(q, axis=None) / q.size, entropy_term=entropy_term)


@unwarned
def lowest_shares(q_values: np.ndarray) -> np.ndarray:
    """1 where a critic is the lowest of its column, and 0 elsewhere; equal critics share the 1."""
    lowest = (q_values == np.minimum.reduce(q_values, axis=0)).astype(q_values.dtype)
    shares: np.ndarray = lowest / np.add.reduce(lowest, axis=0)
    return shares


@unwarned
def scalars(**values: float) -> Metrics:
    """Numbers as tensors, all made at once."""
    return dict(zip(values, torch.from_numpy(np.array(list(values.values()), dtype=np.float32)).unbind(), strict=True))
