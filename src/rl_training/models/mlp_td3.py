"""The networks of TD3: a deterministic actor and two critics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rl_training.models.deterministic import DeterministicActorCritic


class MLPTD3Model(DeterministicActorCritic):
    """Two critics, so that `q1, q2 = model.q_values(obs, actions)`; the actor climbs the first."""

    def __init__(self, obs_dim: int, action_dim: int, hidden_sizes: Sequence[int] = (256, 256), **settings: Any) -> None:
        super().__init__(obs_dim, action_dim, hidden_sizes, num_critics=2, **settings)
