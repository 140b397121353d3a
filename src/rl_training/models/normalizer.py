"""Running statistics of observations and returns. They belong to the learner and travel with it:
saved, resumed, evaluated, predicted and exported together with the policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rl_training.errors import MisfitError
from rl_training.forms import like
from rl_training.types import State


class RunningMoments:
    """Mean and variance of everything seen, merged batch by batch (Chan et al., 1979), in double precision."""

    def __init__(self, *shape: int) -> None:
        self.mean = torch.zeros(shape, dtype=torch.float64)
        self.var = torch.ones(shape, dtype=torch.float64)
        self.count = 0

    @torch.no_grad()
    def merge(self, rows: Tensor) -> None:
        """Take in rows of shape (batch, *shape)."""
        rows = rows.detach().to(torch.float64)
        if len(rows):
            self.merge_moments(mean=rows.mean(0), var=rows.var(0, correction=0), count=len(rows))

    def merge_moments(self, *, mean: Tensor, var: Tensor, count: int) -> None:
        """Take in `count` rows of which only mean and variance are known, in double precision."""
        n, total = count, self.count + count
        delta = mean - self.mean
        if self.count == 0:
            self.mean, self.var = mean, var
        else:
            self.var = (self.var * self.count + var * n + delta.square() * (self.count * n / total)) / total
            self.mean = self.mean + delta * (n / total)
        self.count = total

    def state_dict(self) -> State:
        return {"mean": self.mean, "var": self.var, "count": self.count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        like(RunningMoments.state_dict(self))(state, "the normaliser")
        if bool((state["var"] < 0).any()):
            raise MisfitError("the normaliser holds a variance below 0")
        self.mean, self.var, self.count = state["mean"].clone(), state["var"].clone(), state["count"]


class ObservationNormalizer:
    """Shifts and scales observations to mean 0 and variance 1, clipped. Frozen unless `observe` is called."""

    def __init__(self, obs_dim: int, *, clip: float = 10.0, eps: float = 1e-8, var_floor: float = 0.0) -> None:
        self.moments = RunningMoments(obs_dim)
        self.clip, self.eps, self.var_floor = clip, eps, var_floor
        self._refresh()

    def _refresh(self) -> None:
        self._shift = self.moments.mean.to(torch.float32)
        self._scale = (self.moments.var.clamp_min(self.var_floor) + self.eps).rsqrt().to(torch.float32)

    @property
    def shift_and_scale(self) -> tuple[Tensor, Tensor] | None:
        """What is subtracted and what is multiplied with, for whoever does it elsewhere; None while nothing was seen."""
        return (self._shift, self._scale) if self.moments.count else None

    def __call__(self, obs: Tensor) -> Tensor:
        if self.moments.count == 0:
            return obs
        return ((obs - self._shift.to(obs.device)) * self._scale.to(obs.device)).clamp_(-self.clip, self.clip)

    def observe(self, obs: Tensor) -> None:
        """Let a batch of raw observations move the statistics."""
        self.moments.merge(obs.reshape(-1, obs.shape[-1]))
        self._refresh()

    def take_in(self, *, mean: Tensor, var: Tensor, count: int) -> None:
        """Let observations of which only the moments are known move the statistics."""
        self.moments.merge_moments(mean=mean, var=var, count=count)
        self._refresh()

    def state_dict(self) -> State:
        return self.moments.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.moments.load_state_dict(state)
        self._refresh()


class RewardNormalizer:
    """Divides rewards by the running standard deviation of the discounted return, clipped.

    The return runs on from one call to the next in every environment, and begins anew where an episode ended.
    """

    def __init__(self, *, gamma: float, clip: float = 10.0, eps: float = 1e-8) -> None:
        self.moments = RunningMoments()
        self.gamma, self.clip, self.eps = gamma, clip, eps
        self.running = torch.zeros(0, dtype=torch.float64)

    @torch.no_grad()
    def __call__(self, rewards: Tensor, cuts: Tensor) -> Tensor:
        """Take in rewards of shape (time, environments) and give them scaled."""
        if len(self.running) != rewards.shape[1]:
            self.running = torch.zeros(rewards.shape[1], dtype=torch.float64)
        seen = torch.empty(rewards.shape, dtype=torch.float64)
        for t in range(len(rewards)):
            seen[t] = self.running = self.running * self.gamma + rewards[t]
            self.running = self.running * (1 - cuts[t])
        self.moments.merge(seen.flatten())
        return (rewards * (self.moments.var + self.eps).rsqrt().to(rewards.dtype)).clamp_(-self.clip, self.clip)

    def state_dict(self) -> State:
        return self.moments.state_dict() | {"running": self.running}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.moments.load_state_dict(state)
        self.running = state["running"].clone()
