"""Named arrays of transitions, whoever named them: looked up, and refused with the spot that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import numpy as np

from rl_training.errors import DatasetError, nearest

# the package's own short names, Gymnasium's and Minari's, D4RL's
NAMES = {
    "obs": ("obs", "observations"),
    "actions": ("actions",),
    "rewards": ("rewards",),
    "next_obs": ("next_obs", "next_observations"),
    "terminations": ("terminations", "terminated", "terminals", "dones"),
    "truncations": ("truncations", "truncated", "timeouts"),
    "cuts": ("cuts",),  # ended for any reason
    "episode_id": ("episode_id", "episode_ids"),
}
REQUIRED = ("obs", "actions", "rewards", "terminations")
ROLES = {name for names in NAMES.values() for name in names}


def require_same_rows(origin: str, lengths: Mapping[str, int]) -> None:
    """DatasetError where an array, by its name, is not as long as the rewards; where these are missing, nothing is said."""
    rewards = next((name for name in NAMES["rewards"] if name in lengths), None)
    for name, length in lengths.items():
        if rewards is not None and length != lengths[rewards]:
            raise DatasetError(
                f"{origin}: {name} has {length} rows, {rewards} has {lengths[rewards]}; every array has one per transition"
            )


class Arrays:
    """Arrays by the part they play, each asked for in the form it must have."""

    def __init__(self, arrays: Mapping[str, np.ndarray], origin: str) -> None:
        self.origin = origin
        self.names = {role: name for role in NAMES if (name := self._find(role, arrays)) is not None}
        self.arrays = {role: np.asarray(arrays[name]) for role, name in self.names.items()}
        self.rows = self._length()

    def has(self, role: str) -> bool:
        return role in self.names

    def matrix(self, role: str) -> np.ndarray:
        """(rows, numbers) of finite float32."""
        array = self._numbers(role)
        if array.ndim == 1:
            array = array[:, None]
        if array.ndim != 2 or array.shape[1] == 0:
            self.refuse(role, f"has shape {array.shape}; possible: (rows, numbers), flattened if it was an image")
        return self._finite(role, array)

    def vector(self, role: str) -> np.ndarray:
        """(rows,) of finite float32."""
        array = self._numbers(role)
        if array.shape not in ((self.rows,), (self.rows, 1)):
            self.refuse(role, f"has shape {array.shape}; possible: ({self.rows},)")
        return self._finite(role, array.reshape(-1))

    def actions(self) -> np.ndarray:
        """Indices (rows,) int64 where they are whole numbers, one each; else a matrix."""
        array = self._numbers("actions")
        if array.dtype.kind in "iu" and array.shape in ((self.rows,), (self.rows, 1)):
            return array.reshape(-1).astype(np.int64)
        return self.matrix("actions")

    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Terminations and truncations (rows,) bool. A change of episode that neither explains is a truncation."""
        terminations = self._flags("terminations")
        truncations = self._flags("truncations") if self.has("truncations") else np.zeros(self.rows, dtype=bool)
        if self.has("cuts"):
            truncations |= self._flags("cuts") & ~terminations
        if self.has("episode_id"):
            episode = self.arrays["episode_id"].reshape(self.rows, -1)[:, 0]
            truncations |= np.append(episode[1:] != episode[:-1], True) & ~terminations
        return terminations, truncations

    def refuse(self, role: str, problem: str) -> NoReturn:
        raise DatasetError(f"{self.origin}: {self.names[role]} {problem}")

    def _find(self, role: str, arrays: Mapping[str, np.ndarray]) -> str | None:
        found = [name for name in NAMES[role] if name in arrays]
        if len(found) > 1:
            raise DatasetError(f"{self.origin}: {' and '.join(found)} mean the same; leave one of them")
        if not found and role in REQUIRED:
            guess = next((match for name in NAMES[role] if (match := nearest(name, arrays))), None)
            there = f"did you mean {guess!r}?" if guess else f"there are: {', '.join(sorted(arrays)) or 'none'}"
            raise DatasetError(f"{self.origin}: no array named {' or '.join(NAMES[role])}; {there}")
        return found[0] if found else None

    def _length(self) -> int:
        for role, array in self.arrays.items():
            if array.ndim == 0:
                self.refuse(role, "is a single value, not one per transition")
        lengths = {self.names[role]: len(array) for role, array in self.arrays.items()}
        require_same_rows(self.origin, lengths)
        rows = lengths[self.names["rewards"]]
        if rows == 0:
            raise DatasetError(f"{self.origin}: the dataset is empty; there is nothing to learn from")
        return rows

    def _numbers(self, role: str) -> np.ndarray:
        array = self.arrays[role]
        if array.dtype.kind not in "fiu":
            self.refuse(role, f"has dtype {array.dtype}; possible: floats or integers")
        return array

    def _finite(self, role: str, array: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):  # what does not fit into float32 is infinite then
            converted = np.ascontiguousarray(array, dtype=np.float32)
        finite = np.isfinite(converted)
        if not finite.all():
            bad = np.argwhere(~finite)
            where = f"row {bad[0][0]}" + (f", column {bad[0][1]}" if array.ndim == 2 else "")
            more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
            self.refuse(role, f"has {array[tuple(bad[0])]} in {where}{more}; every number must be finite in float32")
        return converted

    def _flags(self, role: str) -> np.ndarray:
        array = self.arrays[role]
        if array.dtype.kind not in "bfiu" or array.shape not in ((self.rows,), (self.rows, 1)):
            self.refuse(role, f"has shape {array.shape} and dtype {array.dtype}; possible: ({self.rows},) of true or false")
        flat = array.reshape(-1)
        wrong = np.flatnonzero((flat != 0) & (flat != 1))
        if len(wrong):
            self.refuse(role, f"has {flat[wrong[0]]} in row {wrong[0]}; possible: true or false, or 1 or 0")
        return flat.astype(bool)
