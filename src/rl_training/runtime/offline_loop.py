"""Learning without an environment: turn after turn on recorded data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from rl_training.algorithms.base import Algorithm
from rl_training.data.offline_dataset import OfflineDataset
from rl_training.forms import Form, Record, form_of
from rl_training.runtime.loops import on_device
from rl_training.types import Batch, Collected, Source, State, Stateful, UpdateResult


class OfflineLoop:
    """One update a turn. There are no environment steps to count, so that an update counts as a timestep."""

    def __init__(
        self,
        dataset: OfflineDataset,
        algorithm: Algorithm,
        *,
        batch_size: int,
        device: torch.device,
        source: Source | None = None,
    ) -> None:
        self.dataset, self.algorithm, self.batch_size, self.device = dataset, algorithm, batch_size, device
        self.source: Source = source or dataset
        self.buffers: dict[str, Stateful] = {"dataset": dataset}

    def collect(self) -> Collected:
        return Collected(1, [], [])

    def learn(self, *, global_step: int, max_updates: int | None) -> UpdateResult:  # noqa: ARG002 (one is never too many)
        return self.algorithm.update(self.sample(), global_step=global_step)

    def sample(self) -> Batch:
        return on_device(self.source.sample(self.batch_size), self.device)

    def metrics(self) -> dict[str, Any]:
        return {"offline_dataset_size": len(self.dataset)}

    def mark(self) -> None:
        """Nothing happens in collecting that could be taken back."""

    def rewind(self) -> None:
        """See `mark`."""

    def state_dict(self) -> State:
        return {}

    def state_form(self, steps: int) -> Record:  # noqa: ARG002 (subclasses count)
        """What its state must look like after so many updates."""
        return Record({})

    def buffer_forms(self, steps: int) -> dict[str, Form]:
        """The same for each of its buffers."""
        return {name: form_of(buffer, steps) for name, buffer in self.buffers.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The dataset keeps what there is to keep."""
