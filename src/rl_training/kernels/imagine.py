"""Steps of an ensemble of dynamics networks in C (`c/imagined.h`): from observations and actions to what follows, in a
call each; what is asked of the members, drawn from their answers and measured on them never passes through torch."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from rl_training.kernels.library import World, library
from rl_training.kernels.mlp import MLPLayout, floats
from rl_training.kernels.threads import num_threads


class NativeDynamics:
    """Members that predict (next_obs - obs, reward); `bounds` are the soft upper and lower ones of their log-variances,
    (members, obs_dim + 1) each, or None where they say means alone. Everything is outside of autograd."""

    def __init__(
        self, layout: MLPLayout, flat: Tensor, *, obs_dim: int, input_mean: Tensor, bounds: tuple[Tensor, Tensor] | None
    ) -> None:
        passes = library()
        assert passes is not None
        self._passes, self._layout, self._members, self.obs_dim = passes, layout, layout.count(None), obs_dim
        self.action_dim = layout.sizes[0] - obs_dim
        bounds = None if bounds is None else (bounds[0].contiguous(), bounds[1].contiguous())
        self._held = input_mean.contiguous(), bounds, flat  # as long as they are here, their memory is
        upper, lower = (None, None) if bounds is None else (bound.data_ptr() for bound in bounds)
        self._world = World(layout.address, flat.data_ptr(), obs_dim, self.action_dim, self._held[0].data_ptr(), upper, lower)
        self._at = ctypes.addressof(self._world)

    def serves(self, *tensors: Tensor) -> bool:
        """Whether these can be read here."""
        return all(tensor.is_cpu and tensor.dtype == torch.float32 for tensor in tensors)

    def particles(self, obs: Tensor, actions: Tensor, luck: Tensor | None) -> tuple[Tensor, Tensor]:
        """As `Members.particles`."""
        count = self._members if luck is None else len(luck)
        if count % self._members:
            raise ValueError(f"{count} particles cannot be shared evenly by {self._members} members")
        rows, asked = obs.shape[-2], 1 if obs.dim() == actions.dim() == 2 else count // self._members
        obs, obs_apart = _rows_of(obs, (count, rows, self.obs_dim))
        actions, actions_apart = _rows_of(actions, (count, rows, self.action_dim))
        if luck is not None and luck.shape != (count, self.obs_dim):
            raise ValueError(f"luck of shape {tuple(luck.shape)} for particles of {self.obs_dim} dimensions")
        luck = None if luck is None else luck.contiguous()
        next_obs, rewards = floats(count, rows, self.obs_dim), floats(count, rows)
        threads = num_threads()
        memory = self._memory(rows * asked, threads, inputs=self._members)
        self._passes.imagine_particles(
            self._at, obs.data_ptr(), obs_apart, actions.data_ptr(), actions_apart, None if luck is None else luck.data_ptr(),
            count, rows, next_obs.data_ptr(), rewards.data_ptr(), memory.data_ptr(), threads,
        )  # fmt: skip
        return next_obs, rewards

    def drawn(self, obs: Tensor, actions: Tensor, chosen: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """As `Simulator.drawn`, with the member `chosen` for each row."""
        rows = len(obs)
        obs, _ = _rows_of(obs, (1, rows, self.obs_dim))
        actions, _ = _rows_of(actions, (1, rows, self.action_dim))
        noise, _ = _rows_of(noise, (1, rows, self.obs_dim + 1))
        chosen = chosen.to("cpu", torch.int64).contiguous()
        if chosen.shape != (rows,):
            raise ValueError(f"members of shape {tuple(chosen.shape)} for {rows} rows")
        next_obs, numbers = floats(rows, self.obs_dim), [floats(rows) for _ in range(3)]
        threads = num_threads()
        memory = self._memory(rows, threads, inputs=1)
        self._passes.imagine_rows(
            self._at, obs.data_ptr(), actions.data_ptr(), chosen.data_ptr(), noise.data_ptr(), rows, next_obs.data_ptr(),
            *(column.data_ptr() for column in numbers), memory.data_ptr(), threads,
        )  # fmt: skip
        rewards, disagreement, max_std = numbers
        return next_obs, rewards, disagreement, max_std

    def _memory(self, rows: int, threads: int, *, inputs: int) -> Tensor:
        """Room for inputs, of all members or of so many, and outputs of so many rows, and for the pass between them."""
        sizes = self._layout.sizes
        held = rows * (inputs * sizes[0] + self._members * sizes[-1])
        return floats(held + self._layout.memory(self._passes, self._members, rows, threads)[1])


def _rows_of(tensor: Tensor, shape: tuple[int, int, int]) -> tuple[Tensor, int]:
    """The numbers as C reads them, of each particle or, without that axis, of all; and how far apart particles' lie."""
    if tensor.shape not in (shape, shape[1:]):
        raise ValueError(f"a tensor of shape {tuple(tensor.shape)} where {shape} or {shape[1:]} belongs")
    return tensor.contiguous(), shape[1] * shape[2] if tensor.dim() == 3 else 0
