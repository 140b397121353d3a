"""Squashed-Gaussian actor and an ensemble of Q functions (SAC, RLPD, CQL, MOPO's policy)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from rl_training.kernels import differentiable, squash
from rl_training.kernels.differentiable import Pullback
from rl_training.models.actor_network import ActorNetwork
from rl_training.models.critics import Critics
from rl_training.models.encoded_policy import StandalonePolicy
from rl_training.models.encoder import Encoder
from rl_training.models.normalizer import ObservationNormalizer
from rl_training.types import EnvSpec


class SACSample(NamedTuple):
    actions: Tensor  # (batch, action_dim) in [-1, 1]
    logprobs: Tensor  # (batch,)


class SquashedActorModel(nn.Module):
    """A Gaussian whose mean and spread are the actor's outputs, squashed into [-1, 1]."""

    def __init__(
        self, obs_dim: int, action_dim: int, hidden_sizes: Sequence[int], *, activation: str, encoder: Encoder | None
    ) -> None:
        super().__init__()
        self.obs_dim, self.action_dim = obs_dim, action_dim
        self.actor = ActorNetwork(obs_dim, hidden_sizes, 2 * action_dim, activation=activation, encoder=encoder)
        self.reads_bytes = self.actor.reads_bytes

    @differentiable.method
    def sample_actions(self, obs: Tensor, *, deterministic: bool = False) -> SACSample:
        """Actions in [-1, 1] and their log-probabilities, for a batch or a single observation; differentiable."""
        outputs = self.actor(obs if self.actor.encoder is None else self.actor.encoder(obs))
        means = outputs[..., : self.action_dim]
        noise = torch.zeros_like(means) if deterministic else torch.randn_like(means)
        return SACSample(*squash.squash(outputs, noise))

    @sample_actions.with_vjp
    def _(self, obs: Tensor) -> tuple[SACSample, Pullback]:
        read, pull_encoder = (obs, None) if self.actor.encoder is None else self.actor.encoder.vjp(obs)
        outputs, pull_actor = self.actor.vjp(read)
        sample, pull_squash = squash.vjp(outputs, torch.randn_like(outputs[..., : self.action_dim]))

        def pull(d_actions: Tensor, d_logprobs: Tensor) -> list[Tensor]:
            d_outputs = pull_squash(d_actions, d_logprobs)
            at_encoder = [] if pull_encoder is None else pull_encoder(pull_actor.inputs(d_outputs))
            return [pull_actor.parameters(d_outputs), *at_encoder]

        return SACSample(*sample), pull

    def sample_several(self, obs: Tensor, num_samples: int) -> SACSample:
        """Several actions for each observation, (batch, num_samples, action_dim); the network runs once for each."""
        outputs = self.actor(obs if self.actor.encoder is None else self.actor.encoder(obs))
        outputs = outputs.unsqueeze(-2).expand(*outputs.shape[:-1], num_samples, -1)
        return SACSample(*squash.squash(outputs, torch.randn_like(outputs[..., : self.action_dim])))

    def policy_network(self, env: EnvSpec, *, normalizer: ObservationNormalizer | None = None) -> StandalonePolicy:
        """The squashed mean; the columns of the standard deviations stay behind."""
        return self.actor.policy_network(env, squash=True, normalizer=normalizer)


class MLPSACModel(SquashedActorModel):
    """The actor and all critics; the critics are one batched network. `initial` weights are torch's own, or Xavier's (RLPD).
    Encoders stand before the actor, and before all critics together."""

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int] = (256, 256),
        *,
        num_critics: int = 2,
        layer_norm: bool = False,
        activation: str = "relu",
        initial: Literal["torch", "xavier"] = "torch",
        actor_encoder: Encoder | None = None,
        critic_encoder: Encoder | None = None,
    ) -> None:
        super().__init__(obs_dim, action_dim, hidden_sizes, activation=activation, encoder=actor_encoder)
        self.num_critics = num_critics
        settings: dict[str, Any] = {"num_critics": num_critics, "activation": activation, "layer_norm": layer_norm}
        self.critics = Critics(obs_dim, action_dim, hidden_sizes, encoder=critic_encoder, **settings)
        if initial == "xavier":
            for network in (self.actor, self.critics):
                network.layout.initialize_xavier(network.flat.data)

    @property
    def q_values(self) -> differentiable.BoundMethod:
        """One row per critic: shape (num_critics, batch), so that `q1, q2 = ...` works for two."""
        bound: differentiable.BoundMethod = self.critics.q_values
        return bound
