"""Squashed-Gaussian actor and an ensemble of Q functions (SAC, RLPD, CQL, MOPO's policy)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.models.blas import unwarned
from rl_training.models.flat_mlp import FlatMLP, FlatTape, as_rows
from rl_training.models.heads import HALF_LOG_2PI

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0

ArrayOrTensor = TypeVar("ArrayOrTensor", np.ndarray, Tensor)
"""Of arithmetic that numpy does on the CPU, where its calls take a third of the time of torch's, and torch elsewhere."""


class SACSample(NamedTuple):
    actions: Tensor  # (batch, action_dim) in [-1, 1]
    logprobs: Tensor  # (batch,)


class ActorPass(NamedTuple):
    """One explicit forward pass of the actor, and what its backward pass needs."""

    sample: SACSample
    spread: Tensor  # std · noise
    raw_log_std: Tensor
    tape: FlatTape


class MLPSACModel(nn.Module):
    """The actor and all critics; the critics are one batched network."""

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int] = (256, 256),
        *,
        num_critics: int = 2,
        layer_norm: bool = False,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        self.obs_dim, self.action_dim, self.num_critics = obs_dim, action_dim, num_critics
        self.actor = FlatMLP((obs_dim, *hidden_sizes, 2 * action_dim), activation=activation)
        self.critics = FlatMLP(
            (obs_dim + action_dim, *hidden_sizes, 1), members=num_critics, activation=activation, layer_norm=layer_norm
        )

    def sample_actions(self, obs: Tensor, *, deterministic: bool = False) -> SACSample:
        """Actions in [-1, 1] and their log-probabilities, for a batch or a single observation; differentiable."""
        single, obs = obs.dim() == 1, as_rows(obs)
        mean, raw_log_std = self.actor(obs).chunk(2, dim=-1)
        noise = torch.zeros_like(mean) if deterministic else torch.randn_like(mean)
        sample, _ = _squash(mean, raw_log_std, noise)
        return SACSample(sample.actions[0], sample.logprobs[0]) if single else sample

    def q_values(self, obs: Tensor, actions: Tensor) -> Tensor:
        """One row per critic: shape (num_critics, batch), so that `q1, q2 = ...` works for two."""
        x = torch.cat([as_rows(obs), as_rows(actions)], dim=-1)
        q: Tensor = self.critics(x).squeeze(-1)
        return q.squeeze(-1) if obs.dim() == 1 else q

    def infer_actions(self, obs: Tensor, *, deterministic: bool = False) -> Tensor:
        """Actions alone, for acting; `obs` is outside of autograd."""
        outputs = self.actor.infer(obs)
        if deterministic:
            return outputs[:, : self.action_dim].tanh()
        mean, raw_log_std = outputs.chunk(2, dim=-1)
        return torch.addcmul(mean, raw_log_std.clamp(LOG_STD_MIN, LOG_STD_MAX).exp(), torch.randn_like(mean)).tanh_()

    @torch.no_grad()
    def infer_samples(self, obs: Tensor, num_samples: int) -> SACSample:
        """Several actions for each observation, (batch, num_samples, action_dim); the network runs once for each."""
        outputs = self.actor.infer(obs).unsqueeze(1).expand(-1, num_samples, -1)
        mean, raw_log_std = outputs.chunk(2, dim=-1)
        return _squash(mean, raw_log_std, torch.randn(mean.shape, device=mean.device))[0]

    def run_actor(self, obs: Tensor) -> ActorPass:
        """Sample actions, keeping the tape for `backward_actor`; `obs` is outside of autograd."""
        outputs, tape = self.actor.run(obs)
        mean, raw_log_std = outputs[:, : self.action_dim], outputs[:, self.action_dim :]
        noise = torch.randn(mean.shape, device=mean.device)
        squash = _squash_arrays if mean.is_cpu else _squash
        sample, spread = squash(mean, raw_log_std, noise)
        return ActorPass(sample, spread, raw_log_std, tape)

    def backward_actor(self, done: ActorPass, *, d_actions: Tensor, d_logprobs: Tensor) -> None:
        """Fill the actor's gradient from the gradients at the sampled actions and their log-probabilities."""
        known = done.sample.actions, done.spread, done.raw_log_std
        d_rows = d_logprobs.unsqueeze(-1)
        if d_actions.is_cpu:
            arrays = (tensor.numpy() for tensor in (*known, d_actions, d_rows))
            gradient = torch.from_numpy(np.concatenate(_through_squash(*arrays), axis=-1))
        else:
            gradient = torch.cat(_through_squash(*known, d_actions, d_rows), dim=-1)
        self.actor.backward(done.tape, gradient)


@unwarned
def _through_squash(
    actions: ArrayOrTensor, spread: ArrayOrTensor, raw_log_std: ArrayOrTensor, d_actions: ArrayOrTensor, d_rows: ArrayOrTensor
) -> tuple[ArrayOrTensor, ArrayOrTensor]:
    """The gradients at mean and raw log-standard deviation, from those at the actions and, (batch, 1), log-probabilities;
    `spread` is how far from the mean the noise went."""
    # log p falls with log|d tanh(u)/du|, whose derivative in u is -2 tanh(u)
    d_u = d_actions * (1 - actions * actions) + 2 * d_rows * actions
    inside = (raw_log_std > LOG_STD_MIN) & (raw_log_std < LOG_STD_MAX)
    return d_u, (d_u * spread - d_rows) * inside


def _squash(mean: Tensor, raw_log_std: Tensor, noise: Tensor) -> tuple[SACSample, Tensor]:
    """tanh(mean + std · noise) with its log-probability, and std · noise."""
    log_std = raw_log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)
    spread = log_std.exp() * noise
    u = mean + spread
    # log|d tanh(u)/du| in a form that does not lose precision for large |u|
    log_slope = 2 * (math.log(2) - u - F.softplus(-2 * u))
    logprobs = (-0.5 * noise.square() - log_std - HALF_LOG_2PI - log_slope).sum(-1)
    return SACSample(u.tanh(), logprobs), spread


@unwarned
def _squash_arrays(mean: Tensor, raw_log_std: Tensor, noise: Tensor) -> tuple[SACSample, Tensor]:
    """`_squash` by numpy, whose calls on some hundred numbers take a third of the time of torch's; outside of autograd."""
    drawn = noise.numpy()
    log_std = raw_log_std.numpy().clip(LOG_STD_MIN, LOG_STD_MAX)
    spread = np.exp(log_std) * drawn
    u = mean.numpy() + spread
    size = np.abs(u)  # the slope is the same on both sides, and so no exponential can overflow
    log_slope = 2 * (math.log(2) - size - np.log1p(np.exp(-2 * size)))
    logprobs = (-0.5 * drawn * drawn - log_std - HALF_LOG_2PI - log_slope).sum(-1)
    return SACSample(torch.from_numpy(np.tanh(u)), torch.from_numpy(logprobs)), torch.from_numpy(spread)
