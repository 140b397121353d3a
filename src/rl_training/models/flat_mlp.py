"""Networks whose parameters are views of one flat vector.

Adam, Polyak averaging, gradient clipping and evolution then act on one tensor, and a hot learner needs no autograd.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.models.blas import unwarned
from rl_training.models.crew import shared_map
from rl_training.models.layout import Layer, MLPLayout, Tape, as_rows
from rl_training.models.plain_net import PlainNet, PlainTape
from rl_training.models.policy_network import PolicyNetwork
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


class FlatTape(NamedTuple):
    """What a pass of a `FlatMLP` kept: of all members side by side, or of plain networks, one for each."""

    outputs: Tensor
    stacked: Tape
    plain: list[tuple[PlainNet, PlainTape]]


class FlatMLP(FlatModule):
    """A single network (or `members` of them side by side) as a module.

    Where they can be, networks are plain ones (`PlainNet`), and members run one after the other: what one of them reads and
    writes stays in the cache. Several threads share a stack of members better, so with them only single networks are.
    """

    def __init__(
        self, sizes: Sequence[int], *, members: int | None = None, activation: str = "tanh", layer_norm: bool = False
    ) -> None:
        layout = MLPLayout(sizes, members=members, activation=activation, layer_norm=layer_norm)
        super().__init__({"net": layout})
        self.layout = layout
        self.layout.initialize(self.flat.data)
        self._serves_plain = PlainNet.serves(layout)
        self._plain: tuple[int, list[PlainNet]] | None = None

    def forward(self, x: Tensor) -> Tensor:
        return self.layout.forward(self.layout.layers(self.flat), x)

    def policy_network(self, env: EnvSpec, *, squash: bool) -> PolicyNetwork:
        """A copy that stands alone, where this network is a policy of raw observations."""
        layers = [(layer.weight, layer.bias) for layer in self.layers("net")]
        return PolicyNetwork.from_layers(layers, env, activation=self.layout.activation, squash=squash)

    @unwarned
    def run(self, x: Tensor) -> tuple[Tensor, FlatTape]:
        if nets := self._plain_nets(x):
            outputs, arrays = self._outputs(nets, x)
            return outputs, FlatTape(outputs, [], [(net, net.run(x, array)) for net, array in zip(nets, arrays, strict=True)])
        outputs, tape = self.layout.run(self.layers("net"), x)
        return outputs, FlatTape(outputs, tape, [])

    @unwarned
    def infer(self, x: Tensor, *, members: Tensor | None = None) -> Tensor:
        """The output with nothing kept; of some of the members where they are named by number."""
        if nets := self._plain_nets(x):
            chosen = nets if members is None else [nets[member] for member in members.tolist()]
            outputs, arrays = self._outputs(chosen, x)
            for net, array in zip(chosen, arrays, strict=True):
                net.run(x, array)
            return outputs
        layers = self.layers("net")
        return self.layout.infer(layers if members is None else self.layout.select(layers, members), x)

    @unwarned
    def backward(self, tape: FlatTape, gradient: Tensor) -> None:
        if not tape.plain:
            self.layout.backward(self.layers("net"), self.gradient_layers("net"), tape.stacked, gradient)
            return
        gradients = [gradient] if self.layout.members is None else gradient
        for (net, own), own_gradient in zip(tape.plain, gradients, strict=True):
            net.backward(own, own_gradient)

    @unwarned
    def learn(self, x: Tensor, gradient_at: Callable[[Tensor], Tensor]) -> Tensor:
        """Forwards and, from the gradient at the outputs, backwards; returns the outputs of all members.

        `gradient_at` is given the outputs of one or more members, (·, batch, out). A member that goes both ways before the
        next one begins has its activations in the cache; of many rows, several threads take a member each.
        """
        nets = self._plain_nets(x, one_by_one=True)
        if x.shape[0] < SHARED_ROWS and not (nets and torch.get_num_threads() == 1):
            outputs, tape = self.run(x)
            self.backward(tape, gradient_at(outputs))
            return outputs

        assert self.layout.members is not None
        outputs = x.new_empty(self.layout.members, x.shape[0], self.layout.sizes[-1])
        each = outputs.unsqueeze(1).unbind()

        def stacked(member: int) -> None:
            whole = self.layers("net"), self.gradient_layers("net")
            own, into = (self.layout.select(parts, slice(member, member + 1)) for parts in whole)
            given, tape = self.layout.run(own, x)
            each[member].copy_(given)
            self.layout.backward(own, into, tape, gradient_at(given))

        def plain(member: int) -> None:
            tape = nets[member].run(x, each[member].numpy()[0])
            nets[member].backward(tape, gradient_at(each[member])[0])

        shared_map(plain if nets else stacked, range(self.layout.members), device=x.device)
        return outputs

    def input_gradient(self, tape: FlatTape, gradient: Tensor, *, start: int = 0) -> Tensor:
        """The gradient at the inputs from column `start` on, of each member; the parameters are taken as fixed."""
        if not tape.plain:
            return self.layout.input_gradient(self.layers("net"), tape.stacked, gradient, start=start)
        gradients = [gradient] if self.layout.members is None else gradient
        passes = zip(tape.plain, gradients, strict=True)
        each = [net.input_gradient(own, own_gradient, start=start) for (net, own), own_gradient in passes]
        return each[0] if self.layout.members is None else torch.stack(each)

    @unwarned
    def summed_input_gradient(self, tape: FlatTape, gradient: Tensor, *, start: int = 0) -> Tensor:
        """`input_gradient` added up over the members; quick where most of `gradient` is zero."""
        if not tape.plain:
            if torch.get_num_threads() >= len(gradient):  # a member each: picking rows costs more than it saves
                return self.input_gradient(tape, gradient, start=start).sum(0)
            return self.layout.summed_input_gradient(self.layers("net"), tape.stacked, gradient, start=start)
        total = torch.zeros(gradient.shape[-2], self.layout.sizes[0] - start)
        for (net, own), own_gradient in zip(tape.plain, gradient, strict=True):
            net.add_input_gradient(own, own_gradient, total, start=start)
        return total

    @unwarned
    def run_first(self, x: Tensor) -> tuple[Tensor, FlatTape]:
        """The first member alone, as `run` with one member."""
        if nets := self._plain_nets(x, one_by_one=True):
            outputs, arrays = self._outputs(nets[:1], x)
            return outputs, FlatTape(outputs, [], [(nets[0], nets[0].run(x, arrays[0]))])
        outputs, tape = self.layout.run(self.layout.select(self.layers("net"), slice(1)), x)
        return outputs, FlatTape(outputs, tape, [])

    def first_input_gradient(self, tape: FlatTape, gradient: Tensor, *, start: int = 0) -> Tensor:
        """`input_gradient` of a `run_first`, (batch, ·)."""
        if tape.plain:
            net, own = tape.plain[0]
            return net.input_gradient(own, gradient.squeeze(0), start=start)
        first = self.layout.select(self.layers("net"), slice(1))
        return self.layout.input_gradient(first, tape.stacked, gradient, start=start).squeeze(0)

    def _plain_nets(self, x: Tensor, *, one_by_one: bool = False) -> list[PlainNet]:
        """The plain networks that a pass over `x` is to go through; none where it must or had better go through the layout."""
        alone = one_by_one or self.layout.members is None or torch.get_num_threads() == 1
        if not (self._serves_plain and alone and x.is_cpu and x.dtype == torch.float32 and x.dim() == 2):
            return []
        return self._nets()

    def _outputs(self, nets: Sequence[PlainNet], x: Tensor) -> tuple[Tensor, list[np.ndarray]]:
        """Memory for the outputs of these networks, whole and as an array for each."""
        rows, width = x.shape[0], self.layout.sizes[-1]
        outputs = torch.empty(rows, width) if self.layout.members is None else torch.empty(len(nets), rows, width)
        return outputs, [outputs.numpy()] if self.layout.members is None else list(outputs.numpy())

    def _nets(self) -> list[PlainNet]:
        flat = self._parameters["flat"]  # what `self.flat` finds after a search that takes longer than this function
        assert flat is not None
        pointer = flat.data_ptr()
        if self._plain is None or self._plain[0] != pointer:
            views = self.layers("net"), self.gradient_layers("net")
            if self.layout.members is None:
                nets = [PlainNet(*views)]
            else:
                nets = [PlainNet(*(_of_member(layers, i) for layers in views)) for i in range(self.layout.members)]
            self._plain = (pointer, nets)
        return self._plain[1]

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "_plain": None}


def _of_member(layers: Sequence[Layer], member: int) -> list[Layer]:
    vectors = [[None if part is None else part[member, 0] for part in layer[1:]] for layer in layers]
    return [Layer(layer.weight[member], *own) for layer, own in zip(layers, vectors, strict=True)]  # type: ignore[arg-type]
