"""What an environment, or a policy in it, can do that none should; and the numbers that none should give."""

from __future__ import annotations

from typing import Any

import numpy as np

from rl_training.errors import EnvError, EnvNumericsError, NumericsError
from rl_training.rows import RowLayout

LARGEST_REWARD = np.float64(np.finfo(np.float32).max)


class EnvFault(EnvError):  # noqa: N818 (an error of one environment, told apart from the family)
    """One environment did something no environment should; `index` says which, `what` says what."""

    def __init__(self, env_id: str, index: int, what: str, *, where: str = "") -> None:
        super().__init__(f"{env_id}, environment {index}{where and ', '}{where}: {what}")
        self.index, self.what = index, what


class NumberFault(EnvFault, EnvNumericsError):  # noqa: N818 (as above)
    """One environment returned a number that is not finite."""


class ActionFault(NumericsError):  # noqa: N818 (as above)
    """The policy chose an action that is not finite; `index` is the environment it was meant for."""

    def __init__(self, message: str, *, index: int) -> None:
        super().__init__(message)
        self.index = index


def not_finite(obs: np.ndarray, layout: RowLayout, rewards: np.ndarray | None = None) -> tuple[int, str] | None:
    """The first row with a number that is not finite, or is not once a learner has it in float32, and a clause that names the
    number; None if there is none."""
    floats = layout.floats(obs) if layout.num_bytes else obs
    if all_finite(floats) and (rewards is None or 0 not in learnable(rewards).tobytes()):
        return None
    for row, observed in enumerate(floats):
        bad = np.flatnonzero(~np.isfinite(observed))
        if len(bad):
            more = f" and in {len(bad) - 1} more" if len(bad) > 1 else ""
            return row, f"returned an observation with {observed[bad[0]]} in {layout.place(int(bad[0]))}{more}"
        if rewards is not None and not learnable(rewards[row]):
            too_large = ", which float32 cannot hold" if np.isfinite(rewards[row]) else ""
            return row, f"returned the reward {rewards[row]}{too_large}"
    return None


def learnable(rewards: np.ndarray) -> np.ndarray:
    """Which of them are finite in float32 too."""
    found: np.ndarray = np.less_equal(np.abs(rewards), LARGEST_REWARD)
    return found


def all_finite(values: np.ndarray) -> bool:
    """Whether there is neither NaN nor infinity in `values`."""
    return 0 not in np.isfinite(values).tobytes()  # a third of the time of .all(), and this runs at every step


def shown_action(action: Any) -> str:
    return np.array2string(np.asarray(action), threshold=8)
