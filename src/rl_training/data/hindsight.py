"""What a step is told by those that came after it in its episode: further columns of transitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np


def hindsight(columns: Mapping[str, np.ndarray], names: Sequence[str], *, gamma: float) -> dict[str, np.ndarray]:
    """The columns that go by these names, of rows that follow one another. What the end of the rows cuts is cut."""
    made: dict[str, np.ndarray] = {}
    if "next_actions" in names:
        made |= next_actions(columns)
    if "returns" in names:
        made["returns"] = returns_to_go(columns, gamma)
    return made


def next_actions(columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The action of the next row, and whether there is one: nothing is known of what would have followed a cut."""
    actions = np.asarray(columns["actions"])
    known = 1.0 - np.asarray(columns["cuts"], dtype=np.float32)
    known[-1] = 0.0
    return {"next_actions": np.roll(actions, -1, axis=0), "next_known": known}


def returns_to_go(columns: Mapping[str, np.ndarray], gamma: float) -> np.ndarray:
    """The discounted sum of rewards from each row to the end of its episode.

    A cut ends the recording, not the return: the last reward is taken to go on for ever, which is exact for whoever fails at
    the same price a step. Without a discount there is no such sum, and what was seen is all.
    """
    rewards, dones, cuts = (np.asarray(columns[name], dtype=np.float64).tolist() for name in ("rewards", "dones", "cuts"))
    returns = np.empty(len(rewards), dtype=np.float32)
    following = 0.0
    for row in reversed(range(len(rewards))):
        if dones[row]:
            following = 0.0
        elif cuts[row] or row == len(rewards) - 1:
            following = rewards[row] / (1.0 - gamma) if gamma < 1.0 else 0.0
        following = rewards[row] + gamma * following
        returns[row] = following
    return returns
