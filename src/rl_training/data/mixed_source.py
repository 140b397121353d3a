"""Batches drawn from several places in fixed shares (RLPD: prior and fresh; MOPO: real and imagined)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from rl_training.data.packed_rows import PackedRows
from rl_training.types import Batch, Source, State


@lru_cache(maxsize=64)
def interleave(shares: tuple[float, ...], batch_size: int) -> np.ndarray:
    """To which share each row of a batch belongs: evenly spread, so that every stretch of rows keeps the shares."""
    taken = [0] * len(shares)
    owners = np.empty(batch_size, dtype=np.int64)
    for row in range(batch_size):
        behind = [share * (row + 1) - count for share, count in zip(shares, taken, strict=True)]
        owners[row] = owner = behind.index(max(behind))
        taken[owner] += 1
    owners.flags.writeable = False  # it is shared by all who ask for the same
    return owners


def checked_shares(shares: Sequence[float]) -> tuple[float, ...]:
    """Shares that add up to one, or ValueError."""
    if not shares or min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
        raise ValueError(f"shares are at least 0 and add up to 1; given {list(shares)}")
    return tuple(shares)


class PooledSource:
    """Recorded and fresh rows as if they lay in one buffer: each is drawn as often as any other."""

    def __init__(self, recorded: PackedRows, fresh: PackedRows) -> None:
        self.recorded, self.fresh = recorded, fresh

    def __len__(self) -> int:
        return len(self.recorded) + len(self.fresh)

    def counts(self, batch_size: int) -> list[int]:
        """Rows of a batch that come from each on average."""
        recorded = round(batch_size * len(self.recorded) / len(self))
        return [recorded, batch_size - recorded]

    def sample(self, batch_size: int) -> Batch:
        # how many of them are recorded is drawn too: rounded, the first fresh rows among a million would never come up
        recorded = int(self.recorded.rng.binomial(batch_size, len(self.recorded) / len(self)))
        parts = [(self.recorded, recorded), (self.fresh, batch_size - recorded)]
        drawn = [source.sample(rows) for source, rows in parts if rows]
        return {name: torch.cat([batch[name] for batch in drawn]) for name in drawn[-1]}

    def state_dict(self) -> State:
        return {"parts": [self.recorded.state_dict(), self.fresh.state_dict()]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for source, part in zip((self.recorded, self.fresh), state["parts"], strict=True):
            source.load_state_dict(part)


class MixedSource:
    """Several sources as one. Rows are interleaved: cut into equal slices, each slice has every source's share."""

    def __init__(self, parts: Sequence[tuple[Source, float]]) -> None:
        self.sources = [source for source, _ in parts]
        self.shares = checked_shares([share for _, share in parts])
        self._orders: dict[int, torch.Tensor] = {}

    def __len__(self) -> int:
        return sum(len(source) for source in self.sources)

    def counts(self, batch_size: int) -> list[int]:
        """Rows of a batch that come from each source."""
        counts = np.bincount(interleave(self.shares, batch_size), minlength=len(self.shares))
        return [int(count) for count in counts]

    def sample(self, batch_size: int) -> Batch:
        drawn = [source.sample(n) for source, n in zip(self.sources, self.counts(batch_size), strict=True) if n]
        if len(drawn) == 1:
            return drawn[0]
        order = self._order(batch_size)
        return {name: torch.cat([batch[name] for batch in drawn]).index_select(0, order) for name in drawn[0]}

    def _order(self, batch_size: int) -> torch.Tensor:
        """Where each row of the batch stands when the sources' rows are laid one after another."""
        if batch_size not in self._orders:
            grouped = np.argsort(interleave(self.shares, batch_size), kind="stable")
            self._orders[batch_size] = torch.from_numpy(np.argsort(grouped, kind="stable"))
        return self._orders[batch_size]

    def state_dict(self) -> State:
        return {"parts": [source.state_dict() for source in self.sources]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for source, part in zip(self.sources, state["parts"], strict=True):
            source.load_state_dict(part)
