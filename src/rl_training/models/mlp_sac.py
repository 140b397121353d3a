"""Squashed-Gaussian actor and an ensemble of Q functions (SAC, RLPD, CQL, MOPO's policy)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.models.flat_mlp import FlatMLP, FlatTape, as_rows
from rl_training.models.heads import HALF_LOG_2PI, drawn_noise
from rl_training.models.native_steps import squash, squash_back, steps_serve

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0


class SACSample(NamedTuple):
    actions: Tensor  # (batch, action_dim) in [-1, 1]
    logprobs: Tensor  # (batch,)


class ActorPass(NamedTuple):
    """One explicit forward pass of the actor, and what its backward pass needs."""

    sample: SACSample
    spread: Tensor  # std · noise
    outputs: Tensor  # of the network: means and raw log-standard deviations
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
        """Actions alone, for acting, for a batch or a single observation."""
        outputs = self.actor.infer(obs)
        if deterministic:
            return outputs[..., : self.action_dim].tanh()
        noise = drawn_noise(outputs, self.action_dim)
        return _squashed(outputs, noise)[0].actions

    @torch.no_grad()
    def infer_samples(self, obs: Tensor, num_samples: int) -> SACSample:
        """Several actions for each observation, (batch, num_samples, action_dim); the network runs once for each. A single
        observation has no batch axis."""
        outputs = self.actor.infer(obs).unsqueeze(-2)
        mean, raw_log_std = outputs.expand(*outputs.shape[:-2], num_samples, -1).chunk(2, dim=-1)
        return _squash(mean, raw_log_std, torch.randn(mean.shape, dtype=mean.dtype, device=mean.device))[0]

    def run_actor(self, obs: Tensor) -> ActorPass:
        """Sample actions, keeping the tape for `backward_actor`; a single observation is a batch of one here."""
        outputs, tape = self.actor.run(obs)
        noise = drawn_noise(outputs, self.action_dim)
        return ActorPass(*_squashed(outputs, noise), outputs, tape)

    def backward_actor(self, done: ActorPass, *, d_actions: Tensor, d_logprobs: Tensor) -> None:
        """Fill the actor's gradient from the gradients at the sampled actions and their log-probabilities."""
        known = done.outputs, done.sample.actions, done.spread
        through = squash_back if steps_serve(*known, d_actions, d_logprobs) else _squash_back
        self.actor.backward(done.tape, through(*known, d_actions=d_actions, d_logprobs=d_logprobs))


def _squashed(outputs: Tensor, noise: Tensor) -> tuple[SACSample, Tensor]:
    """What `_squash` makes of a network's outputs, outside of autograd."""
    if noise.dim() == 2 and steps_serve(outputs, noise):
        actions, logprobs, spread = squash(outputs, noise)
        return SACSample(actions, logprobs), spread
    mean, raw_log_std = outputs.chunk(2, dim=-1)
    return _squash(mean, raw_log_std, noise)


def _squash_back(outputs: Tensor, actions: Tensor, spread: Tensor, *, d_actions: Tensor, d_logprobs: Tensor) -> Tensor:
    """The gradient at the network's outputs, from those at the actions and their log-probabilities; `spread` is how far from
    the mean the noise went."""
    d_rows, raw_log_std = d_logprobs.unsqueeze(-1), outputs[:, actions.shape[-1] :]
    # log p falls with log|d tanh(u)/du|, whose derivative in u is -2 tanh(u)
    d_u = d_actions * (1 - actions * actions) + 2 * d_rows * actions
    inside = (raw_log_std > LOG_STD_MIN) & (raw_log_std < LOG_STD_MAX)
    return torch.cat([d_u, (d_u * spread - d_rows) * inside], dim=-1)


def _squash(mean: Tensor, raw_log_std: Tensor, noise: Tensor) -> tuple[SACSample, Tensor]:
    """tanh(mean + std · noise) with its log-probability, and std · noise."""
    log_std = raw_log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)
    spread = log_std.exp() * noise
    u = mean + spread
    # log|d tanh(u)/du| in a form that does not lose precision for large |u|
    log_slope = 2 * (math.log(2) - u - F.softplus(-2 * u))
    logprobs = (-0.5 * noise.square() - log_std - HALF_LOG_2PI - log_slope).sum(-1)
    return SACSample(u.tanh(), logprobs), spread
