"""Where transitions wait to be learnt from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.types import Batch, State

COLUMNS = ("obs", "actions", "rewards", "next_obs", "dones", "cuts")


class ReplayBuffer:
    """A ring of transitions with the columns of `COLUMNS`, sampled uniformly from a stream of its own.

    All columns lie side by side in one preallocated float32 matrix, so that a batch is a single gather. Pages of
    it that were never written take no memory.
    """

    def __init__(self, capacity: int, *, obs_dim: int, action_dim: int, seed: int | tuple[int, ...]) -> None:
        self.capacity = capacity
        widths = {"obs": obs_dim, "actions": action_dim, "next_obs": obs_dim, "rewards": 1, "dones": 1, "cuts": 1}
        self._slices: dict[str, slice] = {}
        start = 0
        for name, width in widths.items():
            self._slices[name] = slice(start, start + width)
            start += width
        self._rows = torch.zeros(capacity, start)
        self._view = self._rows.numpy()  # the same memory, cheaper to write small pieces into
        self.added = 0
        self.rng = np.random.default_rng(seed)

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    @property
    def nbytes(self) -> int:
        return self._view.nbytes

    def add(self, transitions: Mapping[str, np.ndarray]) -> None:
        """Take in transitions, each column (n, ...); the oldest give way."""
        n = len(transitions["rewards"])
        skip = max(0, n - self.capacity)  # of more rows than fit, the last ones stay
        position = (self.added + skip) % self.capacity
        first = min(n - skip, self.capacity - position)
        for name in COLUMNS:
            column = np.asarray(transitions[name]).reshape(n, -1)
            self._view[position : position + first, self._slices[name]] = column[skip : skip + first]
            if skip + first < n:
                self._view[: n - skip - first, self._slices[name]] = column[skip + first :]
        self.added += n

    def sample(self, batch_size: int) -> Batch:
        """`batch_size` rows with replacement, as columns that are views of one fresh matrix."""
        return self.columns(self._rows.index_select(0, torch.from_numpy(self.rng.integers(len(self), size=batch_size))))

    def columns(self, rows: Tensor) -> Batch:
        """A matrix of rows, cut into named columns."""
        batch = {name: rows[:, where] for name, where in self._slices.items()}
        for name in ("rewards", "dones", "cuts"):
            batch[name] = batch[name].squeeze(-1)
        return batch

    def state_dict(self) -> State:
        # a view: saving must not need the buffer's memory a second time
        return {"rows": self._rows[: len(self)], "added": self.added, "rng": self.rng.bit_generator.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        rows = state["rows"]
        self._rows[: len(rows)].copy_(rows)
        self.added = state["added"]
        self.rng.bit_generator.state = state["rng"]
