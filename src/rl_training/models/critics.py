"""Q functions of (obs, action), side by side in one batched network."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rl_training.kernels import differentiable
from rl_training.kernels.differentiable import Pullback
from rl_training.models.encoder import Encoder
from rl_training.models.flat_mlp import FlatMLP


class ActionNetworks(FlatMLP):
    """`num_critics` networks of one shape over observations and actions; an encoder reads observations for all of them."""

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int],
        *,
        num_critics: int,
        num_outputs: int = 1,
        activation: str = "relu",
        layer_norm: bool = False,
        encoder: Encoder | None = None,
    ) -> None:
        reads = obs_dim if encoder is None else encoder.features_dim
        sizes = (reads + action_dim, *hidden_sizes, num_outputs)
        super().__init__(sizes, members=num_critics, activation=activation, layer_norm=layer_norm)
        self.num_critics, self.encoder = num_critics, encoder

    def outputs_vjp(
        self, obs: Tensor, actions: Tensor, *, wrt: int | None = None, members: Tensor | None = None
    ) -> tuple[Tensor, Pullback]:
        """(critics, batch, outputs), of all critics or of those with these numbers. With `wrt=1` the pullback goes to the
        actions, and the critics stay as they are."""
        read, pull_encoder = obs, None
        if self.encoder is not None:
            read, pull_encoder = self.encoder.vjp(obs) if wrt is None else (self.encoder(obs), None)
        outputs, pull_nets = self.vjp(torch.cat([read, actions], dim=-1), members=members)

        def pull(d_outputs: Tensor) -> Tensor | list[Tensor]:
            if wrt is not None:
                return pull_nets.inputs(d_outputs, start=read.shape[-1])
            at_encoder = [] if pull_encoder is None else pull_encoder(pull_nets.inputs(d_outputs)[:, : read.shape[-1]])
            return [pull_nets.parameters(d_outputs), *at_encoder]

        return outputs, pull


class Critics(ActionNetworks):
    """Each gives the value of an action."""

    @differentiable.method
    def q_values(self, obs: Tensor, actions: Tensor, *, subset: int | None = None) -> Tensor:
        """One row per critic, or per one of a random `subset` of so many: (critics, batch); (critics,) for a single
        observation."""
        if obs.dim() == 1:
            alone: Tensor = self.q_values(obs.unsqueeze(0), actions.unsqueeze(0), subset=subset)
            return alone.squeeze(-1)
        members = None if subset is None else random_subset(self.num_critics, subset)
        read = obs if self.encoder is None else self.encoder(obs)
        q_values: Tensor = self(torch.cat([read, actions], dim=-1), members=members).squeeze(-1)
        return q_values

    @q_values.with_vjp
    def _(
        self, obs: Tensor, actions: Tensor, *, wrt: int | None = None, members: Tensor | None = None
    ) -> tuple[Tensor, Pullback]:
        """With `wrt=1` the pullback goes to the actions, and the critics stay as they are."""
        outputs, pull = self.outputs_vjp(obs, actions, wrt=wrt, members=members)
        return outputs.squeeze(-1), pull


class QuantileCritics(ActionNetworks):
    """Each knows `num_quantiles` of what the return may be."""

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int],
        *,
        num_critics: int,
        num_quantiles: int,
        activation: str = "relu",
        layer_norm: bool = False,
        encoder: Encoder | None = None,
    ) -> None:
        super().__init__(
            obs_dim,
            action_dim,
            hidden_sizes,
            num_critics=num_critics,
            num_outputs=num_quantiles,
            activation=activation,
            layer_norm=layer_norm,
            encoder=encoder,
        )
        self.num_quantiles = num_quantiles

    @differentiable.method
    def quantiles(self, obs: Tensor, actions: Tensor) -> Tensor:
        """(critics, batch, quantiles), or without the batch for a single observation."""
        if obs.dim() == 1:
            alone: Tensor = self.quantiles(obs.unsqueeze(0), actions.unsqueeze(0))
            return alone.squeeze(1)
        read = obs if self.encoder is None else self.encoder(obs)
        quantiles: Tensor = self(torch.cat([read, actions], dim=-1))
        return quantiles

    @quantiles.with_vjp
    def _(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Pullback]:
        return self.outputs_vjp(obs, actions)

    @differentiable.method
    def q_values(self, obs: Tensor, actions: Tensor) -> Tensor:
        """The mean of each critic's quantiles: (critics, batch), or (critics,) for a single observation."""
        q_values: Tensor = self.quantiles(obs, actions).mean(dim=-1)
        return q_values

    @q_values.with_vjp
    def _(self, obs: Tensor, actions: Tensor, *, wrt: int | None = None) -> tuple[Tensor, Pullback]:
        """With `wrt=1` the pullback goes to the actions, and the critics stay as they are."""
        outputs, pull = self.outputs_vjp(obs, actions, wrt=wrt)
        each = 1.0 / self.num_quantiles
        return outputs.mean(dim=-1), lambda d_q_values: pull((d_q_values * each).unsqueeze(-1).expand_as(outputs))


def random_subset(num_critics: int, size: int) -> Tensor | None:
    """The numbers of so many critics, drawn without replacement; None for all."""
    return torch.randperm(num_critics)[:size] if size < num_critics else None
