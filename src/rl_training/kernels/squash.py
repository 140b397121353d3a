"""Actions drawn from a Gaussian and squashed by tanh, with their log-probabilities (SAC)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from rl_training.kernels.compiled import library_for
from rl_training.kernels.differentiable import Pullback, by_autograd, outside_autograd
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
    if torch.is_grad_enabled() and outputs.requires_grad:
        sample: tuple[Tensor, Tensor] = _Squash.apply(outputs, noise)  # type: ignore[no-untyped-call]
        return sample
    made = _in_c(outputs, noise)
    return definition(outputs, noise) if made is None else (made.actions, made.logprobs)


@outside_autograd
def vjp(outputs: Tensor, noise: Tensor) -> tuple[tuple[Tensor, Tensor], Pullback]:
    """The same with the pullback from gradients at actions and log-probabilities to that at `outputs`."""
    made = _in_c(outputs, noise)
    if made is None:
        sample, pull = by_autograd(lambda at: definition(at, noise), outputs)
        return sample, lambda *d_sample: pull(*d_sample)[0]
    return (made.actions, made.logprobs), made.pull


@dataclass(slots=True, eq=False)
class _Squashed:
    """A sample made in C, and the way back."""

    library: Library
    outputs: Tensor
    actions: Tensor
    logprobs: Tensor
    spread: Tensor  # how far from the mean the noise went

    def pull(self, d_actions: Tensor, d_logprobs: Tensor) -> Tensor:
        (rows, width), d_outputs = self.actions.shape, torch.empty_like(self.outputs)
        d_actions, d_logprobs = d_actions.contiguous(), d_logprobs.contiguous()
        self.library.squash_back(
            self.outputs.data_ptr(), self.actions.data_ptr(), self.spread.data_ptr(), d_actions.data_ptr(),
            d_logprobs.data_ptr(), rows, width, d_outputs.data_ptr(),
        )  # fmt: skip
        return d_outputs


def _in_c(outputs: Tensor, noise: Tensor) -> _Squashed | None:
    """The sample made in C, if that can be."""
    library = library_for(outputs, noise) if noise.dim() == outputs.dim() == 2 else None
    if library is None:
        return None
    rows, width = noise.shape
    outputs, noise = outputs.contiguous(), noise.contiguous()
    actions, logprobs, spread = floats(rows, width), floats(rows), floats(rows, width)
    library.squash(
        outputs.data_ptr(), noise.data_ptr(), rows, width, actions.data_ptr(), logprobs.data_ptr(), spread.data_ptr()
    )
    return _Squashed(library, outputs, actions, logprobs, spread)


class _Squash(torch.autograd.Function):
    """The op in C as a node of autograd's graph."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        (actions, logprobs), ctx.pull = vjp(outputs, noise)
        # the node must not hold its own outputs: neither would ever be freed
        return actions.detach(), logprobs.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_actions: Tensor, d_logprobs: Tensor) -> tuple[Tensor, None]:
        return ctx.pull(d_actions, d_logprobs), None
