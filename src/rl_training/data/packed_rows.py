"""Transitions packed into one matrix: what the replay ring and the offline dataset have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.types import Batch, State

COLUMNS = ("obs", "actions", "rewards", "next_obs", "dones", "cuts")
NUMBERS = ("rewards", "dones", "cuts")  # those of one number a row
FLOAT_BYTES = 4


class PackedRows(ABC):
    """Rows with the columns of `COLUMNS` and those of `more`, drawn with replacement from a stream of their own.

    All columns lie side by side in one float32 matrix, so that a batch is a single gather. Pages of it that were
    never written take no memory. Where observations are rows of bytes the matrix is, and holds the other numbers by theirs.
    `more` has the width of each further matrix, or 0 for a number in each row; rows that say nothing of them have 0 there.
    """

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
        self.in_bytes, self.more = in_bytes, dict(more or {})
        further = {name: width for name, width in self.more.items() if width}
        numbers = (*NUMBERS, *(name for name, width in self.more.items() if not width))
        self._names = ("obs", "actions", "next_obs", *further, *numbers)
        self._floats = [action_dim, *further.values(), len(numbers)]  # what beside observations there is
        if in_bytes:  # numbers first, and every row begins where a number may
            floats = sum(self._floats) * FLOAT_BYTES
            self._widths = [floats, obs_dim, obs_dim, -(floats + 2 * obs_dim) % FLOAT_BYTES]
        else:
            self._widths = [obs_dim, action_dim, obs_dim, *self._floats[1:]]
        self._rows = torch.zeros(capacity, sum(self._widths), dtype=torch.uint8 if in_bytes else torch.float32)
        self._find_columns()
        self.rng = np.random.default_rng(seed)

    def _find_columns(self) -> None:
        self._view = self._rows.numpy()  # the same memory
        self._columns = {name: column.numpy() for name, column in self.columns(self._rows).items()}  # and cheaper to write to

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int:
        return self._view.nbytes

    @property
    def transitions(self) -> Batch:
        """All rows as columns, without a copy; not to be written to."""
        return self.columns(self._rows[: len(self)])

    def sample(self, batch_size: int) -> Batch:
        """`batch_size` rows with replacement, as columns that are views of one fresh matrix."""
        return self.columns(self.draw(batch_size))

    def draw(self, batch_size: int) -> Tensor:
        """The rows of the next batch: uniform over all that are there."""
        return self.gather(self.rng.integers(len(self), size=batch_size))

    def gather(self, numbers: np.ndarray) -> Tensor:
        """The rows with these numbers, in one fresh matrix."""
        return torch.from_numpy(self._view.take(numbers, axis=0))  # a microsecond less than torch takes

    def columns(self, rows: Tensor) -> Batch:
        """A matrix of rows, cut into named columns."""
        if self.in_bytes:
            floats, obs, next_obs, _ = rows.split_with_sizes(self._widths, dim=1)
            actions, *further, numbers = floats.view(torch.float32).split_with_sizes(self._floats, dim=1)
        else:  # in two calls, as every update begins with this
            obs, actions, next_obs, *further, numbers = rows.split_with_sizes(self._widths, dim=1)
        return dict(zip(self._names, (obs, actions, next_obs, *further, *numbers.unbind(1)), strict=True))

    def state_dict(self) -> State:
        return {"rng": self.rng.bit_generator.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.rng.bit_generator.state = state["rng"]

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_view": None, "_columns": None}  # a copy has memory of its own

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._find_columns()

    def _write(self, position: int, transitions: Mapping[str, np.ndarray], start: int, end: int) -> None:
        """Rows `start` to `end` of `transitions`, each column (n, ...), from row `position` of the matrix on."""
        for name, mine in self._columns.items():
            if name in self.more and name not in transitions:
                continue
            column, rows = np.asarray(transitions[name]), mine[position : position + end - start]
            rows[...] = column[start:end].reshape(rows.shape)
