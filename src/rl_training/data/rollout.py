"""From a stretch of fresh experience to advantages and minibatches."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from rl_training.types import Batch


def generalized_advantages(
    *, rewards: Tensor, values: Tensor, next_values: Tensor, dones: Tensor, cuts: Tensor, gamma: float, gae_lambda: float
) -> Tensor:
    """GAE (Schulman et al., 2016, arXiv:1506.02438) over (time, environments).

    `next_values` are of the observations the actions really led to, so one rule covers termination (no future
    value), truncation (future value, but the trace ends) and the end of the rollout.
    """
    delta = (rewards + gamma * (1 - dones) * next_values - values).numpy()
    decay = (gamma * gae_lambda * (1 - cuts)).numpy()
    trace = delta[-1]
    for t in range(len(delta) - 2, -1, -1):
        trace = delta[t] + decay[t] * trace
        delta[t] = trace
    return torch.from_numpy(delta)


def following(column: Tensor) -> Tensor:
    """The next row of each (time, environments); the last is its own."""
    return torch.cat([column[1:], column[-1:]])


def row_ends(cuts: Tensor) -> Tensor:
    """Where the next row is not what came of this one: an episode was cut, or the rollout ends."""
    ends = cuts != 0
    ends[-1] = True
    return ends


def minibatches(batch: Batch, size: int) -> Iterator[Batch]:
    """Every row once, in random order; the batch as it is where it is one minibatch."""
    rows = len(batch["obs"])
    if size >= rows:
        yield batch
        return
    for chosen in torch.split(torch.randperm(rows), size):
        yield {name: column[chosen] for name, column in batch.items()}


def explained_variance(predictions: Tensor, targets: Tensor) -> Tensor:
    """1 for a perfect prediction, 0 for one no better than the mean, negative for worse."""
    return 1 - (targets - predictions).var(correction=0) / targets.var(correction=0).clamp_min(1e-12)
