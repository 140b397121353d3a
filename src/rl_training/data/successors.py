"""What an action led to, where a recording does not say it outright."""

from __future__ import annotations

import numpy as np


def stand_ins(obs: np.ndarray, next_obs: np.ndarray, terminations: np.ndarray) -> np.ndarray:
    """True (rows,) where an episode ends and what followed was not recorded: in its place stands the row's own observation, or
    the next episode's first.

    A value needs none there, as nothing follows an end. A model would learn that the state stands still, or jumps.
    """
    own = (next_obs == obs).all(axis=1)
    of_the_next_row = (next_obs == np.roll(obs, -1, axis=0)).all(axis=1)
    stands: np.ndarray = terminations.astype(bool) & (own | of_the_next_row)
    return stands


def limits_reached(terminations: np.ndarray, limit: int) -> np.ndarray:
    """True (rows,) where an episode, begun after the last end, has had `limit` steps and does not end by itself."""
    rows = np.arange(len(terminations))
    begins = np.append(0, np.flatnonzero(terminations) + 1)
    since = rows - begins[np.searchsorted(begins, rows, side="right") - 1]
    reached: np.ndarray = (since % limit == limit - 1) & ~terminations
    return reached
