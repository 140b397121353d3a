"""Transitions packed into one matrix: what the replay ring and the offline dataset have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.forms import GENERATOR, Record
from rl_training.types import Batch, State

COLUMNS = ("obs", "actions", "rewards", "next_obs", "dones", "cuts")


class PackedRows(ABC):
    """Rows with the columns of `COLUMNS`, drawn with replacement from a stream of their own.

    All columns lie side by side in one float32 matrix, so that a batch is a single gather. Pages of it that were
    never written take no memory.
    """

    def __init__(self, capacity: int, *, obs_dim: int, action_dim: int, seed: int | tuple[int, ...]) -> None:
        widths = {"obs": obs_dim, "actions": action_dim, "next_obs": obs_dim, "rewards": 1, "dones": 1, "cuts": 1}
        self._slices: dict[str, slice] = {}
        start = 0
        for name, width in widths.items():
            self._slices[name] = slice(start, start + width)
            start += width
        self._widths = [obs_dim, action_dim, obs_dim, 3]  # of the columns that are matrices, and the number of the others
        self._rows = torch.zeros(capacity, start, dtype=torch.float32)
        self._view = self._rows.numpy()  # the same memory, cheaper to write small pieces into
        self.rng = np.random.default_rng(seed)

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
        return self._rows.index_select(0, torch.from_numpy(numbers))

    def columns(self, rows: Tensor) -> Batch:
        """A matrix of rows, cut into named columns."""
        *matrices, numbers = rows.split_with_sizes(self._widths, dim=1)  # in two calls, as every update begins with this
        return dict(zip(self._slices, (*matrices, *numbers.unbind(1)), strict=True))

    def state_dict(self) -> State:
        return {"rng": self.rng.bit_generator.state}

    def state_form(self, steps: int) -> Record:  # noqa: ARG002 (they are rows of other things)
        """What its state must look like after so many steps of a run."""
        return Record({"rng": GENERATOR})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.rng.bit_generator.state = state["rng"]

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_view": None}  # a copy has memory of its own

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._view = self._rows.numpy()

    def _write(self, position: int, transitions: Mapping[str, np.ndarray], start: int, end: int) -> None:
        """Rows `start` to `end` of `transitions`, each column (n, ...), from row `position` of the matrix on."""
        for name in COLUMNS:
            column = np.asarray(transitions[name])
            piece = column.reshape(len(column), -1)[start:end]
            self._view[position : position + end - start, self._slices[name]] = piece
