"""Q functions of (obs, action), side by side in one batched network."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rl_training.kernels import differentiable
from rl_training.kernels.differentiable import Pullback
from rl_training.models.flat_mlp import FlatMLP


class Critics(FlatMLP):
    """`num_critics` networks of one shape, of different parameters."""

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int],
        *,
        num_critics: int,
        activation: str = "relu",
        layer_norm: bool = False,
    ) -> None:
        sizes = (obs_dim + action_dim, *hidden_sizes, 1)
        super().__init__(sizes, members=num_critics, activation=activation, layer_norm=layer_norm)
        self.num_critics = num_critics

    @differentiable.method
    def q_values(self, obs: Tensor, actions: Tensor, *, subset: int | None = None) -> Tensor:
        """One row per critic, or per one of a random `subset` of so many: (critics, batch); (critics,) for a single
        observation."""
        if obs.dim() == 1:
            alone: Tensor = self.q_values(obs.unsqueeze(0), actions.unsqueeze(0), subset=subset)
            return alone.squeeze(-1)
        members = None if subset is None else random_subset(self.num_critics, subset)
        q_values: Tensor = self(torch.cat([obs, actions], dim=-1), members=members).squeeze(-1)
        return q_values

    @q_values.with_vjp
    def _(
        self, obs: Tensor, actions: Tensor, *, wrt: int | None = None, members: Tensor | None = None
    ) -> tuple[Tensor, Pullback]:
        """With `wrt=1` the pullback goes to the actions, and the critics stay as they are."""
        outputs, pull = self.vjp(torch.cat([obs, actions], dim=-1), members=members)
        if wrt is None:
            return outputs.squeeze(-1), lambda d_q_values: [pull.parameters(d_q_values)]
        return outputs.squeeze(-1), lambda d_q_values: pull.inputs(d_q_values, start=obs.shape[-1])


def random_subset(num_critics: int, size: int) -> Tensor | None:
    """The numbers of so many critics, drawn without replacement; None for all."""
    return torch.randperm(num_critics)[:size] if size < num_critics else None
