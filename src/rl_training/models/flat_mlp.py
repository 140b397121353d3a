"""Networks whose parameters are slices of one flat vector: Adam, Polyak averaging, clipping and evolution act on one tensor."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rl_training.kernels.layout import Layer
from rl_training.kernels.mlp import MLPLayout, MLPPullback, as_rows

__all__ = ["FlatMLP", "FlatModule", "Layer", "MLPLayout", "as_rows"]


class FlatModule(nn.Module):
    """A module with one parameter, `flat`, which named parts share: networks (`MLPLayout`) and plain vectors (their length)."""

    def __init__(self, parts: dict[str, MLPLayout | int]) -> None:
        super().__init__()
        self.parts = parts
        self._bounds: dict[str, tuple[int, int]] = {}
        start = 0
        for name, part in parts.items():
            end = start + (part.num_parameters if isinstance(part, MLPLayout) else part)
            self._bounds[name] = (start, end)
            start = end
        self.flat = nn.Parameter(torch.zeros(start, dtype=torch.float32))  # whatever torch's default type is

    def vector(self, name: str) -> Tensor:
        """The slice of `flat` that belongs to a part."""
        return self.slice_of(self.flat, name)

    def slice_of(self, vector: Tensor, name: str) -> Tensor:
        """The slice of any vector in the order of `flat`, such as a gradient, that belongs to a part."""
        start, end = self._bounds[name]
        return vector[start:end]

    def layers(self, name: str) -> list[Layer]:
        """A network's layers as views of `flat` outside of autograd."""
        layout = self.parts[name]
        assert isinstance(layout, MLPLayout)
        return layout.layers(self.vector(name).detach())


class FlatMLP(FlatModule):
    """A single network, or `members` of them side by side, as a module."""

    def __init__(
        self, sizes: Sequence[int], *, members: int | None = None, activation: str = "tanh", layer_norm: bool = False
    ) -> None:
        layout = MLPLayout(sizes, members=members, activation=activation, layer_norm=layer_norm)
        super().__init__({"net": layout})
        self.layout = layout
        self.layout.initialize(self.flat.data)

    def forward(self, x: Tensor, *, members: Tensor | None = None) -> Tensor:
        """The outputs for rows or a single one, of some of the members where they are named by number."""
        return self.layout(self._parameters["flat"], x, members)  # type: ignore[arg-type]

    def vjp(self, x: Tensor, *, members: Tensor | None = None) -> tuple[Tensor, MLPPullback]:
        """The outputs for rows, and the pullback from gradients at them."""
        return self.layout.vjp(self._parameters["flat"], x, members)  # type: ignore[arg-type]
