"""The same judge for both: 50 episodes of the last policy from starts that no training sees, and what training took."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym

EPISODES = 50
FIRST_SEED = 900_000


class Stopwatch:
    """Seconds on the wall and of this process's processor time."""

    def __init__(self) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def stop(self) -> dict[str, float]:
        return {
            "seconds": round(time.perf_counter() - self.wall, 2),
            "cpu_seconds": round(time.process_time() - self.cpu, 2),
        }


def mean_return(predict: Callable[[Any], Any], env_id: str) -> float:
    env, total = gym.make(env_id), 0.0
    for episode in range(EPISODES):
        obs, _ = env.reset(seed=FIRST_SEED + episode)
        over = False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(predict(obs))
            total, over = total + float(reward), terminated or truncated
    env.close()
    return total / EPISODES


def say(version: str, took: dict[str, float], value: float) -> None:
    """One line for run.py."""
    print(json.dumps({"version": version, **took, "return": round(value, 2)}))
