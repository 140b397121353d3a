"""Networks that go through the passes written in C (`rl_training.native`): all members, all layers, both ways, a call each."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from rl_training import native
from rl_training.models.layout import Layer, MLPLayout
from rl_training.native import MOST_LAYERS, Network

NUMBERS = {"relu": 0, "silu": 1, "tanh": 2}  # of activations there

floats = partial(torch.empty, dtype=torch.float32)  # memory as C reads it, whatever torch's default type is


@dataclass(slots=True)
class _Threads:
    """How many threads a pass has; one number for the process, like that of torch's."""

    passes: int = 1


_threads = _Threads()


def passes_threads() -> int:
    return _threads.passes


@contextmanager
def passes_on(threads: int) -> Iterator[None]:
    """Give passes so many threads. Torch should have one then: others of its own wait busily on the same cores for
    milliseconds after every operation that they shared."""
    before, _threads.passes = _threads.passes, max(1, threads)
    try:
        yield
    finally:
        _threads.passes = before


def passes_serve(layout: MLPLayout, flat: Tensor) -> bool:
    """Whether there are passes for networks of this shape, with such parameters, in this process."""
    return len(layout.sizes) <= MOST_LAYERS + 1 and flat.is_cpu and flat.dtype == torch.float32 and native.library() is not None


class NativeTape(NamedTuple):
    """What a pass back needs to know."""

    inputs: Tensor  # (rows, in), or (members, rows, in)
    kept: Tensor
    members: Tensor | None  # those that ran, by number; None for all


class NativeNet:
    """One or more networks of one shape over views of a flat vector, and of its gradient if passes are to go back to it.

    Inputs are on the CPU, of float32, with at least one row; everything is outside of autograd. The results are the
    same with any number of threads.
    """

    def __init__(self, layout: MLPLayout, layers: Sequence[Layer], gradients: Sequence[Layer] = ()) -> None:
        passes = native.library()
        assert passes is not None
        self._passes, self.layout = passes, layout
        self._views = layers, gradients  # as long as they are here, their memory is
        assert all(part is None or part.is_contiguous() for layer in (*layers, *gradients) for part in layer)
        self._single = layers[0].weight.dim() == 2
        self.members = 1 if self._single else len(layers[0].weight)
        self._network = network = Network()
        network.layers, network.members, network.norm = len(layers), self.members, layout.layer_norm
        network.activation = NUMBERS[layout.activation]
        network.sizes[: len(layout.sizes)] = layout.sizes
        for prefix, each in (("", layers), ("d_", gradients)):
            for i, layer in enumerate(each):
                for name, part in zip(("weights", "biases", "gains", "shifts"), layer, strict=True):
                    getattr(network, prefix + name)[i] = None if part is None else part.data_ptr()
        self.address = ctypes.addressof(network)
        self._width = torch.Size([layout.sizes[0]])
        self._room: dict[tuple[int, int, int], tuple[int, int]] = {}
        self._fit_room: dict[tuple[int, int], int] = {}

    def serves(self, x: Tensor) -> bool:
        """Whether a pass over `x` can go this way; C would not notice inputs of another shape."""
        if not (x.is_cpu and x.dtype == torch.float32 and x.shape[-1:] == self._width):
            return False
        return (x.dim() == 2 or (x.dim() == 3 and len(x) == self.members)) and x.shape[-2] > 0

    def infer(self, x: Tensor, members: Tensor | None = None) -> Tensor:
        """The outputs alone, (members, rows, out); here as below there is no axis of members if there is but one network."""
        return self._forward(x.contiguous(), self._chosen(members, x), keeps=False)[0]

    def run(self, x: Tensor, members: Tensor | None = None) -> tuple[Tensor, NativeTape]:
        """The outputs and the tape for the passes back."""
        x, members = x.contiguous(), self._chosen(members, x)
        outputs, kept = self._forward(x, members, keeps=True)
        assert kept is not None
        return outputs, NativeTape(x, kept, members)

    def backward(self, tape: NativeTape, gradient: Tensor) -> None:
        """Write the gradient of whatever has `gradient` (members, rows, out) at the outputs where it belongs."""
        count, rows = self._count(tape.members), tape.inputs.shape[-2]
        gradient, threads = _floats(gradient, count * rows * self.layout.sizes[-1]), passes_threads()
        memory = floats(self._sizes(count, rows, threads)[1])
        self._passes.backward(
            self.address, _address(tape.members), count, tape.inputs.data_ptr(), _apart(tape.inputs), rows,
            tape.kept.data_ptr(), gradient.data_ptr(), memory.data_ptr(), threads,
        )  # fmt: skip

    def regress(self, x: Tensor, target: Tensor) -> Tensor:
        """Forwards and, from each member's mean squared distance to `target` (rows, out), backwards; gives the outputs."""
        if x.dim() == 3:  # rows of each member's own
            outputs, known = self.run(x)
            self.backward(known, (outputs - target) * (2.0 / x.shape[-2]))
            return outputs
        x, rows, threads = x.contiguous(), x.shape[-2], passes_threads()
        target = _floats(target, rows * self.layout.sizes[-1])
        tape, scratch = self._sizes(self.members, rows, threads)
        outputs, errors = self._empty(self.members, rows, self.layout.sizes[-1]), floats(self.members * target.numel())
        memory = floats(scratch + tape * max(self.members, threads) // self.members)
        self._passes.regress(
            self.address, self.members, x.data_ptr(), rows, target.data_ptr(), outputs.data_ptr(), errors.data_ptr(),
            memory.data_ptr(), threads,
        )  # fmt: skip
        return outputs

    def fits(self, obs: Tensor, actions: Tensor, target: Tensor) -> bool:
        """Whether `fit_values` can read these: rows of columns, however far apart, and a target for each."""
        width = obs.shape[-1] + actions.shape[-1]
        if (
            (width, 1) != (self.layout.sizes[0], self.layout.sizes[-1])
            or self._single
            or not (is_column(obs) and is_column(actions))
        ):
            return False
        return len(obs) == len(actions) == len(target) and is_column(target, dim=1) and target.is_contiguous()

    def fit_values(self, obs: Tensor, actions: Tensor, target: Tensor) -> Tensor:
        """`regress` of critics of (obs, actions) to a target (rows,); gives their values (critics, rows)."""
        (rows, obs_dim), threads = obs.shape, passes_threads()
        if (size := self._fit_room.get((rows, threads))) is None:
            size = self._fit_room[rows, threads] = self._passes.fit_size(self.address, rows, threads)
        values, memory = floats(self.members, rows), floats(size)
        self._passes.fit_values(
            self.address, obs.data_ptr(), obs.stride(0), obs_dim, actions.data_ptr(), actions.stride(0), target.data_ptr(),
            rows, values.data_ptr(), memory.data_ptr(), threads,
        )  # fmt: skip
        return values

    def choose(self, x: Tensor, noise: Tensor | None = None, *, std: float = 0.0, clip: float = 0.0) -> Tensor:
        """The one network's outputs squashed by tanh, and blurred by noise (rows, out) where it is given."""
        rows, out, threads = len(x), self.layout.sizes[-1], passes_threads()
        blur = None if noise is None else _floats(noise, rows * out)
        x, actions, memory = x.contiguous(), floats(rows, out), floats(self.scratch(rows, threads))
        self._passes.choose(
            self.address, x.data_ptr(), _address(blur), std, clip, rows, None, actions.data_ptr(), memory.data_ptr(), threads
        )
        return actions

    def input_gradient(self, tape: NativeTape, gradient: Tensor, *, start: int = 0, summed: bool = False) -> Tensor:
        """The gradient at the inputs from column `start` on, of each member or added up; parameters are taken as fixed.

        Where it is added up, rows at whose outputs a member has no gradient cost it nothing.
        """
        count, rows = self._count(tape.members), tape.inputs.shape[-2]
        gradient = _floats(gradient, count * rows * self.layout.sizes[-1])
        threads, width = passes_threads(), self.layout.sizes[0] - start
        d_inputs = floats(rows, width) if summed else self._empty(count, rows, width)
        memory = floats(self._sizes(count, rows, threads)[1])
        self._passes.inputs_back(
            self.address, _address(tape.members), count, rows, tape.kept.data_ptr(), gradient.data_ptr(), start, summed,
            d_inputs.data_ptr(), memory.data_ptr(), threads,
        )  # fmt: skip
        return d_inputs

    def _forward(self, x: Tensor, members: Tensor | None, *, keeps: bool) -> tuple[Tensor, Tensor | None]:
        count, rows, threads = self._count(members), x.shape[-2], passes_threads()
        tape, scratch = self._sizes(count, rows, threads)
        kept = floats(tape) if keeps else None
        outputs, memory = self._empty(count, rows, self.layout.sizes[-1]), floats(scratch)
        self._passes.forward(
            self.address, _address(members), count, x.data_ptr(), _apart(x), rows, _address(kept), outputs.data_ptr(),
            memory.data_ptr(), threads,
        )  # fmt: skip
        return outputs, kept

    def _empty(self, members: int, rows: int, width: int) -> Tensor:
        return floats(rows, width) if self._single else floats(members, rows, width)

    def _chosen(self, members: Tensor | None, x: Tensor) -> Tensor | None:
        """Numbers of members as C reads them; it would read whatever lies where there is none."""
        if members is None:
            return None
        if members.dtype == torch.bool:
            members = members.nonzero().squeeze(1)
        members = members.to("cpu", torch.int64).contiguous()
        known = members.dim() == 1 and (not len(members) or 0 <= members.min().item() <= members.max().item() < self.members)
        if not known or (x.dim() == 3 and len(members) != len(x)):
            raise IndexError(f"members {members.tolist()} of {self.members} for inputs of shape {tuple(x.shape)}")
        return members

    def _count(self, members: Tensor | None) -> int:
        return self.members if members is None else len(members)

    def scratch(self, rows: int, threads: int) -> int:
        """Floats of memory that a pass of all members over so many rows wants for itself."""
        return self._sizes(self.members, rows, threads)[1]

    def _sizes(self, members: int, rows: int, threads: int) -> tuple[int, int]:
        """Floats of a tape, and of the memory that a pass wants meanwhile."""
        key = (members, rows, threads)
        if (known := self._room.get(key)) is None:
            scratch = self._passes.scratch_size(self.address, members, rows, threads)
            known = self._room[key] = (self._passes.tape_size(self.address, members, rows), scratch)
        return known


def is_column(tensor: Tensor, *, dim: int = 2) -> bool:
    """Whether C can read this column of a batch, a matrix or with `dim=1` a vector: rows may be any distance apart."""
    right = tensor.is_cpu and tensor.dtype == torch.float32 and tensor.dim() == dim and len(tensor) > 0
    return right and (dim == 1 or tensor.stride(1) == 1)


def _floats(tensor: Tensor, count: int) -> Tensor:
    """The tensor as C reads it; what has another number of elements is refused."""
    if tensor.numel() != count:
        raise ValueError(f"a tensor of shape {tuple(tensor.shape)} where {count} numbers belong")
    return tensor.to("cpu", torch.float32).contiguous()


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _apart(x: Tensor) -> int:
    """Floats from one member's inputs to the next one's."""
    return 0 if x.dim() == 2 else x.shape[-2] * x.shape[-1]
