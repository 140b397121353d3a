"""Sums of observations and of their squares, of many steps in one call."""

from __future__ import annotations

import numpy as np

KEPT_BYTES = 1 << 16  # of observations that are kept before they are added up, all steps at once


class ObservationSums:
    """A row for each episode under way; the sums are those of one addition after the other, to the last bit.

    Squares are rounded as observations are, unless these are `raw`: of one far from 0 such a square says less than its
    distance from the mean does, and one that never varies would seem to.
    """

    def __init__(self, obs_dim: int, *, raw: bool = False) -> None:
        self.raw = raw
        self.sums = np.zeros((2, 0, obs_dim))
        self.steps, self.kept = np.zeros((0, 0, obs_dim), dtype=np.float32), 0

    def next_step(self) -> np.ndarray:
        """Where the observations of one more step belong, a row for each episode; to be filled at once."""
        if self.kept == len(self.steps):
            self._add_up()
        self.kept += 1
        step: np.ndarray = self.steps[self.kept - 1]
        return step

    def append(self, count: int) -> None:
        """So many more rows, of which nothing was seen yet."""
        self._add_up()
        self.sums = np.concatenate([self.sums, np.zeros((2, count, self.sums.shape[2]))], axis=1)
        self._make_room()

    def pop(self, rows: np.ndarray) -> np.ndarray:
        """The sums [2, n, obs_dim] of the rows named, which are taken out."""
        self._add_up()
        taken, self.sums = self.sums[:, rows], self.sums[:, ~rows]
        self._make_room()
        return taken

    def _make_room(self) -> None:
        count, obs_dim = self.sums.shape[1:]
        self.steps = np.empty((max(1, KEPT_BYTES // max(1, 4 * count * obs_dim)), count, obs_dim), dtype=np.float32)

    def _add_up(self) -> None:
        if not self.kept:
            return
        seen = self.steps[: self.kept]
        squares = np.square(seen, dtype=np.float64) if self.raw else seen * seen
        for power, addends in enumerate((seen, squares)):
            sums = np.concatenate([self.sums[power, None], addends], dtype=np.float64)
            # reduce adds whole steps, one after the other, but single numbers in an order of its own; accumulate, which takes
            # twenty times as long, adds in order whatever the shape: a row's sum must not depend on the others
            self.sums[power] = np.add.reduce(sums) if sums[0].size > 1 else np.add.accumulate(sums)[-1]
        self.kept = 0
