"""Actions drawn from a Gaussian and squashed by tanh, with their log-probabilities (SAC)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from rl_training.kernels.compiled import library_for
from rl_training.kernels.differentiable import Pullback, outside_autograd
from rl_training.kernels.library import Library
from rl_training.kernels.mlp import floats

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def definition(outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """tanh(mean + std · noise) and its log-probability, from rows of means and, beside them, of log-standard deviations."""
    mean, raw_log_std = outputs.chunk(2, dim=-1)
    log_std = raw_log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)
    u = mean + log_std.exp() * noise
    # log|d tanh(u)/du| in a form that does not lose precision for large |u|
    log_slope = 2 * (math.log(2) - u - F.softplus(-2 * u))
    return u.tanh(), (-0.5 * noise.square() - log_std - HALF_LOG_2PI - log_slope).sum(-1)


def squash(outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Actions in [-1, 1] and log-probabilities: `definition`, differentiable by autograd."""
    compiled = _compiled(outputs, noise)
    if compiled is None:
        return definition(outputs, noise)
    if torch.is_grad_enabled() and outputs.requires_grad:
        sample: tuple[Tensor, Tensor] = _Squash.apply(outputs, noise)  # type: ignore[no-untyped-call]
        return sample
    return _forward(compiled, outputs, noise)[:2]


@outside_autograd
def vjp(outputs: Tensor, noise: Tensor) -> tuple[tuple[Tensor, Tensor], Pullback]:
    """The same with the pullback from gradients at actions and log-probabilities to that at `outputs`."""
    compiled = _compiled(outputs, noise)
    if compiled is None:
        at = outputs.detach().requires_grad_()
        with torch.enable_grad():
            sample = definition(at, noise)
        actions, logprobs = (part.detach() for part in sample)
        return (actions, logprobs), lambda *d: torch.autograd.grad(sample, [at], d)[0]
    actions, logprobs, spread = _forward(compiled, outputs, noise)

    def pull(d_actions: Tensor, d_logprobs: Tensor) -> Tensor:
        (rows, width), d_outputs = actions.shape, torch.empty_like(outputs, memory_format=torch.contiguous_format)
        known = [tensor.contiguous() for tensor in (outputs, actions, spread, d_actions, d_logprobs)]
        compiled.squash_back(*(tensor.data_ptr() for tensor in known), rows, width, d_outputs.data_ptr())
        return d_outputs

    return (actions, logprobs), pull


def _compiled(outputs: Tensor, noise: Tensor) -> Library | None:
    """The library in C, if it can read these."""
    return library_for(outputs, noise) if noise.dim() == outputs.dim() == 2 else None


def _forward(compiled: Library, outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Also how far from the mean the noise went."""
    rows, width = noise.shape
    actions, spread, logprobs = floats(rows, width), floats(rows, width), floats(rows)
    outputs, noise = outputs.contiguous(), noise.contiguous()
    made = actions.data_ptr(), logprobs.data_ptr(), spread.data_ptr()
    compiled.squash(outputs.data_ptr(), noise.data_ptr(), rows, width, *made)
    return actions, logprobs, spread


class _Squash(torch.autograd.Function):
    """The op in C as a node of autograd's graph."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        sample, ctx.pull = vjp(outputs, noise)
        return sample

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_actions: Tensor, d_logprobs: Tensor) -> tuple[Tensor, None]:
        return ctx.pull(d_actions, d_logprobs), None
