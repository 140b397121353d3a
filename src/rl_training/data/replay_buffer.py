"""Where transitions wait to be learnt from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rl_training.data.packed_rows import COLUMNS, PackedRows
from rl_training.types import State, StoredState

__all__ = ["COLUMNS", "ReplayBuffer"]


class ReplayBuffer(PackedRows):
    """A ring of transitions, sampled uniformly; the oldest give way."""

    def __init__(
        self,
        capacity: int,
        *,
        obs_dim: int,
        action_dim: int,
        seed: int | tuple[int, ...],
        in_bytes: bool = False,
        more: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(capacity, obs_dim=obs_dim, action_dim=action_dim, seed=seed, in_bytes=in_bytes, more=more)
        self.capacity = capacity
        self.added = 0

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def add(self, transitions: Mapping[str, np.ndarray]) -> None:
        """Take in transitions, each column (n, ...)."""
        n = len(transitions["rewards"])
        skip = max(0, n - self.capacity)  # of more rows than fit, the last ones stay
        position = (self.added + skip) % self.capacity
        turn = min(n, skip + self.capacity - position)  # here the ring begins anew
        self._write(position, transitions, skip, turn)
        if turn < n:
            self._write(0, transitions, turn, n)
        self.added += n

    def state_dict(self) -> State:
        # a view: saving must not need the buffer's memory a second time
        return super().state_dict() | {"rows": self._rows[: len(self)], "added": self.added}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if isinstance(state, StoredState):  # a run that just fits into memory has no room for a second copy
            state.read_into("rows", self._rows[: state.shape("rows")[0]])
        else:
            rows = state["rows"]
            self._rows[: len(rows)].copy_(rows)
        self.added = state["added"]
