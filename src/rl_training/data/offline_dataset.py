"""Experience that was there before training began."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from rl_training.data.mixed_source import checked_shares, interleave
from rl_training.data.packed_rows import PackedRows
from rl_training.errors import CheckpointError, DatasetError
from rl_training.forms import COUNT, Record, text
from rl_training.types import State


class OfflineDataset(PackedRows):
    """Fixed transitions, actions in the learner's range.

    A mix of several datasets is one matrix as well: `parts` then names the rows and the weight of each, and every
    batch has them in these shares. A checkpoint keeps the sampling stream and a fingerprint of the rows, not the
    rows: they come from the configuration, and a resume on others is refused.
    """

    def __init__(
        self, transitions: Mapping[str, np.ndarray], *, seed: int | tuple[int, ...], parts: Sequence[tuple[int, float]] = ()
    ) -> None:
        rows = len(transitions["rewards"])
        if rows == 0:
            raise DatasetError("the dataset is empty; there is nothing to learn from")
        obs, actions = (np.asarray(transitions[name]).reshape(rows, -1) for name in ("obs", "actions"))
        super().__init__(rows, obs_dim=obs.shape[1], action_dim=actions.shape[1], seed=seed)
        self._write(0, transitions, 0, rows)
        lengths = np.array([length for length, _ in parts] or [rows])
        if lengths.sum() != rows or lengths.min() < 1:
            raise ValueError(f"parts of {lengths.tolist()} rows do not make up {rows}")
        weights = [weight for _, weight in parts] or [1.0]
        self.shares = checked_shares([weight / sum(weights) for weight in weights])
        self._lengths, self._starts = lengths, np.cumsum(lengths) - lengths

    def __len__(self) -> int:
        return len(self._view)

    def draw(self, batch_size: int) -> Tensor:
        if len(self.shares) == 1:
            return super().draw(batch_size)
        owners = interleave(self.shares, batch_size)
        return self.gather(self._starts[owners] + self.rng.integers(self._lengths[owners]))

    @cached_property
    def fingerprint(self) -> str:
        """Tells these rows from any others."""
        return hashlib.blake2b(self._view.data, digest_size=16).hexdigest()

    def state_dict(self) -> State:
        return super().state_dict() | {"fingerprint": self.fingerprint, "num_rows": len(self)}

    def state_form(self, steps: int) -> Record:
        return super().state_form(steps).with_parts(fingerprint=text, num_rows=COUNT)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.state_form(0)(state, "the dataset")
        if state["fingerprint"] != self.fingerprint:
            then, now = _words(state["num_rows"], state["fingerprint"]), _words(len(self), self.fingerprint)
            raise CheckpointError(f"the run was begun on other data: {then} then, {now} now; give it the data it had")
        super().load_state_dict(state)


def _words(num_rows: int, fingerprint: str) -> str:
    return f"{num_rows:,} rows with fingerprint {fingerprint[:8]}"
