"""The networks of DDPG: a deterministic actor and one critic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rl_training.models.deterministic import DeterministicActorCritic


class MLPDDPGModel(DeterministicActorCritic):
    """One critic; its values still have a row of their own, shape (1, batch)."""

    def __init__(self, obs_dim: int, action_dim: int, hidden_sizes: Sequence[int] = (256, 256), **settings: Any) -> None:
        super().__init__(obs_dim, action_dim, hidden_sizes, num_critics=1, **settings)
