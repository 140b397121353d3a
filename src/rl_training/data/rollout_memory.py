"""The newest rollouts, kept until somebody looks back at them (PPG's auxiliary phase)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from rl_training.forms import Each, Named, Record, anything
from rl_training.types import Batch, State


class RolloutMemory:
    """At most `capacity` rollouts, each a batch of columns in the main memory; the oldest gives way."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._rollouts: deque[Batch] = deque(maxlen=capacity)

    def __len__(self) -> int:
        return len(self._rollouts)

    def __iter__(self) -> Iterator[Batch]:
        """From the oldest to the newest."""
        return iter(self._rollouts)

    def add(self, rollout: Batch) -> None:
        """Keep a rollout; its columns must not be written to afterwards."""
        self._rollouts.append({name: column.cpu() for name, column in rollout.items()})

    def clear(self) -> None:
        self._rollouts.clear()

    def state_dict(self) -> State:
        return {"rollouts": list(self._rollouts)}

    def state_form(self, steps: int) -> Record:  # noqa: ARG002 (whoever adds rollouts knows how long they are)
        """What its state must look like."""
        return Record({"rollouts": Each(Named(anything), self.capacity)})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.clear()
        for rollout in state["rollouts"]:
            self.add({name: column.clone() for name, column in rollout.items()})
