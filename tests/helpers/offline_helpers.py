"""Small recordings to test with."""

from __future__ import annotations

import numpy as np

from rl_training.data.recorded_data import RecordedData
from rl_training.types import EnvSpec

PENDULUM = EnvSpec("Pendulum-v1", obs_dim=3, action_dim=1, low=(-2.0,), high=(2.0,))


def arrays(rows: int = 6, *, obs_dim: int = 3, episode: int = 3) -> dict[str, np.ndarray]:
    """Whole episodes of `episode` rows; row i is observed as i, i, ... and leads to i + 1."""
    numbers = np.arange(rows, dtype=np.float32)
    return {
        "observations": np.repeat(numbers[:, None], obs_dim, axis=1),
        "actions": (numbers[:, None] % 5) - 2,
        "rewards": -numbers,
        "next_observations": np.repeat(numbers[:, None] + 1, obs_dim, axis=1),
        "terminations": np.zeros(rows, dtype=bool),
        "truncations": (numbers + 1) % episode == 0,
    }


def recorded(rows: int = 6, **settings: int) -> RecordedData:
    return RecordedData.from_arrays(arrays(rows, **settings), "test data")
