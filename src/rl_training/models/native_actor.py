"""A deterministic actor and its critics in C (`native/actors.h`): targets, and the actor's way up, in a call each."""

from __future__ import annotations

from torch import Tensor

from rl_training import native
from rl_training.models.native_net import NativeNet, floats, is_column, passes_threads


class NativeActorCritic:
    """An actor whose outputs are squashed by tanh, and the critics of (obs, action) that judge it."""

    def __init__(self, actor: NativeNet, critics: NativeNet) -> None:
        passes = native.library()
        assert passes is not None
        assert critics.layout.sizes[0] == actor.layout.sizes[0] + actor.layout.sizes[-1]
        assert critics.layout.sizes[-1] == 1
        self._passes, self.actor, self.critics = passes, actor, critics
        self._sizes: dict[tuple[int, int], int] = {}

    def serves(self, obs: Tensor, *numbers: Tensor) -> bool:
        """Whether these observations can be read here, with such columns of one number beside them."""
        if not (is_column(obs) and obs.shape[1] == self.actor.layout.sizes[0]):
            return False
        return all(is_column(column, dim=1) and len(column) == len(obs) for column in numbers)

    def targets(
        self, obs: Tensor, rewards: Tensor, dones: Tensor, noise: Tensor | None, *, gamma: float, std: float, clip: float
    ) -> Tensor:
        """r + γ (1 − done) min Q of the actor's actions or, with noise (rows, action_dim), of those `blurred`."""
        rows, threads = len(obs), passes_threads()
        if noise is not None and noise.shape != (rows, self.actor.layout.sizes[-1]):
            raise ValueError(
                f"noise of shape {tuple(noise.shape)} for {rows} actions of {self.actor.layout.sizes[-1]} dimensions"
            )
        found, memory = floats(rows), self._memory(rows, threads)
        self._passes.foresee(
            self.actor.address, self.critics.address, obs.data_ptr(), obs.stride(0), rewards.data_ptr(), rewards.stride(0),
            dones.data_ptr(), dones.stride(0), None if noise is None else noise.data_ptr(), std, clip, gamma, rows,
            found.data_ptr(), memory.data_ptr(), threads,
        )  # fmt: skip
        return found

    def climb(self, obs: Tensor, share: float) -> Tensor:
        """The first critic's values (1, rows) of the actor's actions; fills the gradient at the actor's parameters of what has
        the gradient `share` at each of them."""
        rows, threads = len(obs), passes_threads()
        values, memory = floats(1, rows), self._memory(rows, threads)
        self._passes.climb(
            self.actor.address, self.critics.address, obs.data_ptr(), obs.stride(0), share, rows, values.data_ptr(),
            memory.data_ptr(), threads,
        )  # fmt: skip
        return values

    def _memory(self, rows: int, threads: int) -> Tensor:
        if (size := self._sizes.get((rows, threads))) is None:
            size = self._passes.desk_size(self.actor.address, self.critics.address, rows, threads)
            self._sizes[rows, threads] = size
        return floats(size)
