"""An environment of one's own: keep a room at 20 degrees by heating, while the weather changes."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

TARGET = 20.0


class Thermostat(gym.Env[np.ndarray, np.ndarray]):
    """Observes room and outdoor temperature, scaled; acts with heating power from 0 to `max_power`.

    All that is random is drawn from `self.np_random`, which `reset(seed=...)` seeds: that is what exact resume needs.
    """

    def __init__(self, max_power: float = 1.0) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, shape=(2,), dtype=np.float32)
        self.action_space = spaces.Box(0.0, max_power, shape=(1,), dtype=np.float32)
        self.room = self.outdoor = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.room = float(self.np_random.uniform(10.0, 25.0))
        self.outdoor = float(self.np_random.uniform(-5.0, 15.0))
        return self._obs(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.outdoor += float(self.np_random.normal(0.0, 0.2))
        self.room += 0.1 * (self.outdoor - self.room) + 4.0 * float(action[0])
        reward = -abs(self.room - TARGET) / 10.0
        frozen = self.room < -20.0  # really over; a limit on steps is no end, and is set where the environment is registered
        return self._obs(), reward, frozen, False, {}

    def _obs(self) -> np.ndarray:
        return np.array([(self.room - TARGET) / 10.0, self.outdoor / 10.0], dtype=np.float32)


gym.register("Thermostat-v0", entry_point=Thermostat, max_episode_steps=50)
