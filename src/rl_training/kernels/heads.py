"""From a network's outputs to a distribution over actions: categorical or diagonal Gaussian.

Each head gives log-probability and entropy, and how their gradients reach the outputs, written down.
Not torch.distributions: constructing and validating one costs more than a small network.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class PolicyOutput(NamedTuple):
    """What a policy with a value function says of a batch; each has the batch's length."""

    actions: Tensor
    logprobs: Tensor
    values: Tensor
    entropy: Tensor


class Categorical:
    """Over `logits` (batch, actions)."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits

    @cached_property
    def log_probabilities(self) -> Tensor:
        """Normalised logits, worked out when they are first asked for: to act one needs none."""
        return self.logits.log_softmax(-1)

    def sample(self) -> Tensor:
        # the race of exponentials: the same distribution as torch.multinomial at a fraction of its cost
        race = torch.empty_like(self.logits).exponential_()
        return (self.logits - race.log_()).argmax(-1)

    def mode(self) -> Tensor:
        return self.logits.argmax(-1)

    def log_prob(self, actions: Tensor) -> Tensor:
        return self.log_probabilities.gather(-1, actions.long().unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        return -(self.log_probabilities.exp() * self.log_probabilities).sum(-1)

    def kl_from(self, teacher: Categorical) -> Tensor:
        """KL(teacher ‖ self), per row."""
        return (teacher.log_probabilities.exp() * (teacher.log_probabilities - self.log_probabilities)).sum(-1)

    def output_gradient(self, actions: Tensor, d_logprobs: Tensor, d_entropy: Tensor | None) -> tuple[Tensor, None]:
        """The gradient at the logits of whatever has these gradients at `log_prob(actions)` and `entropy()`; without the
        latter it is zero."""
        logp, d_rows = self.log_probabilities, d_logprobs.unsqueeze(-1)
        p = logp.exp()
        gradient = (p * -d_rows).scatter_add_(-1, actions.long().unsqueeze(-1), d_rows)
        if d_entropy is None:
            return gradient, None
        entropy = -(p * logp).sum(-1, keepdim=True)
        return gradient - d_entropy.unsqueeze(-1) * p * (logp + entropy), None


class DiagonalGaussian:
    """Independent normals around `mean` (batch, actions) with a `log_std` (actions,) that no state moves."""

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        self.mean, self.log_std = mean, log_std

    def sample(self) -> Tensor:
        return self.mean + self.log_std.exp() * torch.randn_like(self.mean)

    def mode(self) -> Tensor:
        return self.mean

    def log_prob(self, actions: Tensor) -> Tensor:
        z = (actions - self.mean) * (-self.log_std).exp()
        return (-0.5 * z.square() - self.log_std - HALF_LOG_2PI).sum(-1)

    def entropy(self) -> Tensor:
        return (self.log_std + 0.5 + HALF_LOG_2PI).sum(-1).expand(self.mean.shape[:-1])

    def kl_from(self, teacher: DiagonalGaussian) -> Tensor:
        """KL(teacher ‖ self), per row."""
        variance_ratio = (2 * (teacher.log_std - self.log_std)).exp()
        distance = (teacher.mean - self.mean).square() * (-2 * self.log_std).exp()
        return (0.5 * (variance_ratio + distance - 1) + self.log_std - teacher.log_std).sum(-1)

    def output_gradient(self, actions: Tensor, d_logprobs: Tensor, d_entropy: Tensor | None) -> tuple[Tensor, Tensor]:
        """The gradients at `mean` and `log_std` of whatever has these at `log_prob(actions)` and `entropy()`."""
        inverse_std = (-self.log_std).exp()
        z = (actions - self.mean) * inverse_std
        d_rows = d_logprobs.unsqueeze(-1)
        d_log_std = (d_rows * (z.square() - 1)).sum(0)
        return d_rows * z * inverse_std, d_log_std if d_entropy is None else d_log_std + d_entropy.sum()
