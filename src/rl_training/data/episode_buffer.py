"""Where transitions wait for the end of their episode, so that each knows what it came to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rl_training.data.hindsight import returns_to_go
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.types import State


class EpisodeBuffer(ReplayBuffer):
    """A ring that takes in episodes when they are over, each row with the return that followed it as `returns`.

    Rows are added for all environments together. Those of an episode that goes on are part of the state and not yet drawn.
    """

    def __init__(self, capacity: int, *, num_envs: int, gamma: float, **settings: Any) -> None:
        super().__init__(capacity, **settings)
        self.gamma = gamma
        self._waiting: list[list[dict[str, np.ndarray]]] = [[] for _ in range(num_envs)]

    def add(self, transitions: Mapping[str, np.ndarray]) -> None:
        """Take in one step of every environment, each column (environments, ...)."""
        for env, rows in enumerate(self._waiting):
            rows.append({name: np.array(column[env]) for name, column in transitions.items()})
            if transitions["cuts"][env]:
                self.end_episode(env)

    def end_episode(self, env: int) -> None:
        """What waits of an environment's episode comes into the ring, also where it was left before its end."""
        rows, self._waiting[env] = self._waiting[env], []
        if rows:
            columns = _stacked(rows)
            super().add({**columns, "returns": returns_to_go(columns, self.gamma)})

    def state_dict(self) -> State:
        return super().state_dict() | {"waiting": [_stacked(rows) for rows in self._waiting]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._waiting = [_rows(columns) for columns in state["waiting"]]


def _stacked(rows: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]} if rows else {}


def _rows(columns: Mapping[str, Any]) -> list[dict[str, np.ndarray]]:
    arrays = {name: np.asarray(column) for name, column in columns.items()}
    count = len(next(iter(arrays.values()), ()))
    return [{name: np.array(column[row]) for name, column in arrays.items()} for row in range(count)]
