"""Networks whose parameters are views of one flat vector.

Adam, Polyak averaging, gradient clipping and evolution then act on one tensor, and a hot learner needs no autograd.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from rl_training.models.crew import shared_map
from rl_training.models.layout import Layer, MLPLayout, Tape, as_rows
from rl_training.models.policy_network import PolicyNetwork
from rl_training.types import EnvSpec

__all__ = ["FlatMLP", "FlatModule", "Layer", "MLPLayout", "Tape", "as_rows"]


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
            end = start + (part if isinstance(part, int) else part.num_parameters)
            self._bounds[name] = (start, end)
            start = end
        self.flat = nn.Parameter(torch.zeros(start))
        self._cache: tuple[int, Tensor, dict[str, list[Layer]], dict[str, list[Layer]]] | None = None

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
        return {**self.__dict__, "_cache": None}


class FlatMLP(FlatModule):
    """A single network (or `members` of them side by side) as a module."""

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

    def run(self, x: Tensor) -> tuple[Tensor, Tape]:
        return self.layout.run(self.layers("net"), x)

    def infer(self, x: Tensor, *, members: Tensor | None = None) -> Tensor:
        """The output with nothing kept; of some of the members where they are named by number."""
        layers = self.layers("net")
        return self.layout.infer(layers if members is None else self.layout.select(layers, members), x)

    def backward(self, tape: Tape, gradient: Tensor) -> None:
        self.layout.backward(self.layers("net"), self.gradient_layers("net"), tape, gradient)

    def learn(self, x: Tensor, gradient_at: Callable[[Tensor], Tensor]) -> Tensor:
        """Each member forwards and, from the gradient at its outputs (1, batch, out), backwards; returns all outputs.

        A member has only its own activations in the cache, and several threads take a member each.
        """
        layers, gradients = self.layers("net"), self.gradient_layers("net")

        def one(member: int) -> Tensor:
            own, into = (self.layout.select(parts, slice(member, member + 1)) for parts in (layers, gradients))
            outputs, tape = self.layout.run(own, x)
            self.layout.backward(own, into, tape, gradient_at(outputs))
            return outputs

        return torch.cat(shared_map(one, range(len(layers[0].weight)), device=x.device))

    def input_gradient(self, tape: Tape, gradient: Tensor, *, start: int = 0) -> Tensor:
        return self.layout.input_gradient(self.layers("net"), tape, gradient, start=start)

    def summed_input_gradient(self, tape: Tape, gradient: Tensor, *, start: int = 0) -> Tensor:
        """`input_gradient` added up over the members; quick where most of `gradient` is zero."""
        return self.layout.summed_input_gradient(self.layers("net"), tape, gradient, start=start)
