"""Networks of one shape by torch's operators: what `NativeNet` does in C, on any device and in any precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rl_training.models.blas import unwarned
from rl_training.models.layout import Layer, MLPLayout, Tape


class StackedTape(NamedTuple):
    """What a pass back needs to know."""

    layers: Sequence[Layer]  # of the members that ran
    kept: Tape
    members: Tensor | None  # these, by number; None for all


class StackedNet:
    """One network, or several side by side by batched products, over views of a flat vector and of its gradient.

    Everything is outside of autograd.
    """

    def __init__(self, layout: MLPLayout, layers: Sequence[Layer], gradients: Sequence[Layer] = ()) -> None:
        self.layout, self._layers, self._gradients = layout, layers, gradients

    @unwarned
    def infer(self, x: Tensor, members: Tensor | None = None) -> Tensor:
        """The outputs alone; of some of the members where they are named by number."""
        return self.layout.infer(self._of(members), x)

    @unwarned
    def run(self, x: Tensor, members: Tensor | None = None) -> tuple[Tensor, StackedTape]:
        """The outputs and the tape for the passes back."""
        layers = self._of(members)
        outputs, kept = self.layout.run(layers, x)
        return outputs, StackedTape(layers, kept, members)

    @unwarned
    def backward(self, tape: StackedTape, gradient: Tensor) -> None:
        """Write the gradient of whatever has `gradient` at the outputs where it belongs."""
        into = self._gradients
        if tape.members is not None:
            (member,) = tape.members.tolist()
            into = self.layout.select(into, slice(member, member + 1))  # a view: what is written must arrive
        self.layout.backward(tape.layers, into, tape.kept, gradient)

    def regress(self, x: Tensor, target: Tensor) -> Tensor:
        """Forwards and, from each member's mean squared distance to `target` (rows, out), backwards; gives the outputs."""
        outputs, tape = self.run(x)
        self.backward(tape, (outputs - target) * (2.0 / len(target)))
        return outputs

    @unwarned
    def input_gradient(self, tape: StackedTape, gradient: Tensor, *, start: int = 0, summed: bool = False) -> Tensor:
        """The gradient at the inputs from column `start` on, of each member or added up; parameters are taken as fixed."""
        # with a thread for each member, or a device that runs ahead, picking rows costs more than it saves
        if summed and gradient.is_cpu and torch.get_num_threads() < len(gradient) and not gradient.all():
            return self.layout.summed_input_gradient(tape.layers, tape.kept, gradient, start=start)
        each = self.layout.input_gradient(tape.layers, tape.kept, gradient, start=start)
        return each.sum(0) if summed else each

    def _of(self, members: Tensor | None) -> Sequence[Layer]:
        return self._layers if members is None else self.layout.select(self._layers, members)
