"""A deterministic actor and its Q functions: the networks of TD3 and DDPG."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rl_training.kernels import differentiable
from rl_training.kernels.differentiable import Pullback
from rl_training.models.critics import Critics
from rl_training.models.flat_mlp import FlatMLP
from rl_training.models.normalizer import ObservationNormalizer
from rl_training.models.policy_network import PolicyNetwork
from rl_training.types import EnvSpec


class Actor(FlatMLP):
    """A network whose outputs are squashed into [-1, 1]."""

    @differentiable.method
    def actions(self, obs: Tensor) -> Tensor:
        return self.forward(obs)

    @actions.with_vjp
    def _(self, obs: Tensor) -> tuple[Tensor, Pullback]:
        outputs, pull = self.vjp(obs)
        actions = outputs.tanh_()
        return actions, lambda d_actions: [pull.parameters(torch.ops.aten.tanh_backward(d_actions, actions))]

    def forward(self, x: Tensor, *, members: Tensor | None = None) -> Tensor:
        return super().forward(x, members=members).tanh()


class DeterministicActorCritic(nn.Module):
    """`actor(obs)` gives actions in [-1, 1]; all critics are one batched network."""

    def __init__(
        self, obs_dim: int, action_dim: int, hidden_sizes: Sequence[int], *, num_critics: int, activation: str = "relu"
    ) -> None:
        super().__init__()
        self.obs_dim, self.action_dim, self.num_critics = obs_dim, action_dim, num_critics
        self.actor = Actor((obs_dim, *hidden_sizes, action_dim), activation=activation)
        self.critics = Critics(obs_dim, action_dim, hidden_sizes, num_critics=num_critics, activation=activation)

    @property
    def q_values(self) -> differentiable.BoundMethod:
        """One row per critic: shape (num_critics, batch), or (num_critics,) for a single observation."""
        bound: differentiable.BoundMethod = self.critics.q_values
        return bound

    def policy_network(self, env: EnvSpec, *, normalizer: ObservationNormalizer | None = None) -> PolicyNetwork:
        return self.actor.policy_network(env, squash=True, normalizer=normalizer)
