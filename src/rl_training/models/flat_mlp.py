"""Networks whose parameters are views of one flat vector.

Adam, Polyak averaging, gradient clipping and evolution then act on one tensor, and a hot learner needs no autograd.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rl_training.models.crew import shared_map
from rl_training.models.layout import Layer, MLPLayout, Tape, as_rows
from rl_training.models.native_net import NativeNet, NativeTape, passes_serve
from rl_training.models.policy_network import PolicyNetwork
from rl_training.models.stacked_net import StackedNet, StackedTape
from rl_training.types import EnvSpec

SHARED_ROWS = 1024  # from which on handing a member to another thread costs less than it saves

__all__ = ["FlatMLP", "FlatModule", "FlatTape", "Layer", "MLPLayout", "Tape", "as_rows"]


class FlatModule(nn.Module):
    """A module with one parameter, `flat`, which named parts share: networks (`MLPLayout`) and plain vectors (their length).

    `gradient` is a vector of the same length that explicit backward passes write into. Views are made anew
    when the storage has moved (`.to(device)`, `copy.deepcopy`), so they cannot go stale.
    """

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
        self._cache: tuple[int, Tensor, dict[str, list[Layer]], dict[str, list[Layer]]] | None = None
        self._nets: dict[str, tuple[int, StackedNet, NativeNet | None]] = {}

    def vector(self, name: str) -> Tensor:
        """The slice of `flat` that belongs to a part."""
        start, end = self._bounds[name]
        return self.flat[start:end]

    def layers(self, name: str) -> list[Layer]:
        """A network's layers as views of `flat` outside of autograd."""
        return self._views()[2][name]

    def gradient_layers(self, name: str) -> list[Layer]:
        """The same views of `gradient`."""
        return self._views()[3][name]

    def net(self, name: str, x: Tensor) -> NativeNet | StackedNet:
        """A network as whoever is to make a pass over `x` sees it: the passes in C where they can, else torch."""
        stacked, native = self._both_nets(name)
        return stacked if native is None or not native.serves(x) else native

    def native_net(self, name: str) -> NativeNet | None:
        """A network for the passes in C, if there are any for it."""
        return self._both_nets(name)[1]

    def _both_nets(self, name: str) -> tuple[StackedNet, NativeNet | None]:
        flat = self._parameters["flat"]  # what `self.flat` finds after a search that takes longer than this function
        assert flat is not None
        pointer, stacked, native = self._nets.get(name, (None, None, None))
        if stacked is None or pointer != flat.data_ptr():
            layout, views = self.parts[name], (self.layers(name), self.gradient_layers(name))
            assert isinstance(layout, MLPLayout)
            stacked = StackedNet(layout, *views)
            native = NativeNet(layout, *views) if passes_serve(layout, flat) else None
            self._nets[name] = (flat.data_ptr(), stacked, native)
        return stacked, native

    def gradient_vector(self, name: str) -> Tensor:
        start, end = self._bounds[name]
        return self.gradient[start:end]

    @property
    def gradient(self) -> Tensor:
        """What the last explicit backward pass wrote."""
        return self._views()[1]

    def _views(self) -> tuple[int, Tensor, dict[str, list[Layer]], dict[str, list[Layer]]]:
        pointer = self.flat.data_ptr()
        if self._cache is None or self._cache[0] != pointer:
            data, gradient = self.flat.data, torch.zeros_like(self.flat.data)
            nets = {name: part for name, part in self.parts.items() if isinstance(part, MLPLayout)}
            cut = [{name: net.layers(v[slice(*self._bounds[name])]) for name, net in nets.items()} for v in (data, gradient)]
            self._cache = (pointer, gradient, cut[0], cut[1])
        return self._cache

    def __getstate__(self) -> dict[str, object]:
        # a deep copy makes views of its own vector: copied views would hang in the air
        return {**self.__dict__, "_cache": None, "_nets": {}}


class FlatTape(NamedTuple):
    """A pass, who made it, and what it kept for the passes back."""

    outputs: Tensor
    net: Any  # a NativeNet with its own kind of tape, or a StackedNet with its own
    kept: NativeTape | StackedTape


class FlatMLP(FlatModule):
    """A single network (or `members` of them side by side) as a module, with passes outside of autograd."""

    def __init__(
        self, sizes: Sequence[int], *, members: int | None = None, activation: str = "tanh", layer_norm: bool = False
    ) -> None:
        layout = MLPLayout(sizes, members=members, activation=activation, layer_norm=layer_norm)
        super().__init__({"net": layout})
        self.layout = layout
        self.layout.initialize(self.flat.data)

    def forward(self, x: Tensor) -> Tensor:
        return self.layout.forward(self.layout.layers(self.flat), x)

    def policy_network(self, env: EnvSpec, *, squash: bool) -> PolicyNetwork:
        """A copy that stands alone, where this network is a policy of raw observations."""
        layers = [(layer.weight, layer.bias) for layer in self.layers("net")]
        return PolicyNetwork.from_layers(layers, env, activation=self.layout.activation, squash=squash)

    def run(self, x: Tensor, *, members: Tensor | None = None) -> tuple[Tensor, FlatTape]:
        """The outputs, of some of the members where they are named by number, and the tape for the passes back."""
        net = self.net("net", x)
        outputs, kept = net.run(x, members)
        return outputs, FlatTape(outputs, net, kept)

    def infer(self, x: Tensor, *, members: Tensor | None = None) -> Tensor:
        """The outputs with nothing kept."""
        return self.net("net", x).infer(x, members)

    def backward(self, tape: FlatTape, gradient: Tensor) -> None:
        """Fill `self.gradient`, or one member's part of it, from the gradient at the outputs."""
        tape.net.backward(tape.kept, gradient)

    def learn(self, x: Tensor, gradient_at: Callable[[Tensor], Tensor]) -> Tensor:
        """Forwards and, from the gradient at the outputs, backwards; returns the outputs of all members.

        `gradient_at` is given the outputs of one or more members, (·, batch, out). Of many rows, several threads take a
        member each, and a member goes both ways before the next one begins: it has its activations in the cache.
        """
        members = self.layout.members
        if members is None or x.shape[0] < SHARED_ROWS:
            outputs, tape = self.run(x)
            self.backward(tape, gradient_at(outputs))
            return outputs
        outputs = x.new_empty(members, x.shape[0], self.layout.sizes[-1])

        def both_ways(member: int) -> None:
            given, tape = self.run(x, members=torch.tensor([member]))
            outputs[member] = given[0]
            self.backward(tape, gradient_at(given))

        shared_map(both_ways, range(members), device=x.device)
        return outputs

    def regress(self, x: Tensor, target: Tensor) -> Tensor:
        """`learn` from the squared distance of each member's outputs to `target` (batch, out): its mean over the batch, added
        up over outputs and members."""
        return self.net("net", x).regress(x, target)

    def input_gradient(self, tape: FlatTape, gradient: Tensor, *, start: int = 0, summed: bool = False) -> Tensor:
        """The gradient at the inputs from column `start` on, of each member or added up; the parameters are taken as fixed.

        Where it is added up, rows at whose outputs a member has no gradient cost it little or nothing.
        """
        at_inputs: Tensor = tape.net.input_gradient(tape.kept, gradient, start=start, summed=summed)
        return at_inputs
