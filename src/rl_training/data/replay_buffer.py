"""Where transitions wait to be learnt from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rl_training.data.packed_rows import COLUMNS, PackedRows
from rl_training.forms import Array, Record, Whole
from rl_training.types import State

__all__ = ["COLUMNS", "ReplayBuffer"]


class ReplayBuffer(PackedRows):
    """A ring of transitions, sampled uniformly; the oldest give way."""

    def __init__(self, capacity: int, *, obs_dim: int, action_dim: int, seed: int | tuple[int, ...]) -> None:
        super().__init__(capacity, obs_dim=obs_dim, action_dim=action_dim, seed=seed)
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

    def state_form(self, steps: int) -> Record:
        """At most a row for each step: loops count rows to know how much there is to learn."""
        parts = super().state_form(steps).with_parts(rows=Array((None, self._rows.shape[1])), added=Whole(0, steps))
        return replace(parts, relation=self._count_fits)

    def _count_fits(self, state: Mapping[str, Any]) -> str | None:
        rows, added = len(state["rows"]), state["added"]
        fits = rows == min(added, self.capacity)
        return None if fits else f"there are {rows} rows, and {added} were added to room for {self.capacity}"

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        rows = state["rows"]
        self._rows[: len(rows)].copy_(rows)
        self.added = state["added"]
