"""From a network's outputs to a distribution over actions: categorical, of one part or several, or diagonal Gaussian.

Each head gives log-probability and entropy, and how their gradients reach the outputs, written down.
Not torch.distributions: constructing and validating one costs more than a small network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
# the logit of what a mask forbids: its probability is exactly 0, and 0 times its logarithm is 0, where that of -inf is NaN
NEVER = -1e9


class PolicyOutput(NamedTuple):
    """What a policy with a value function says of a batch; each has the batch's length."""

    actions: Tensor
    logprobs: Tensor
    values: Tensor
    entropy: Tensor


class Categorical:
    """Over `logits` (batch, actions); what `masks` (batch, actions) does not allow has probability 0."""

    def __init__(self, logits: Tensor, masks: Tensor | None = None) -> None:
        self.logits = logits if masks is None else _masked(logits, masks)

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


class MultiCategorical:
    """One choice for each part of an action, independent of the others: MultiDiscrete, and MultiBinary as parts of two.

    Over `logits` (batch, sum of `nvec`), the choices of one part after those of the other, as are `masks`. `self.logits`
    has the parts in rows of their own, filled up with choices that are never made: (batch, parts, most of `nvec`).
    """

    def __init__(self, logits: Tensor, nvec: Sequence[int], masks: Tensor | None = None) -> None:
        self._rows, self._places = len(nvec), _places(tuple(nvec), logits.device)
        self.parts = Categorical(self._filled_up(logits if masks is None else _masked(logits, masks), max(nvec)))
        self.logits = self.parts.logits

    @property
    def log_probabilities(self) -> Tensor:
        return self.parts.log_probabilities

    def sample(self) -> Tensor:
        return self.parts.sample()

    def mode(self) -> Tensor:
        return self.parts.mode()

    def log_prob(self, actions: Tensor) -> Tensor:
        return self.parts.log_prob(actions).sum(-1)

    def entropy(self) -> Tensor:
        return self.parts.entropy().sum(-1)

    def kl_from(self, teacher: MultiCategorical) -> Tensor:
        """KL(teacher ‖ self), per row."""
        return self.parts.kl_from(teacher.parts).sum(-1)

    def output_gradient(self, actions: Tensor, d_logprobs: Tensor, d_entropy: Tensor | None) -> tuple[Tensor, None]:
        """As of one choice: every part's share of both sums is the sum's."""
        d_parts = d_logprobs.unsqueeze(-1).expand_as(actions)
        d_entropies = None if d_entropy is None else d_entropy.unsqueeze(-1).expand_as(actions)
        return self.at_outputs(self.parts.output_gradient(actions, d_parts, d_entropies)[0]), None

    def at_outputs(self, d_logits: Tensor) -> Tensor:
        """From a gradient at `self.logits` to that at the logits as they were given."""
        return d_logits.flatten(-2).index_select(-1, self._places)

    def _filled_up(self, logits: Tensor, most: int) -> Tensor:
        if logits.shape[-1] < self._rows * most:
            empty = logits.new_full((*logits.shape[:-1], self._rows * most), NEVER)
            logits = empty.index_copy(-1, self._places, logits)
        return logits.reshape(*logits.shape[:-1], self._rows, most)  # in the auxiliary phase they are columns of more


@lru_cache(maxsize=64)
def _places(nvec: tuple[int, ...], device: torch.device) -> Tensor:
    """Where the choices of all parts stand when each part has a row as long as the longest."""
    most = max(nvec)
    return torch.tensor([part * most + choice for part, count in enumerate(nvec) for choice in range(count)], device=device)


def _masked(logits: Tensor, masks: Tensor) -> Tensor:
    return logits.masked_fill(masks.logical_not(), NEVER)


def choices(logits: Tensor, nvec: Sequence[int] = (), masks: Tensor | None = None) -> Categorical | MultiCategorical:
    """One choice, or one for each part that `nvec` names."""
    return MultiCategorical(logits, nvec, masks) if nvec else Categorical(logits, masks)


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


Distribution: TypeAlias = Categorical | MultiCategorical | DiagonalGaussian
