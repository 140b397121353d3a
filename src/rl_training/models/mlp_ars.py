"""Deterministic policies for search in parameter space (ARS, OpenAI ES): one flat vector each, many evaluated at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.kernels.population import NativePolicies, population_serves
from rl_training.models.blas import tiny_by_numpy
from rl_training.models.flat_mlp import as_rows

LINE = 16  # float32 numbers in a cache line
LEAST, MOST = np.array(-1, dtype=np.float32), np.array(1, dtype=np.float32)  # of a continuous action
FEW_PRODUCTS = 400  # a batched product of fewer per matrix is done by a plain loop, six times slower than padding costs


class Affine(NamedTuple):
    """One layer of one policy, or of as many as there are members."""

    weight: Tensor  # (in, out), or (members, in, out)
    bias: Tensor | None  # (out,), or (members, 1, out)


class MLPARSModel(nn.Module):
    """A tanh network, or a linear policy where `hidden_sizes` is empty. Its outputs are clipped to [-1, 1], as the papers
    leave it to the environment; with `discrete` the largest output is the action.

    `initial` is "normc" (every unit's weights of norm 1, of the last layer 0.01) or "zeros"; "auto" is zeros for a linear
    policy. `bias` None means only with hidden layers.
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int] = (),
        *,
        discrete: bool = False,
        bias: bool | None = None,
        initial: Literal["auto", "normc", "zeros"] = "auto",
    ) -> None:
        super().__init__()
        self.obs_dim, self.action_dim, self.discrete = obs_dim, action_dim, discrete
        self.bias = bool(hidden_sizes) if bias is None else bias
        sizes = (obs_dim, *hidden_sizes, action_dim)
        self.shapes = list(pairwise(sizes))
        self.num_parameters = sum(math.prod(shape) + self.bias * shape[1] for shape in self.shapes)
        self.flat = nn.Parameter(torch.zeros(self.num_parameters), requires_grad=False)
        if initial == "normc" or (initial == "auto" and hidden_sizes):
            self._initialize()

    def flat_parameters(self) -> Tensor:
        """A copy of all parameters as one vector."""
        return self.flat.detach().clone()

    @torch.no_grad()
    def set_flat_parameters(self, vector: Tensor) -> None:
        if vector.shape != self.flat.shape:
            raise ValueError(f"this policy has {self.num_parameters} parameters; the vector has shape {tuple(vector.shape)}")
        self.flat.copy_(vector)

    @torch.no_grad()
    def actor(self, obs: Tensor) -> Tensor:
        """Actions in [-1, 1], or indices, for a batch or a single observation."""
        single, h = obs.dim() == 1, as_rows(obs)
        for i, (weight, bias) in enumerate(self.cut(self.flat)):
            h = (h.tanh() if i else h) @ weight
            h = h if bias is None else h + bias
        actions = h.argmax(dim=-1) if self.discrete else h.clamp(-1, 1)
        return actions[0] if single else actions

    def forward(self, obs: Tensor) -> Tensor:
        return self.actor(obs)

    def actor_batch(self, parameters: Tensor, obs: Tensor) -> Tensor:
        """Actions of many policies at once: `parameters` (members, P) and `obs` (members, batch, obs_dim) to
        (members, batch, action_dim), or (members, batch) indices."""
        policies = MemberPolicies(self, parameters, rows=obs.shape[1])
        policies.obs.copy_(obs)
        return policies.act()

    def cut(self, vectors: Tensor) -> list[Affine]:
        """A vector, or rows of vectors, as layers."""
        members = vectors.shape[:-1]
        layers, start = [], 0
        for n_in, n_out in self.shapes:
            end = start + n_in * n_out
            weight, bias = vectors[..., start:end].view(*members, n_in, n_out), None
            if self.bias:
                start, end = end, end + n_out
                bias = vectors[..., start:end].unsqueeze(-2) if members else vectors[start:end]
            layers.append(Affine(weight, bias))
            start = end
        return layers

    @torch.no_grad()
    def _initialize(self) -> None:
        for i, (weight, _) in enumerate(self.cut(self.flat)):
            weight.normal_()
            gain = 0.01 if i == len(self.shapes) - 1 else 1.0
            weight.mul_(gain / weight.norm(dim=0, keepdim=True))


class MemberPolicies:
    """Many policies of one shape, `rows` observations each: put them into `obs` (members, rows, obs_dim), then `act`.

    What comes out for a member does not depend, to the last bit, on who else is there, as long as there are two.
    """

    def __init__(self, model: MLPARSModel, parameters: Tensor, *, rows: int) -> None:
        self.discrete = model.discrete
        n_in, n_out = model.shapes[0]
        width = n_in if len(model.shapes) == 1 else max(n_in, math.ceil(FEW_PRODUCTS / (rows * n_out)))
        self._inputs = _aligned(parameters, rows, width).matrices
        self.obs = self._inputs[..., :n_in]
        # copies: the same layer of all members side by side is read faster than with the other layers in between
        self._layers = []
        for i, (weight, bias) in enumerate(model.cut(parameters)):
            copy = _aligned(parameters, width if i == 0 else weight.shape[1], weight.shape[2]).matrices
            copy[:, : weight.shape[1]] = weight
            into = _aligned(parameters, rows, weight.shape[2])
            self._layers.append(_Layer(copy, bias if bias is None else bias.contiguous(), into.matrices, into.memory))
        # side by side, not each on a cache line of its own: whoever goes on with them takes half the time
        self._actions = torch.empty_like(self._layers[-1].outputs, memory_format=torch.contiguous_format)
        # made once: a tensor's array takes as long to make as the smaller operations take
        self._arrays = self._as_arrays() if tiny_by_numpy(parameters) else None

    def act(self) -> Tensor:
        """Actions in memory that the next call fills again."""
        self._compute()
        return self._actions.argmax(dim=-1) if self.discrete else self._actions

    def act_array(self) -> np.ndarray:
        """The same for numpy."""
        if self._arrays is None or self.discrete:
            return self.act().numpy()
        self._compute()
        return self._arrays.actions

    def _compute(self) -> None:
        """Fill the actions; what decides between discrete ones is not clipped."""
        if self._arrays is None:
            self._by_torch(self._inputs, self._layers)
        else:
            self._by_numpy(self._arrays)

    def _as_arrays(self) -> _Arrays:
        actions = self._actions.numpy()
        layers = [layer.arrays() for layer in self._layers]
        return _Arrays(self._inputs.numpy(), [*layers[:-1], layers[-1]._replace(sums=actions)], actions)

    @torch.no_grad()
    def _by_torch(self, h: Tensor, layers: Sequence[_Layer]) -> None:
        for i, (weight, bias, outputs, _) in enumerate(layers):
            if i:
                layers[i - 1].memory.tanh_()
            if bias is None:
                torch.bmm(h, weight, out=outputs)
            else:
                torch.baddbmm(bias, h, weight, out=outputs)
            h = outputs
        if self.discrete:
            self._actions.copy_(h)
        else:
            torch.clamp(h, -1, 1, out=self._actions)

    def _by_numpy(self, arrays: _Arrays) -> None:
        h, layers, actions = arrays
        for i, (weight, bias, outputs, sums, _) in enumerate(layers):
            if i:
                np.tanh(layers[i - 1].memory, out=layers[i - 1].memory)
            np.matmul(h, weight, out=outputs)
            h = outputs if bias is None else np.add(outputs, bias, out=sums)
        if not self.discrete:
            np.maximum(h, LEAST, out=actions)
            np.minimum(actions, MOST, out=actions)
        elif h is not actions:
            actions[:] = h


def policies_around(
    model: MLPARSModel, center: np.ndarray, steps: np.ndarray, members: np.ndarray, *, rows: int
) -> NativePolicies | MemberPolicies:
    """The policies `center` + `steps[d]`, member 2 d, and `center` - `steps[d]`, member 2 d + 1, of the members named."""
    sizes = (model.obs_dim, *(n_out for _, n_out in model.shapes))
    if population_serves(sizes):
        return NativePolicies(sizes, center, steps, members, rows=rows, biased=model.bias, discrete=model.discrete)
    signs = (1 - 2 * (members % 2)).astype(np.float32)
    parameters = center + signs[:, None] * steps[members // 2]
    return MemberPolicies(model, torch.from_numpy(parameters), rows=rows)


class _Layer(NamedTuple):
    """One layer of all members, and where its outputs go."""

    weight: Tensor  # (members, in, out)
    bias: Tensor | None  # (members, 1, out)
    outputs: Tensor  # (members, rows, out)
    memory: Tensor  # the outputs' own, with what fills up the cache lines

    def arrays(self) -> _LayerArrays:
        """The same memory."""
        bias, outputs = None if self.bias is None else self.bias.numpy(), self.outputs.numpy()
        return _LayerArrays(self.weight.numpy(), bias, outputs, outputs, self.memory.numpy())


class _LayerArrays(NamedTuple):
    """A layer as numpy sees it."""

    weight: np.ndarray
    bias: np.ndarray | None
    outputs: np.ndarray
    sums: np.ndarray  # where they go when the bias is added
    memory: np.ndarray


class _Arrays(NamedTuple):
    """All of it as numpy sees it."""

    inputs: np.ndarray
    layers: list[_LayerArrays]
    actions: np.ndarray


class _Aligned(NamedTuple):
    memory: Tensor  # (members, a whole number of cache lines)
    matrices: Tensor  # (members, rows, columns), a view of it


def _aligned(like: Tensor, rows: int, columns: int) -> _Aligned:
    """A matrix for each member, at the start of a cache line: products round differently where a matrix lies otherwise,
    and then a member's numbers would depend on its place among the others."""
    memory = like.new_zeros(len(like), math.ceil(rows * columns / LINE) * LINE)
    return _Aligned(memory, memory[:, : rows * columns].view(-1, rows, columns))
