"""A rectified network on the CPU in few calls: what `MLPLayout` does for all kinds, for the kind that off-policy learners
spend their time in.

Between large products every call, torch's or Python's, takes some microseconds, several times what it takes in a loop of its
own, presumably for cold caches. So views are made beforehand, who makes which product is settled once per pass, and thin
products are numpy's, whose way to them is the shortest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rl_training.models.blas import WIDE, large_by_numpy, linear_by_onednn
from rl_training.models.layout import LAYER_NORM_EPS, Layer, MLPLayout, NormTape

# looked up once, and which of its kind each is as well
_threshold_backward = torch.ops.aten.threshold_backward.grad_input
_layer_norm_backward = torch.ops.aten.native_layer_norm_backward.default

THIN = 16  # inputs or outputs up to which a layer's thin products are numpy's


class PlainTape(NamedTuple):
    """What a pass back needs to know."""

    reads: list[Tensor]  # what each layer read, the network's inputs first
    norms: list[NormTape]  # of each hidden layer, where they have layer norm

    def of_rows(self, rows: Tensor) -> PlainTape:
        """What is kept of some rows, but for the inputs, which the gradient at inputs does not ask for."""
        reads = [self.reads[0], *(read.index_select(0, rows) for read in self.reads[1:])]
        return PlainTape(reads, [NormTape(*(part.index_select(0, rows) for part in norm)) for norm in self.norms])


class PlainNet:
    """One network with ReLU, over views of a flat vector and of its gradient, outside of autograd.

    Numpy may warn of what overflows; whoever calls has it keep quiet (`unwarned`).
    """

    def __init__(self, layers: Sequence[Layer], gradients: Sequence[Layer]) -> None:
        self._weights, self._biases = [layer.weight for layer in layers], [layer.bias for layer in layers]
        self._transposed = [weight.mT for weight in self._weights]
        self._last = self._weights[-1].numpy(), self._biases[-1].numpy()
        self._weight_gradients, self._bias_gradients = [g.weight for g in gradients], [g.bias for g in gradients]
        self._gradient_arrays = [gradient.numpy() for gradient in self._weight_gradients]
        self._bias_gradient_arrays = [gradient.numpy() for gradient in self._bias_gradients]
        self._thin = [min(weight.shape) <= THIN for weight in self._weights]
        self._wide = [min(weight.shape) >= WIDE for weight in self._weights]
        self._norms = [(list(gain.shape), gain, shift) for gain, shift in _gains_and_shifts(layers)]
        self._norm_gradients = [(gain.numpy(), shift.numpy()) for gain, shift in _gains_and_shifts(gradients)]

    @staticmethod
    def serves(layout: MLPLayout) -> bool:
        return layout.activation == "relu"

    def run(self, x: Tensor, outputs: np.ndarray) -> PlainTape:
        """Fills `outputs` (rows, out); gives the tape for the passes back."""
        tape, linear = PlainTape([x], []), linear_by_onednn(x.shape[0])
        for i in range(len(self._weights) - 1):
            if linear is not None and self._wide[i]:
                # not with its own ReLU: that makes 0 of a NaN, and a network that is broken would look sound
                x = linear(x, self._transposed[i], self._biases[i], "none", [], "")
            else:
                x = torch.addmm(self._biases[i], x, self._weights[i])
            if self._norms:
                product = x
                x, mean, rstd = torch.native_layer_norm(product, *self._norms[i], LAYER_NORM_EPS)
                tape.norms.append(NormTape(product, mean, rstd))
            tape.reads.append(x.relu_())
        weight, bias = self._last
        np.dot(x.numpy(), weight, out=outputs)
        outputs += bias
        return tape

    def backward(self, tape: PlainTape, gradient: Tensor) -> None:
        """Write the gradient of whatever has `gradient` at the outputs where it belongs."""
        rows = gradient.shape[0]
        linear, ones = linear_by_onednn(rows), np.ones(rows, dtype=np.float32) if large_by_numpy() else None
        for i in range(len(self._weights) - 1, -1, -1):
            array = gradient.numpy()
            if ones is not None or self._thin[i]:
                np.dot(tape.reads[i].numpy().T, array, out=self._gradient_arrays[i])
            else:
                torch.mm(tape.reads[i].mT, gradient, out=self._weight_gradients[i])
            if ones is not None:
                np.dot(ones, array, out=self._bias_gradient_arrays[i])
            else:
                torch.sum(gradient, 0, out=self._bias_gradients[i])
            if i:
                gradient = self._back(i, tape, gradient, linear if self._wide[i] else None, fills=True)

    def input_gradient(self, tape: PlainTape, gradient: Tensor, *, start: int = 0) -> Tensor:
        """The gradient at the inputs from column `start` on; the parameters are taken as fixed."""
        linear = linear_by_onednn(gradient.shape[0])
        for i in range(len(self._weights) - 1, 0, -1):
            gradient = self._back(i, tape, gradient, linear if self._wide[i] else None)
        return torch.mm(gradient, self._transposed[0][:, start:])

    def add_input_gradient(self, tape: PlainTape, gradient: Tensor, total: Tensor, *, start: int = 0) -> None:
        """Add it to `total`, of those rows alone where `gradient` (rows, 1) is not zero."""
        rows = np.flatnonzero(gradient.numpy())
        index = torch.from_numpy(rows)
        own = self.input_gradient(tape.of_rows(index), gradient.index_select(0, index), start=start)
        total.numpy()[rows] += own.numpy()

    def _back(
        self, i: int, tape: PlainTape, gradient: Tensor, linear: Callable[..., Tensor] | None, *, fills: bool = False
    ) -> Tensor:
        """From the outputs of layer `i` to the products of the layer before it; `fills` its norm's gradient on the way."""
        if linear is not None:
            gradient = linear(gradient, self._weights[i], None, "none", [], "")
        elif gradient.shape[1] == 1:
            gradient = gradient * self._transposed[i]
        else:
            gradient = torch.mm(gradient, self._transposed[i])
        _threshold_backward(gradient, tape.reads[i], 0, grad_input=gradient)
        return self._through_norm(i - 1, tape.norms[i - 1], gradient, fills=fills) if self._norms else gradient

    def _through_norm(self, i: int, norm: NormTape, gradient: Tensor, *, fills: bool) -> Tensor:
        shape, gain, shift = self._norms[i]
        known = (norm.inputs, shape, norm.mean, norm.rstd, gain, shift)
        through, *own = _layer_norm_backward(gradient, *known, [True, fills, fills])
        if fills:
            for mine, computed in zip(self._norm_gradients[i], own, strict=True):
                np.copyto(mine, computed.numpy())
        back: Tensor = through
        return back


def _gains_and_shifts(layers: Sequence[Layer]) -> list[tuple[Tensor, Tensor]]:
    return [(layer.gain, layer.shift) for layer in layers if layer.gain is not None and layer.shift is not None]
