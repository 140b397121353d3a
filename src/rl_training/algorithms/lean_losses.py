"""Parts of the off-policy learners' losses by numpy, on the CPU: the arithmetic is on a few hundred numbers, and numpy's calls
take a third of the time of torch's. The losses themselves are the functions of tensors in `sac`."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rl_training.models.blas import unwarned
from rl_training.types import Batch


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
def lowest_shares(q_values: np.ndarray) -> np.ndarray:
    """1 where a critic is the lowest of its column, and 0 elsewhere; equal critics share the 1."""
    lowest = (q_values == np.minimum.reduce(q_values, axis=0)).astype(q_values.dtype)
    shares: np.ndarray = lowest / np.add.reduce(lowest, axis=0)
    return shares
