"""The network of behaviour cloning: from observations to actions, or to logits of discrete ones."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rl_training.kernels import differentiable
from rl_training.kernels.differentiable import Pullback
from rl_training.models.actor_network import ActorNetwork
from rl_training.models.encoded_policy import StandalonePolicy
from rl_training.models.normalizer import ObservationNormalizer
from rl_training.types import EnvSpec


class MLPBCModel(nn.Module):
    """`outputs(obs)` are actions in [-1, 1], or logits when actions are discrete."""

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int] = (256, 256),
        *,
        discrete: bool = False,
        activation: str = "relu",
    ) -> None:
        super().__init__()
        self.obs_dim, self.action_dim, self.discrete = obs_dim, action_dim, discrete
        self.actor = ActorNetwork(obs_dim, hidden_sizes, action_dim, activation=activation)

    @differentiable.method
    def outputs(self, obs: Tensor) -> Tensor:
        outputs: Tensor = self.actor(obs)
        return outputs if self.discrete else outputs.tanh()

    @outputs.with_vjp
    def _(self, obs: Tensor) -> tuple[Tensor, Pullback]:
        outputs, pull = self.actor.vjp(obs)
        if self.discrete:
            return outputs, lambda d: [pull.parameters(d)]
        actions = outputs.tanh_()
        return actions, lambda d: [pull.parameters(torch.ops.aten.tanh_backward(d, actions))]

    def forward(self, obs: Tensor) -> Tensor:
        outputs: Tensor = self.outputs(obs)
        return outputs

    def policy_network(self, env: EnvSpec, *, normalizer: ObservationNormalizer | None = None) -> StandalonePolicy:
        return self.actor.policy_network(env, squash=not self.discrete, normalizer=normalizer)
