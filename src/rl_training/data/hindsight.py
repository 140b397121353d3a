"""What a step is told by those that came after it in its episode: further columns of recorded transitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np


def hindsight(columns: Mapping[str, np.ndarray], names: Sequence[str]) -> dict[str, np.ndarray]:
    """The columns that go by these names, of rows that follow one another. What the end of the recording cuts is cut."""
    made: dict[str, np.ndarray] = {}
    for name in names:
        made |= MAKERS[name](columns)
    return made


def next_actions(columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The action of the next row, and whether there is one: nothing is known of what would have followed a cut."""
    actions = np.asarray(columns["actions"])
    known = 1.0 - np.asarray(columns["cuts"], dtype=np.float32)
    known[-1] = 0.0
    return {"next_actions": np.roll(actions, -1, axis=0), "next_known": known}


MAKERS = {"next_actions": next_actions}
