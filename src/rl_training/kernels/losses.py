"""Losses that are worked out at every update, with their gradients in closed form beside their definitions.

A closed form stands here only where it was measured to pay; whatever else is learnt has its gradient derived by autograd.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import TypeAlias

import torch
from torch import Tensor

from rl_training.kernels.compiled import library_for
from rl_training.kernels.differentiable import loss
from rl_training.kernels.library import Library, Objective
from rl_training.kernels.mlp import floats

Both: TypeAlias = tuple[dict[str, Tensor], dict[str, Tensor | None]]
"""Metrics, and gradients by the names of the inputs."""


def _library_for_rows(values: Tensor, *columns: Tensor) -> Library | None:
    """The library, if it reads values (critics, rows) and columns as they lie."""
    if values.dim() != 2 or not values.is_contiguous():
        return None
    for column in columns:
        if not column.is_contiguous() or (column.dim() and column.shape != values.shape[1:]):
            return None
    return library_for(values, *columns)


@loss("critic_loss", wrt=("q_values",))
def critic_loss(q_values: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Squared error of each critic (critics, batch), averaged over the batch and summed over the critics."""
    return {"critic_loss": (q_values - targets).square().mean(dim=-1).sum(), "target_q_mean": targets.mean()}


@critic_loss.compiled
def _(q_values: Tensor, targets: Tensor) -> Both | None:
    compiled = _library_for_rows(q_values, targets)
    if compiled is None or targets.dim() != 1:
        return None
    (critics, rows), d_q_values, losses = q_values.shape, torch.empty_like(q_values), floats(2)
    compiled.critic_loss(
        q_values.data_ptr(), targets.data_ptr(), critics, rows, d_q_values.data_ptr(), losses.data_ptr()
    )  # fmt: skip
    error, target_mean = losses.unbind()
    return {"critic_loss": error, "target_q_mean": target_mean}, {"q_values": d_q_values}


@loss("critic_loss", wrt=("quantiles",))
def quantile_huber_loss(quantiles: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Huber's loss of every quantile (critics, batch, quantiles) towards every target (batch, targets), weighing errors above
    the i-th of n quantiles by its share (i + ½) / n and those below by the rest; the mean over all pairs."""
    shares = _shares(quantiles)
    errors = targets.unsqueeze(-2) - quantiles.unsqueeze(-1)
    clipped = errors.clamp(-1.0, 1.0)
    signed = torch.sub(errors, clipped, alpha=0.5) * clipped.abs()  # Huber's loss with the sign of the error
    above = signed.relu().sum(dim=-1)
    below = above - signed.sum(dim=-1)
    value = (shares * above + (1.0 - shares) * below).sum() / errors.numel()
    return {"critic_loss": value, "target_q_mean": targets.mean()}


@quantile_huber_loss.gradient
def _(quantiles: Tensor, targets: Tensor) -> dict[str, Tensor]:
    # pairs are many: in place, and without a branch, this takes a twentieth of what autograd does
    shares, errors = _shares(quantiles), targets.unsqueeze(-2) - quantiles.unsqueeze(-1)
    total = errors.clamp_(-1.0, 1.0).sum(dim=-1)
    above = errors.relu_().sum(dim=-1)
    gradient = (shares * above).addcmul_(1.0 - shares, total.sub_(above))
    return {"quantiles": gradient.div_(-errors.numel())}


def _shares(quantiles: Tensor) -> Tensor:
    """Of the return's distribution that lies below each quantile."""
    count = quantiles.shape[-1]
    return torch.arange(0.5, count, dtype=quantiles.dtype, device=quantiles.device).div_(count)


@loss("actor_loss", wrt=("q_values", "logprobs"))
def soft_actor_loss(
    q_values: Tensor, logprobs: Tensor, alpha: float | Tensor, *, pessimistic: bool = True
) -> dict[str, Tensor]:
    """Entropy-regularised value of the sampled actions: by the lowest critic, or by their mean."""
    q = q_values.amin(dim=0) if pessimistic else q_values.mean(dim=0)
    entropy_term = (alpha * logprobs).mean()
    return {"actor_loss": entropy_term - q.mean(), "entropy_term": entropy_term}


@soft_actor_loss.compiled
def _(q_values: Tensor, logprobs: Tensor, alpha: float | Tensor, *, pessimistic: bool = True) -> Both | None:
    alpha = torch.as_tensor(alpha, dtype=q_values.dtype)
    compiled = _library_for_rows(q_values, logprobs, alpha)
    if compiled is None or alpha.numel() != 1:
        return None
    (critics, rows), d_q_values, d_logprobs, losses = (
        q_values.shape,
        torch.empty_like(q_values),
        floats(logprobs.shape),
        floats(2),
    )
    compiled.soft_actor_loss(
        q_values.data_ptr(), logprobs.data_ptr(), alpha.data_ptr(), critics, rows, pessimistic, d_q_values.data_ptr(),
        d_logprobs.data_ptr(), losses.data_ptr(),
    )  # fmt: skip
    total, entropy_term = losses.unbind()
    return {"actor_loss": total, "entropy_term": entropy_term}, {"q_values": d_q_values, "logprobs": d_logprobs}


@loss("actor_loss", wrt=("q_values",))
def deterministic_actor_loss(q_values: Tensor) -> dict[str, Tensor]:
    """Minus the mean value of the actor's actions."""
    return {"actor_loss": -q_values.mean()}


@deterministic_actor_loss.gradient
def _(q_values: Tensor) -> dict[str, Tensor]:
    return {"q_values": torch.full_like(q_values, -1.0 / q_values.numel())}


@loss("loss", wrt=("new_logprobs", "new_values", "entropy"))
def clipped_objective(
    minibatch: Mapping[str, Tensor], *, clip_coef: float, ent_coef: float, vf_coef: float, clip_value: bool = False
) -> dict[str, Tensor]:
    """Clipped surrogate, value regression and entropy bonus, from `logprobs, new_logprobs, advantages, returns,
    new_values, entropy` (and the old `values` where the value loss is clipped too)."""
    advantages, returns, values = minibatch["advantages"], minibatch["returns"], minibatch["new_values"]
    log_ratio = minibatch["new_logprobs"] - minibatch["logprobs"]
    ratio = log_ratio.exp()
    policy_loss = -torch.minimum(ratio * advantages, ratio.clamp(1 - clip_coef, 1 + clip_coef) * advantages).mean()
    squared = (values - returns).square()
    if clip_value:
        old = minibatch["values"]
        squared = torch.maximum(squared, (old + (values - old).clamp(-clip_coef, clip_coef) - returns).square())
    value_loss, entropy = squared.mean(), minibatch["entropy"].mean()
    return {
        "loss": policy_loss + vf_coef * value_loss - ent_coef * entropy,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy_loss": entropy,
        "approx_kl": ((ratio - 1) - log_ratio).mean(),
        "clip_fraction": ((ratio - 1).abs() > clip_coef).to(ratio.dtype).mean(),
    }


@clipped_objective.compiled
def _(
    minibatch: Mapping[str, Tensor], *, clip_coef: float, ent_coef: float, vf_coef: float, clip_value: bool = False
) -> Both | None:
    names = ("logprobs", "new_logprobs", "advantages", "returns", "new_values", "entropy", *(("values",) if clip_value else ()))
    columns = [minibatch[name].contiguous() for name in names]  # kept, so that their memory is
    shape = columns[0].shape
    compiled = _library_for_rows(columns[0].unsqueeze(0), *columns)
    if compiled is None:
        return None
    d_logprobs, d_values, losses = floats(shape), floats(shape), floats(6)
    compiled.clipped_objective(
        ctypes.byref(
            Objective(
                *(column.data_ptr() for column in columns[:6]), columns[6].data_ptr() if clip_value else None,
                d_logprobs.numel(), clip_coef, ent_coef, vf_coef,
                d_logprobs.data_ptr(), d_values.data_ptr(), losses.data_ptr(),
            )
        )
    )  # fmt: skip
    d_entropy = torch.full_like(d_values, -ent_coef / d_values.numel()) if ent_coef else None
    return dict(zip(LOSSES_OF_PPO, losses.unbind(), strict=True)), {
        "new_logprobs": d_logprobs,
        "new_values": d_values,
        "entropy": d_entropy,
    }


LOSSES_OF_PPO = ("loss", "policy_loss", "value_loss", "entropy_loss", "approx_kl", "clip_fraction")
"""In the order in which C gives them."""
