"""Search over action sequences with the cross-entropy method, for many starting points at once.

CEM with momentum and a warm start as in PETS (Chua et al., 2018); kept elites and coloured noise as in iCEM
(Pinneri et al., 2020, arXiv:2008.06389).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

Score: TypeAlias = Callable[[Tensor], Tensor]
"""From plans (starts, candidates, horizon, action_dim) to their values (starts, candidates)."""


class Plan(NamedTuple):
    """What a search over (starts, horizon, action_dim) has come to."""

    mean: Tensor  # of its last distribution
    std: Tensor
    carried: Tensor  # (starts, carried, horizon, action_dim): the best plans, for the next search to try again
    actions: Tensor  # (starts, action_dim): what to do now

    def shifted(self, middle: Tensor) -> Tensor:
        """Where the next search begins one step later, (starts, 1 + carried, horizon, action_dim): what is left of the mean
        and of the plans carried on, and the middle of the range."""
        plans = torch.cat([self.mean.unsqueeze(1), self.carried], dim=1)
        return torch.cat([plans[:, :, 1:], middle.expand_as(plans[:, :, :1])], dim=2)


@dataclass(frozen=True, kw_only=True)
class CEM:
    """How to search. `keep_elites` and `carry_elites` are shares of `topk`, `initial_std` of the action range.

    What is done is the first action of the last mean or, with `act_on_best`, of the best plan that was tried; the means are
    then tried as well.
    """

    horizon: int = 25
    candidates: int = 400
    iterations: int = 5
    topk: int = 40
    momentum: float = 0.1
    keep_elites: float = 0.3
    carry_elites: float = 0.0
    act_on_best: bool = False
    noise_beta: float = 0.0
    initial_std: float = 0.25

    def __post_init__(self) -> None:
        for name in ("horizon", "candidates", "iterations", "topk"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; given {getattr(self, name)}")
        if self.topk > self.candidates:
            raise ValueError(f"topk: the best {self.topk} cannot be chosen from {self.candidates} candidates")

    @property
    def num_carried(self) -> int:
        """Plans that a search hands to the next."""
        return min(int(self.carry_elites * self.topk), self.candidates - 1)

    def fresh(self, middle: Tensor) -> Tensor:
        """Where the first search begins, (1 + carried, horizon, action_dim)."""
        return middle.expand(1 + self.num_carried, self.horizon, len(middle))

    @torch.no_grad()
    def search(
        self, score: Score, start: Tensor, *, low: Tensor, high: Tensor, generator: torch.Generator | None = None
    ) -> Plan:
        """From `start` (starts, 1 + carried, horizon, action_dim), a mean and plans to try, to the best that is found
        within the bounds.

        All starts are searched with the same noise: a plan does not depend on what else is planned beside it.
        """
        mean, kept = start[:, 0], start[:, 1:]
        std = ((high - low) * self.initial_std).expand_as(mean)
        num_kept = min(int(self.keep_elites * self.topk), self.candidates - 1)
        best, best_value = mean, torch.full_like(mean[:, 0, 0], -torch.inf)
        for _ in range(self.iterations):
            noise = self._noise(mean.shape[-1], mean.device, generator)
            # The paper instead shrinks the variance near a bound until two standard deviations fit in, which makes
            # full torque unreachable: on Pendulum with its true dynamics −174 against −142 for clipping.
            plans = torch.addcmul(mean.unsqueeze(1), std.unsqueeze(1), noise).clamp(low, high)
            if kept.shape[1]:
                plans[:, -kept.shape[1] :] = kept
            if self.act_on_best:
                plans[:, 0] = mean
            # a plan that leads the model astray is the worst, not an error
            values = torch.nan_to_num(score(plans), nan=-torch.inf, posinf=-torch.inf)
            top = values.topk(self.topk, dim=1)
            elites = plans.gather(1, top.indices[..., None, None].expand(-1, -1, *plans.shape[2:]))
            better = top.values[:, 0] > best_value
            best = torch.where(better[:, None, None], elites[:, 0], best)
            best_value = torch.where(better, top.values[:, 0], best_value)
            kept = elites[:, :num_kept]
            mean = torch.lerp(elites.mean(dim=1), mean, self.momentum)
            std = torch.lerp(elites.var(dim=1, correction=0), std.square(), self.momentum).sqrt()
        actions = best[:, 0] if self.act_on_best else mean[:, 0]
        return Plan(mean, std, elites[:, : self.num_carried], actions)

    def _noise(self, action_dim: int, device: torch.device, generator: torch.Generator | None) -> Tensor:
        shape = (self.candidates, self.horizon, action_dim)
        if self.noise_beta and self.horizon > 1:
            return colored_noise(shape, self.noise_beta, device=device, generator=generator)
        return truncated_noise(shape, device=device, generator=generator)


def truncated_noise(shape: tuple[int, ...], *, device: torch.device, generator: torch.Generator | None = None) -> Tensor:
    """Standard normal numbers, none further than two from zero."""
    within = math.erf(2 / math.sqrt(2))
    uniform = torch.rand(shape, dtype=torch.float32, device=device, generator=generator)
    return torch.erfinv((uniform * 2 - 1) * within).mul_(math.sqrt(2))


def colored_noise(
    shape: tuple[int, int, int], beta: float, *, device: torch.device, generator: torch.Generator | None = None
) -> Tensor:
    """Normal numbers (candidates, time, dims) of variance one whose power falls with frequency as f^-beta."""
    rows, time, dims = shape
    frequencies: Tensor = torch.fft.rfftfreq(time, dtype=torch.float32, device=device)
    frequencies[0] = frequencies[1]  # the mean is as strong as the slowest wave
    amplitudes = frequencies.pow(-beta / 2)
    shape_of_parts = (2, rows, dims, len(amplitudes))
    parts = torch.randn(shape_of_parts, dtype=torch.float32, device=device, generator=generator) * amplitudes
    weights = torch.full_like(amplitudes, 2.0)  # a wave has a sine and a cosine; the constant and the fastest have one
    for single in [0] if time % 2 else [0, -1]:
        weights[single] = 1.0
        parts[1, ..., single] = 0.0
    waves: Tensor = torch.fft.irfft(torch.complex(parts[0], parts[1]), n=time, norm="forward")
    variance = (amplitudes * weights).square().sum()
    return (waves / variance.sqrt()).transpose(1, 2)
