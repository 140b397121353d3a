"""Steps of an ensemble of dynamics networks, from observations and actions to what follows; outside of autograd.

`Members.particles` and `Dynamics.rows` say in torch what they are. Over float32 on the CPU C makes them where it was compiled
(`c/imagined.h`), in one call each and by all threads.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from rl_training.kernels import library
from rl_training.kernels.compiled import library_for
from rl_training.kernels.library import MOST_LAYERS, Library
from rl_training.kernels.mlp import MLPLayout, floats
from rl_training.kernels.threads import num_threads, scratch


class ImaginedTransition(NamedTuple):
    """What a member imagined for each row, and two measures of how unsure all of them are there."""

    next_obs: Tensor  # (batch, obs_dim)
    rewards: Tensor  # (batch,)
    disagreement: Tensor  # (batch,)
    max_std: Tensor  # (batch,)


class Members(ABC):
    """Members that each predict rows of their own."""

    num_members: int

    @abstractmethod
    def __call__(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """For obs and actions of shape (members, rows, ·): means and log-variances (members, rows, obs_dim + 1) of
        (next_obs - obs, reward)."""

    def particles(self, obs: Tensor, actions: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        """Where particles (particles, rows, obs_dim) are led, and their expected rewards (particles, rows).

        Each member has as many particles as the next. `obs` and `actions` may be those of all particles, (rows, ·): a member
        is then asked once. The noise (particles, obs_dim) is in standard deviations; without it particles, one for each
        member, follow the means.
        """
        members, count, rows = self.num_members, self.num_members if noise is None else len(noise), obs.shape[-2]
        if obs.dim() == actions.dim() == 2:
            each = (x.repeat_interleave(count // members, dim=0) for x in self(*_for_each(members, obs, actions)))
        else:
            own = (x.reshape(members, -1, x.shape[-1]) for x in _for_each(count, obs, actions))
            each = (x.reshape(count, rows, -1) for x in self(*own))
        means, logvars = each
        next_obs = obs + means[..., :-1]
        if noise is not None:
            next_obs = torch.addcmul(next_obs, logvars[..., :-1].mul(0.5).exp_(), noise.unsqueeze(1))
        return next_obs, means[..., -1]


class Dynamics(Members):
    """Networks with the parameters `flat`, whose inputs are obs and actions less `input_mean`. `bounds` are the soft upper and
    lower ones of their log-variances, (members, obs_dim + 1) each; without them they give means alone."""

    def __init__(
        self, layout: MLPLayout, flat: Tensor, *, obs_dim: int, input_mean: Tensor, bounds: tuple[Tensor, Tensor] | None
    ) -> None:
        self.layout, self.flat, self.obs_dim, self.input_mean = layout, flat, obs_dim, input_mean.contiguous()
        self.num_members, self.action_dim = (layout.members or 1), layout.sizes[0] - obs_dim
        self.bounds = None if bounds is None else (bounds[0].contiguous(), bounds[1].contiguous())

    def __call__(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Also for obs and actions of shape (rows, ·), for all members."""
        outputs = self.layout(self.flat, torch.cat([obs, actions], dim=-1).sub_(self.input_mean))
        if self.bounds is None:
            return outputs, torch.full_like(outputs, -torch.inf)
        (means, raw), (upper, lower) = outputs.chunk(2, dim=-1), (bound.unsqueeze(1) for bound in self.bounds)
        logvars: Tensor = lower + softplus(upper - softplus(upper - raw) - lower)
        return means, logvars

    def particles(self, obs: Tensor, actions: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        compiled = self._library(obs, actions, *(() if noise is None else (noise,)))
        if compiled is None:
            return super().particles(obs, actions, noise)
        return self._particles_in_c(compiled, obs, actions, noise)

    def rows(self, obs: Tensor, actions: Tensor, members: Tensor, noise: Tensor) -> ImaginedTransition:
        """A transition of each row (rows, ·) drawn from its own of the members (rows,), with noise (rows, obs_dim + 1) in
        standard deviations; and how unsure all of them are."""
        if members.shape != (len(obs),):
            raise ValueError(f"members of shape {tuple(members.shape)} for {len(obs)} rows")
        compiled = self._library(obs, actions, noise)
        if compiled is not None:
            return self._rows_in_c(compiled, obs, actions, members, noise)
        means, logvars = self(obs, actions)
        rows, stds = torch.arange(len(obs), device=obs.device), (0.5 * logvars).exp()
        drawn = torch.addcmul(means[members, rows], stds[members, rows], noise)
        return ImaginedTransition(obs + drawn[:, :-1], drawn[:, -1], disagreement(means), max_std(logvars))

    def _library(self, *tensors: Tensor) -> Library | None:
        """The library in C, if it has passes for such networks over such tensors."""
        return library_for(self.flat, *tensors) if len(self.layout.sizes) <= MOST_LAYERS + 1 else None

    def _particles_in_c(self, compiled: Library, obs: Tensor, actions: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        count = self.num_members if noise is None else len(noise)
        if count % self.num_members:
            raise ValueError(f"{count} particles cannot be shared evenly by {self.num_members} members")
        rows, asked = obs.shape[-2], 1 if obs.dim() == actions.dim() == 2 else count // self.num_members
        obs, obs_apart = _rows_of(obs, (count, rows, self.obs_dim))
        actions, actions_apart = _rows_of(actions, (count, rows, self.action_dim))
        if noise is not None and noise.shape != (count, self.obs_dim):
            raise ValueError(f"noise of shape {tuple(noise.shape)} for particles of {self.obs_dim} dimensions")
        noise = None if noise is None else noise.contiguous()
        next_obs, rewards, threads = floats(count, rows, self.obs_dim), floats(count, rows), num_threads()
        memory = self._memory(compiled, rows * asked, threads, inputs=self.num_members)
        compiled.imagine_particles(
            ctypes.byref(self._as_c()), obs.data_ptr(), obs_apart, actions.data_ptr(), actions_apart,
            None if noise is None else noise.data_ptr(), count, rows, next_obs.data_ptr(), rewards.data_ptr(),
            memory, threads,
        )  # fmt: skip
        return next_obs, rewards

    def _rows_in_c(self, compiled: Library, obs: Tensor, actions: Tensor, members: Tensor, noise: Tensor) -> ImaginedTransition:
        count, threads = len(obs), num_threads()
        obs, _ = _rows_of(obs, (1, count, self.obs_dim))
        actions, _ = _rows_of(actions, (1, count, self.action_dim))
        noise, _ = _rows_of(noise, (1, count, self.obs_dim + 1))
        members = members.to("cpu", torch.int64).contiguous()
        found = ImaginedTransition(floats(count, self.obs_dim), floats(count), floats(count), floats(count))
        memory = self._memory(compiled, count, threads, inputs=1)
        compiled.imagine_rows(
            ctypes.byref(self._as_c()), obs.data_ptr(), actions.data_ptr(), members.data_ptr(), noise.data_ptr(), count,
            *(column.data_ptr() for column in found), memory, threads,
        )  # fmt: skip
        return found

    def _as_c(self) -> library.Dynamics:
        upper, lower = (None, None) if self.bounds is None else (bound.data_ptr() for bound in self.bounds)
        addresses = self.layout.address, self.flat.data_ptr(), self.obs_dim, self.action_dim, self.input_mean.data_ptr()
        return library.Dynamics(*addresses, upper, lower)

    def _memory(self, compiled: Library, rows: int, threads: int, *, inputs: int) -> int:
        """Room for inputs, of all members or of so many, and outputs of so many rows, and for the pass between them."""
        sizes = self.layout.sizes
        held = rows * (inputs * sizes[0] + self.num_members * sizes[-1])
        return scratch(held + self.layout.memory(compiled, self.num_members, rows, threads)[1])


def disagreement(means: Tensor) -> Tensor:
    """How far the members' means (members, batch, dims) lie apart: the norm of their standard deviation, per row."""
    # plain sums: std and vector_norm go through such a short axis several times slower
    return (means - means.mean(dim=0)).square().sum(dim=-1).mean(dim=0).sqrt()


def max_std(logvars: Tensor) -> Tensor:
    """The largest norm of any member's standard deviation, per row: MOPO's penalty."""
    return logvars.exp().sum(dim=-1).amax(dim=0).sqrt()


def _for_each(count: int, *tensors: Tensor) -> list[Tensor]:
    """With a leading axis of this length, where those without one say the same to all."""
    return [tensor.expand(count, *tensor.shape[-2:]) for tensor in tensors]


def _rows_of(tensor: Tensor, shape: tuple[int, int, int]) -> tuple[Tensor, int]:
    """The numbers as C reads them, of each particle or, without that axis, of all; and how far apart particles' lie."""
    if tensor.shape not in (shape, shape[1:]):
        raise ValueError(f"a tensor of shape {tuple(tensor.shape)} where {shape} or {shape[1:]} belongs")
    return tensor.contiguous(), shape[1] * shape[2] if tensor.dim() == 3 else 0
