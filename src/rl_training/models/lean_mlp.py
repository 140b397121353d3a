"""A plain network on the CPU with as few calls as it can be made of, for minibatches so small that calls are what costs.

Features stand before rows: a layer's bias is then one more row of its weights, which the flat vector has in that place
anyway, and meets a row of ones; its gradient comes out of the same product. Activations are numpy's, whose calls are
cheaper; products are torch's, whose threads are counted, or numpy's where it was asked for them (`blas`). Memory is kept
from one pass to the next.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from rl_training.models.blas import Twin, product_of_twins
from rl_training.models.layout import MLPLayout, as_rows
from rl_training.models.native_net import floats

KEPT_SIZES = 6  # numbers of rows met again and again: environments, minibatches, what is left of them, rollouts


class LeanMLP:
    """Forward and backward passes over the views of a flat vector. A pass is good until the next with as many rows."""

    def __init__(self, layout: MLPLayout, flat: Tensor, gradient: Tensor) -> None:
        self.layout = layout
        weights = _matrices(layout, flat)
        self.transposed, self.kernels = [Twin(w.mT) for w in weights], [Twin(w[:-1]) for w in weights]
        self.gradients = [Twin(g) for g in _matrices(layout, gradient)]
        self._activate, self._deactivate = ACTIVATIONS[layout.activation]
        self._rooms: dict[int, _Room] = {}
        self._room: _Room | None = None

    @staticmethod
    def serves(layout: MLPLayout) -> bool:
        return layout.members is None and not layout.layer_norm and layout.activation in ACTIVATIONS

    def inputs(self, x: Tensor) -> Twin:
        """Rows `x` (rows, in), or a single one, as `run` wants them: (in + 1, rows), the last row ones."""
        x = as_rows(x)
        room = self._enter(len(x))
        room.observed[:] = x.numpy().T
        return room.own_inputs

    def run(self, inputs: Twin) -> np.ndarray:
        """Outputs (out, rows), in memory that the next pass fills again."""
        rows = inputs.array.shape[1]
        room = self._room = self._enter(rows)
        multiply, layer = product_of_twins(rows=rows), inputs
        room.inputs[0] = inputs
        for transposed, active, following in zip(self.transposed, room.active, room.inputs[1:], strict=False):
            multiply(transposed, layer, active)
            self._activate(active.array)
            layer = following
        multiply(self.transposed[-1], layer, room.outputs)
        return room.outputs.array

    @property
    def features(self) -> Twin:
        """What the last layer read in the last `run`: the last hidden layer with its ones (in + 1, rows)."""
        assert self._room is not None
        return self._room.inputs[-1]

    def backward(self, gradient: np.ndarray, *, extra: np.ndarray | None = None) -> None:
        """Write the gradient of whatever has `gradient` (out, rows) at the outputs of the last `run`.

        `extra` (in, rows) is what another network that reads `features` adds there.
        """
        room = self._room
        assert room is not None
        multiply = product_of_twins(rows=gradient.shape[1])
        delta, transposed = room.deltas[-1]
        delta.array[:] = gradient
        for i in range(len(self.kernels) - 1, 0, -1):
            multiply(room.inputs[i], transposed, self.gradients[i])
            inner, transposed = room.deltas[i - 1]
            multiply(self.kernels[i], delta, inner)
            if extra is not None:
                inner.array += extra
                extra = None
            self._deactivate(inner.tensor, room.active[i - 1].tensor)
            delta = inner
        multiply(room.inputs[0], transposed, self.gradients[0])

    def _enter(self, rows: int) -> _Room:
        if rows not in self._rooms:
            if len(self._rooms) == KEPT_SIZES:
                del self._rooms[next(iter(self._rooms))]
            self._rooms[rows] = _Room(self.layout.sizes, rows)
        return self._rooms[rows]


class _Room:
    """What one number of rows needs: the inputs of every layer with their ones, outputs, and the gradients at each
    layer's outputs, upright and transposed."""

    def __init__(self, sizes: tuple[int, ...], rows: int) -> None:
        self.inputs = [Twin(torch.ones(size + 1, rows, dtype=torch.float32)) for size in sizes[:-1]]
        self.own_inputs = self.inputs[0]  # two networks may be given the same ones
        self.observed = self.own_inputs.array[:-1]
        self.active = [Twin(layer.tensor[:-1]) for layer in self.inputs[1:]]
        self.outputs = Twin(floats(sizes[-1], rows))
        deltas = [floats(size, rows) for size in sizes[1:]]
        self.deltas = [(Twin(delta), Twin(delta.mT)) for delta in deltas]


def _tanh(x: np.ndarray) -> None:
    np.tanh(x, out=x)


def _relu(x: np.ndarray) -> None:
    np.maximum(x, 0.0, out=x)


def _through_tanh(gradient: Tensor, outputs: Tensor) -> None:
    torch.ops.aten.tanh_backward.grad_input(gradient, outputs, grad_input=gradient)


def _through_relu(gradient: Tensor, outputs: Tensor) -> None:
    torch.ops.aten.threshold_backward.grad_input(gradient, outputs, 0, grad_input=gradient)


ACTIVATIONS = {"tanh": (_tanh, _through_tanh), "relu": (_relu, _through_relu)}  # in place


def _matrices(layout: MLPLayout, flat: Tensor) -> list[Tensor]:
    """Each layer's weights with its bias below them: (in + 1, out)."""
    ends = np.cumsum([math.prod(weight) + math.prod(bias) for weight, bias in layout.shapes]).tolist()
    starts = [0, *ends[:-1]]
    widths = layout.sizes[1:]
    return [flat[start:end].view(-1, width) for start, end, width in zip(starts, ends, widths, strict=True)]
