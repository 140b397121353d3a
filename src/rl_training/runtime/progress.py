"""How far a run has come."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from rl_training.forms import COUNT, NUMBER, Each, Record
from rl_training.types import Collected, State

RECENT_EPISODES = 100


def _episodes_fit(parts: Mapping[str, Any]) -> str | None:
    returns, lengths = len(parts["recent_returns"]), parts["recent_lengths"]
    if not returns == len(lengths) <= parts["episodes"]:
        return f"there are {returns} recent returns and {len(lengths)} lengths of {parts['episodes']} episodes"
    longest = max(lengths, default=0)
    return f"an episode of {longest} steps is more than all of them" if longest > parts["global_step"] else None


PROGRESS = Record(
    {
        **dict.fromkeys(("global_step", "updates", "episodes"), COUNT),
        "recent_returns": Each(NUMBER, RECENT_EPISODES),
        "recent_lengths": Each(COUNT, RECENT_EPISODES),
    },
    relation=_episodes_fit,
)
"""The form of its state."""


@dataclass
class Progress:
    """How far training has come. Nothing here depends on the clock."""

    global_step: int = 0
    updates: int = 0
    episodes: int = 0
    recent_returns: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT_EPISODES))
    recent_lengths: deque[int] = field(default_factory=lambda: deque(maxlen=RECENT_EPISODES))

    def take(self, collected: Collected) -> None:
        self.global_step += collected.timesteps
        self.episodes += len(collected.episode_returns)
        self.recent_returns.extend(collected.episode_returns)
        self.recent_lengths.extend(collected.episode_lengths)

    def metrics(self) -> dict[str, Any]:
        values: dict[str, Any] = {"global_step": self.global_step, "updates": self.updates, "episodes": self.episodes}
        if self.recent_returns:
            values["episode_return"] = sum(self.recent_returns) / len(self.recent_returns)
            values["episode_length"] = sum(self.recent_lengths) / len(self.recent_lengths)
        return values

    def state_dict(self) -> State:
        return {name: list(value) if isinstance(value, deque) else value for name, value in vars(self).items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, deque(value, maxlen=RECENT_EPISODES) if isinstance(value, list) else value)


class Pace:
    """Steps and updates per second since the last look."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.start()

    def start(self) -> None:
        """Count from here."""
        self._since = (time.perf_counter(), self.progress.global_step, self.progress.updates)

    def metrics(self) -> dict[str, float]:
        began, steps, updates = self._since
        self.start()
        now, steps_now, updates_now = self._since
        seconds = max(now - began, 1e-9)
        return {
            "time/steps_per_second": (steps_now - steps) / seconds,
            "time/updates_per_second": (updates_now - updates) / seconds,
        }


def plain_metrics(metrics: Mapping[str, Any], *, clock: bool = False) -> dict[str, Any]:
    """Metrics as numbers; without those of the clock, as a checkpoint wants them."""
    kept = {name: value for name, value in metrics.items() if clock or not name.startswith("time/")}
    return {name: value.item() if isinstance(value, Tensor) else value for name, value in kept.items()}
