"""A plain network on the CPU with as few calls as it can be made of, for minibatches so small that calls are what costs.

Features stand before rows: a layer's bias is then one more row of its weights, which the flat vector has in that place
anyway, and meets a row of ones; its gradient comes out of the same product. Activations are numpy's, whose calls are
cheaper, and products torch's, whose threads are counted. Memory is kept from one pass to the next.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from rl_training.models.layout import MLPLayout

KEPT_SIZES = 6  # numbers of rows met again and again: environments, minibatches, what is left of them, rollouts


class LeanMLP:
    """Forward and backward passes over the views of a flat vector. A pass is good until the next with as many rows."""

    def __init__(self, layout: MLPLayout, flat: Tensor, gradient: Tensor) -> None:
        self.layout = layout
        weights, self.gradients = _matrices(layout, flat), _matrices(layout, gradient)
        self.transposed, self.kernels = [w.mT for w in weights], [w[:-1] for w in weights]
        self._rooms: dict[int, _Room] = {}
        self._room: _Room | None = None

    @staticmethod
    def serves(layout: MLPLayout) -> bool:
        return layout.members is None and not layout.layer_norm and layout.activation in ("tanh", "relu")

    def inputs(self, x: Tensor) -> Tensor:
        """Rows `x` (rows, in) as `run` wants them: (in + 1, rows), the last row ones."""
        room = self._enter(len(x))
        room.own_inputs.numpy()[:-1] = x.numpy().T
        return room.own_inputs

    def run(self, inputs: Tensor) -> Tensor:
        """Outputs (out, rows), in memory that the next pass fills again."""
        room = self._room = self._enter(inputs.shape[1])
        room.inputs[0] = inputs
        for i, active in enumerate(room.active):
            torch.mm(self.transposed[i], room.inputs[i], out=active)
            if self.layout.activation == "tanh":
                np.tanh(room.arrays[i], out=room.arrays[i])
            else:
                np.maximum(room.arrays[i], 0.0, out=room.arrays[i])
        return torch.mm(self.transposed[-1], room.inputs[-1], out=room.outputs)

    @property
    def features(self) -> Tensor:
        """What the last layer read in the last `run`: the last hidden layer with its ones (in + 1, rows)."""
        assert self._room is not None
        return self._room.inputs[-1]

    def backward(self, gradient: Tensor, *, extra: Tensor | None = None) -> None:
        """Write the gradient of whatever has `gradient` (out, rows) at the outputs of the last `run`.

        `extra` (in, rows) is what another network that reads `features` adds there.
        """
        room = self._room
        assert room is not None
        for i in reversed(range(len(self.kernels))):
            torch.mm(room.inputs[i], gradient.mT, out=self.gradients[i])
            if not i:
                return
            output, inner = room.active[i - 1], room.deltas[i - 1]
            torch.mm(self.kernels[i], gradient, out=inner)
            if extra is not None and i == len(self.kernels) - 1:
                inner += extra
            if self.layout.activation == "tanh":
                torch.ops.aten.tanh_backward.grad_input(inner, output, grad_input=inner)
            else:
                torch.ops.aten.threshold_backward.grad_input(inner, output, 0, grad_input=inner)
            gradient = inner

    def _enter(self, rows: int) -> _Room:
        if rows not in self._rooms:
            if len(self._rooms) == KEPT_SIZES:
                del self._rooms[next(iter(self._rooms))]
            self._rooms[rows] = _Room(self.layout.sizes, rows)
        return self._rooms[rows]


class _Room:
    """What one number of rows needs: the inputs of every layer with their ones, outputs, and gradients on their way back."""

    def __init__(self, sizes: tuple[int, ...], rows: int) -> None:
        self.inputs = [torch.ones(size + 1, rows) for size in sizes[:-1]]
        self.own_inputs = self.inputs[0]  # two networks may be given the same ones
        self.active = [layer[:-1] for layer in self.inputs[1:]]
        self.arrays = [layer.numpy() for layer in self.active]
        self.outputs = torch.empty(sizes[-1], rows)
        self.deltas = [torch.empty_like(layer) for layer in self.active]


def _matrices(layout: MLPLayout, flat: Tensor) -> list[Tensor]:
    """Each layer's weights with its bias below them: (in + 1, out)."""
    ends = np.cumsum([math.prod(weight) + math.prod(bias) for weight, bias in layout.shapes]).tolist()
    starts = [0, *ends[:-1]]
    widths = layout.sizes[1:]
    return [flat[start:end].view(-1, width) for start, end, width in zip(starts, ends, widths, strict=True)]
