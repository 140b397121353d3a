"""A deterministic actor and its Q functions: the networks of TD3 and DDPG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rl_training.kernels import differentiable
from rl_training.kernels.differentiable import Pullback
from rl_training.models.actor_network import ActorNetwork
from rl_training.models.critics import Critics
from rl_training.models.encoded_policy import StandalonePolicy
from rl_training.models.encoder import Encoder
from rl_training.models.normalizer import ObservationNormalizer
from rl_training.types import EnvSpec


class Actor(ActorNetwork):
    """A network whose outputs are squashed into [-1, 1]."""

    @differentiable.method
    def actions(self, obs: Tensor) -> Tensor:
        return self.forward(obs)

    @actions.with_vjp
    def _(self, obs: Tensor) -> tuple[Tensor, Pullback]:
        read, pull_encoder = (obs, None) if self.encoder is None else self.encoder.vjp(obs)
        outputs, pull_net = self.vjp(read)
        actions = outputs.tanh_()

        def pull(d_actions: Tensor) -> list[Tensor]:
            d_outputs = torch.ops.aten.tanh_backward(d_actions, actions)
            at_encoder = [] if pull_encoder is None else pull_encoder(pull_net.inputs(d_outputs))
            return [pull_net.parameters(d_outputs), *at_encoder]

        return actions, pull

    def forward(self, x: Tensor, *, members: Tensor | None = None) -> Tensor:
        return super().forward(x if self.encoder is None else self.encoder(x), members=members).tanh()


class DeterministicActorCritic(nn.Module):
    """`actor(obs)` gives actions in [-1, 1]; all critics are one batched network. Encoders stand before the actor, and before
    all critics together."""

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int],
        *,
        num_critics: int,
        activation: str = "relu",
        layer_norm: bool = False,
        actor_encoder: Encoder | None = None,
        critic_encoder: Encoder | None = None,
    ) -> None:
        super().__init__()
        self.obs_dim, self.action_dim, self.num_critics = obs_dim, action_dim, num_critics
        self.actor = Actor(obs_dim, hidden_sizes, action_dim, activation=activation, encoder=actor_encoder)
        settings: dict[str, Any] = {"num_critics": num_critics, "activation": activation, "layer_norm": layer_norm}
        self.critics = Critics(obs_dim, action_dim, hidden_sizes, encoder=critic_encoder, **settings)
        self.reads_bytes = self.actor.reads_bytes

    @property
    def q_values(self) -> differentiable.BoundMethod:
        """One row per critic: shape (num_critics, batch), or (num_critics,) for a single observation."""
        bound: differentiable.BoundMethod = self.critics.q_values
        return bound

    def policy_network(self, env: EnvSpec, *, normalizer: ObservationNormalizer | None = None) -> StandalonePolicy:
        return self.actor.policy_network(env, squash=True, normalizer=normalizer)
