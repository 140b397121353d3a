"""Pieces of the off-policy learners' losses, in C where they can be (`models/native_steps.py`), else by torch."""

from __future__ import annotations

from torch import Tensor

from rl_training.models import native_steps
from rl_training.types import Batch


def bellman_targets(batch: Batch, next_q: Tensor, *, gamma: float, entropy_term: Tensor | None = None) -> Tensor:
    """r + γ (1 − done) (min Q̄ − entropy term), from next_q (critics, batch); with one critic the minimum is that critic."""
    # `dones`, not `cuts`: a time limit cuts the episode, not the value
    rewards, dones = batch["rewards"], batch["dones"]
    known = (rewards, dones) if entropy_term is None else (rewards, dones, entropy_term)
    if native_steps.steps_serve(next_q, *known) and all(column.shape == next_q.shape[1:] for column in known):
        return native_steps.targets(next_q, rewards, dones, gamma=gamma, entropy_term=entropy_term)
    value = next_q.amin(dim=0)
    if entropy_term is not None:
        value = value - entropy_term
    target: Tensor = rewards + gamma * (1.0 - dones.to(rewards.dtype)) * value  # a user's may be bools
    return target


def squared_errors(q_values: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Of q_values (critics, batch): mean squared distances from the target (batch,), added up; and the target's mean."""
    followed = q_values.requires_grad or target.requires_grad  # by autograd
    if not followed and native_steps.steps_serve(q_values, target) and q_values.shape[1:] == target.shape and target.dim() == 1:
        return native_steps.squared_errors(q_values, target)
    return (q_values - target).square().mean(dim=-1).sum(), target.mean()


def mean(numbers: Tensor) -> Tensor:
    """Their mean."""
    if not numbers.requires_grad and native_steps.steps_serve(numbers) and numbers.numel():
        return native_steps.mean(numbers)
    return numbers.mean()


def lowest_shares(q_values: Tensor, share: float) -> Tensor:
    """`share` where a critic is the lowest of its column (critics, batch), and 0 elsewhere; equal critics divide it between
    them, as in autograd's `amin`."""
    if native_steps.steps_serve(q_values):
        return native_steps.lowest_shares(q_values, share)
    lowest = (q_values == q_values.amin(dim=0)).to(q_values.dtype)
    return lowest / lowest.sum(dim=0) * share
