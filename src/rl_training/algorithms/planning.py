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
    """The last distribution of a search over (starts, horizon, action_dim)."""

    mean: Tensor
    std: Tensor

    def shifted(self, middle: Tensor) -> Tensor:
        """Where the next search begins one step later: what is left of the mean, and the middle of the range."""
        return torch.cat([self.mean[:, 1:], middle.expand_as(self.mean[:, :1])], dim=1)


@dataclass(frozen=True, kw_only=True)
class CEM:
    """How to search. `keep_elites` is a share of `topk`, `initial_std` a share of the action range."""

    horizon: int = 25
    candidates: int = 400
    iterations: int = 5
    topk: int = 40
    momentum: float = 0.1
    keep_elites: float = 0.3
    noise_beta: float = 0.0
    initial_std: float = 0.25

    def __post_init__(self) -> None:
        for name in ("horizon", "candidates", "iterations", "topk"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; given {getattr(self, name)}")
        if self.topk > self.candidates:
            raise ValueError(f"topk: the best {self.topk} cannot be chosen from {self.candidates} candidates")

    @torch.no_grad()
    def search(
        self, score: Score, start: Tensor, *, low: Tensor, high: Tensor, generator: torch.Generator | None = None
    ) -> Plan:
        """From the mean `start` (starts, horizon, action_dim) to the best that is found within the bounds.

        All starts are searched with the same noise: a plan does not depend on what else is planned beside it.
        """
        mean, std = start, ((high - low) * self.initial_std).expand_as(start)
        kept: Tensor | None = None
        num_kept = min(int(self.keep_elites * self.topk), self.candidates - 1)
        for _ in range(self.iterations):
            noise = self._noise(start.shape[-1], start.device, generator)
            # The paper instead shrinks the variance near a bound until two standard deviations fit in, which makes
            # full torque unreachable: on Pendulum with its true dynamics −174 against −142 for clipping.
            plans = torch.addcmul(mean.unsqueeze(1), std.unsqueeze(1), noise).clamp(low, high)
            if kept is not None and num_kept:
                plans[:, -num_kept:] = kept[:, :num_kept]
            # a plan that leads the model astray is the worst, not an error
            values = torch.nan_to_num(score(plans), nan=-torch.inf, posinf=-torch.inf)
            best = values.topk(self.topk, dim=1).indices
            kept = plans.gather(1, best[..., None, None].expand(-1, -1, *plans.shape[2:]))
            mean = torch.lerp(kept.mean(dim=1), mean, self.momentum)
            std = torch.lerp(kept.var(dim=1, correction=0), std.square(), self.momentum).sqrt()
        return Plan(mean, std)

    def _noise(self, action_dim: int, device: torch.device, generator: torch.Generator | None) -> Tensor:
        shape = (self.candidates, self.horizon, action_dim)
        if self.noise_beta and self.horizon > 1:
            return colored_noise(shape, self.noise_beta, device=device, generator=generator)
        return truncated_noise(shape, device=device, generator=generator)


def truncated_noise(shape: tuple[int, ...], *, device: torch.device, generator: torch.Generator | None = None) -> Tensor:
    """Standard normal numbers, none further than two from zero."""
    within = math.erf(2 / math.sqrt(2))
    uniform = torch.rand(shape, device=device, generator=generator)
    return torch.erfinv((uniform * 2 - 1) * within).mul_(math.sqrt(2))


def colored_noise(
    shape: tuple[int, int, int], beta: float, *, device: torch.device, generator: torch.Generator | None = None
) -> Tensor:
    """Normal numbers (candidates, time, dims) of variance one whose power falls with frequency as f^-beta."""
    rows, time, dims = shape
    frequencies: Tensor = torch.fft.rfftfreq(time, device=device)
    frequencies[0] = frequencies[1]  # the mean is as strong as the slowest wave
    amplitudes = frequencies.pow(-beta / 2)
    parts = torch.randn(2, rows, dims, len(amplitudes), device=device, generator=generator) * amplitudes
    weights = torch.full_like(amplitudes, 2.0)  # a wave has a sine and a cosine; the constant and the fastest have one
    for single in [0] if time % 2 else [0, -1]:
        weights[single] = 1.0
        parts[1, ..., single] = 0.0
    waves: Tensor = torch.fft.irfft(torch.complex(parts[0], parts[1]), n=time, norm="forward")
    variance = (amplitudes * weights).square().sum()
    return (waves / variance.sqrt()).transpose(1, 2)
