"""A deterministic actor and its critics in C (`native/actors.h`): from observations to values, and back, in a call each."""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training import native
from rl_training.models.native_net import NativeNet, passes_threads


class NativeActorCritic:
    """An actor whose outputs are squashed by tanh, and the critics of (obs, action) that judge it."""

    def __init__(self, actor: NativeNet, critics: NativeNet) -> None:
        passes = native.library()
        assert passes is not None
        self._passes, self.actor, self.critics = passes, actor, critics
        self._sizes: dict[tuple[int, int], int] = {}

    def serves(self, obs: Tensor) -> bool:
        """Whether these observations can be read here: rows of them, however far apart."""
        right = obs.is_cpu and obs.dtype == torch.float32 and obs.dim() == 2 and obs.shape[1] == self.actor.layout.sizes[0]
        return right and obs.shape[0] > 0 and obs.stride(1) == 1

    def judge(self, obs: Tensor, noise: Tensor | None, *, std: float, clip: float) -> Tensor:
        """All critics' values (critics, rows) of the actor's actions or, with noise (rows, action_dim), of those `blurred`."""
        rows, threads = len(obs), passes_threads()
        if noise is not None and noise.shape != (rows, self.actor.layout.sizes[-1]):
            raise ValueError(
                f"noise of shape {tuple(noise.shape)} for {rows} actions of {self.actor.layout.sizes[-1]} dimensions"
            )
        values, memory = torch.empty(self.critics.members, rows), self._memory(rows, threads)
        blur = None if noise is None else noise.to(torch.float32).contiguous()
        self._passes.judge(
            self.actor.address, self.critics.address, obs.data_ptr(), obs.stride(0), None if blur is None else blur.data_ptr(),
            std, clip, rows, values.data_ptr(), memory.data_ptr(), threads,
        )  # fmt: skip
        return values

    def climb(self, obs: Tensor, share: float) -> Tensor:
        """The first critic's values (1, rows) of the actor's actions; fills the gradient at the actor's parameters of what has
        the gradient `share` at each of them."""
        rows, threads = len(obs), passes_threads()
        values, memory = torch.empty(1, rows), self._memory(rows, threads)
        self._passes.climb(
            self.actor.address, self.critics.address, obs.data_ptr(), obs.stride(0), share, rows, values.data_ptr(),
            memory.data_ptr(), threads,
        )  # fmt: skip
        return values

    def _memory(self, rows: int, threads: int) -> Tensor:
        if (size := self._sizes.get((rows, threads))) is None:
            size = self._passes.desk_size(self.actor.address, self.critics.address, rows, threads)
            self._sizes[rows, threads] = size
        return torch.empty(size)
