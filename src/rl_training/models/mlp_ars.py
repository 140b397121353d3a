"""Deterministic policies for search in parameter space (ARS, OpenAI ES): one flat vector each, many evaluated at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from rl_training.kernels.population import PolicyShape
from rl_training.models.flat_mlp import as_rows


class MLPARSModel(nn.Module):
    """A tanh network, or a linear policy where `hidden_sizes` is empty. Its outputs are clipped to [-1, 1], as the papers
    leave it to the environment; with `discrete` the largest output is the action, or that of each part (`nvec`).

    `initial` is "normc" (every unit's weights of norm 1, of the last layer 0.01) or "zeros"; "auto" is zeros for a linear
    policy. `bias` None means only with hidden layers.
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int] = (),
        *,
        discrete: bool = False,
        nvec: Sequence[int] = (),
        bias: bool | None = None,
        initial: Literal["auto", "normc", "zeros"] = "auto",
    ) -> None:
        super().__init__()
        self.obs_dim, self.action_dim, self.discrete = obs_dim, action_dim, discrete
        self.bias = bool(hidden_sizes) if bias is None else bias
        sizes = tuple(map(int, (obs_dim, *hidden_sizes, action_dim)))  # plain ints, also where numpy's came
        self.shape = PolicyShape(sizes, biased=self.bias, discrete=discrete, nvec=tuple(nvec))
        self.num_parameters = self.shape.num_parameters
        self.flat = nn.Parameter(torch.zeros(self.num_parameters), requires_grad=False)
        if initial == "normc" or (initial == "auto" and hidden_sizes):
            self._initialize()

    def flat_parameters(self) -> Tensor:
        """A copy of all parameters as one vector."""
        return self.flat.detach().clone()

    @torch.no_grad()
    def set_flat_parameters(self, vector: Tensor) -> None:
        if vector.shape != self.flat.shape:
            raise ValueError(f"this policy has {self.num_parameters} parameters; the vector has shape {tuple(vector.shape)}")
        self.flat.copy_(vector)

    @torch.no_grad()
    def actor(self, obs: Tensor) -> Tensor:
        """Actions in [-1, 1], or indices, for a batch or a single observation."""
        single, h = obs.dim() == 1, as_rows(obs)
        for i, (weight, bias) in enumerate(self.shape.layers(self.flat)):
            h = (h.tanh() if i else h) @ weight
            h = h if bias is None else h + bias
        actions = self.shape.chosen(h) if self.discrete else h.clamp(-1, 1)
        return actions[0] if single else actions

    def forward(self, obs: Tensor) -> Tensor:
        return self.actor(obs)

    @torch.no_grad()
    def _initialize(self) -> None:
        for i, (weight, _) in enumerate(self.shape.layers(self.flat)):
            weight.normal_()
            gain = 0.01 if i == len(self.shape.sizes) - 2 else 1.0
            weight.mul_(gain / weight.norm(dim=0, keepdim=True))
