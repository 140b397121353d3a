"""Many small policies around one, each with an observation of its own: what a generation of an evolution strategy acts by.

Member 2 d has the parameters `center + steps[d]`, member 2 d + 1 has `center - steps[d]`. What comes out for a member does not
depend, to the last bit, on who else is there: a direction is worth the same wherever and with whomever it is evaluated.
"""

from __future__ import annotations

import ctypes
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from rl_training.kernels.compiled import library_for
from rl_training.kernels.heads import choices
from rl_training.kernels.library import MOST_LAYERS, Library, Population
from rl_training.kernels.mlp import floats


class PolicyShape(NamedTuple):
    """A tanh network whose outputs are clipped to [-1, 1], or whose largest output is the action, or that of each part."""

    sizes: tuple[int, ...]
    biased: bool
    discrete: bool
    nvec: tuple[int, ...] = ()  # choices in each part of an action

    @property
    def num_parameters(self) -> int:
        return sum((n_in + self.biased) * n_out for n_in, n_out in pairwise(self.sizes))

    def chosen(self, outputs: Tensor) -> Tensor:
        """The discrete actions that outputs stand for."""
        return choices(outputs, self.nvec).mode()

    def layers(self, vectors: Tensor) -> list[tuple[Tensor, Tensor | None]]:
        """Weights (..., in, out) and biases (..., out) as views of vectors (..., num_parameters)."""
        parts, start = [], 0
        for n_in, n_out in pairwise(self.sizes):
            end = start + n_in * n_out
            weight, bias = vectors[..., start:end].view(*vectors.shape[:-1], n_in, n_out), None
            if self.biased:
                start, end = end, end + n_out
                bias = vectors[..., start:end]
            parts.append((weight, bias))
            start = end
        return parts


class Policies(Protocol):
    """Some of the members: put observations into `obs` (members, rows, obs_dim), then `act`."""

    obs: Tensor

    def act(self) -> np.ndarray:
        """Actions (members, rows, action_dim) or indices (members, rows), those in parts (members, rows, parts), in memory that
        the next call may fill again."""


def policies_around(shape: PolicyShape, center: np.ndarray, steps: np.ndarray, members: np.ndarray, *, rows: int) -> Policies:
    """The `members` named, for so many observations each, of a population around `center` [P] with `steps` [D, P]."""
    center, steps = (np.ascontiguousarray(array, dtype=np.float32) for array in (center, steps))
    members = np.ascontiguousarray(members, dtype=np.int64)
    size = shape.num_parameters
    if center.shape != (size,) or steps.shape != (len(steps), size):
        raise ValueError(f"parameters of shapes {center.shape} and {steps.shape} for policies of {size}")
    if members.min(initial=0) < 0 or members.max(initial=0) >= 2 * len(steps):
        raise ValueError(f"members {members.tolist()} of {len(steps)} steps to both sides")
    compiled = library_for() if len(shape.sizes) <= MOST_LAYERS + 1 else None
    around = _Around(center, steps, members)
    return _InTorch(shape, around, rows) if compiled is None else _InC(shape, around, rows, compiled)


def definition(shape: PolicyShape, parameters: Tensor, obs: Tensor) -> Tensor:
    """What members with `parameters` (members, P) do at `obs` (members, rows, obs_dim)."""
    h = obs
    for i, (weight, bias) in enumerate(shape.layers(parameters)):
        h = h.tanh() if i else h
        # not a product of matrices: how a BLAS rounds depends on where in memory a member lies
        h = (h.unsqueeze(-1) * weight.unsqueeze(1)).sum(dim=-2)
        h = h if bias is None else h + bias.unsqueeze(1)
    return shape.chosen(h) if shape.discrete else h.clamp(-1, 1)


class _Around(NamedTuple):
    center: np.ndarray
    steps: np.ndarray
    members: np.ndarray


class _InTorch:
    def __init__(self, shape: PolicyShape, around: _Around, rows: int) -> None:
        center, steps, members = around
        signs = (1 - 2 * (members % 2)).astype(np.float32)
        self.shape, self._parameters = shape, torch.from_numpy(center + signs[:, None] * steps[members // 2])
        self.obs = torch.zeros(len(members), rows, shape.sizes[0], dtype=torch.float32)

    def act(self) -> np.ndarray:
        return definition(self.shape, self._parameters, self.obs).numpy()


class _InC:
    """Never writes a member's parameters down: it adds the step where it reads the center (`c/policies.h`)."""

    def __init__(self, shape: PolicyShape, around: _Around, rows: int, compiled: Library) -> None:
        sizes, (center, steps, members) = shape.sizes, around
        self.shape, self._act = shape, compiled.act_as_many
        self.obs = torch.zeros(len(members), rows, sizes[0], dtype=torch.float32)
        self._actions, memory = floats(len(members), rows, sizes[-1]), floats(2 * max(sizes))
        self._array = self._actions.numpy()
        self._held = around, memory  # as long as they are here, their memory is
        self._population = population = Population(
            layers=len(sizes) - 1,
            biased=shape.biased,
            bounded=not shape.discrete,
            center=center.ctypes.data,
            steps=steps.ctypes.data,
            apart=len(center),
            members=members.ctypes.data,
            count=len(members),
            rows=rows,
            x=self.obs.data_ptr(),
            memory=memory.data_ptr(),
            to=self._actions.data_ptr(),
        )
        population.sizes[: len(sizes)] = sizes
        self._at = ctypes.addressof(population)

    def act(self) -> np.ndarray:
        self._act(self._at)
        return self.shape.chosen(self._actions).numpy() if self.shape.discrete else self._array
