"""Multi-layer perceptrons over a flat vector of parameters: the outputs, and the pullback to parameters and inputs.

`Layout.definition` is what they mean. Passes over float32 on the CPU are made in C where it was compiled, in one call for
all layers of all members; elsewhere torch makes them, and autograd the pullback.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rl_training.kernels.compiled import library_for
from rl_training.kernels.differentiable import outside_autograd
from rl_training.kernels.layout import ACTIVATIONS, Layer, Layout, select
from rl_training.kernels.library import MOST_LAYERS, Library, Network
from rl_training.kernels.threads import num_threads, scratch

floats = partial(torch.empty, dtype=torch.float32)  # memory as C reads it, whatever torch's default type is


class MLPPullback(Protocol):
    """From the gradient at the outputs of one pass."""

    @property
    def features(self) -> Tensor:
        """The last hidden layer's outputs, of a single network."""

    def parameters(self, d_outputs: Tensor, *, d_features: Tensor | None = None, into: Tensor | None = None) -> Tensor:
        """The gradient at the flat vector, in memory of its own or `into` a part of a larger one. `d_features` is what
        reaches the last hidden layer from another reader of it."""

    def inputs(self, d_outputs: Tensor, *, start: int = 0) -> Tensor:
        """The gradient at the inputs from column `start` on: added up over members that read the same rows."""


class MLPLayout(Layout):
    """A `Layout` that computes: called it gives the outputs, `vjp` gives them with the pullback."""

    def __init__(
        self, sizes: Sequence[int], *, members: int | None = None, activation: str = "tanh", layer_norm: bool = False
    ) -> None:
        super().__init__(sizes, members=members, activation=activation, layer_norm=layer_norm)
        self._network = self._as_network() if len(self.sizes) <= MOST_LAYERS + 1 else None
        self.address = 0 if self._network is None else ctypes.addressof(self._network)  # of the shape as C reads it
        self._memory: dict[tuple[int, int, int], tuple[int, int]] = {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.address = 0 if self._network is None else ctypes.addressof(self._network)  # a copy has a shape of its own

    def __call__(self, flat: Tensor, x: Tensor, members: Tensor | None = None) -> Tensor:
        """The outputs, of some of the members where they are named by number; for one row (in,) without an axis of rows.
        Differentiable by autograd."""
        if x.dim() == 1:
            return self(flat, x.unsqueeze(0), members).squeeze(-2)
        passes = self._passes(flat, x)
        if passes is None:
            return self.definition(select(self.layers(flat), members), x)[0]
        if torch.is_grad_enabled() and (flat.requires_grad or x.requires_grad):
            outputs: Tensor = _Pass.apply(x, flat, self, members)  # type: ignore[no-untyped-call]
            return outputs
        members = members if members is None else self._chosen(members, x)
        return self._forward(passes, flat, x.contiguous(), members, keeps=False)[0]

    @outside_autograd
    def vjp(self, flat: Tensor, x: Tensor, members: Tensor | None = None) -> tuple[Tensor, MLPPullback]:
        """The outputs, and the pullback from gradients at them."""
        passes = self._passes(flat, x)
        if passes is None:
            return _by_autograd(self, flat, x, members)
        x, members = x.contiguous(), members if members is None else self._chosen(members, x)
        outputs, tape = self._forward(passes, flat, x, members, keeps=True)
        assert tape is not None
        return outputs, _Tape(passes, self, flat, x, tape, members)

    def _passes(self, flat: Tensor, x: Tensor) -> Library | None:
        """The library in C, if it has passes for such a network, over such parameters and inputs."""
        rows_of_all = x.dim() == 2 or (x.dim() == 3 and len(x) == self.members)
        fits = self._network is not None and rows_of_all and x.shape[-1] == self.sizes[0] and x.shape[-2]
        return library_for(flat, x) if fits else None

    def _forward(
        self, passes: Library, flat: Tensor, x: Tensor, members: Tensor | None, *, keeps: bool
    ) -> tuple[Tensor, Tensor | None]:
        rows, threads, out = x.shape[-2], num_threads(), self.sizes[-1]
        count = (self.members or 1) if members is None else len(members)
        tape_size, scratch_size = self.memory(passes, count, rows, threads)
        tape = floats(tape_size) if keeps else None
        outputs = floats(rows, out) if self.members is None else floats(count, rows, out)
        passes.forward(
            self.address, flat.data_ptr(), None if members is None else members.data_ptr(), count,
            x.data_ptr(), 0 if x.dim() == 2 else rows * x.shape[-1], rows, None if tape is None else tape.data_ptr(),
            outputs.data_ptr(), scratch(scratch_size), threads,
        )  # fmt: skip
        return outputs, tape

    def memory(self, passes: Library, members: int, rows: int, threads: int) -> tuple[int, int]:
        """Floats of a tape, and of the memory that a pass wants meanwhile."""
        if (sizes := self._memory.get((members, rows, threads))) is None:
            scratch_size = passes.scratch_size(self.address, members, rows, threads)
            sizes = self._memory[members, rows, threads] = (passes.tape_size(self.address, members, rows), scratch_size)
        return sizes

    def _as_network(self) -> Network:
        network = Network()
        network.layers, network.members, network.norm = len(self.shapes), self.members or 1, self.layer_norm
        network.activation = list(ACTIVATIONS).index(self.activation)
        network.sizes[: len(self.sizes)] = self.sizes
        start = 0
        for i, shapes in enumerate(self.shapes):
            for begins, shape in zip((network.weights, network.biases, network.gains, network.shifts), shapes, strict=False):
                begins[i] = start
                start += math.prod(shape)
        return network

    def _chosen(self, members: Tensor, x: Tensor) -> Tensor:
        """Numbers of members as C reads them; it would read whatever lies where there is none."""
        members = members.to("cpu", torch.int64).contiguous()
        known = members.dim() == 1 and (
            not len(members) or 0 <= members.min().item() <= members.max().item() < (self.members or 1)
        )
        if not known or (x.dim() == 3 and len(members) != len(x)):
            raise IndexError(f"members {members.tolist()} of {self.members} for inputs of shape {tuple(x.shape)}")
        return members


@dataclass(slots=True, eq=False)
class _Tape:
    """A pass in C with what it kept, and the way back."""

    passes: Library
    layout: MLPLayout
    flat: Tensor
    x: Tensor
    tape: Tensor
    members: Tensor | None

    @property
    def features(self) -> Tensor:
        if len(self.layout.shapes) == 1:  # the only layer reads the inputs
            return self.x
        (rows, _), width = self.x.shape, self.layout.sizes[-2]
        start = self.passes.features_at(self.layout.address, rows)
        return self.tape[start : start + rows * width].view(rows, width)

    def parameters(self, d_outputs: Tensor, *, d_features: Tensor | None = None, into: Tensor | None = None) -> Tensor:
        layout, x, members, rows, threads = self.layout, self.x, self.members, self.x.shape[-2], num_threads()
        count = (layout.members or 1) if members is None else len(members)
        d_outputs = _floats(d_outputs, count * rows * layout.sizes[-1])
        if d_features is not None:
            d_features = _floats(d_features, count * rows * layout.sizes[-2])
        if into is None:
            into = floats(layout.num_parameters)
        if members is not None:
            into.zero_()
        scratch_size = layout.memory(self.passes, count, rows, threads)[1]
        self.passes.backward(
            layout.address, self.flat.data_ptr(), None if members is None else members.data_ptr(), count,
            x.data_ptr(), 0 if x.dim() == 2 else rows * x.shape[-1], rows, self.tape.data_ptr(), d_outputs.data_ptr(),
            None if d_features is None else d_features.data_ptr(), into.data_ptr(), scratch(scratch_size), threads,
        )  # fmt: skip
        return into

    def inputs(self, d_outputs: Tensor, *, start: int = 0) -> Tensor:
        layout, members, rows, threads = self.layout, self.members, self.x.shape[-2], num_threads()
        count = (layout.members or 1) if members is None else len(members)
        summed, width = self.x.dim() == 2, layout.sizes[0] - start
        d_outputs = _floats(d_outputs, count * rows * layout.sizes[-1])
        d_inputs = floats(rows, width) if summed else floats(count, rows, width)
        scratch_size = layout.memory(self.passes, count, rows, threads)[1]
        self.passes.inputs_back(
            layout.address, self.flat.data_ptr(), None if members is None else members.data_ptr(), count, rows,
            self.tape.data_ptr(), d_outputs.data_ptr(), start, summed, d_inputs.data_ptr(), scratch(scratch_size), threads,
        )  # fmt: skip
        return d_inputs


class _Graph:
    """A pass under autograd, and the way back through it."""

    def __init__(self, outputs: Tensor, features: Tensor, x: Tensor, parts: list[Tensor]) -> None:
        self.outputs, self.read, self.x, self.parts = outputs, features, x, parts
        self.features = features.detach()

    def parameters(self, d_outputs: Tensor, *, d_features: Tensor | None = None, into: Tensor | None = None) -> Tensor:
        known = [(self.outputs, d_outputs.reshape(self.outputs.shape))]
        if d_features is not None and self.read.requires_grad:
            known.append((self.read, d_features))
        outputs, gradients = zip(*known, strict=True)
        found = torch.autograd.grad(outputs, self.parts, gradients, retain_graph=True)
        return torch.cat([g.reshape(-1) for g in found], out=into)

    def inputs(self, d_outputs: Tensor, *, start: int = 0) -> Tensor:
        d_outputs = d_outputs.reshape(self.outputs.shape)
        return torch.autograd.grad(self.outputs, [self.x], d_outputs, retain_graph=True)[0][..., start:]


def _by_autograd(layout: MLPLayout, flat: Tensor, x: Tensor, members: Tensor | None) -> tuple[Tensor, _Graph]:
    layers = [[p if p is None else p.detach().requires_grad_() for p in layer] for layer in layout.layers(flat)]
    x = x.detach().to(flat.dtype).requires_grad_()
    with torch.enable_grad():
        chosen = select([Layer(*layer) for layer in layers], members)  # type: ignore[arg-type]
        outputs, features = layout.definition(chosen, x)
    return outputs.detach(), _Graph(outputs, features, x, [p for layer in layers for p in layer if p is not None])


class _Pass(torch.autograd.Function):
    """A pass in C as a node of autograd's graph, for modules that are made of our networks."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, flat: Tensor, layout: MLPLayout, members: Tensor | None) -> Tensor:
        outputs, ctx.pull = layout.vjp(flat, x, members)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_outputs: Tensor) -> tuple[Tensor | None, ...]:
        wants_inputs, wants_parameters = ctx.needs_input_grad[:2]
        d_inputs = ctx.pull.inputs(d_outputs) if wants_inputs else None
        return d_inputs, ctx.pull.parameters(d_outputs) if wants_parameters else None, None, None


def as_rows(x: Tensor) -> Tensor:
    """A single row as a batch of one; a batch as it is."""
    return x.unsqueeze(0) if x.dim() == 1 else x


def _floats(tensor: Tensor, count: int) -> Tensor:
    """The tensor as C reads it; what has another number of elements is refused."""
    if tensor.numel() != count:
        raise ValueError(f"a tensor of shape {tuple(tensor.shape)} where {count} numbers belong")
    return tensor.to("cpu", torch.float32).contiguous()
