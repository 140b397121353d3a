"""Squashed-Gaussian actor, and critics that know quantiles of the return: the networks of TQC."""

from __future__ import annotations

from collections.abc import Sequence

from rl_training.kernels import differentiable
from rl_training.models.critics import QuantileCritics
from rl_training.models.encoder import Encoder
from rl_training.models.mlp_sac import SquashedActorModel


class MLPTQCModel(SquashedActorModel):
    """The actor and all critics; the critics are one batched network. Encoders stand before the actor, and before all critics
    together."""

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int] = (256, 256),
        *,
        critic_hidden_sizes: Sequence[int] | None = None,
        num_critics: int = 5,
        num_quantiles: int = 25,
        layer_norm: bool = False,
        activation: str = "relu",
        actor_encoder: Encoder | None = None,
        critic_encoder: Encoder | None = None,
    ) -> None:
        super().__init__(obs_dim, action_dim, hidden_sizes, activation=activation, encoder=actor_encoder)
        self.num_critics, self.num_quantiles = num_critics, num_quantiles
        self.critics = QuantileCritics(
            obs_dim,
            action_dim,
            hidden_sizes if critic_hidden_sizes is None else critic_hidden_sizes,
            num_critics=num_critics,
            num_quantiles=num_quantiles,
            activation=activation,
            layer_norm=layer_norm,
            encoder=critic_encoder,
        )

    @property
    def quantiles(self) -> differentiable.BoundMethod:
        """Of each critic: shape (num_critics, batch, num_quantiles)."""
        bound: differentiable.BoundMethod = self.critics.quantiles
        return bound

    @property
    def q_values(self) -> differentiable.BoundMethod:
        """One row per critic: shape (num_critics, batch)."""
        bound: differentiable.BoundMethod = self.critics.q_values
        return bound
