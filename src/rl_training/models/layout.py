"""The shape of a multi-layer perceptron, apart from its numbers, with a backward pass of its own.

`run` keeps a tape, `backward` reads it and fills gradients; `forward` is the same network under autograd, which tests
hold the explicit pass against.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from rl_training.models.products import affine, tanh_, through, weight_gradient

ACTIVATIONS = ("tanh", "relu", "silu")
LAYER_NORM_EPS = 1e-5


class Layer(NamedTuple):
    """One layer's parameters; `gain` and `shift` belong to the layer norm and are None without one."""

    weight: Tensor  # (in, out), or (members, in, out)
    bias: Tensor  # (out,), or (members, 1, out)
    gain: Tensor | None
    shift: Tensor | None


class NormTape(NamedTuple):
    """What a layer norm was given, and the statistics it took off."""

    inputs: Tensor
    mean: Tensor
    rstd: Tensor

    def of_rows(self, member: int, rows: Tensor) -> NormTape:
        return NormTape(*(part[member].index_select(0, rows) for part in self))


class LayerTape(NamedTuple):
    """What the backward pass of one layer needs to know of the forward pass."""

    inputs: Tensor
    norm: NormTape | None
    pre_activation: Tensor | None  # kept only where the activation's derivative is not a function of its output
    output: Tensor

    def of_rows(self, member: int, rows: Tensor) -> LayerTape:
        """What is kept of some rows of one member, but for the inputs, which the gradient at inputs does not ask for."""
        pre_activation = None if self.pre_activation is None else self.pre_activation[member].index_select(0, rows)
        norm = None if self.norm is None else self.norm.of_rows(member, rows)
        return LayerTape(self.inputs, norm, pre_activation, self.output[member].index_select(0, rows))


Tape = list[LayerTape]


class MLPLayout:
    """The shape of a network, apart from its numbers: sizes, activation, and how a flat vector is cut into layers.

    With `members` the network is that many independent networks of the same shape, evaluated together by
    batched matrix products; outputs then have a leading axis of that length.
    """

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

    def forward(self, layers: Sequence[Layer], x: Tensor) -> Tensor:
        """The output for `x` (batch, in), or for a single row (in,), differentiable by autograd."""
        if x.dim() == 1:
            return self.forward(layers, x.unsqueeze(0)).squeeze(-2)
        h = self._spread(x, layers)
        for i, layer in enumerate(layers):
            h = h @ layer.weight + layer.bias
            if i < len(layers) - 1:
                if layer.gain is not None and layer.shift is not None:
                    h = F.layer_norm(h, h.shape[-1:], eps=LAYER_NORM_EPS) * layer.gain + layer.shift
                h = _activate(h, self.activation)
        return h

    @torch.no_grad()
    def run(self, layers: Sequence[Layer], x: Tensor) -> tuple[Tensor, Tape]:
        """The same output, and the tape that `backward` reads; a single row is a batch of one here."""
        h, tape = self._spread(as_rows(_outside(x)), layers), []
        for i, layer in enumerate(layers):
            inputs, h = h, affine(h, layer.weight, layer.bias)
            norm = pre_activation = None
            if i < len(layers) - 1:
                if layer.gain is not None and layer.shift is not None:
                    normed, mean, rstd = torch.native_layer_norm(h, h.shape[-1:], None, None, LAYER_NORM_EPS)
                    norm, h = NormTape(h, mean, rstd), torch.addcmul(layer.shift, normed, layer.gain)
                if self.activation == "silu":
                    pre_activation, h = h, F.silu(h)
                else:
                    h = tanh_(h) if self.activation == "tanh" else h.relu_()
            tape.append(LayerTape(inputs, norm, pre_activation, h))
        return h, tape

    def infer(self, layers: Sequence[Layer], x: Tensor) -> Tensor:
        """The same output as that of `forward`, with nothing kept."""
        if x.dim() == 1:
            return self.infer(layers, x.unsqueeze(0)).squeeze(-2)
        if self.layer_norm or self.activation == "silu":
            return self.run(layers, x)[0]
        activate, h = tanh_ if self.activation == "tanh" else torch.relu_, self._spread(_outside(x), layers)
        for layer in layers[:-1]:
            h = activate(affine(h, layer.weight, layer.bias))
        return affine(h, layers[-1].weight, layers[-1].bias)

    @torch.no_grad()
    def backward(
        self, layers: Sequence[Layer], gradients: Sequence[Layer], tape: Tape, gradient: Tensor, *, extra: Tensor | None = None
    ) -> None:
        """Write into `gradients` the gradient of whatever has `gradient` at the output.

        `extra` is what another network that reads the last hidden layer (`tape[-1].inputs`) adds there.
        """
        keep = self.members is not None
        for i in reversed(range(len(layers))):
            if i < len(layers) - 1:
                gradient = self._through_hidden(layers[i], gradients[i], tape[i], gradient)
            weight_gradient(tape[i].inputs, gradient, gradients[i].weight)
            torch.sum(gradient, dim=-2, keepdim=keep, out=gradients[i].bias)
            if i:
                gradient = through(gradient, layers[i].weight)
                if extra is not None and i == len(layers) - 1:
                    gradient += extra

    @torch.no_grad()
    def input_gradient(self, layers: Sequence[Layer], tape: Tape, gradient: Tensor, *, start: int = 0) -> Tensor:
        """The gradient at the network's inputs from column `start` on; the parameters are taken as fixed."""
        for i in reversed(range(len(layers))):
            if i < len(layers) - 1:
                gradient = self._through_hidden(layers[i], None, tape[i], gradient)
            weight = layers[i].weight if i else layers[i].weight[..., start:, :]
            gradient = through(gradient, weight)
        return gradient

    @torch.no_grad()
    def summed_input_gradient(self, layers: Sequence[Layer], tape: Tape, gradient: Tensor, *, start: int = 0) -> Tensor:
        """The members' input gradients added up; each member runs the rows alone where it has a gradient at its one output.

        Where a minimum over members picks one for each row, that is the work of a single network.
        """
        inputs = layers[0].weight.shape[-2]
        total = gradient.new_zeros(gradient.shape[-2], inputs - start)
        for member, column in enumerate(gradient):
            rows = column.squeeze(-1).nonzero().squeeze(-1)
            kept = [entry.of_rows(member, rows) for entry in tape[:-1]]
            own = self.input_gradient(self.select(layers, member), [*kept, tape[-1]], column[rows], start=start)
            total.index_add_(0, rows, own)
        return total

    def _through_hidden(self, layer: Layer, gradients: Layer | None, tape: LayerTape, gradient: Tensor) -> Tensor:
        """Back through a hidden layer's activation and norm; `gradient` is nobody else's and may be written over."""
        if self.activation == "tanh":
            torch.ops.aten.tanh_backward.grad_input(gradient, tape.output, grad_input=gradient)
        elif self.activation == "relu":
            torch.ops.aten.threshold_backward.grad_input(gradient, tape.output, 0, grad_input=gradient)
        else:
            gradient = torch.ops.aten.silu_backward(gradient, tape.pre_activation)
        norm = tape.norm
        if layer.gain is None or norm is None:
            return gradient
        if gradients is not None and gradients.gain is not None and gradients.shift is not None:
            keep = self.members is not None
            normed = (norm.inputs - norm.mean) * norm.rstd
            torch.sum(gradient * normed, dim=-2, keepdim=keep, out=gradients.gain)
            torch.sum(gradient, dim=-2, keepdim=keep, out=gradients.shift)
        where = (norm.inputs, norm.inputs.shape[-1:], norm.mean, norm.rstd)
        wanted = [True, False, False]  # at the inputs alone: gain and shift are ours
        through: Tensor = torch.ops.aten.native_layer_norm_backward(gradient * layer.gain, *where, None, None, wanted)[0]
        return through

    @staticmethod
    def select(layers: Sequence[Layer], members: Tensor | int | slice) -> list[Layer]:
        """The layers of some of the members, as copies; of a slice, as views; of one, as views of a network of its own."""
        return [Layer(*(None if part is None else part[members] for part in layer)) for layer in layers]  # type: ignore[arg-type]

    def _spread(self, x: Tensor, layers: Sequence[Layer]) -> Tensor:
        """`x` for every member, and of the parameters' type."""
        weight = layers[0].weight
        x = x if x.dtype is weight.dtype else x.to(weight.dtype)
        return x if self.members is None or x.dim() == 3 else x.expand(len(weight), *x.shape)


def as_rows(x: Tensor) -> Tensor:
    """A single row as a batch of one; a batch as it is."""
    return x.unsqueeze(0) if x.dim() == 1 else x


def _outside(x: Tensor) -> Tensor:
    """Outside of autograd: explicit passes read memory that it guards."""
    return x.detach() if x.requires_grad else x


def _activate(x: Tensor, activation: str) -> Tensor:
    if activation == "tanh":
        return x.tanh()
    return x.relu() if activation == "relu" else F.silu(x)


def _orthogonal(n_in: int, n_out: int) -> Tensor:
    """A random (n_in, n_out) matrix with orthonormal rows or columns, whichever are fewer."""
    tall = torch.randn(max(n_in, n_out), min(n_in, n_out), dtype=torch.float32)
    basis, r = torch.linalg.qr(tall)
    matrix: Tensor = basis * r.diagonal().sign()  # makes the distribution uniform
    return matrix if n_in >= n_out else matrix.mT
