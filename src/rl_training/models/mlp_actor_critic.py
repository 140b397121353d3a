"""A policy and a value function that share nothing but their vector of parameters (PPO)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from rl_training.kernels.differentiable import Pullback
from rl_training.models.actor_critic import ActorCritic
from rl_training.models.encoder import Encoders
from rl_training.models.flat_mlp import MLPLayout
from rl_training.models.heads import Distribution


class MLPActorCritic(ActorCritic):
    """Categorical or diagonal-Gaussian policy beside a value network; orthogonal initialisation √2 / 0.01 / 1."""

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int] = (64, 64),
        *,
        discrete: bool = True,
        nvec: Sequence[int] = (),
        activation: str = "tanh",
        log_std_init: float = 0.0,
        encoders: Encoders | None = None,
    ) -> None:
        reads, value_reads = (obs_dim, obs_dim) if encoders is None else encoders.features_dims
        policy = MLPLayout((reads, *hidden_sizes, action_dim), activation=activation)
        value = MLPLayout((value_reads, *hidden_sizes, 1), activation=activation)
        parts: dict[str, MLPLayout | int] = {"policy": policy, "value": value, "log_std": 0 if discrete else action_dim}
        super().__init__(parts, obs_dim=obs_dim, action_dim=action_dim, discrete=discrete, nvec=nvec, encoders=encoders)
        hidden_gains = [math.sqrt(2)] * len(hidden_sizes)
        policy.initialize(self.vector("policy").data, gains=[*hidden_gains, 0.01])
        value.initialize(self.vector("value").data, gains=[*hidden_gains, 1.0])
        self.vector("log_std").data.fill_(log_std_init)

    def value_at(self, read: Tensor) -> Tensor:
        return self.value_net(self.vector("value"), read).squeeze(-1)

    def policy_and_value(self, obs: Tensor, action_masks: Tensor | None = None) -> tuple[Distribution, Tensor, Pullback]:
        (read, value_read), pull_encoders = self.encoded(obs)
        outputs, pull_policy = self.policy_net.vjp(self.vector("policy"), read)
        values, pull_value = self.value_net.vjp(self.vector("value"), value_read)

        def pull(d_outputs: Tensor, d_log_std: Tensor | None, d_values: Tensor) -> list[Tensor]:
            gradient = self.fresh_gradient()
            pull_policy.parameters(d_outputs, into=self.policy_gradient(gradient, d_log_std))
            pull_value.parameters(d_values, into=self.slice_of(gradient, "value"))
            if self.encoders is None:
                return [gradient]
            return [gradient, *pull_encoders(pull_policy.inputs(d_outputs), pull_value.inputs(d_values))]

        return self.head(outputs, action_masks), values.squeeze(-1), pull
