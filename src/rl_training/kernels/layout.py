"""The shape of a multi-layer perceptron over a flat vector of parameters, and what it means, in torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

ACTIVATIONS = {"relu": torch.relu, "silu": F.silu, "tanh": torch.tanh}  # in the order of their numbers in C
LAYER_NORM_EPS = 1e-6  # as RLPD's authors have it, who brought layer norms to critics


class Layer(NamedTuple):
    """One layer's parameters; `gain` and `shift` belong to the layer norm and are None without one."""

    weight: Tensor  # (in, out), or (members, in, out)
    bias: Tensor  # (out,), or (members, 1, out)
    gain: Tensor | None
    shift: Tensor | None


class Layout:
    """A network, or with `members` that many independent ones of one shape side by side, apart from its numbers: the
    layers are slices of a flat vector. With members outputs have a leading axis of that length."""

    def __init__(
        self, sizes: Sequence[int], *, members: int | None = None, activation: str = "tanh", layer_norm: bool = False
    ) -> None:
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation {activation!r} is none of {', '.join(ACTIVATIONS)}")
        # plain ints, also where numpy's came: they go to C, into files and into the names of shapes
        self.sizes, self.members = tuple(map(int, sizes)), members if members is None else int(members)
        self.activation, self.layer_norm = activation, layer_norm
        self.shapes = [self._layer_shapes(i) for i in range(len(self.sizes) - 1)]
        self.num_parameters = sum(math.prod(shape) for shapes in self.shapes for shape in shapes)

    def _layer_shapes(self, index: int) -> list[tuple[int, ...]]:
        n_in, n_out = self.sizes[index], self.sizes[index + 1]
        hidden = index < len(self.sizes) - 2
        row: tuple[int, ...] = (n_out,) if self.members is None else (self.members, 1, n_out)
        weight: tuple[int, ...] = (n_in, n_out) if self.members is None else (self.members, n_in, n_out)
        return [weight, row] + ([row, row] if self.layer_norm and hidden else [])

    def layers(self, flat: Tensor) -> list[Layer]:
        """`flat` cut into layers, without copying."""
        layers, start = [], 0
        for shapes in self.shapes:
            parts: list[Tensor] = []
            for shape in shapes:
                end = start + math.prod(shape)
                parts.append(flat[start:end].view(shape))
                start = end
            gain, shift = parts[2:] if len(parts) == 4 else (None, None)
            layers.append(Layer(parts[0], parts[1], gain, shift))
        return layers

    @torch.no_grad()
    def initialize_xavier(self, flat: Tensor) -> None:
        """Weights drawn evenly from ±√(6 / (in + out)), biases 0; of layer norms nothing changes."""
        for layer in self.layers(flat):
            bound = math.sqrt(6.0 / sum(layer.weight.shape[-2:]))
            layer.weight.uniform_(-bound, bound)
            layer.bias.zero_()

    @torch.no_grad()
    def initialize(self, flat: Tensor, *, gains: Sequence[float] | None = None) -> None:
        """Orthogonal weights with the given gain per layer and zero biases; without gains, torch's Linear default."""
        for i, layer in enumerate(self.layers(flat)):
            if gains is None:
                bound = 1.0 / math.sqrt(layer.weight.shape[-2])
                layer.weight.uniform_(-bound, bound)
                layer.bias.uniform_(-bound, bound)
            else:
                for weight in layer.weight.view(-1, *layer.weight.shape[-2:]):
                    weight.copy_(_orthogonal(weight.shape[0], weight.shape[1]) * gains[i])
                layer.bias.zero_()
            if layer.gain is not None and layer.shift is not None:
                layer.gain.fill_(1.0)
                layer.shift.zero_()

    def definition(self, layers: Sequence[Layer], x: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs for rows `x` (batch, in) or (members, batch, in), and what the last layer read."""
        h = x.to(layers[0].weight.dtype)
        for layer in layers[:-1]:
            h = h @ layer.weight + layer.bias
            if layer.gain is not None and layer.shift is not None:
                h = F.layer_norm(h, h.shape[-1:], eps=LAYER_NORM_EPS) * layer.gain + layer.shift
            h = ACTIVATIONS[self.activation](h)
        return h @ layers[-1].weight + layers[-1].bias, h


def select(layers: Sequence[Layer], members: Tensor | None) -> Sequence[Layer]:
    """The layers of some of the members."""
    if members is None:
        return layers
    return [Layer(*(p if p is None else p[members] for p in layer)) for layer in layers]  # type: ignore[arg-type]


def _orthogonal(n_in: int, n_out: int) -> Tensor:
    """A random (n_in, n_out) matrix with orthonormal rows or columns, whichever are fewer."""
    tall = torch.randn(max(n_in, n_out), min(n_in, n_out), dtype=torch.float32)
    basis, r = torch.linalg.qr(tall)
    matrix: Tensor = basis * r.diagonal().sign()  # makes the distribution uniform
    return matrix if n_in >= n_out else matrix.mT
